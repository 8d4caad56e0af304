# Tables -> verdicts on the paper's claims -> one HTML file with everything.
from rl_influence.analysis.claims import CLAIM_TABLES, load_claims

REPORT = f"report/{STUDY.study}.html"
CLAIMS = {name: f"{RESULTS}/tables/{name}.csv" for name in CLAIM_TABLES}
JUDGED = {name: TABLE_FILES[name] for name in [*load_claims().tables, "missing_runs", "missing_analyses"] if name in TABLE_FILES}
TABLE_FILES = TABLE_FILES | CLAIMS  # figures read them too


rule claims:
    input:
        **JUDGED,
        rules="config/claims.yaml",
        catalogue=CATALOGUE,
    output:
        **CLAIMS,
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
        tables=list(JUDGED),
    script:
        "../scripts/claims.py"


rule html_report:
    input:
        tables=list(TABLE_FILES.values()),
        figures=[f"{DRAWN}/{name}.png" for name in STUDY.study_config.figures],
        deviations=[name for name in ["docs/deviations.md"] if os.path.exists(name)],
        catalogue=CATALOGUE,
    output:
        REPORT,
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
    script:
        "../scripts/report.py"
