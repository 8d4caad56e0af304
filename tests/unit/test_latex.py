"""Printed tables are LaTeX that compiles: by its structure always, by pdflatex where there is one."""

import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

from rl_influence.analysis.curves import load_study
from rl_influence.analysis.reported import load_reported
from rl_influence.analysis.tables import TABLES, make_tables
from rl_influence.config import Config
from rl_influence.publish.latex import LATEX, escape, latex
from synthetic import CATALOGUE, faithfulness_tables, study, write_synthetic_study

GRID = (
    {"environments": ["frozenlake", "minigrid"], "methods": ["ppo", "random", "iif_p12_5", "iif_p50"], "seeds": [0, 1]},
    {"environments": ["minigrid_adam"], "methods": ["ppo", "iif_p12_5"], "seeds": [0]},
)


def summary(key: dict, *measures: str) -> pd.DataFrame:
    """Of two environments; the measures of the second are undefined."""
    rows = [
        {"environment": name, "method": "ppo", "round": 2, "n": 2, "expected": 3} for name in ("frozenlake", "minigrid")
    ]
    columns = {f"{name}{part}": [0.5, np.nan] for name in measures for part in ("", "_sd", "_low", "_high")}
    return pd.DataFrame(rows).assign(**key, **columns)


SUMMARIES = {  # of analyses
    "diagnosis_summary": summary(
        {"source": "exact"}, "spearman_product", "error", "error_bottom", "sign_agreement", "sign_agreement_bottom"
    ),
    "agreement_summary": summary({"shortcut": "raw"}, "spearman", "overlap", "overlap_by_chance"),
}


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Every printed table of a study with a missing run and with one seed (cells without an interval)."""
    config, root = study(*({**block, "rounds": 6} for block in GRID)), tmp_path_factory.mktemp("latex")
    write_synthetic_study(root, config, skip=lambda run: run.method == "random" and run.seed == 1)
    tables = make_tables(load_study(config, root), tuple(set(LATEX) & set(TABLES)), load_reported(CATALOGUE))
    tables |= faithfulness_tables(config, [("minigrid", "ppo", 0), ("minigrid", "ppo", 1)]) | SUMMARIES
    return {name: latex(name, table, config) for name, table in tables.items() if name in LATEX}


@pytest.mark.parametrize("name", LATEX)
def test_rows_have_the_headers_cells_and_braces_close(printed, name):
    begin, *rows, end, last = printed[name].split("\n")
    columns = re.fullmatch(r"\\begin\{tabular\}\{([lr]+)\}", begin)[1]
    assert (end, last) == (r"\end{tabular}", "")
    cells = [row.removesuffix(r" \\") for row in rows if row.endswith(r"\\")]
    rules = [row for row in rows if not row.endswith(r"\\")]
    assert len(cells) >= 2 and set(rules) == {r"\toprule", r"\midrule", r"\bottomrule"}
    for row in cells:
        parts = re.split(r"(?<!\\)&", row)
        assert len(parts) == len(columns)
        for part in parts:
            assert part.count("{") == part.count("}") and part.count("$") % 2 == 0
            outside = re.sub(r"\$[^$]*\$", "", part)
            assert not re.search(r"(?<!\\)[%#_^~&]", outside) and "nan" not in part
            assert outside.isascii()


def test_special_characters_are_escaped():
    assert escape(r"50 % & a_b #1 $x$ {y} ~ ^ \z") == (
        r"50 \% \& a\_b \#1 \$x\$ \{y\} \textasciitilde{} \textasciicircum{} \textbackslash{}z"
    )


@pytest.mark.slow
def test_pdflatex_compiles_all_tables(printed, tmp_path):
    if not shutil.which("pdflatex"):
        pytest.skip("pdflatex is not installed (Debian: apt-get install texlive-latex-recommended)")
    # booktabs' rules, in case only LaTeX's core is there
    lines = [r"\documentclass{article}", r"\IfFileExists{booktabs.sty}{\usepackage{booktabs}}{"]
    lines += [r"\let\toprule\hline\let\midrule\hline\let\bottomrule\hline}", r"\begin{document}"]
    (tmp_path / "all.tex").write_text("\n".join([*lines, *printed.values(), r"\end{document}"]))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout[-2000:]
    assert (tmp_path / "all.pdf").read_bytes().startswith(b"%PDF")


def test_header_says_the_level_of_the_study():
    block = {"environments": ["frozenlake"], "methods": ["ppo"], "seeds": [0]}
    for name, level in (("made_up", "95"), ("confirm", "97.1")):
        config = Config({"study": name, "grid": [block]}, CATALOGUE)
        text = latex("table_4", pd.DataFrame(columns=["environment"]), config)
        assert rf"{level}\% interval" in text
