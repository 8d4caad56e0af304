"""Do the tests bite? `python -m benchmarks.mutants [--number 200] [--seed 0] [--only MODULE]`.

A seeded sample of small faults, one at a time, in the modules that compute: an operator turned round, a constant moved,
a condition negated, a statement left out. Each is run against its module's quick tests, in a copy of the package. A
mutant that no test notices is printed.
"""

from __future__ import annotations

import argparse
import ast
import copy
import io
import os
import random
import shutil
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/rl_influence"
TESTS = {  # module or package -> its tests
    "ppo": ("ppo", "objective", "kernels", "networks", "inference", "records", "selection", "a2c"),
    "attribution": ("attribution", "attribution_tracin", "attribution_safety"),
    "selection": ("selection",),
    "rules": ("selection",),
    "analysis/sample_efficiency": ("sample_efficiency", "recomputed"),
    "analysis/statistics": ("statistics",),
    "analysis/claims": ("claims", "claims_verdicts", "claims_power"),
}
SWAPS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
TIMEOUT_S = 120


@dataclass(frozen=True)
class Mutant:
    """One fault: the `index`-th place of a file that can be mutated."""

    path: Path
    index: int
    line: int
    before: str
    after: str
    source: str

    @property
    def name(self) -> str:
        return f"{self.path.relative_to(SOURCE)}:{self.line}: {self.before} -> {self.after}"


def mutate(node: ast.AST) -> ast.AST | None:
    """The faulty twin of a node, or None."""
    twin = copy.deepcopy(node)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        twin.ops[0] = SWAPS[type(node.ops[0])]()
    elif isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in SWAPS:
        twin.op = SWAPS[type(node.op)]()
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub, ast.Invert)):
        return twin.operand
    elif isinstance(node, ast.Constant) and type(node.value) in (bool, int, float):
        twin.value = not node.value if type(node.value) is bool else node.value + 1
    elif isinstance(node, (ast.If, ast.IfExp)):
        twin.test = ast.UnaryOp(ast.Not(), twin.test)
    elif isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return ast.copy_location(ast.Pass(), node)
    else:
        return None
    return twin


class Places(ast.NodeTransformer):
    """Visits what may be mutated in a fixed order; replaces the `wanted`-th of them. Types and texts stay."""

    def __init__(self, wanted: int | None = None):
        self.wanted, self.found = wanted, []

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.JoinedStr):
            return node
        for name in ("annotation", "returns"):
            if getattr(node, name, None) is not None:
                setattr(node, name, copy.deepcopy(getattr(node, name)))
        twin = mutate(node)
        if twin is not None:
            self.found.append((node, twin))
            if len(self.found) - 1 == self.wanted:
                return ast.copy_location(twin, node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "type_comment"):
                continue
            if isinstance(value, list):
                setattr(node, name, [self.visit(x) if isinstance(x, ast.AST) else x for x in value])
            elif isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
        return node


def mutants(path: Path) -> list[Mutant]:
    """Every mutant of a file."""
    text, places = path.read_text(), Places()
    places.visit(ast.parse(text))
    made = []
    for index, (node, twin) in enumerate(places.found):
        tree = Places(index).visit(ast.parse(text))
        before, after = (ast.unparse(x).splitlines()[0][:80] for x in (node, twin))
        made.append(Mutant(path, index, node.lineno, before, after, ast.unparse(ast.fix_missing_locations(tree))))
    return made


def sample(number: int, seed: int, only: str = "") -> list[tuple[Mutant, str]]:
    """A seeded sample over all modules, each with the key of its tests."""
    chosen = []
    for key in TESTS:
        place = SOURCE / key
        files = sorted(place.glob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
        chosen += [(mutant, key) for file in files if only in str(file) for mutant in mutants(file)]
    random.Random(seed).shuffle(chosen)
    return chosen[:number]


def survives(mutant: Mutant | None, key: str) -> bool:
    """Whether the module's tests pass with the fault in it (None: without any), in a process and copy of its own."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "rl_influence"
        shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
        if mutant:
            (package / mutant.path.relative_to(SOURCE)).write_text(mutant.source)
        files = [ROOT / f"tests/unit/test_{name}.py" for name in TESTS[key]]
        child = os.fork()
        if child == 0:
            os.setsid()
            signal.alarm(TIMEOUT_S)  # an endless loop is noticed
            sys.path.insert(0, folder)
            os.chdir(ROOT)
            import pytest

            arguments = ["-x", "-q", "-m", "not slow", "-p", "no:xdist", "-p", "no:cacheprovider"]
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                code = pytest.main([*arguments, *(str(file) for file in files if file.exists())])
            os._exit(int(code))
        return os.waitpid(child, 0)[1] == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of a file's path")
    options = parser.parse_args()
    # what every child needs and no mutant touches
    import gymnasium  # noqa: E401, F401
    import torch

    torch.set_num_threads(1)
    chosen = sample(options.number, options.seed, options.only)
    for key in {key for _, key in chosen}:
        if not survives(None, key):
            sys.exit(f"the tests of {key} fail without any fault")
    survivors = []
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for (mutant, _), alive in zip(chosen, pool.map(lambda pair: survives(*pair), chosen), strict=True):
            if alive:
                survivors.append(mutant)
                print(f"survived {mutant.name}", flush=True)
    killed = len(chosen) - len(survivors)
    print(f"mutants_killed {killed} of {len(chosen)} ({killed / max(1, len(chosen)):.1%}) target >= 90%")


if __name__ == "__main__":
    main()
