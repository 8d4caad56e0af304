"""What the pages say of the results: which study speaks for an environment, blocks that are there, sizes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from rl_influence.config import Config
from rl_influence.publish.ledger import Ledger
from rl_influence.publish.readme import BLOCKS, PAGES, claims, found, render
from rl_influence.publish.results_page import failures, spent, table, undecided

ROOT = Path(__file__).parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The committed tables of the study `paper`, and its catalogue."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    shutil.copytree(ROOT / "results/paper/tables", tmp_path / "results/paper/tables")
    return tmp_path


def confirm(root: Path, change) -> Ledger:
    """A ledger with a study `confirm` whose tables are the paper's, changed by `change(checks)`."""
    folder = root / "results/confirm/tables"
    shutil.copytree(root / "results/paper/tables", folder)
    checks = pd.read_csv(folder / "claims_checks.csv")
    change(checks)
    checks.to_csv(folder / "claims_checks.csv", index=False)
    return Ledger(root)


def test_the_confirmatory_study_speaks_where_it_is_complete(root):
    def other_value(checks):
        checks.loc[(checks["claim"] == 1) & (checks["environment"] == "frozenlake"), "value"] = 0.123

    (row,) = [r for r in confirm(root, other_value).of(1, role="decides") if r["environment"] == "frozenlake"]
    assert row["value"] == 0.123 and row["study"] == "confirm"


def test_the_explored_seeds_speak_where_it_is_not(root):
    def incomplete(checks):
        mine = (checks["claim"] == 1) & (checks["environment"] == "frozenlake")
        checks.loc[mine, ["outcome", "value", "n"]] = ["incomplete", 0.123, 2]

    (row,) = [r for r in confirm(root, incomplete).of(1, role="decides") if r["environment"] == "frozenlake"]
    assert row["study"] == "paper" and row["value"] != 0.123


def test_every_block_is_made_and_none_is_unknown(root):
    ledger = Ledger(root)
    whole = "".join(f"<!-- {name} -->\nold\n<!-- end -->\n" for name in BLOCKS)
    text = render(whole, BLOCKS, ledger)
    assert "old" not in text and render(text, BLOCKS, ledger) == text
    for wrong in (whole.replace("<!-- claims -->", "<!-- clams -->"), whole.partition("<!-- end -->")[2]):
        with pytest.raises(ValueError, match="the page has the blocks"):
            render(wrong, BLOCKS, ledger)


def test_what_fails_and_what_is_undecided_is_listed_once(root):
    ledger = Ledger(root)
    counting = ledger.checks[~ledger.checks["role"].isin(["beside", "requires"])]
    for make, outcome in ((failures, "fails"), (undecided, "undecided")):
        lines = make(ledger).splitlines()[2:]
        assert len(lines) == (counting["outcome"] == outcome).sum() > 0
        assert len(set(lines)) == len(lines)


def test_cpu_hours_are_those_of_the_runs_that_are_there(root):
    for number in (1, 2):
        folder = root / f"results/paper/runs/frozenlake/ppo/seed{number}-00000000"
        folder.mkdir(parents=True)
        (folder / "timing.csv").write_text("round,sampling_s,optimise_s\n0,0.0,360.0\n1,1800.0,3240.0\n")
    assert "In all 2 runs and 3.0 CPU hours." in (text := spent(Ledger(root)))
    assert re.search(r"\| paper +\| FrozenLake +\| 2 +\| 3\.0 +\|", text)


def test_a_study_says_what_it_tests_and_nothing_else(root):
    """Of the study `paper` without claim 22's runs, and in an environment less."""
    path = root / "results/paper/tables/claims_checks.csv"
    checks = pd.read_csv(path)
    checks.loc[checks["claim"] == 22, ["n", "expected"]] = 0
    checks.to_csv(path, index=False)
    config = Config(root / "config/paper.yaml")
    config.runs = tuple(run for run in config.runs if run.environment != "bipedalwalker")
    text = found(Ledger(root, ("paper",), config))
    assert "**IIF saves rounds in FrozenLake (25.3 %" in text and "BipedalWalker" not in text
    assert "clipping" not in text and "fresh" not in text
    counts = pd.read_csv(root / "results/paper/tables/claims.csv").query("claim <= 17")[["full", "part", "fails"]].sum()
    assert "holds {}, holds in part {}, fails {}, undecided ".format(*counts) in text


def test_levels_of_intervals_are_said(root):
    text = found(confirm(root, lambda checks: None))
    assert "Intervals over seeds: 97.1 % for fresh ones, 95 % for explored ones." in text


def test_a_study_of_language_models_has_its_label_and_its_marks(root):
    def run(checks):
        mine = (checks["claim"] == 17) & (checks["environment"] == "rlhf_fast")
        checks.loc[mine, ["outcome", "value", "n"]] = ["holds", 0.5, 5]

    ledger = confirm(root, run)
    assert {row["label"] for row in ledger.of(17) if row["n"]} == {"GPT-Neo, 2.6M parameters"}
    (line,) = [line for line in claims(ledger).splitlines() if line.startswith("|17|")]
    assert line.endswith("||||||✓ …|")


def test_a_cell_may_hold_a_bar():
    assert table([{"a": "|x|", "b": "01"}]).splitlines()[-1] == r"| \|x\| | 01  |"


def test_the_first_page_is_short():
    """By `wc`, which counts everything."""
    text = (ROOT / "README.md").read_text()
    assert text.count("\n") <= 120 and len(text.split()) <= 1300


def test_each_page_has_its_blocks():
    for name, blocks in PAGES.items():
        assert sorted(re.findall(r"<!-- (?!end )(\w+) -->", (ROOT / name).read_text())) == sorted(blocks)
