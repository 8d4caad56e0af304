"""All tables of a study from its runs."""

import sys

from rl_influence.analysis.curves import load_study
from rl_influence.analysis.registry import refuse_damaged
from rl_influence.analysis.tables import TABLES, make_tables, write_table
from rl_influence.config import Config
from rl_influence.runs.store import ResultError

study = load_study(Config(**snakemake.params.config))  # noqa: F821  (snakemake puts its object here)
with open(snakemake.log[0], "w") as log:  # noqa: F821
    for found in study.missing:
        print(f"{found.expected.name}: {found.reason}", file=log)
try:
    refuse_damaged(study.missing)
except ResultError as error:
    sys.exit(str(error))
if study.missing:
    print(f"{len(study.missing)} of {len(study.runs)} runs are missing: {snakemake.output['missing_runs']}")  # noqa: F821
for name, table in make_tables(study, TABLES).items():
    write_table(table, snakemake.output[name], TABLES[name].digits)  # noqa: F821
