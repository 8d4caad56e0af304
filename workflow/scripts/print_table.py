"""One table as LaTeX, with the runs behind it in a comment, and the same rows as CSV beside it."""

from pathlib import Path

import pandas as pd

from rl_influence.analysis.single_rounds import source
from rl_influence.config import Config
from rl_influence.publish.latex import latex
from rl_influence.runs.files import write_atomic

table = Path(snakemake.input.table)  # noqa: F821  (snakemake puts its object here)
config = Config(snakemake.config)  # noqa: F821
text = latex(snakemake.wildcards.name, pd.read_csv(table), config)  # noqa: F821
made_of = source([snakemake.wildcards.name], f"results/{config.study}/tables", config.study)  # noqa: F821
write_atomic(snakemake.output.tex, f"{text}% {made_of}\n".encode())  # noqa: F821
write_atomic(snakemake.output.csv, table.read_bytes())  # noqa: F821
