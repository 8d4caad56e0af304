"""One analysis of one run."""

import sys
from pathlib import Path

from rl_influence.analysis.single_rounds import run_analysis
from rl_influence.config import Analysis, ConfigError
from rl_influence.ppo.records import TrainingError
from rl_influence.runs.store import ResultError

analysis = Analysis(**snakemake.params.analysis)  # noqa: F821  (snakemake puts its object here)
with open(snakemake.log[0], "w") as log:  # noqa: F821

    def write(line: str) -> None:
        print(line, file=log, flush=True)

    try:
        run_analysis(
            analysis,
            Path(snakemake.output[0]).parent,  # noqa: F821
            snapshot_dir=snakemake.params.snapshots,  # noqa: F821
            snapshot_rounds=snakemake.params.snapshot_rounds,  # noqa: F821
            trained=Path(snakemake.input[0]).parent,  # noqa: F821
            log=write,
        )
    except (ConfigError, TrainingError, ResultError, OSError) as error:
        write(str(error))
        run = analysis.run
        sys.exit(f"{analysis.name} of {run.environment} {run.method} seed {run.seed}: {error}")
