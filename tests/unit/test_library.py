"""The library's front: its names, its types, its page."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.resources
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import rl_influence
from rl_influence import cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/library.md").read_text()


def python(code, *flags, **arguments):
    return subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, **arguments)


def test_type_checkers_see_the_names_that_there_are():
    tree = ast.parse((ROOT / "src/rl_influence/__init__.py").read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    imported = {alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported == set(rl_influence.__all__) == set(dir(rl_influence)) - {"__version__"}


def test_every_name_is_found_and_described():
    pytest.importorskip("stable_baselines3")
    table = PAGE.partition("## Every name")[2].partition("## Units")[0]
    for name in rl_influence.__all__:
        value = getattr(rl_influence, name)
        assert name == "Target" or value.__doc__, name
        assert f"`{name}" in table, name
    named = re.findall(r"`([A-Za-z_]\w+)", "".join(line.split(" | ")[0] for line in table.splitlines()))
    assert set(named) <= {*rl_influence.__all__, "__version__", "normalize"}


def test_every_name_is_in_the_reference():
    pytest.importorskip("stable_baselines3")
    listed = set(re.findall(r"^::: (\S+)$", (ROOT / "docs/api.md").read_text(), flags=re.MULTILINE))
    for name in rl_influence.__all__:
        whole_module = getattr(rl_influence, name).__module__ in listed
        assert whole_module or name in {entry.rpartition(".")[2] for entry in listed}, name


def test_no_text_of_the_reference_is_taken_for_a_tag():
    """`<grad f, grad objective>` vanishes from a page unless it is code."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = re.sub(r"`[^`]*`", "", ast.get_docstring(node) or "")
                assert not re.search(r"<[A-Za-z/][^>]*>", text), f"{path}: {text}"


@pytest.mark.parametrize("package", sorted(path.parent for path in (ROOT / "src").rglob("__init__.py")))
def test_every_package_has_the_names_that_it_lists(package):
    name = ".".join(package.relative_to(ROOT / "src").parts)
    if not name.startswith("rl_influence.rlhf"):  # which needs more than is installed here
        module = importlib.import_module(name)
        assert [x for x in getattr(module, "__all__", ()) if not hasattr(module, x)] == []


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'rl_influence' has no attribute 'influence_score'"):
        _ = rl_influence.influence_score


def test_the_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert rl_influence.__version__ == importlib.metadata.version("rl-influence") == project["version"]


def test_importing_the_package_loads_nothing():
    heavy = "torch numpy pandas stable_baselines3 matplotlib".split()
    done = python(f"import rl_influence, sys; print([name for name in {heavy} if name in sys.modules])")
    assert done.stdout.strip() == "[]"


def test_the_package_says_that_it_is_typed():
    assert importlib.resources.files("rl_influence").joinpath("py.typed").is_file()
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert "py.typed" in data["rl_influence"]


def mypy(*arguments):
    command = shutil.which("mypy", path=os.pathsep.join([str(ROOT / ".venv-dev/bin"), os.environ["PATH"]]))
    if command is None:
        pytest.skip("mypy is not installed; make lint installs it")
    return subprocess.run(
        [command, "--python-executable", sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True
    )


@pytest.mark.slow
def test_the_front_is_clean_for_mypy():
    done = mypy()
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_mypy_knows_the_types_of_the_front(tmp_path):
    wrong = (
        "from rl_influence import InfluenceCallback, drop_most_negative, score_rollout\n"
        "drop_most_negative(1)\nscore_rollout('model')\nInfluenceCallback(drop=0.5)\n"
    )
    (tmp_path / "wrong.py").write_text(wrong)
    said = mypy(tmp_path / "wrong.py").stdout
    for line, name in ((2, "drop_most_negative"), (3, "score_rollout"), (4, "InfluenceCallback")):
        assert re.search(rf'wrong.py:{line}: error: .*"{name}"', said), said


@pytest.mark.slow
def test_the_pages_snippets_run(tmp_path):
    pytest.importorskip("stable_baselines3")
    snippets = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
    assert len(snippets) >= 6
    (tmp_path / "snippets.py").write_text("\n".join(snippets))
    done = subprocess.run(
        [sys.executable, "snippets.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"MPLBACKEND": "Agg"},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "scores.png").stat().st_size > 10_000
    assert "records trained in the last round" in done.stdout
    assert done.stdout.splitlines()[-2:] == [
        "rollout buffer: collected by another policy (log-probabilities differ by up to "
        + re.search(r"up to ([\d.]+)\)", done.stdout)[1]
        + "); score it before training, for instance in a callback's on_rollout_end",
        "drop_fraction = 50: a fraction in (0, 1] is needed; did you mean 0.5?",
    ]


def test_the_pages_commands_are_commands():
    lines = [line.partition("#")[0] for line in re.findall(r"^rl-influence (.*)", PAGE, re.M)]
    assert {line.split()[0] for line in lines} == {"run", "score", "evaluate", "show"}
    for line in lines:
        assert cli.parser().parse_args(line.split()).function
