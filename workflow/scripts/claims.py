"""Verdicts on the paper's claims from a study's tables."""

import pandas as pd

from rl_influence.analysis.claims import judge_study, load_claims, texts
from rl_influence.analysis.claims.samples import language_models
from rl_influence.analysis.tables import write_table
from rl_influence.config import Config

config = Config(**snakemake.params.config)  # noqa: F821  (snakemake puts its object here)
tables = {
    name: pd.read_csv(snakemake.input[name], keep_default_na=False, na_values=[""])  # noqa: F821
    for name in snakemake.params.tables  # noqa: F821
}
tables |= language_models(snakemake.input.language_models)  # noqa: F821
found = judge_study(load_claims(config.folder), config, tables)
for name, table in found.items():
    write_table(table, snakemake.output[name])  # noqa: F821
with open(snakemake.log[0], "w") as log:  # noqa: F821
    for line in texts(found["claims"]):
        print(line, file=log)
