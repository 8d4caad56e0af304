# Curves and analyses -> tables. One pass over the runs makes all of them; printed ones also as LaTeX.


rule tables:
    input:
        runs=manifests(RUNS),
        timings=MEASURED.values(),
        catalogue=CATALOGUE,
    output:
        **updated(CURVE_TABLES),
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
    params:
        config=WHOLE_STUDY,
    script:
        "../scripts/tables.py"


if STUDY.analyses:

    rule analysis_tables:
        input:
            analyses=manifests(ANALYSES),
            catalogue=CATALOGUE,
        output:
            **updated(ANALYSIS_TABLES),
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
        params:
            config=WHOLE_STUDY,
        script:
            "../scripts/analysis_tables.py"


rule print_table:
    input:
        unpack(lambda wildcards: with_provenance([wildcards.name])),
        catalogue=CATALOGUE,
    output:
        report(update(f"{DRAWN}/{{name}}.tex"), caption="../report/table.rst", category="Tables"),
    log:
        f"{LOGS}/tables/{{name}}.log",
    benchmark:
        f"{LOGS}/tables/{{name}}.tsv"
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        config=WHOLE_STUDY,
        level=f"{100 * level_of(STUDY):.3g} %",  # for the caption
    script:
        "../scripts/print_table.py"
