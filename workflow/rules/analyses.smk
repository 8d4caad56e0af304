# One job per analysis and run: single rounds of a run, from its snapshots. The folder's name ends in a hash of the run, the
# rounds and the analysis' version. The run is trained first, and leaves the snapshots; a run that came without them (they
# are not committed) is trained again by the first of its analyses, without evaluation, while the others wait.
from rl_influence.analysis.registry import ANALYSES, analysis_files

for name in ANALYSES:
    folder = f"{RESULTS}/analyses/{name}/{{environment}}/{{method}}/{{run}}"

    rule:
        name:
            name
        input:
            ancient(lambda wildcards, folder=folder: f"{trained(folder.format(**wildcards))}/{RUN_FILES[0]}"),
        output:
            [f"{folder}/{file}" for file in analysis_files(name)],
        log:
            f"{LOGS}/{name}/{{environment}}/{{method}}/{{run}}.log",
        benchmark:
            f"{LOGS}/{name}/{{environment}}/{{method}}/{{run}}.tsv"
        conda:
            "../../environment.yml"
        threads: 1
        resources:
            mem_mb=lambda wildcards, attempt: 2000 * attempt,
            runtime=lambda wildcards, attempt: 240 * attempt,
        params:
            analysis=lambda wildcards, folder=folder: ANALYSIS_JOBS[folder.format(**wildcards)].model_dump(mode="json"),
            snapshots=lambda wildcards, folder=folder: snapshots(trained(folder.format(**wildcards))),
            snapshot_rounds=lambda wildcards, folder=folder: SNAPSHOT_ROUNDS[trained(folder.format(**wildcards))],
        script:
            "../scripts/analysis.py"
