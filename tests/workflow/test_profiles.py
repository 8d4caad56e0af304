"""What a profile says fits the rules. Slurm itself is in test_slurm.py."""

import re
from pathlib import Path

import pytest
import yte

WORKFLOW = Path(__file__).parents[2] / "workflow"


def slurm_profile() -> dict:
    with (WORKFLOW / "profiles/slurm/config.yaml").open() as file:
        return yte.process_yaml(file, require_use_yte=True)


def test_every_rule_shares_an_allocation():
    sources = [path.read_text() for path in (WORKFLOW / "rules").glob("*.smk") if path.stem != "rlhf"]  # not for Slurm
    rules = {name for text in sources for name in re.findall(r"^ *rule (\w+):", text, re.MULTILINE)}
    assert slurm_profile()["groups"].keys() == rules - {"train"}


def test_groups_of_runs_are_environments():
    profile = slurm_profile()
    environments = {path.stem for path in (WORKFLOW.parent / "config/environments").glob("*.yaml")}
    known = {*profile["groups"].values(), *(f"train_{name}" for name in environments)}
    assert set(profile["group-components"]) <= known


@pytest.mark.parametrize(
    "variables, resources",
    [
        ({}, {}),
        ({"SBATCH_PARTITION": "long"}, {"slurm_partition": "long"}),
        ({"SBATCH_PARTITION": "", "SBATCH_ACCOUNT": "lab"}, {"slurm_account": "lab"}),
    ],
)
def test_partition_and_account_are_the_users(variables, resources, monkeypatch):
    for name in ("SBATCH_PARTITION", "SBATCH_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert slurm_profile()["default-resources"] == resources


def test_retries_end():
    assert 1 <= slurm_profile()["retries"] <= 3
