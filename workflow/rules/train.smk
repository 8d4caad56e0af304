# One job per run. The folder's name ends in the fingerprint of everything that decides the numbers.
# A run keeps its state outside the declared output: a job that was killed goes on where it stopped. The manifest is
# written last, so that without it a run is not there. Runs come before analyses of others, so that the time which is
# left for the former is not spent on the latter.


rule train:
    output:
        [f"{RUN}/{name}" for name in RUN_FILES],
    log:
        f"{LOGS}/train/{JOB}.log",
    benchmark:
        f"{LOGS}/train/{JOB}.tsv"
    priority: 1
    group:
        lambda wildcards: f"train_{wildcards.environment}"
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, attempt: 1500 * attempt,
        runtime=lambda wildcards, attempt: minutes(run_of(wildcards).spec) * attempt,
    params:
        spec=lambda wildcards: run_of(wildcards).spec.model_dump(mode="json"),
        state=f"{RESULTS}/checkpoints/{JOB}",
        snapshots=lambda wildcards: snapshot_directory(STUDY.study, run_of(wildcards)),
        snapshot_rounds=lambda wildcards: SNAPSHOT_ROUNDS.get(RUN.format(**wildcards), []),
    script:
        "../scripts/train.py"
