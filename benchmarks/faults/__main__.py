"""The figures: what was tried, and what went wrong."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before numpy is imported, and for the processes that are started

from benchmarks.faults import CATALOGUE, Tally  # noqa: E402
from benchmarks.faults.files import damage_files, spoil_configurations  # noqa: E402
from benchmarks.faults.runs import full_disks, kill_runs, read_only_disks, two_at_once  # noqa: E402
from benchmarks.registry import Figure, benchmark, run  # noqa: E402
from rl_influence.config import load_run_spec  # noqa: E402
from rl_influence.runs import training  # noqa: E402
from rl_influence.runs.checkpoints import Checkpoints  # noqa: E402

RESULTS = Path("results/faults.csv")


def figures(name: str, unit: str, target: int, tally: Tally, wrong: str = "differing_bytes") -> Iterator[Figure]:
    """How many faults were made, what they did, and errors that are not one line."""
    kinds = ", ".join(f"{kind}: {number}" for kind, number in sorted(tally.kinds.items()))
    yield Figure(name, tally.faults, unit, ">=", target, kinds)
    yield Figure(f"{name}_{wrong}", tally.wrong, wrong.split("_")[1], "<=", 0)
    yield Figure(f"{name}_unclear_errors", tally.unclear, "errors", "<=", 0, "tracebacks and messages of several lines")


@benchmark("kills")
def kills() -> Iterator[Figure]:
    """SIGKILL and SIGTERM at any moment."""
    yield from figures("kills_frozenlake", "kills", 80, kill_runs("frozenlake", 80, seed=1))
    yield from figures("kills_acrobot", "kills", 40, kill_runs("acrobot", 40, seed=2))


@benchmark("clock")
def clock() -> Iterator[Figure]:
    """The same while every look at the clock, and every file's time, shows another year."""
    yield from figures("clock_jumps", "kills", 20, kill_runs("frozenlake", 20, seed=3, turn_clock=True))


@benchmark("pairs")
def pairs() -> Iterator[Figure]:
    """Two processes on one folder."""
    yield from figures("two_at_once", "pairs", 20, two_at_once(20, seed=4))


@benchmark("disks")
def disks() -> Iterator[Figure]:
    """Disks that are full or read-only."""
    try:
        yield from figures("full_disks", "disks", 20, full_disks(20, seed=5))
        yield from figures("read_only_disks", "disks", 10, read_only_disks(10, seed=6))
    except PermissionError as error:
        print(f"disks: not measured, this process may not mount one ({error})", file=sys.stderr)


@benchmark("files")
def files() -> Iterator[Figure]:
    """Damaged files of finished runs."""
    yield from figures("damaged_files", "files", 1000, damage_files(1000, seed=7), "unnoticed_files")


@benchmark("configs")
def configs() -> Iterator[Figure]:
    """Spoilt configurations."""
    yield from figures("spoilt_configs", "configs", 3000, spoil_configurations(3000, seed=8), "outside_runs")


@benchmark("checkpoints")
def checkpoints() -> Iterator[Figure]:
    """Share of a run's wall time that its saved states take, and their size: runs of the study `paper`, cut short."""
    for environment, method, rounds in (
        ("frozenlake", "iif_p50", 50),
        ("acrobot", "iif_p50", 8),
        ("bipedalwalker", "iif_p6_25", 8),
    ):
        spec = load_run_spec(environment=environment, method=method, seed=0, config=CATALOGUE / "paper.yaml")
        with tempfile.TemporaryDirectory() as folder, timed_saves() as spent:
            start = time.perf_counter()
            training.run(spec.model_copy(update={"rounds": rounds}), folder, log=lambda line: None)
            seconds = time.perf_counter() - start
            size = sum(path.stat().st_size for path in Path(folder, "state").iterdir())
        detail = f"{len(spent)} states in {seconds:.0f} s"
        yield Figure(f"checkpoint_time_{environment}", 100 * sum(spent) / seconds, "%", "<=", 2, detail)
        yield Figure(f"checkpoint_size_{environment}", size / 1e6, "MB", "<=", 5)


@contextlib.contextmanager
def timed_saves() -> Iterator[list[float]]:
    """The seconds that each saved state takes."""
    spent: list[float] = []
    save = Checkpoints.save

    def timed(states: Checkpoints, state: dict) -> None:
        start = time.perf_counter()
        save(states, state)
        spent.append(time.perf_counter() - start)

    with mock.patch.object(Checkpoints, "save", timed):
        yield spent


run(sys.argv[1:], RESULTS)
