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
from benchmarks.registry import run  # noqa: E402

RESULTS = Path("results/benchmarks.csv")


torch.set_num_threads(1)
run(sys.argv[1:], RESULTS)
