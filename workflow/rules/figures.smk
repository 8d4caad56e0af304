# Tables -> figures, one rule for all: a figure reads tables and nothing else.
from rl_influence.figures import FIGURES as FIGURE_MAKERS

try:
    check_tables(STUDY, {f"figure {name}": FIGURE_MAKERS[name][1] for name in STUDY.study_config.figures})
except ConfigError as error:
    refuse(error)

FIGURES = [f"{DRAWN}/{name}.{kind}" for name in STUDY.study_config.figures for kind in ("pdf", "png")]


rule figure:
    input:
        tables=lambda wildcards: [TABLE_FILES[name] for name in FIGURE_MAKERS[wildcards.name][1]],
        lists=lambda wildcards: provenance_of(FIGURE_MAKERS[wildcards.name][1]),
        catalogue=CATALOGUE,
    output:
        pdf=f"{DRAWN}/{{name}}.pdf",
        png=report(f"{DRAWN}/{{name}}.png", caption="../report/{name}.rst", category="Figures"),
    log:
        f"{LOGS}/figures/{{name}}.log",
    benchmark:
        f"{LOGS}/figures/{{name}}.tsv"
    conda:
        "../../environment.yml"
    wildcard_constraints:
        name="|".join(FIGURE_MAKERS),
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    script:
        "../scripts/figure.py"
