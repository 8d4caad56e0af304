"""The tables of all analyses of a study."""

import sys

from rl_influence.analysis.registry import analysis_directory, damage
from rl_influence.analysis.single_rounds import load_analyses
from rl_influence.analysis.tables import write_table
from rl_influence.config import Config

config = Config(**snakemake.params.config)  # noqa: F821  (snakemake puts its object here)
found = load_analyses(config)
with open(snakemake.log[0], "w") as log:  # noqa: F821
    for analysis, reason in found.missing:
        run = analysis.run
        print(f"{analysis.name} {run.environment} {run.method} seed {run.seed}: {reason}", file=log)
damaged = [
    f"{analysis_directory(config.study, analysis).parent}/{reason}"
    for analysis, reason in found.missing
    if not reason.startswith("no folder")
]
if damaged:
    sys.exit(damage(damaged))
if found.missing:
    counts = f"{len(found.missing)} of {len(config.analyses)} analyses are missing"
    print(f"{counts}: {snakemake.output['missing_analyses']}")  # noqa: F821
for name, table in found.tables.items():
    write_table(table, snakemake.output[name])  # noqa: F821
