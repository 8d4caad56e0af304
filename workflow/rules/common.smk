# The resolved study and the names of its files, for both entries.
import os
import sys
from pathlib import Path

from rl_influence.config import Config, ConfigError, check_environments, read_yaml
from rl_influence.provenance import RUN_FILES, run_directory

try:
    for file in workflow.configfiles:
        read_yaml(file)  # refuses what Snakemake reads without a word: repeated keys, for instance
    STUDY = Config(config)
except ConfigError as error:
    print(f"rl-influence: {error}", file=sys.stderr)
    sys.exit(1)

RESULTS = f"results/{STUDY.study}"
DRAWN = f"paper_figures/{STUDY.study}"
LOGS = f"logs/{STUDY.study}"
# Jobs estimate the time left with it. Not a param: other cores must not make a result stale.
os.environ.update(RL_INFLUENCE_CORES=str(workflow.cores or 1))
RUNS = {run_directory(STUDY.study, run).as_posix(): run for run in STUDY.runs}


def run_files():
    """The files of every run of the grid; in the entry that cannot train, of those that are there."""
    files = [f"{directory}/{name}" for directory in RUNS for name in RUN_FILES]
    return [file for file in files if CAN_TRAIN or os.path.exists(file)]
