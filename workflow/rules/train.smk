# One job per run. The folder's name ends in the fingerprint of everything that decides the numbers.
# A run keeps its state outside the declared outputs: a job that was killed goes on where it stopped.

from concurrent.futures import ThreadPoolExecutor

if workflow.is_main_process:  # jobs read this file again
    try:
        for name in dict.fromkeys(run.environment for run in RUNS.values()):
            check_packages(STUDY.environments[name])
    except ConfigError as error:
        refuse(error)
    # makes them in a process of its own while the other rules are read; environments.smk waits for it
    ENVIRONMENTS = ThreadPoolExecutor().submit(
        check_environments, [STUDY.environments[name] for name in environments_to_train()],
        {run.environment for run in STUDY.runs if run.spec.selection.kind in EXACT_HEURISTICS},
    )


RUN = f"{RESULTS}/runs/{{environment}}/{{method}}/{{run}}"
TRAIN_LOG = f"{LOGS}/train/{{environment}}/{{method}}/{{run}}"


wildcard_constraints:
    environment="[a-z0-9_]+",
    method="[a-z0-9_]+",
    run="seed[0-9]+-[0-9a-f]{8}",


rule train:
    output:
        [f"{RUN}/{name}" for name in RUN_FILES],
    log:
        f"{TRAIN_LOG}.log",
    benchmark:
        f"{TRAIN_LOG}.tsv"
    conda:
        "../../environment.yml"
    group:
        lambda wildcards: f"train_{wildcards.environment}"
    threads: 1
    resources:
        mem_mb=lambda wildcards, attempt: 1500 * attempt,
        runtime=lambda wildcards, attempt: minutes(RUNS[RUN.format(**wildcards)].spec) * attempt,
    params:
        spec=lambda wildcards: RUNS[RUN.format(**wildcards)].spec.model_dump(mode="json"),
        state=f"{RESULTS}/checkpoints/{{environment}}/{{method}}/{{run}}",
        snapshots=lambda wildcards: snapshots(RUN.format(**wildcards)),
        snapshot_rounds=lambda wildcards: SNAPSHOT_ROUNDS.get(RUN.format(**wildcards), []),
    script:
        "../scripts/train.py"
