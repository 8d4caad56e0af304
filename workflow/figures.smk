# Tables and figures from the results that are there. This entry has no rule that trains; what is missing is listed in the
# study's tables/missing_runs.csv and left out of no mean silently.
#
#   snakemake --snakefile workflow/figures.smk --configfile config/paper.yaml --cores all

from snakemake.utils import min_version

min_version("9.0")

CAN_TRAIN, DEFAULT_STUDY = False, "paper.yaml"


include: "rules/common.smk"
include: "rules/tables.smk"
include: "rules/report.smk"
include: "rules/figures.smk"
include: "rules/hooks.smk"


rule all:
    default_target: True
    input:
        TABLES.values(),
        PRINTED,
        FIGURES,
        REPORT,
