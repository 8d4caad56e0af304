# The studies of language models, and the names of their files.
from rl_influence.rlhf.settings import load_study, locate
from rl_influence.rlhf.settings import run_directory as rlhf_directory
from rl_influence.rlhf.store import RUN_FILES as RLHF_FILES
from rl_influence.rlhf.tables import TABLES as RLHF_TABLES

RLHF_PYTHON = os.environ.get("RL_INFLUENCE_RLHF_PYTHON", HERE / ".venv-rlhf/bin/python")
RLHF_CONFIG = f"{HERE}/config/{{study}}.yaml"
RLHF_FIGURES = ("fig07_rlhf", "fig16_targets")
RLHF_DETECTORS = ("tox_block", "hatesonar", "profanity")
RLHF_MODEL = "build/rlhf/study_model"
RLHF_RUN = "results/{study}/runs/{method}/{run}"
RLHF_REMOVAL = "results/{study}/faithfulness/{removal}.csv"
with in_one_line():
    RLHF = {study.study: study for study in map(load_study, sorted((HERE / "config").glob("rlhf_*.yaml")))}
RLHF_SPECS = {
    rlhf_directory(name, method, seed, spec).as_posix(): spec
    for name, study in RLHF.items()
    for method, seed, spec in study.runs()
}
RLHF_REMOVALS = {path.as_posix(): what for study in RLHF.values() for path, what in study.removals().items()}


wildcard_constraints:
    study="rlhf_[a-z0-9_]+",


def rlhf_needs(spec, made):
    """What a run needs that other rules make: detectors, and the start model if it is one of ours. A result that is
    there needs nothing: else it would be made anew as soon as a detector is."""
    if Path(made).exists():
        return []
    named = {detector.name for detector in (spec.reward, *spec.evaluation.detectors)}
    model = [RLHF_MODEL] if spec.model.name == RLHF_MODEL else []
    return [f"build/rlhf/{name}.npz" for name in RLHF_DETECTORS if name in named] + model


def rlhf_run_needs(wildcards):
    folder = RLHF_RUN.format(**wildcards)
    return rlhf_needs(RLHF_SPECS[folder], f"{folder}/manifest.json")


def rlhf_removal_needs(wildcards):
    path = RLHF_REMOVAL.format(**wildcards)
    return rlhf_needs(RLHF_REMOVALS[path][2], path)


def rlhf_results(name):
    """A study's runs, some of them perhaps another study's, and its removals."""
    study = RLHF[name]
    runs = [locate(study.study, method, seed, spec) for method, seed, spec in study.runs()]
    return [f"{run.as_posix()}/manifest.json" for run in runs] + [path.as_posix() for path in study.removals()]
