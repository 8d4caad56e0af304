"""The table of CPU, memory and time in `docs/clusters.md`: `python -m benchmarks.requests`, from the repository root.

Time is CPU time of the committed runs, from their `timing.csv`; memory is from `results/benchmarks.csv`, which
`python -m benchmarks memory` writes. A test fails when the table differs from these files.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from statistics import median

import pandas as pd

from rl_influence.config import Config
from rl_influence.runs.files import write_atomic
from rl_influence.runs.progress import duration
from rl_influence.runs.store import run_directory

DOCUMENT = Path("docs/clusters.md")
HEADER = """\
| environment | rounds | CPUs | peak memory | CPU time of a run: median (longest) | committed runs |
|---|---|---|---|---|---|"""


def table(root: Path) -> str:
    """One row per environment of the study `paper`; – where nothing is measured yet."""
    config = Config(root / "config/paper.yaml")
    with (root / "results/benchmarks.csv").open(newline="", encoding="utf-8") as file:
        measured = {row["name"]: f"{float(row['value']):.0f} {row['unit']}" for row in csv.DictReader(file)}
    lines = [HEADER]
    for name in dict.fromkeys(run.environment for run in config.runs):
        runs = [run for run in config.runs if run.environment == name]
        files = [root / run_directory(config.study, run) / "timing.csv" for run in runs]
        seconds = [pd.read_csv(file).drop(columns="round").to_numpy().sum() for file in files if file.exists()]
        times = f"{duration(median(seconds))} ({duration(max(seconds))})" if seconds else "–"
        rounds = ", ".join(map(str, sorted({run.spec.rounds for run in runs})))
        cells = (config.environment(name).label, rounds, 1, measured.get(f"memory_{name}", "–"), times, len(seconds))
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def render(text: str, root: Path) -> str:
    """`text` with the table made anew."""
    block = f"<!-- requests -->\n{table(root)}\n<!-- end -->"
    return re.sub(r"<!-- requests -->\n.*?<!-- end -->", lambda _: block, text, flags=re.DOTALL)


if __name__ == "__main__":
    write_atomic(DOCUMENT, render(DOCUMENT.read_text(encoding="utf-8"), Path(".")).encode())
