"""The worked example of docs/extending.md, as the document writes it: its files saved, its commands run."""

import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
import yaml

from rl_influence.cli import main
from rl_influence.config import load_environments
from rl_influence.runs.check import check_environment

ROOT = Path(__file__).parents[2]


def blocks() -> list[str]:
    """The code blocks of the document's first section, without the fences."""
    section = (ROOT / "docs/extending.md").read_text().split("\n## ")[1]
    return re.findall(r"^```\w*\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


@pytest.fixture
def extended(workspace):
    """A workspace with the example's two files."""
    environment, study, _ = blocks()
    (workspace.path / "config/environments/doorkey.yaml").write_text(environment)
    (workspace.path / "config/doorkey_first.yaml").write_text(study)
    return workspace


def test_the_environment(extended):
    environment = load_environments(extended.path / "config/environments")["doorkey"]
    assert environment.gym_id == "MiniGrid-DoorKey-8x8-v0"
    check_environment(environment)


@pytest.mark.slow
def test_the_run(extended, monkeypatch):
    command = shlex.split(blocks()[2].splitlines()[0])
    assert command[:2] == ["rl-influence", "run"]
    monkeypatch.chdir(extended.path)
    main(command[1:])
    curve = pd.read_csv("doorkey_run/curve.csv")
    assert curve["round"].tolist() == [0, 1] and curve["test_return"].between(0, 1).all()
    assert 0 < curve["records_kept"].iloc[1] < 2048


@pytest.mark.slow
def test_the_study(extended):
    command = shlex.split(blocks()[2].splitlines()[1])
    assert command == ["snakemake", "--cores", "all", "--configfile", "config/doorkey_first.yaml"]
    grid = yaml.safe_load(blocks()[1])["grid"][0]
    assert extended.planned("train", study="doorkey_first") == len(grid["methods"]) * len(grid["seeds"]) == 2
