"""The branch's pins: complete, and where the pipeline has the package too, the pipeline's."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def pins(name: str) -> dict[str, Requirement]:
    lines = [line for line in (ROOT / name).read_text().splitlines() if line and line[0] != "#"]
    found = {canonicalize_name(Requirement(line).name): Requirement(line) for line in lines}
    assert len(found) == len(lines)
    return found


OURS, PIPELINE = pins("requirements-rlhf.lock"), pins("requirements.lock")


@pytest.mark.parametrize("name", OURS)
def test_a_pin_is_one_version_and_the_installed_one(name):
    [specifier] = OURS[name].specifier
    assert specifier.operator == "==" and specifier.version == version(name).partition("+")[0]


@pytest.mark.parametrize(
    "name", [n for n in ("torch", "numpy", "pandas", "matplotlib", "scipy", "pydantic") if n in OURS]
)
def test_numbers_are_made_with_the_pipelines_versions(name):
    assert OURS[name] == PIPELINE[name]
