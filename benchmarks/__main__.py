"""Runs the benchmarks that are named, or all of them."""

import os
import sys
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before numpy is imported, and for the processes that are started

import torch  # noqa: E402

from benchmarks import (  # noqa: E402, F401  (they register their benchmarks)
    attribution,
    evaluation,
    full_grid,
    performance,
    process,
    rounds,
)
from benchmarks.registry import benchmarks, save  # noqa: E402

RESULTS = Path("results/benchmarks.csv")


def main(names: list[str]) -> None:
    """Prints a line per figure, and saves the figures of each benchmark as soon as it has ended."""
    for name in names:
        if name not in benchmarks:
            sys.exit(f"benchmarks: unknown benchmark {name!r}; choices: {', '.join(benchmarks)}")
    torch.set_num_threads(1)
    for name in names or benchmarks:
        figures = []
        for figure in benchmarks[name]():
            print(figure.line(), flush=True)
            figures.append(figure)
        save(figures, RESULTS)


main(sys.argv[1:])
