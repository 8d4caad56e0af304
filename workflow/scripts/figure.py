"""One figure from its tables."""

from rl_influence import figures
from rl_influence.config import Config

config = Config(snakemake.config)  # noqa: F821  (snakemake puts its object here)
results = f"results/{config.study}"
figures.draw(
    snakemake.wildcards.name,  # noqa: F821
    f"{results}/tables",
    f"{results}/runtimes",
    snakemake.output.pdf,  # noqa: F821
    snakemake.output.png,  # noqa: F821
    config,
)
