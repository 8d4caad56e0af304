"""One figure from its tables."""

from rl_influence import figures
from rl_influence.config import Config

tables = dict(snakemake.input.items())  # noqa: F821  (snakemake puts its object here)
config = Config(**snakemake.params.config)  # noqa: F821
figures.draw(snakemake.wildcards.name, tables, *snakemake.output, config)  # noqa: F821
