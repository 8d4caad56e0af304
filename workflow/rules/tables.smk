# Curves and analyses -> tables. One pass over the runs makes all of them; printed ones also as LaTeX.
from rl_influence.analysis.registry import study_tables
from rl_influence.analysis.tables import TABLES as TABLE_MAKERS
from rl_influence.publish.latex import LATEX, check_printed

CATALOGUE = [
    "config/methods.yaml",
    "config/paper_reported.yaml",
    *(f"config/environments/{name}.yaml" for name in dict.fromkeys(run.environment for run in STUDY.runs)),
]
CURVE_TABLES = {name: f"{RESULTS}/{table.folder}/{name}.csv" for name, table in TABLE_MAKERS.items()}
ANALYSIS_TABLES = {name: f"{RESULTS}/tables/{name}.csv" for name in study_tables(STUDY)}
TABLE_FILES = CURVE_TABLES | ANALYSIS_TABLES
PRINTED = STUDY.study_config.tables
try:
    check_printed(STUDY)
except ConfigError as error:
    refuse(error)
TABLES = [*TABLE_FILES.values(), *(f"{DRAWN}/{name}.{kind}" for name in PRINTED for kind in ("tex", "csv"))]


rule tables:
    input:
        runs=run_files(),
        catalogue=CATALOGUE,
    output:
        **CURVE_TABLES,
    log:
        f"{LOGS}/tables.log",
    benchmark:
        f"{LOGS}/tables.tsv"
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=10,
    script:
        "../scripts/tables.py"


if STUDY.analyses:

    rule analysis_tables:
        input:
            analyses=all_analysis_files(),
            catalogue=CATALOGUE,
        output:
            **ANALYSIS_TABLES,
        log:
            f"{LOGS}/analysis_tables.log",
        benchmark:
            f"{LOGS}/analysis_tables.tsv"
        conda:
            "../../environment.yml"
        threads: 1
        resources:
            mem_mb=2000,
            runtime=10,
        script:
            "../scripts/analysis_tables.py"


rule print_table:
    input:
        table=lambda wildcards: TABLE_FILES[wildcards.name],
        lists=lambda wildcards: [TABLE_FILES[name] for name in provenance_of([wildcards.name])],
        catalogue=CATALOGUE,
    output:
        tex=report(f"{DRAWN}/{{name}}.tex", caption="../report/table.rst", category="Tables"),
        csv=report(f"{DRAWN}/{{name}}.csv", caption="../report/table.rst", category="Tables"),
    log:
        f"{LOGS}/tables/{{name}}.log",
    benchmark:
        f"{LOGS}/tables/{{name}}.tsv"
    conda:
        "../../environment.yml"
    wildcard_constraints:
        name="|".join(LATEX),
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    script:
        "../scripts/print_table.py"
