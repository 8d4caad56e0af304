# The studies of language models, and the names of their files.
from rl_influence.rlhf.settings import load_study
from rl_influence.rlhf.settings import run_directory as rlhf_directory
from rl_influence.rlhf.store import RUN_FILES as RLHF_FILES
from rl_influence.rlhf.tables import TABLES as RLHF_TABLES

RLHF_PYTHON = os.environ.get("RL_INFLUENCE_RLHF_PYTHON", HERE / ".venv-rlhf/bin/python")
RLHF_CONFIG = f"{HERE}/config/{{study}}.yaml"
RLHF_FIGURES = ("fig07_rlhf", "fig16_targets")
RLHF_DETECTORS = ("tox_block", "hatesonar", "profanity")
RLHF_MODEL = "build/rlhf/study_model"
RLHF_RUN = "results/{study}/runs/{method}/{run}"
with in_one_line():
    RLHF = {study.study: study for study in map(load_study, sorted((HERE / "config").glob("rlhf_*.yaml")))}
RLHF_RUNS = {
    rlhf_directory(name, method, seed, spec).as_posix(): (name, spec)
    for name, study in RLHF.items()
    for method, seed, spec in study.runs()
}


wildcard_constraints:
    study="rlhf_[a-z0-9_]+",


def rlhf_inputs(wildcards):
    """What a run needs that other rules make: detectors, and the start model if it is one of ours."""
    spec = RLHF_RUNS[RLHF_RUN.format(**wildcards)][1]
    named = {detector.name for detector in (spec.reward, *spec.evaluation.detectors)}
    made = [RLHF_MODEL] if spec.model.name == RLHF_MODEL else []
    return [f"build/rlhf/{name}.npz" for name in RLHF_DETECTORS if name in named] + made
