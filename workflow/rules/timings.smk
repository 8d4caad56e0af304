# Rounds of PPO and IIF in turn, in one process. Never repeated by itself: other code or another machine gives other times,
# and the table says of which it is.


rule timings:
    output:
        update(TIMINGS),
    log:
        f"{LOGS}/timings.log",
    benchmark:
        f"{LOGS}/timings.tsv"
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=lambda wildcards, attempt: 60 * attempt,
    params:
        specs={
            environment: {method: spec.model_dump(mode="json") for method, spec in methods.items()}
            for environment, methods in TIMED.items()
        },
    script:
        "../scripts/timings.py"
