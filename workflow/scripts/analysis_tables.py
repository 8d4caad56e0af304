"""The tables of all analyses of a study."""

import sys

from rl_influence.analysis.registry import refuse_damaged
from rl_influence.analysis.single_rounds import load_analyses
from rl_influence.analysis.tables import write_table
from rl_influence.config import Config
from rl_influence.runs.store import ResultError

config = Config(**snakemake.params.config)  # noqa: F821  (snakemake puts its object here)
found = load_analyses(config)
with open(snakemake.log[0], "w") as log:  # noqa: F821
    for one in found.missing:
        print(f"{one.expected.name} {one.expected.run.name}: {one.reason}", file=log)
try:
    refuse_damaged(found.missing)
except ResultError as error:
    sys.exit(str(error))
if found.missing:
    counts = f"{len(found.missing)} of {len(config.analyses)} analyses are missing"
    print(f"{counts}: {snakemake.output['missing_analyses']}")  # noqa: F821
for name, table in found.tables.items():
    write_table(table, snakemake.output[name])  # noqa: F821
