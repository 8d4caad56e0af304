"""Trains one run."""

import sys
from pathlib import Path

from rl_influence.config import RunSpec
from rl_influence.progress import progress
from rl_influence.provenance import ResultError
from rl_influence.training import Stopped, TrainingError, run

output = Path(snakemake.output[0]).parent  # noqa: F821  (snakemake puts its object here)
name = f"{snakemake.wildcards.environment} {snakemake.wildcards.method} {snakemake.wildcards.run}"  # noqa: F821
with open(snakemake.log[0], "w") as log:  # noqa: F821

    def write(line: str) -> None:
        print(line, file=log, flush=True)

    try:
        run(RunSpec(**snakemake.params.spec), output, state_dir=snakemake.params.state, log=write)  # noqa: F821
    except (TrainingError, ResultError, Stopped) as error:
        write(str(error))
        sys.exit(f"{name}: {error}")
