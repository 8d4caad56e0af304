# The language-model branch: config/rlhf_*.yaml -> runs -> tables -> figures. Nothing asks for it but its own targets, the
# studies' names (`snakemake rlhf_fast`); its jobs run in an environment of their own (make .venv-rlhf/ready).


include: "rlhf_common.smk"


rule rlhf_detectors:
    output:
        expand("build/rlhf/{name}.npz", name=RLHF_DETECTORS),
    log:
        "logs/rlhf/detectors.log",
    conda:
        "../../environment-rlhf.yml"
    threads: 1
    resources:
        mem_mb=3000,
        runtime=10,
    params:
        python=RLHF_PYTHON,
    shell:
        "{params.python:q} -m rl_influence.rlhf prepare detectors > {log} 2>&1"


rule rlhf_study_model:
    output:
        directory(RLHF_MODEL),
    log:
        "logs/rlhf/study_model.log",
    conda:
        "../../environment-rlhf.yml"
    threads: 2
    resources:
        mem_mb=6000,
        runtime=60,
    params:
        python=RLHF_PYTHON,
    shell:
        "{params.python:q} -m rl_influence.rlhf prepare study-model --output {output} > {log} 2>&1"


# How the committed model came about; CORPUS is a folder of JSON lists of sentences (npm's nlp-corpus 4.4.0, MIT: builds/).
rule rlhf_fast_model:
    input:
        corpus=os.environ.get("CORPUS", "build/rlhf/nlp-corpus/builds"),
        detector="build/rlhf/tox_block.npz",
    output:
        directory("build/rlhf/fast_model"),
    log:
        "logs/rlhf/fast_model.log",
    conda:
        "../../environment-rlhf.yml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        python=RLHF_PYTHON,
    shell:
        "{params.python:q} -m rl_influence.rlhf prepare fast-model --corpus {input.corpus} --output {output} > {log} 2>&1"


rule rlhf_run:
    input:
        ancient(rlhf_run_needs),
    output:
        [f"{RLHF_RUN}/{file}" for file in RLHF_FILES],
    log:
        "logs/{study}/{method}/{run}.log",
    conda:
        "../../environment-rlhf.yml"
    threads: lambda wildcards: RLHF[wildcards.study].model.threads
    resources:
        mem_mb=lambda wildcards, attempt: 5000 * attempt,
        runtime=lambda wildcards, attempt: 600 * attempt,
    params:
        python=RLHF_PYTHON,
        config=RLHF_CONFIG,
        seed=lambda wildcards: wildcards.run.removeprefix("seed").partition("-")[0],
    shell:
        "{params.python:q} -m rl_influence.rlhf run --config {params.config:q} --method {wildcards.method}"
        " --seed {params.seed} >> {log} 2>&1 || {{ tail -n 1 {log} >&2; exit 1; }}"


rule rlhf_faithfulness:
    input:
        ancient(rlhf_removal_needs),
    output:
        RLHF_REMOVAL,
    log:
        "logs/{study}/faithfulness/{removal}.log",
    conda:
        "../../environment-rlhf.yml"
    threads: lambda wildcards: RLHF[wildcards.study].model.threads
    resources:
        mem_mb=lambda wildcards, attempt: 5000 * attempt,
        runtime=lambda wildcards, attempt: 240 * attempt,
    params:
        python=RLHF_PYTHON,
        config=RLHF_CONFIG,
        which=lambda wildcards: "--seed {} --round {}".format(*RLHF_REMOVALS[RLHF_REMOVAL.format(**wildcards)]),
    shell:
        "{params.python:q} -m rl_influence.rlhf faithfulness --config {params.config:q} {params.which} >> {log} 2>&1"
        " || {{ tail -n 1 {log} >&2; exit 1; }}"


rule rlhf_draw:
    input:
        lambda wildcards: rlhf_results(wildcards.study),
    output:
        expand("results/{{study}}/tables/{table}.csv", table=RLHF_TABLES),
        expand("paper_figures/{{study}}/{figure}.{kind}", figure=RLHF_FIGURES, kind=["pdf", "png"]),
    log:
        "logs/{study}/draw.log",
    conda:
        "../../environment-rlhf.yml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        python=RLHF_PYTHON,
        config=RLHF_CONFIG,
    shell:
        "{params.python:q} -m rl_influence.rlhf draw --config {params.config:q} > {log} 2>&1"


for name in RLHF:

    rule:
        name:
            name
        input:
            f"paper_figures/{name}/{RLHF_FIGURES[0]}.png",
            rlhf_results(name),
