"""Trains one run."""

import contextlib
import sys
from pathlib import Path

from rl_influence.config import ConfigError, RunSpec
from rl_influence.ppo.records import TrainingError
from rl_influence.runs.store import ResultError
from rl_influence.runs.training import Stopped, run

with open(snakemake.log[0], "w") as log:  # noqa: F821  (snakemake puts its object here)

    def write(line: str) -> None:
        print(line, file=log, flush=True)

    try:
        run(
            RunSpec(**snakemake.params.spec),  # noqa: F821
            Path(snakemake.output[0]).parent,  # noqa: F821
            state_dir=snakemake.params.state,  # noqa: F821
            snapshot_rounds=snakemake.params.snapshot_rounds,  # noqa: F821
            snapshot_dir=snakemake.params.snapshots,  # noqa: F821
            log=write,
        )
    except (ConfigError, TrainingError, ResultError, Stopped, OSError) as error:
        with contextlib.suppress(OSError):  # a full disk
            write(str(error))
        environment, method, folder = snakemake.wildcards[:3]  # noqa: F821
        sys.exit(f"{environment} {method} seed {folder.removeprefix('seed').split('-')[0]}: {error}")
