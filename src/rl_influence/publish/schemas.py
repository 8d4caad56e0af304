"""JSON schemas of the configuration files and the table of their keys, both generated from the models in `config`.

    python -m rl_influence.publish.schemas        writes workflow/schemas/*.schema.json and config/README.md

The schemas serve editors; what is checked when a study runs are the models themselves. A test compares the files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from rl_influence.analysis.claims import CheckConfig, ClaimConfig, Claims
from rl_influence.analysis.claims.models import PairConfig, SequentialConfig
from rl_influence.config import (
    IDENTIFIER,
    AnalysisBlock,
    Closed,
    EnvironmentConfig,
    EvaluationConfig,
    GridBlock,
    Identifier,
    MethodConfig,
    PPOChanges,
    PPOConfig,
    PPOOverride,
    SelectionConfig,
    StudyConfig,
)
from rl_influence.config.seeds import RANGE
from rl_influence.runs.files import write_atomic

SECTIONS: dict[type[Closed], str] = {
    StudyConfig: "A study: `config/<name>.yaml`",
    GridBlock: "A block of a study's `grid`",
    PPOChanges: "A block's `ppo`",
    AnalysisBlock: "A block of a study's `analyses`",
    EnvironmentConfig: "An environment: `config/environments/<id>.yaml`",
    PPOConfig: "An environment's `ppo`",
    EvaluationConfig: "An environment's `evaluation`",
    MethodConfig: "A method: one entry of `config/methods.yaml`",
    SelectionConfig: "A method's `selection`",
    PPOOverride: "A method's `ppo`",
    Claims: "The claims: `config/claims.yaml`",
    ClaimConfig: "A claim",
    CheckConfig: "A check of a claim",
    PairConfig: "A check's `than`",
    SequentialConfig: "The claims' `sequential`",
}
INTRODUCTION = """\
# Configuration

A run is an environment, a method and a seed. A *study* is a grid of runs with the tables and figures that are made of
them, in one file; `environments/` and `methods.yaml` beside it are the catalogue that its names refer to.

| file | study | what it is |
|---|---|---|
| `config.yaml` | `quick` | the default: one answer in ten minutes, trained from nothing |
| `paper.yaml` | `paper` | the paper's grid with its seeds; results are committed |
| `confirm.yaml` | `confirm` | fresh seeds, unseen when the rules were written, and controls; results are committed |
| `a2c.yaml` | `a2c` | another algorithm with and without the filter |
| `smoke.yaml` | `smoke` | every part of the pipeline in a minute; its numbers mean nothing |
| `rlhf_*.yaml` | `rlhf_fast`, … | language models: other keys, another environment (docs/rlhf.md) |

A study of your own is one more file: `snakemake --cores all --configfile config/mine.yaml`. Its results go to
`results/<study>/` and `paper_figures/<study>/`. A run's folder is named after its seed and a fingerprint of all the
values below that decide its numbers: change one of them, and the run is trained anew into another folder.

An unknown key, a value out of bounds, a repeated key or one setting under two names ends the program with one line:
the file, the key, the value and the choices. Numbers may be written as text (`"25"` is 25), booleans may not stand
for numbers, and YAML's aliases are not read.

`paper_reported.yaml` holds the numbers that the paper prints. They are shown beside ours and used nowhere else.
`claims.yaml` holds what the paper claims and by which rules our numbers confirm it or not, `claims_v1.yaml` the first
version of these rules.

The tables below are generated from the models in `src/rl_influence/config/` and `analysis/claims/models.py` (`python -m
rl_influence.publish.schemas`), and so are the JSON schemas in `workflow/schemas/`, which editors can use: put
`# yaml-language-server: $schema=../workflow/schemas/study.schema.json` on a study's first line.
"""


def schemas() -> dict[str, dict[str, Any]]:
    """Name -> JSON schema of the study's, an environment's, the methods' and the claims' file."""
    methods = TypeAdapter(dict[Identifier, MethodConfig]).json_schema()
    return {
        "study": StudyConfig.model_json_schema(),
        "environment": EnvironmentConfig.model_json_schema(),
        "methods": methods | {"title": "Methods", "additionalProperties": False},
        "claims": Claims.model_json_schema(),
    }


def readme() -> str:
    """The text of config/README.md: every key with its meaning, value and default."""
    parts = [INTRODUCTION]
    for model, title in SECTIONS.items():
        schema = model.model_json_schema()
        parts.append(f"\n## {title}\n\n{model.__doc__}\n\n| key | meaning | value | default |\n|---|---|---|---|\n")
        for key, field in schema["properties"].items():
            default = f"`{json.dumps(field['default'])}`" if "default" in field else "optional"
            if key in schema.get("required", ()):
                default = "required"
            parts.append(f"| `{key}` | {field['description']} | {_value(field)} | {default} |\n")
    return "".join(parts)


def _value(field: dict[str, Any]) -> str:
    """What a key takes, in words."""
    if "anyOf" in field:
        return " or ".join(map(_value, field["anyOf"]))
    if "enum" in field or "const" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    if "$ref" in field:
        return "mapping, see below"
    if field.get("pattern") == RANGE["pattern"]:
        return "range `first..last`"
    if field["type"] == "array":
        return f"list: {_value(field['items'])}"
    if field.get("pattern") == IDENTIFIER:
        return "name of a-z, 0-9, _"
    words = {"integer": "whole number", "string": "text", "boolean": "`true`, `false`", "object": "mapping"}
    signs = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    bounds = [f"{sign} {field[bound]:g}".replace("e+0", "e") for bound, sign in signs.items() if bound in field]
    return f"{words.get(field['type'], field['type'])} {', '.join(bounds)}".strip()


def files() -> dict[Path, str]:
    """Path relative to the repository -> text."""
    return {Path("config/README.md"): readme()} | {
        Path(f"workflow/schemas/{name}.schema.json"): json.dumps(schema, indent=2) + "\n"
        for name, schema in schemas().items()
    }


if __name__ == "__main__":
    for path, text in files().items():
        write_atomic(path, text.encode())
