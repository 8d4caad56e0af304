# One job per analysis and run: single rounds of a run, from its snapshots. The folder's name ends in a hash of the run, the
# rounds and the analysis' version. The run is trained first, and leaves the snapshots; a run that came without them (they
# are not committed) is trained again by the first of its analyses, without evaluation, while the others wait.


rule analysis:
    input:
        ancient(lambda wildcards: f"{trained(wildcards)}/manifest.json"),
    output:
        f"{ANALYSIS}/manifest.json",
    log:
        f"{LOGS}/{{analysis}}/{JOB}.log",
    benchmark:
        f"{LOGS}/{{analysis}}/{JOB}.tsv"
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=lambda wildcards, attempt: 240 * attempt,
    params:
        analysis=lambda wildcards: analysis_of(wildcards).model_dump(mode="json"),
        snapshots=lambda wildcards: snapshot_directory(STUDY.study, analysis_of(wildcards).run),
        snapshot_rounds=lambda wildcards: SNAPSHOT_ROUNDS[trained(wildcards)],
    script:
        "../scripts/analysis.py"
