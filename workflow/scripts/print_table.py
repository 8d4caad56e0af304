"""One table as LaTeX, and the same rows as CSV beside it."""

from pathlib import Path

import pandas as pd

from rl_influence.analysis.latex import latex
from rl_influence.config import Config
from rl_influence.provenance import write_atomic

table = Path(snakemake.input.table)  # noqa: F821  (snakemake puts its object here)
text = latex(snakemake.wildcards.name, pd.read_csv(table), Config(snakemake.config))  # noqa: F821
write_atomic(snakemake.output.tex, text.encode())  # noqa: F821
write_atomic(snakemake.output.csv, table.read_bytes())  # noqa: F821
