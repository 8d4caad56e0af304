"""One table as LaTeX, with the runs behind it in a comment."""

from pathlib import Path

import pandas as pd

from rl_influence.analysis.single_rounds import source
from rl_influence.config import Config
from rl_influence.publish.latex import latex
from rl_influence.runs.files import write_atomic

name = snakemake.wildcards.name  # noqa: F821  (snakemake puts its object here)
config = Config(**snakemake.params.config)  # noqa: F821
text = latex(name, pd.read_csv(snakemake.input[name]), config)  # noqa: F821
made_of = source([name], Path(snakemake.input.runs).parent, config.study)  # noqa: F821
write_atomic(snakemake.output[0], f"{text}% {made_of}\n".encode())  # noqa: F821
