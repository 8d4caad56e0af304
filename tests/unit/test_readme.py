"""What the pages say of the results: which study speaks for an environment, blocks that are there, sizes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from rl_influence.config import Config
from rl_influence.publish.ledger import Ledger
from rl_influence.publish.readme import BLOCKS, PAGES, claims, efficiency, found, gain, headline, render, saved
from rl_influence.publish.results_page import (
    COMMITTED,
    ends,
    failures,
    lost,
    second_looks,
    slight,
    spent,
    table,
    tuning,
    undecided,
)

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


def test_second_looks_are_those_of_undecided_claims_and_of_twice_the_seeds(root):
    def change(checks):
        mine = checks["claim"] == 6
        checks["outcome"] = "holds"
        checks["n"] = checks["planned"]
        checks.loc[mine, "outcome"] = "undecided"
        checks.loc[(checks["claim"] == 8) & (checks["role"] == "decides"), "n"] *= 2

    ledger = confirm(root, change)
    for number in ledger.verdicts["confirm"].index:
        ledger.verdicts["confirm"].loc[number, "verdict"] = "undecided" if number == 6 else "replicated"
    assert second_looks(ledger) == "Made: claim 8 (LunarLander). Not made: claim 6 (MiniGrid)."
    ledger.verdicts["confirm"].loc[6, "verdict"] = "partly"
    assert second_looks(ledger) == "Made: claim 8 (LunarLander). Not made: none."


def test_a_verdict_is_that_of_the_cases_that_are_shown(root):
    """Claim 8 has one case. Where the fresh seeds are complete they decide, whatever the explored ones say."""

    def fails(checks):
        checks.loc[(checks["claim"] == 8) & ~checks["role"].isin(["beside", "requires"]), "outcome"] = "fails"

    assert Ledger(root).verdict(8).verdict == "replicated"
    assert confirm(root, fails).verdict(8).verdict == "not replicated"


def test_cases_of_both_studies_are_counted_together(root):
    """Claim 2 holds in Acrobot and MiniGrid in one study, and in Highway in the other: three of six, as partly asks."""

    def only(*environments):
        def change(checks):
            mine = checks["claim"] == 2
            checks.loc[mine, ["outcome", "n"]] = ["not run", 0]
            checks.loc[mine & checks["environment"].isin(environments), ["outcome", "n"]] = ["holds", 8]

        return change

    path = root / "results/paper/tables/claims_checks.csv"
    checks = pd.read_csv(path)
    only("highway")(checks)
    checks.to_csv(path, index=False)
    ledger = confirm(root, only("acrobot", "minigrid"))
    assert ledger.verdict(2).verdict == "partly" and ledger.verdict(2).cases["full"] == 3
    assert [ledger.verdicts[study].loc[2, "full"] for study in ledger.studies] != [3, 3]


def test_what_a_larger_step_explains_follows_from_its_checks(root):
    """Two environments in which PPO with IIF's step saves; in one of them IIF saves against it all the same."""

    def run(checks):
        for environment, against_it in (("frozenlake", "fails"), ("acrobot", "holds")):
            mine = (checks["claim"] == 20) & (checks["environment"] == environment)
            checks.loc[mine, ["n", "value", "low", "high", "bound"]] = [5, 0.25, 0.2, 0.3, ""]
            checks.loc[mine, "outcome"] = ["holds" if role == "beside" else against_it for role in checks["role"][mine]]

    path = root / "results/paper/tables/claims_checks.csv"
    explored = pd.read_csv(path)
    explored.loc[explored["environment"] == "bipedalwalker", ["outcome", "n"]] = ["not run", 0]
    explored.to_csv(path, index=False)
    ledger = confirm(root, run)
    text = found(ledger)
    assert "against a PPO with steps as large, its saving is sure in 1 of 2 environments.**" in text
    assert "**Larger steps are most of it in FrozenLake.** A PPO whose rounds" in text
    assert (
        "as IIF's saves, against PPO: FrozenLake 25 % [20, 30], Acrobot 25 % [20, 30]. IIF against that PPO: Fro"
        in text
    )
    head, _, *rows = (line.split("|")[1:-1] for line in gain(ledger).splitlines())
    cells = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert {row[e] for row in rows_of_step(cells) for e in ("FrozenLake", "Acrobot")} == {"25 [20, 30]"}
    assert {row["Highway"] for row in rows_of_step(cells)} == {"–"}
    assert cells["IIF against PPO"]["Highway"] != "–" and "BipedalWalker" not in head


def rows_of_step(cells: dict) -> list[dict]:
    """The rows of the gain's table that set the step of a round."""
    return [row for name, row in cells.items() if "step" in name]


def test_the_first_line_is_what_holds_and_what_does_not(root):
    """A saving is counted where it was judged, and nothing is said where nothing was."""

    def outcomes(*values):
        def change(checks):
            mine = (checks["claim"] == 1) & (checks["role"] == "decides")
            checks.loc[mine, "outcome"] = values

        return change

    def line(*values):
        shutil.rmtree(root / "results/confirm", ignore_errors=True)
        return headline(confirm(root, outcomes(*values)))

    checks = pd.read_csv(root / "results/paper/tables/claims_checks.csv")
    assert ((checks["claim"] == 1) & (checks["role"] == "decides")).sum() == 6
    checks.loc[checks["claim"].isin([1, 20]), ["outcome", "n"]] = ["not run", 0]
    checks.to_csv(root / "results/paper/tables/claims_checks.csv", index=False)
    assert line("holds", "holds", "undecided", "fails", "not run", "incomplete") == (
        "**IIF needs fewer rounds than PPO in 2 of 4 environments.**"
    )
    assert line(*["undecided"] * 6) == "**IIF needs fewer rounds than PPO in none of 6 environments.**"
    assert line(*["not run"] * 6) == ""


def test_an_upper_bound_is_no_agreement(root):
    ledger = Ledger(root)
    rows = {row["label"]: row for row in ledger.of(1, role="vetoes", quantity="se_ave") if row["n"]}
    cells = {line.split("|")[1]: line.split("|")[5] for line in efficiency(ledger).splitlines()[2:]}
    kinds = {(row["paper_inside"], row["bound"] == "at most", cells[label]) for label, row in rows.items()}
    assert kinds <= {("yes", True, "bound"), ("yes", False, "yes"), ("no", True, "no"), ("no", False, "no")}
    assert ("yes", True, "bound") in kinds


def test_lost_runs_are_listed_with_their_seeds(root):
    rows = [("frozenlake", m, s, c, n) for m, s, c, n in [("ppo", 1, 0, 0), ("iif_p50", 1, 0, 1), ("iif_p50", 2, 1, 0)]]
    names = ["environment", "method", "seed", "collapsed", "never_rose"]
    pd.DataFrame(rows, columns=names).to_csv(root / "results/paper/tables/diagnostics_summary.csv", index=False)
    (line,) = lost(Ledger(root)).splitlines()[2:]
    assert re.split(r" *\| *", line)[1:-1] == ["paper", "FrozenLake", "IIF, p = 50 %", "2", "1", "2"]


def test_an_estimate_within_the_margin_is_named(root):
    path = root / "results/paper/tables/claims_checks.csv"
    checks = pd.read_csv(path)
    held = checks[(checks["outcome"] == "holds") & (checks["role"] == "decides") & (checks["margin"] > 0)].index[:2]
    checks.loc[held, "margin"] = (checks.loc[held, "value"] - checks.loc[held, "threshold"]).abs() * [1.01, 0.99]
    checks.to_csv(path, index=False)
    text = slight(Ledger(root))
    assert [checks.loc[k, "check"] in text for k in held] == [True, False]


def test_chosen_learning_rates_are_shown(root):
    """Three seeds: with 3 times the rate PPO is best in all, IIF in two, so one seed is judged with its own rate."""
    shutil.copytree(ROOT / "results/paper/tables", root / "results/confirm/tables")
    returns = {"ppo": [1, 1, 1], "ppo_lr3": [2, 2, 2], "iif_p50": [4, 1, 1], "iif_lr3": [1, 2, 2]}
    rows = [("frozenlake", m, s, x) for m, values in returns.items() for s, x in enumerate(values)]
    names = ["environment", "method", "seed", "mean_training_return"]
    pd.DataFrame(rows, columns=names).to_csv(root / "results/confirm/tables/returns_per_seed.csv", index=False)
    cells = [re.split(r" *\| *", line)[1:-1] for line in tuning(Ledger(root)).splitlines() if "FrozenLake" in line]
    assert cells[0] == ["FrozenLake", "PPO", "3", "1", "2", "3 × (3)"]
    assert cells[1] == ["FrozenLake", "IIF, p = 50 %", "3", "2", "1.67", "1 × (2), 3 × (1)"]


def test_how_far_ppo_gets_stands_beside_what_gymnasium_calls_solved(root):
    text = ends(Ledger(root))
    assert re.search(r"LunarLander +\| -1[\d.]+ \[.+\], n = 5 +\| .+ \| 200 ", text)
    assert re.search(r"MiniGrid .+\| – ", text)


def test_the_studies_whose_cost_is_told_are_those_that_git_keeps():
    kept = re.findall(r"^!/results/(\w+)/$", (ROOT / ".gitignore").read_text(), re.M)
    assert sorted(COMMITTED) == sorted(kept)


def test_cpu_hours_are_those_of_the_runs_that_are_there_of_committed_studies(root):
    """A study of a user's own changes no page."""
    for study, number in (("paper", 1), ("paper", 2), ("mine", 3)):
        folder = root / f"results/{study}/runs/frozenlake/ppo/seed{number}-00000000"
        folder.mkdir(parents=True)
        (folder / "timing.csv").write_text("round,sampling_s,optimise_s\n0,0.0,360.0\n1,1800.0,3240.0\n")
    assert "In all 2 runs and 3.0 CPU hours." in (text := spent(Ledger(root)))
    assert re.search(r"\| paper +\| FrozenLake +\| 2 +\| 3\.0 +\|", text)


def test_a_study_says_what_it_tests_and_nothing_else(root):
    """Of the study `paper` without claim 22's runs, and in an environment less."""
    path = root / "results/paper/tables/claims_checks.csv"
    checks = pd.read_csv(path)
    checks.loc[checks["claim"] == 22, ["n", "expected"]] = 0
    checks.loc[checks["environment"] == "bipedalwalker", ["outcome", "n"]] = ["not run", 0]
    checks.to_csv(path, index=False)
    config = Config(root / "config/paper.yaml")
    config.runs = tuple(run for run in config.runs if run.environment != "bipedalwalker")
    text = found(Ledger(root, ("paper",), config))
    assert "* Rounds saved: FrozenLake 25 %" in text and "BipedalWalker" not in text
    assert "clipping" not in text and "fresh" not in text
    assert saved(Ledger(root)).count("Not enough runs: BipedalWalker.") == 1
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
