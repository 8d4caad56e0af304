# One job per run. The folder's name ends in the fingerprint of everything that decides the numbers.
# A run keeps its state outside the declared outputs: a job that was killed goes on where it stopped.

try:
    check_environments(STUDY)
except ConfigError as error:
    print(f"rl-influence: {error}", file=sys.stderr)
    sys.exit(1)


wildcard_constraints:
    environment="[a-z0-9_]+",
    method="[a-z0-9_]+",
    run="seed[0-9]+-[0-9a-f]{8}",


rule train:
    output:
        expand(RESULTS + "/runs/{{environment}}/{{method}}/{{run}}/{file}", file=RUN_FILES),
    log:
        LOGS + "/train/{environment}/{method}/{run}.log",
    benchmark:
        LOGS + "/train/{environment}/{method}/{run}.tsv"
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=lambda wildcards, attempt: 240 * attempt,
    params:
        spec=lambda wildcards: RUNS[f"{RESULTS}/runs/{wildcards.environment}/{wildcards.method}/{wildcards.run}"].spec.model_dump(
            mode="json"
        ),
        state=RESULTS + "/checkpoints/{environment}/{method}/{run}",
    script:
        "../scripts/train.py"
