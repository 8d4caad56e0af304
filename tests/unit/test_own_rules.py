"""The rule of docs/extending.md: a function that is registered by its decorator and trains in a run."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import yaml

from rl_influence import rules
from rl_influence.config import MethodConfig, parse

TEXT = (Path(__file__).parents[2] / "docs/extending.md").read_text()


def test_a_rule_is_one_function_and_one_entry():
    section = re.search(r"^## A new method is .*?(?=^## )", TEXT, re.DOTALL | re.MULTILINE)[0]
    code, entry = re.findall(r"^```\w+\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    try:
        exec(code, {"rule": rules.rule, "Buffer": rules.Buffer, "np": np})
        ((name, fields),) = yaml.safe_load(entry).items()
        method = parse(MethodConfig, fields, name)
        advantages = np.array([0.5, -3.0, 2.0, -2.0, 0.0, 1.0])
        buffer = rules.Buffer(SimpleNamespace(advantages=advantages), 0.5, 0.99, np.random.default_rng(0))
        kept = rules.RULES[method.selection.kind].choose(buffer)
        assert kept.tolist() == sorted(sorted(range(6), key=lambda i: (abs(advantages[i]), i))[:3]) == [0, 4, 5]
    finally:
        rules.RULES.pop("large_advantage", None)
