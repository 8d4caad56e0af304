"""The committed results: `make figures` gives the committed bytes, and the README says what they say."""

from pathlib import Path

import pytest

from rl_influence.publish.readme import files

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_figures_and_tables_are_redrawn_to_the_byte(workspace):
    workspace.add_results()
    before = {name: workspace.files(name) for name in ("results/paper", "paper_figures/paper")}
    assert before["paper_figures/paper"]
    result = workspace.snakemake("--cores", "2", "--forceall", study="paper", entry="figures.smk")
    assert result.returncode == 0, result.stdout
    for name, drawn in before.items():
        after = workspace.files(name)
        assert sorted(after) == sorted(drawn)
        assert [path for path in drawn if drawn[path] != after[path]] == []


@pytest.mark.parametrize("page", ["README.md", "docs/results.md"])
def test_pages_say_what_the_results_say(page):
    assert (ROOT / page).read_text() == files(ROOT)[ROOT / page], "make regenerate"
