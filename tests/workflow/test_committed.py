"""The committed results: `make figures` gives the committed bytes, and the README says what they say."""

from pathlib import Path

import pytest

from rl_influence.config import Config
from rl_influence.publish.readme import render

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_figures_and_tables_are_redrawn_to_the_byte(workspace):
    workspace.add_results()
    before = {name: workspace.files(name) for name in ("results/paper", "paper_figures/paper")}
    assert before["paper_figures/paper"]
    result = workspace.snakemake("--cores", "2", "--forceall", study="paper", entry="figures.smk")
    assert result.returncode == 0, result.stdout
    for name, files in before.items():
        after = workspace.files(name)
        assert sorted(after) == sorted(files)
        assert [path for path in files if files[path] != after[path]] == []


def test_readme_says_what_the_results_say():
    config = Config(ROOT / "config/paper.yaml")
    text = (ROOT / "README.md").read_text()
    assert render(text, ROOT / "results/paper/tables", config) == text
