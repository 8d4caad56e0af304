# The resolved study, the names of its files, and what rules ask about them. Nothing is read here but configuration.
import os
from contextlib import contextmanager
from pathlib import Path

from snakemake.exceptions import WorkflowError

from rl_influence import figures
from rl_influence.analysis.claims import CLAIM_TABLES, level_of, load_claims
from rl_influence.analysis.claims.samples import language_model_files
from rl_influence.analysis.registry import analysis_directory, check_analyses, study_tables
from rl_influence.analysis.runtimes import timed
from rl_influence.analysis.tables import TABLES as TABLE_MAKERS
from rl_influence.config import Config, ConfigError, read_yaml
from rl_influence.publish.latex import check_printed
from rl_influence.runs.store import RUN_FILES, ResultError, Results, snapshot_directory

HERE = Path(workflow.snakefile).resolve().parents[2]  # the repository; results go to the folder that snakemake works in

if not os.access(".", os.W_OK):  # Snakemake itself would write below it, and end in its own traceback
    raise WorkflowError(f"{os.getcwd()} cannot be written to; --directory names another folder for all results")

# Another study replaces the default and is not completed by it; `--config study=mine` is the default under that name.
if not workflow.configfiles and "grid" not in config:

    configfile: HERE / "config" / DEFAULT_STUDY


@contextmanager
def in_one_line():
    """What a user can mend ends snakemake with the line that says so."""
    try:
        yield
    except (ConfigError, ResultError) as error:
        raise WorkflowError(str(error)) from None


def catalogue():
    """The folder of methods.yaml, environments/ and claims.yaml: the study file's, or else the repository's."""
    folders = [Path(file).resolve().parent for file in reversed(workflow.configfiles)]
    return next((folder for folder in folders if (folder / "methods.yaml").exists()), HERE / "config")


with in_one_line():
    for file in workflow.configfiles:
        read_yaml(file)  # refuses what Snakemake reads without a word: repeated keys, for instance
    STUDY = Config(config, catalogue(), name=[*workflow.configfiles, "config"][0])
    WANTED = STUDY.study_config
    check_analyses(STUDY)
    figures.check(STUDY)
    check_printed(STUDY)
    TIMED = timed(STUDY)
    READ_BY_CLAIMS = [*load_claims(STUDY.folder).tables, "missing_runs", "missing_analyses"]

RESULTS, DRAWN, LOGS = (f"{folder}/{STUDY.study}" for folder in ("results", "paper_figures", "logs"))
JOB = "{environment}/{method}/{run}"
RUN, ANALYSIS = f"{RESULTS}/runs/{JOB}", f"{RESULTS}/analyses/{{analysis}}/{JOB}"
FOLDERS = Results()  # a run that another study of this folder has is an input that is there
RUNS = {FOLDERS.locate(STUDY.study, run).as_posix(): run for run in STUDY.runs}
ANALYSES = {analysis_directory(STUDY.study, analysis).as_posix(): analysis for analysis in STUDY.analyses}
SNAPSHOT_ROUNDS = {}  # run's folder -> rounds that its analyses need
for analysis in STUDY.analyses:
    folder = FOLDERS.locate(STUDY.study, analysis.run).as_posix()
    SNAPSHOT_ROUNDS[folder] = sorted({*analysis.rounds, *SNAPSHOT_ROUNDS.get(folder, [])})

CURVE_TABLES = {name: f"{RESULTS}/tables/{name}.csv" for name in TABLE_MAKERS}
ANALYSIS_TABLES = {name: f"{RESULTS}/tables/{name}.csv" for name in study_tables(STUDY)}
CLAIMS = {name: f"{RESULTS}/tables/{name}.csv" for name in CLAIM_TABLES}
TIMINGS = f"{RESULTS}/timings/timings.csv"
MEASURED = {"timings": TIMINGS} if TIMED and (CAN_TRAIN or os.path.exists(TIMINGS)) else {}
TABLES = CURVE_TABLES | ANALYSIS_TABLES | MEASURED | CLAIMS
JUDGED = {name: TABLES[name] for name in READ_BY_CLAIMS if name in TABLES}
PRINTED = [f"{DRAWN}/{name}.tex" for name in WANTED.tables]
FIGURES = [f"{DRAWN}/{name}.{kind}" for name in WANTED.figures for kind in ("pdf", "png")]
REPORT = f"report/{STUDY.study}.html"

# What jobs read that are about all runs.
WHOLE_STUDY = {
    "study": {key: config[key] for key in config if key not in ("figures", "tables")},
    "folder": str(STUDY.folder),
}
CATALOGUE = [
    STUDY.folder / "methods.yaml",
    STUDY.folder / "paper_reported.yaml",
    *(STUDY.folder / f"environments/{name}.yaml" for name in dict.fromkeys(run.environment for run in STUDY.runs)),
]


wildcard_constraints:
    analysis="[a-z_]+",
    environment="[a-z0-9_]+",
    method="[a-z0-9_]+",
    run="seed[0-9]+-[0-9a-f]{8}",
    name="[a-z0-9_]+",


def manifests(folders):
    """The files with which runs or analyses are there; in the entry that cannot train, of those that are."""
    files = [f"{folder}/manifest.json" for folder in folders]
    return [file for file in files if CAN_TRAIN or os.path.exists(file)]


def run_of(wildcards):
    """The run whose folder a job makes."""
    return RUNS[RUN.format(**wildcards)]


def minutes(spec):
    """Asked for, at least twice what is measured (docs/clusters.md). Not much more: a job that asks for little starts soon,
    and one that runs out of time goes on where it stopped, with more."""
    seconds_per_round = 120 if spec.environment.network == "nature_cnn" else 10
    return 5 + spec.rounds * seconds_per_round // 60


def analysis_of(wildcards):
    """The analysis whose folder a job makes."""
    return ANALYSES[ANALYSIS.format(**wildcards)]


def trained(wildcards):
    """The folder of the run that an analysis is of."""
    return FOLDERS.locate(STUDY.study, analysis_of(wildcards).run).as_posix()


def updated(tables):
    """Outputs of which a job that fails loses none: Snakemake removes others before a job, and after it if it fails."""
    return {name: update(file) for name, file in tables.items()}


def with_provenance(names):
    """Files of tables, and the lists of runs and analyses that a figure or printed table of them names."""
    lists = ["runs", *(["analyses"] if {*names} & {*ANALYSIS_TABLES} else [])]
    return {name: TABLES[name] for name in [*names, *lists]}
