# Tables -> figures, one rule for all: a figure reads tables and nothing else.


rule figure:
    input:
        unpack(lambda wildcards: with_provenance(figures.FIGURES[wildcards.name].reads)),
        catalogue=CATALOGUE,
    output:
        pdf=update(f"{DRAWN}/{{name}}.pdf"),
        png=report(update(f"{DRAWN}/{{name}}.png"), caption="../report/figure.rst", category="Figures"),
    log:
        f"{LOGS}/figures/{{name}}.log",
    benchmark:
        f"{LOGS}/figures/{{name}}.tsv"
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        config=WHOLE_STUDY,
        caption=lambda wildcards: figures.FIGURES[wildcards.name].caption,
    script:
        "../scripts/figure.py"
