# Tables -> verdicts on the paper's claims -> one HTML file with everything.


report: "../report/workflow.rst"


rule claims:
    input:
        **JUDGED,
        language_models=[path.resolve() for path in language_model_files()],  # as they are: no rule makes this name
        rules=STUDY.folder / "claims.yaml",
        catalogue=CATALOGUE,
    output:
        **updated(CLAIMS),
    log:
        f"{LOGS}/claims.log",
    benchmark:
        f"{LOGS}/claims.tsv"
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        config=WHOLE_STUDY,
        tables=[*JUDGED],
    script:
        "../scripts/claims.py"


rule html_report:
    input:
        tables=list(TABLES.values()),
        figures=[f"{DRAWN}/{name}.png" for name in WANTED.figures],
        deviations=HERE / "docs/deviations.md",
        catalogue=CATALOGUE,
    output:
        REPORT,
        directory(REPORT.removesuffix(".html")),  # a page for every run
    log:
        f"{LOGS}/report.log",
    benchmark:
        f"{LOGS}/report.tsv"
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        config=WHOLE_STUDY | {"study": dict(config)},
    script:
        "../scripts/report.py"
