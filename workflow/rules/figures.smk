# Tables -> figures, one rule for all: a figure reads tables and nothing else.
from rl_influence import figures

try:
    figures.check(STUDY)
except ConfigError as error:
    refuse(error)

FIGURES = [f"{DRAWN}/{name}.{kind}" for name in STUDY.study_config.figures for kind in ("pdf", "png")]


def tables_of_figure(wildcards):
    """The tables that a figure reads, and the lists of runs and analyses that it names."""
    reads = figures.FIGURES[wildcards.name].reads
    return {name: TABLE_FILES[name] for name in (*reads, *provenance_of(reads))}


rule figure:
    input:
        unpack(tables_of_figure),
        catalogue=CATALOGUE,
    output:
        pdf=f"{DRAWN}/{{name}}.pdf",
        png=report(f"{DRAWN}/{{name}}.png", caption="../report/figure.rst", category="Figures"),
    log:
        f"{LOGS}/figures/{{name}}.log",
    benchmark:
        f"{LOGS}/figures/{{name}}.tsv"
    conda:
        "../../environment.yml"
    wildcard_constraints:
        name="|".join(figures.FIGURES),
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        caption=lambda wildcards: figures.FIGURES[wildcards.name].caption,
    script:
        "../scripts/figure.py"
