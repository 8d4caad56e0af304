"""Times rounds of several methods in turn."""

from rl_influence.config import RunSpec
from rl_influence.runs.timings import write_timings

specs = {
    environment: {method: RunSpec(**spec) for method, spec in methods.items()}
    for environment, methods in snakemake.params.specs.items()  # noqa: F821  (snakemake puts its object here)
}
with open(snakemake.log[0], "w") as log:  # noqa: F821
    write_timings(specs, snakemake.output[0], log=lambda line: print(line, file=log, flush=True))  # noqa: F821
