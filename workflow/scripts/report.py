"""The report of a study, one HTML file."""

from rl_influence.config import Config
from rl_influence.publish.report import write_report

write_report(Config(snakemake.config), snakemake.output[0])  # noqa: F821  (snakemake puts its object here)
