"""What a benchmark is, and how its figures are printed and kept."""

from __future__ import annotations

import csv
import io
import operator
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from rl_influence.runs.files import write_atomic
from rl_influence.runs.provenance import package_versions, processor

OPERATORS = {">=": operator.ge, "<=": operator.le}
FIGURE_COLUMNS = ("name", "value", "unit", "op", "target", "verdict", "detail")


@dataclass(frozen=True)
class Figure:
    """A measured value and its target; `detail` says what it was made of."""

    name: str
    value: float
    unit: str
    op: str
    target: float
    detail: str = ""

    @property
    def verdict(self) -> str:
        return "ok" if OPERATORS[self.op](self.value, self.target) else "short"

    def line(self) -> str:
        return f"{self.name} {self.value:.4g} {self.unit} target {self.op} {self.target:g} {self.verdict}"

    def row(self) -> dict[str, str]:
        """Cells of `FIGURE_COLUMNS`."""
        cells = (self.name, f"{self.value:.4g}", self.unit, self.op, f"{self.target:g}", self.verdict, self.detail)
        return dict(zip(FIGURE_COLUMNS, cells, strict=True))


Benchmark = Callable[[], Iterator[Figure]]
benchmarks: dict[str, Benchmark] = {}
several_cores: set[str] = set()


def benchmark(name: str, *, one_core: bool = True) -> Callable[[Benchmark], Benchmark]:
    """Registers a function that yields figures; it runs on one core, unless more are its subject."""

    def register(function: Benchmark) -> Benchmark:
        assert name not in benchmarks, name
        benchmarks[name] = function
        if not one_core:
            several_cores.add(name)
        return function

    return register


@contextmanager
def last_core() -> Iterator[None]:
    """Runs on one of this process' cores, where the system can say so: as a study does that trains a run on each core.

    envpool simulates on a thread of its own. Where that is woken on another, idle core, each step takes twice as long.
    """
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if cores:
        os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        if cores:
            os.sched_setaffinity(0, cores)


def cpu_seconds(function: Callable[[], object]) -> float:
    """CPU time of one call: other jobs on the machine weigh less in it than in the clock's time."""
    start = time.process_time()
    function()
    return time.process_time() - start


def side_by_side(*functions: Callable[[], object], repeats: int) -> list[float]:
    """Median CPU seconds of each, called in turn; a first call of each is not counted."""
    times = [[cpu_seconds(function) for function in functions] for _ in range(repeats + 1)]
    return [median(column) for column in zip(*times[1:], strict=True)]


def machine() -> dict[str, str]:
    """Columns that name where a figure was measured."""
    others = [name for name in ("stable-baselines3", "transformers", "peft") if find_spec(name.replace("-", "_"))]
    versions = package_versions() | {name: version(name) for name in others}
    host = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "processor": processor(), "cores": str(os.cpu_count())}
    return host | dict(sorted(versions.items()))


def run(names: list[str], path: Path) -> None:
    """Runs those that are named, or all: a line per figure, and the figures of each saved as soon as it has ended."""
    for name in names:
        if name not in benchmarks:
            sys.exit(f"benchmarks: unknown benchmark {name!r}; choices: {', '.join(benchmarks)}")
    for name in names or benchmarks:
        figures = []
        with nullcontext() if name in several_cores else last_core():
            for figure in benchmarks[name]():
                print(figure.line(), flush=True)
                figures.append(figure)
        save(figures, path)


def save(figures: list[Figure], path: Path) -> None:
    """Replaces the figures' rows in a table and leaves those of other figures as they are."""
    rows = {}
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            rows = {row["name"]: row for row in csv.DictReader(file)}
    where = machine()
    rows |= {figure.name: figure.row() | where for figure in figures}
    columns = list(dict.fromkeys([*FIGURE_COLUMNS, *where, *(column for row in rows.values() for column in row)]))
    table = io.StringIO()
    writer = csv.DictWriter(table, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows.values())
    write_atomic(path, table.getvalue().encode())
