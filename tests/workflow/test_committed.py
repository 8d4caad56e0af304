"""The committed results: `make figures` gives the committed bytes, and the README says what they say."""

import re
from pathlib import Path

import pytest

from rl_influence.publish.readme import files

ROOT = Path(__file__).parents[2]
STUDIES = re.search(r"^STUDIES := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()


def test_every_study_that_is_committed_is_redrawn_by_make_figures():
    assert sorted(STUDIES) == sorted({path.parents[1].name for path in ROOT.glob("results/*/tables/claims.csv")})


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_figures_and_tables_are_redrawn_to_the_byte(study, workspace):
    workspace.add_results()
    before = {name: workspace.files(name) for name in (f"results/{study}", f"paper_figures/{study}")}
    assert before[f"paper_figures/{study}"]
    result = workspace.snakemake("--cores", "2", "--forceall", study=study, entry="figures.smk")
    assert result.returncode == 0, result.stdout
    for name, drawn in before.items():
        after = workspace.files(name)
        assert sorted(after) == sorted(drawn)
        assert [path for path in drawn if drawn[path] != after[path]] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/results.md"])
def test_pages_say_what_the_results_say(page):
    assert (ROOT / page).read_text() == files(ROOT)[ROOT / page], "make regenerate"
