# The language-model branch: config/rlhf_*.yaml -> runs -> tables -> figures. Nothing asks for it but its own targets, the
# studies' names (`snakemake rlhf_fast`); its jobs run in an environment of their own (make .venv-rlhf/ready).
from rl_influence.rlhf.settings import load_study
from rl_influence.rlhf.settings import run_directory as rlhf_directory
from rl_influence.rlhf.store import RUN_FILES as RLHF_FILES
from rl_influence.rlhf.tables import TABLES as RLHF_TABLES

RLHF_PYTHON = os.environ.get("RL_INFLUENCE_RLHF_PYTHON", ".venv-rlhf/bin/python")
RLHF_FIGURES = ("fig07_rlhf", "fig16_targets")
with in_one_line():
    RLHF = {study.study: study for study in map(load_study, sorted((HERE / "config").glob("rlhf_*.yaml")))}
RLHF_RUNS = {
    rlhf_directory(name, method, seed, spec).as_posix(): (name, method, seed, spec)
    for name, study in RLHF.items()
    for method, seed, spec in study.runs()
}


def rlhf_inputs(wildcards):
    """What a run needs that other rules make: detectors, and the start model if it is one of ours."""
    folder = "results/{study}/runs/{method}/{run}".format(**wildcards)
    spec = RLHF_RUNS[folder][3]
    named = {detector.name for detector in (spec.reward, *spec.evaluation.detectors)}
    made = ["build/rlhf/study_model"] if spec.model.name == "build/rlhf/study_model" else []
    return [f"build/rlhf/{name}.npz" for name in ("tox_block", "hatesonar", "profanity") if name in named] + made


def rlhf_manifests(wildcards):
    return [f"{folder}/manifest.json" for folder, (name, *_) in RLHF_RUNS.items() if name == wildcards.study]


wildcard_constraints:
    study="rlhf_[a-z0-9_]+",


rule rlhf_detectors:
    output:
        expand("build/rlhf/{name}.npz", name=["tox_block", "hatesonar", "profanity"]),
    log:
        "logs/rlhf/detectors.log",
    threads: 1
    resources:
        mem_mb=3000,
        runtime=10,
    shell:
        "{RLHF_PYTHON} -m rl_influence.rlhf prepare detectors > {log} 2>&1"


rule rlhf_study_model:
    output:
        directory("build/rlhf/study_model"),
    log:
        "logs/rlhf/study_model.log",
    threads: 2
    resources:
        mem_mb=6000,
        runtime=60,
    shell:
        "{RLHF_PYTHON} -m rl_influence.rlhf prepare study-model --output {output} > {log} 2>&1"


# How the committed model came about; CORPUS is a folder of JSON lists of sentences (npm's nlp-corpus 4.4.0, MIT: builds/).
rule rlhf_fast_model:
    input:
        corpus=os.environ.get("CORPUS", "build/rlhf/nlp-corpus/builds"),
        detector="build/rlhf/tox_block.npz",
    output:
        directory("build/rlhf/fast_model"),
    log:
        "logs/rlhf/fast_model.log",
    threads: 1
    resources:
        mem_mb=4000,
        runtime=60,
    shell:
        "{RLHF_PYTHON} -m rl_influence.rlhf prepare fast-model --corpus {input.corpus} --output {output} > {log} 2>&1"


rule rlhf_run:
    input:
        ancient(rlhf_inputs),
    output:
        expand("results/{{study}}/runs/{{method}}/{{run}}/{file}", file=RLHF_FILES),
    log:
        "logs/{study}/{method}/{run}.log",
    threads: lambda wildcards: RLHF[wildcards.study].model.threads
    resources:
        mem_mb=lambda wildcards, attempt: 5000 * attempt,
        runtime=lambda wildcards, attempt: 600 * attempt,
    params:
        seed=lambda wildcards: wildcards.run.removeprefix("seed").partition("-")[0],
    shell:
        "{RLHF_PYTHON} -m rl_influence.rlhf run --config {HERE}/config/{wildcards.study}.yaml --method {wildcards.method}"
        " --seed {params.seed} >> {log} 2>&1 || {{ tail -n 1 {log} >&2; exit 1; }}"


rule rlhf_draw:
    input:
        rlhf_manifests,
    output:
        expand("results/{{study}}/tables/{table}.csv", table=RLHF_TABLES),
        expand("paper_figures/{{study}}/{figure}.{kind}", figure=RLHF_FIGURES, kind=["pdf", "png"]),
    log:
        "logs/{study}/draw.log",
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    shell:
        "{RLHF_PYTHON} -m rl_influence.rlhf draw --config {HERE}/config/{wildcards.study}.yaml > {log} 2>&1"


for name in RLHF:

    rule:
        name:
            name
        input:
            f"paper_figures/{name}/{RLHF_FIGURES[0]}.png",
