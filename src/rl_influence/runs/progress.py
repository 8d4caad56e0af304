"""How far a study is, and how long the rest will take."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from rl_influence.config import Run
from rl_influence.runs.store import run_directory


def progress(study: str, runs: Iterable[Run], cores: int, root: str | Path = ".") -> str:
    """One line: runs done out of all, and an estimate of the time left.

    The estimate takes the mean CPU time per round of the finished runs of the same environment (of all finished runs,
    where that environment has none yet) for the rounds that are not done, and `cores` runs at a time.

    Args:
        cores: runs that train at the same time.
        root: folder that holds `results/`.
    """
    rounds, seconds, left = defaultdict(int), defaultdict(float), defaultdict(int)
    done = total = 0
    for run in runs:
        total += 1
        directory = Path(root) / run_directory(study, run)
        try:
            seconds[run.environment] += cpu_seconds(directory / "timing.csv")
            rounds[run.environment] += run.spec.rounds
            done += 1
        except (OSError, ValueError):
            left[run.environment] += run.spec.rounds
    line = f"{done} of {total} runs trained"
    if not left:
        return line
    if not done:
        return f"{line}, time left not known yet"
    per_round = sum(seconds.values()) / sum(rounds.values())
    estimate = sum(n * (seconds[e] / rounds[e] if rounds[e] else per_round) for e, n in left.items())
    return f"{line}, about {duration(estimate / max(1, min(cores, total - done)))} left"


def cpu_seconds(timing: Path) -> float:
    """All phases of all rounds of one run.

    Raises:
        ValueError: if the file is damaged.
    """
    try:
        with open(timing, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        seconds = sum(float(value) for row in rows for key, value in row.items() if key != "round")
    except (csv.Error, TypeError) as error:  # a row that is too short or too long
        raise ValueError(f"{timing}: {error}") from None
    if not rows or not math.isfinite(seconds):
        raise ValueError(f"{timing}: no rounds, or seconds that are not finite")
    return seconds


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
