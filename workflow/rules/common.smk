# The resolved study and the names of its files, for both entries.
import os
import sys
from pathlib import Path

from rl_influence.analysis.registry import analysis_directory, analysis_files, check_analyses, check_results
from rl_influence.config import EXACT_HEURISTICS, Config, ConfigError, check_environments, check_packages, read_yaml
from rl_influence.runs.store import RUN_FILES, ResultError, run_directory, snapshot_directory


def refuse(error):
    """Ends snakemake with one line."""
    print(f"rl-influence: {error}", file=sys.stderr)
    sys.exit(1)


try:
    for file in workflow.configfiles:
        read_yaml(file)  # refuses what Snakemake reads without a word: repeated keys, for instance
    STUDY = Config(config, name=[*workflow.configfiles, "config"][0])
    check_analyses(STUDY)
    if workflow.is_main_process:  # before the first job: Snakemake removes the tables that a failing job was to write
        check_results(STUDY)
except (ConfigError, ResultError) as error:
    refuse(error)

RESULTS = f"results/{STUDY.study}"
DRAWN = f"paper_figures/{STUDY.study}"
LOGS = f"logs/{STUDY.study}"
# Jobs estimate the time left with it. Not a param: other cores must not make a result stale.
os.environ.update(RL_INFLUENCE_CORES=str(workflow.cores or 1))
RUNS = {run_directory(STUDY.study, run).as_posix(): run for run in STUDY.runs}
ANALYSIS_JOBS = {analysis_directory(STUDY.study, analysis).as_posix(): analysis for analysis in STUDY.analyses}
SNAPSHOT_ROUNDS = {}  # run's folder -> rounds that its analyses need
for analysis in STUDY.analyses:
    directory = run_directory(STUDY.study, analysis.run).as_posix()
    SNAPSHOT_ROUNDS[directory] = sorted({*analysis.rounds, *SNAPSHOT_ROUNDS.get(directory, [])})


def run_files():
    """The files of every run of the grid; in the entry that cannot train, of those that are there."""
    return there_or_made([f"{directory}/{name}" for directory in RUNS for name in RUN_FILES])


def all_analysis_files():
    """The same for the study's analyses."""
    return there_or_made([f"{d}/{name}" for d, analysis in ANALYSIS_JOBS.items() for name in analysis_files(analysis.name)])


def there_or_made(files):
    return [file for file in files if CAN_TRAIN or os.path.exists(file)]


def environments_to_train():
    """The environments of runs and analyses that are not there yet."""
    waiting = [run for folder, run in RUNS.items() if not all(os.path.exists(f"{folder}/{name}") for name in RUN_FILES)]
    waiting += [analysis.run for folder, analysis in ANALYSIS_JOBS.items() if not os.path.exists(folder)]
    return dict.fromkeys(run.environment for run in waiting)


def trained(folder):
    """The folder of the run that an analysis, given by its folder, is of."""
    return run_directory(STUDY.study, ANALYSIS_JOBS[folder].run).as_posix()


def snapshots(folder):
    """The folder of a run's snapshots, which git ignores."""
    return snapshot_directory(STUDY.study, RUNS[folder]).as_posix()


def minutes(spec):
    """Asked for, at least twice what is measured (docs/clusters.md). Not much more: a job that asks for little starts soon,
    and one that runs out of time goes on where it stopped, with more."""
    seconds_per_round = 120 if spec.environment.network == "nature_cnn" else 10
    return 5 + spec.rounds * seconds_per_round // 60


def provenance_of(tables):
    """The lists of runs and analyses that a figure or printed table of these tables names."""
    return ["runs", *(["analyses"] if {*tables} & {*ANALYSIS_TABLES} else [])]
