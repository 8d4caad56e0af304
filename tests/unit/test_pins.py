"""One set of pins: requirements.lock, the same in environment.yml, inside the ranges of pyproject.toml."""

import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LINES = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if line and line[0] != "#"]
PINS = {canonicalize_name(Requirement(line).name): Requirement(line) for line in LINES}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]


def test_every_package_is_pinned_once_to_one_version():
    assert len(PINS) == len(LINES) > 50
    for requirement in PINS.values():
        [specifier] = requirement.specifier
        assert specifier.operator == "==" and "*" not in specifier.version
        assert not requirement.url and not requirement.extras


def test_conda_users_get_the_same_pins():
    [pip] = [entry["pip"] for entry in CONDA if isinstance(entry, dict)]
    assert pip == LINES


def test_the_ranges_contain_the_pins():
    project = PROJECT["project"]
    ranges = [*project["dependencies"], *PROJECT["build-system"]["requires"]]
    for extra in project["optional-dependencies"].values():
        ranges += extra
    for requirement in map(Requirement, ranges):
        name = canonicalize_name(requirement.name)
        assert name in PINS, f"{name} is in pyproject.toml and not in requirements.lock"
        [pin] = PINS[name].specifier
        assert requirement.specifier.contains(pin.version), f"{requirement} does not contain {PINS[name]}"


def test_the_pinned_python_is_supported():
    [python] = [entry for entry in CONDA if isinstance(entry, str) and entry.startswith("python ")]
    assert Requirement(f"x{PROJECT['project']['requires-python']}").specifier.contains(python.split("=")[1])
