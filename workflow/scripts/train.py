"""Trains one run."""

import contextlib
import os
import sys
from pathlib import Path

from rl_influence.config import Config, ConfigError, RunSpec
from rl_influence.ppo.records import TrainingError
from rl_influence.runs.progress import progress
from rl_influence.runs.store import ResultError
from rl_influence.runs.training import Stopped, run

output = Path(snakemake.output[0]).parent  # noqa: F821  (snakemake puts its object here)
name = " ".join((*snakemake.wildcards[:2], snakemake.wildcards.run.replace("seed", "seed ").split("-")[0]))  # noqa: F821
with open(snakemake.log[0], "w") as log:  # noqa: F821

    def write(line: str) -> None:
        print(line, file=log, flush=True)

    try:
        run(
            RunSpec(**snakemake.params.spec),  # noqa: F821
            output,
            state_dir=snakemake.params.state,  # noqa: F821
            snapshot_rounds=snakemake.params.snapshot_rounds,  # noqa: F821
            snapshot_dir=snakemake.params.snapshots,  # noqa: F821
            log=write,
        )
    except (ConfigError, TrainingError, ResultError, Stopped, OSError) as error:
        with contextlib.suppress(OSError):  # a full disk
            write(str(error))
        sys.exit(f"{name}: {error}")
config = Config(snakemake.config)  # noqa: F821
last = (output / "curve.csv").read_text().splitlines()[-1].split(",")
print(
    f"{progress(config.study, config.runs, int(os.environ.get('RL_INFLUENCE_CORES', 1)))}"
    f" | {name}: test return {float(last[2]):.4g} after {last[0]} rounds",
    flush=True,
)
