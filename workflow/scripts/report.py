"""The report of a study, one HTML file."""

from pathlib import Path

from rl_influence.config import Config
from rl_influence.publish.report import write_report

write_report(
    Config(**snakemake.params.config),  # noqa: F821  (snakemake puts its object here)
    snakemake.output[0],  # noqa: F821
    source=Path(snakemake.input.deviations).parents[1],  # noqa: F821
)
