"""The floors of the package: who may import whom, and how long a file or a function may be."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src/rl_influence"
FLOORS = (  # from the ground up; a module may import its own floor and those below
    ("lazy", "seeding", "errors", "rules"),
    ("config",),
    ("environments",),
    ("ppo",),
    ("evaluation",),
    ("attribution",),
    ("selection",),
    ("integrations",),
    ("runs",),
    ("analysis",),
    ("figures",),
    ("rlhf",),  # a branch of its own: loop, tables and figures
    ("publish",),
    ("resume", "skeletons"),
    ("cli", "__main__"),
)
FLOOR = {name: height for height, floor in enumerate(FLOORS) for name in floor}
FILES = sorted(SOURCE.rglob("*.py"))


def place(path: Path) -> str:
    """Top-level name inside the package: `ppo/rollout.py` -> `ppo`."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imports(path: Path) -> list[tuple[int, str]]:
    """(line, top-level name inside the package) of every import of the package, also inside functions."""
    found = []
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    tree = ast.parse(path.read_bytes())
    tree.body = [node for node in tree.body if not for_type_checkers(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = ".".join(parts[: len(parts) - node.level]) if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "rl_influence" else [module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found += [(node.lineno, name.split(".")[1]) for name in names if name.startswith("rl_influence.")]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_no_import_goes_upwards(path):
    if path == SOURCE / "__init__.py":  # the front shows names of every floor, lazily
        assert all(name == "lazy" for _, name in imports(path))
        return
    own = FLOOR[place(path)]
    upwards = [f"line {line}: {name}" for line, name in imports(path) if name in FLOOR and FLOOR[name] > own]
    unknown = [name for _, name in imports(path) if name not in FLOOR and name != "__version__"]
    assert not upwards and not unknown


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_files_and_functions_fit_a_screen(path):
    text = path.read_bytes()
    assert text.count(b"\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno - node.lineno < 60, node.name


@pytest.mark.parametrize(
    "module, banned",
    [
        ("rl_influence.attribution", ["pandas", "pydantic", "gymnasium", "matplotlib", "rl_influence.environments"]),
        ("rl_influence", ["torch", "numpy", "pandas", "pydantic"]),
        ("rl_influence.figures", ["torch"]),
        ("rl_influence.config", ["torch", "pandas", "gymnasium"]),
    ],
)
def test_what_an_import_leaves_alone(module, banned):
    code = f"import sys, {module}; print(*(name for name in {banned!r} if name in sys.modules))"
    environment = os.environ | {"PYTHONPATH": str(SOURCE.parent)}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert said.stdout.split() == []
