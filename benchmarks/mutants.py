"""Do the tests bite? `python -m benchmarks.mutants [--number 200] [--seed 0] [--only FILE] [--resume]`.

A seeded sample of small faults, one at a time, in the modules that compute: an operator turned round, a constant moved,
a condition negated, a statement left out. Each meets its module's quick tests; `results/mutants.csv` says which of them
noticed it. The few that none notices are explained in `explained_mutants.yaml`.

A process that has collected the tests is forked for each mutant, exchanges the functions' code and runs the tests that
call them, which takes a second or two. What they do not notice is tried once more with all of the module's tests in a
process that has imported nothing yet, so that what happens while modules are imported counts as well.
"""

from __future__ import annotations

import argparse
import ast
import copy
import csv
import gc
import hashlib
import importlib.machinery
import itertools
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/rl_influence"
TABLE = ROOT / "results/mutants.csv"
EXPLAINED = Path(__file__).with_name("explained_mutants.yaml")
COLUMNS = ("module", "place", "line", "code", "before", "after", "verdict", "by")
TESTS = {  # module or package -> its tests
    "ppo": (
        *("ppo", "kernels", "networks", "inference", "records", "rollout_records", "selection", "a2c"),
        "attribution_safety",  # of the kernels' derivatives along a direction
    ),
    "attribution": ("attribution", "attribution_tracin", "attribution_safety"),
    "selection": ("selection",),
    "rules": ("selection",),
    "analysis/sample_efficiency": ("sample_efficiency",),
    "analysis/statistics": ("statistics", "aggregate", "claims_power"),
    "analysis/claims": ("claims", "claims_verdicts", "claims_power"),
}
SWAPS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
LEFT_ALONE = ("annotation", "returns", "type_comment")  # no effect
INVARIANTS = ("strict", "frozen")  # arguments that assert what holds anyway
TIMEOUT_S = 120

Functions = set[tuple[str, str, int]]  # file, name and line of the functions that a test calls


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
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.keyword) and node.arg in INVARIANTS):
            return node
        twin = mutate(node)
        if twin is not None:
            self.found.append((node, twin))
            if len(self.found) - 1 == self.wanted:
                return ast.copy_location(twin, node)
        for name, value in ast.iter_fields(node):
            if name in LEFT_ALONE:
                continue
            if isinstance(value, list):
                setattr(node, name, [self.visit(x) if isinstance(x, ast.AST) else x for x in value])
            elif isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
        return node


@dataclass(frozen=True)
class Mutant:
    """One fault: the `place`-th of a file that can be mutated."""

    module: str
    place: int
    line: int
    code: str
    before: str
    after: str

    @property
    def path(self) -> Path:
        return SOURCE / self.module

    @property
    def text(self) -> str:
        """What it is, wherever it stands in its file."""
        return f"{self.module}: {self.code}: {self.before} -> {self.after}"

    def compiled(self) -> CodeType:
        """The whole module with the fault in it."""
        tree = Places(self.place).visit(ast.parse(self.path.read_text()))
        return compile(ast.fix_missing_locations(tree), str(self.path), "exec", dont_inherit=True)


def mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file."""
    places, text = Places(), path.read_text()
    places.visit(ast.parse(text))
    for place, (node, twin) in enumerate(places.found):
        before, after = (ast.unparse(ast.fix_missing_locations(x)).splitlines()[0][:80] for x in (node, twin))
        code = text.splitlines()[node.lineno - 1].strip()
        yield Mutant(str(path.relative_to(SOURCE)), place, node.lineno, code, before, after)


def sample(number: int, seed: int, only: str = "") -> dict[str, list[Mutant]]:
    """A seeded sample over all modules, by the key of their tests; a change of the code elsewhere leaves it."""
    everything = []
    for key in TESTS:
        files = sorted((SOURCE / key).glob("*.py")) or [(SOURCE / key).with_suffix(".py")]
        everything += [(key, mutant) for file in files if only in str(file) for mutant in mutants(file)]
    chosen = sorted(everything, key=lambda pair: hashlib.sha256(f"{seed} {pair[1].text}".encode()).digest())[:number]
    return {key: [mutant for at, mutant in chosen if at == key] for key in TESTS}


def forked(function: Callable[[], Any], timeout_s: int) -> Any:
    """What the function returns in a silent fork of this process; None if that dies or takes longer."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setsid()
            signal.alarm(timeout_s)  # an endless loop is noticed
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
            sender.send(function())
            status = 0
        finally:
            os._exit(status)
    sender.close()
    try:
        answer = receiver.recv()
    except EOFError:
        answer = None
    return answer if os.waitpid(child, 0)[1] == 0 else None


def codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and those within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def exchange(mutant: Mutant) -> Functions:
    """Gives the functions of this process the mutant's code; those that have changed."""
    mutated = {(code.co_qualname, code.co_firstlineno): code for code in codes(mutant.compiled())}
    changed: Functions = set()
    for function in gc.get_objects():
        if type(function) is FunctionType and function.__code__.co_filename == str(mutant.path):
            old = function.__code__
            new = mutated[old.co_qualname, old.co_firstlineno]
            if new != old and new.co_freevars == old.co_freevars:
                function.__code__ = new
                changed |= {(str(mutant.path), code.co_qualname, code.co_firstlineno) for code in codes(old)}
    return changed


class Collected:
    """A pytest plugin: instead of running the tests once, runs those that a mutant concerns in a fork for each."""

    def __init__(self, chosen: list[Mutant], report: Callable[[Mutant, str | None], None]):
        self.chosen, self.report = chosen, report

    def pytest_runtestloop(self, session: Any) -> bool:
        start = time.monotonic()
        called = forked(lambda: self._calls(session), 10 * TIMEOUT_S)
        if called is None:
            return True
        timeout_s = max(TIMEOUT_S, 3 * int(time.monotonic() - start))
        for mutant in self.chosen:
            answer = forked(lambda mutant=mutant: self._noticed(session, mutant, called), timeout_s)
            self.report(mutant, "no end, or a crash" if answer is None else answer)
        return True

    @staticmethod
    def _run(session: Any, items: list[Any]) -> Iterator[Any]:
        """Runs tests; yields each that passed, stops after one that failed."""
        for item, following in itertools.zip_longest(items, items[1:]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            yield item
            if session.testsfailed:
                return

    def _calls(self, session: Any) -> dict[str, tuple[float, Functions]]:
        """Each test's seconds, and what it calls of the package."""
        seen: Functions = set()
        called, package, start = {}, str(SOURCE), time.monotonic()

        def note(frame: Any, event: str, _: Any) -> None:
            code = frame.f_code
            if event == "call" and code.co_filename.startswith(package):
                seen.add((code.co_filename, code.co_qualname, code.co_firstlineno))

        sys.setprofile(note)
        for item in self._run(session, session.items):
            called[item.nodeid] = time.monotonic() - start, set(seen)
            seen.clear()
            start = time.monotonic()
        sys.setprofile(None)
        if session.testsfailed:
            raise RuntimeError
        return called

    def _noticed(self, session: Any, mutant: Mutant, called: dict[str, tuple[float, Functions]]) -> str:
        """The test that fails, the quickest first, or nothing."""
        changed = exchange(mutant)
        concerned = [item for item in session.items if called[item.nodeid][1] & changed]
        concerned.sort(key=lambda item: called[item.nodeid][0])
        for item in self._run(session, concerned):
            if session.testsfailed:
                return item.nodeid
        return ""


def pytest_of(key: str, *plugins: Any) -> int:
    import pytest

    files = [str(ROOT / f"tests/unit/test_{name}.py") for name in TESTS[key]]
    return int(pytest.main(["-x", "-m", "not slow", "-p", "no:xdist", "-p", "no:cacheprovider", *files], [*plugins]))


def anew(mutant: Mutant, key: str) -> bool:
    """Whether the module's tests fail in this process, which has not imported the package yet."""
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: Any, name: str) -> Any:
        return mutant.compiled() if loader.path == str(mutant.path) else original(loader, name)

    importlib.machinery.SourceFileLoader.get_code = get_code
    return pytest_of(key) != 0


class Table:
    """`results/mutants.csv`: a row for each mutant, written as soon as it is known.

    Args:
        wanted: the sample.
        resume: those of it that the table has as killed are not tried again.
    """

    def __init__(self, wanted: Iterable[Mutant], resume: bool):
        self.rows: dict[tuple, dict[str, Any]] = {}
        if resume and TABLE.exists():
            keys = {self.key(vars(mutant)) for mutant in wanted}
            with TABLE.open(newline="") as file:
                rows = [row for row in csv.DictReader(file) if row["verdict"] == "killed"]
            self.rows = {self.key(row): row for row in rows if self.key(row) in keys}

    @staticmethod
    def key(row: dict[str, Any]) -> tuple:
        return tuple(str(row[name]) for name in COLUMNS[:-2])

    def __contains__(self, mutant: Mutant) -> bool:
        return self.key(vars(mutant)) in self.rows

    def add(self, mutant: Mutant, verdict: str, by: str) -> None:
        row = {name: getattr(mutant, name) for name in COLUMNS[:-2]} | {"verdict": verdict, "by": by}
        self.rows[self.key(row)] = row
        with TABLE.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(sorted(self.rows.values(), key=lambda row: (row["module"], int(row["place"]))))
        if verdict != "killed":
            print(f"{verdict} {mutant.module}:{mutant.line}: {mutant.before} -> {mutant.after}  {by}", flush=True)


def explanations() -> dict[tuple[str, ...], str]:
    """(module, code, before, after) -> why no test notices it."""
    entries = yaml.safe_load(EXPLAINED.read_text())
    return {
        tuple(str(entry[name]) for name in ("module", "code", "before", "after")): entry["why"] for entry in entries
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of a file's path")
    parser.add_argument("--resume", action="store_true", help="leave out what the table has as killed")
    options = parser.parse_args()
    os.chdir(ROOT)
    # what every fork needs and no mutant touches
    import gymnasium  # noqa: F401
    import pandas  # noqa: F401
    import torch

    torch.set_num_threads(1)
    chosen, explained = sample(options.number, options.seed, options.only), explanations()
    table = Table(itertools.chain(*chosen.values()), options.resume)
    for key, ones in chosen.items():
        left = [mutant for mutant in ones if mutant not in table]
        tried = 0
        for mutant, by in _in_session(key, left):
            tried += 1
            why = explained.get((mutant.module, mutant.code, mutant.before, mutant.after), "")
            if not (by or why) and forked(lambda m=mutant, key=key: anew(m, key), 10 * TIMEOUT_S) is not False:
                by = "all of the module's tests"
            table.add(mutant, "killed" if by else "explained" if why else "survived", by or why)
        if tried < len(left):
            sys.exit(f"the tests of {key} fail without any fault")
    verdicts = [row["verdict"] for row in table.rows.values()]
    counts = {verdict: verdicts.count(verdict) for verdict in ("killed", "explained", "survived")}
    share = counts["killed"] / max(1, len(verdicts))
    detail = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    print(f"mutants_killed {100 * share:.1f} % target >= 90 {'ok' if share >= 0.9 else 'short'} ({detail})")


def _in_session(key: str, chosen: list[Mutant]) -> Iterator[tuple[Mutant, str]]:
    """Each mutant with the test that notices it where the tests are collected once for all."""
    if not chosen:
        return
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        pytest_of(key, Collected(chosen, lambda *answer: sender.send(answer)))
        os._exit(0)
    sender.close()
    while True:
        try:
            yield receiver.recv()
        except EOFError:
            break
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
