"""Tables of a study from made-up runs, by hand-worked numbers; figures draw the same bytes twice."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rl_influence.analysis.claims import evaluate, load_claims
from rl_influence.analysis.claims.samples import language_model_files, language_models
from rl_influence.analysis.reported import load_reported
from rl_influence.config import Config
from rl_influence.rlhf import figures, tables
from rl_influence.rlhf.settings import load_study, locate, run_directory
from rl_influence.runs.store import ResultError


def made_up(reward: dict[tuple[str, int], list[float]], kept: int = 32) -> pd.DataFrame:
    rows = []
    for (method, seed), rewards in reward.items():
        for k, value in enumerate([np.nan, *rewards]):
            ends = k in (0, len(rewards))
            rows.append(
                {
                    "method": method, "seed": seed, "round": k, "sequences": 64 * k, "reward": value,
                    "kl": 2.0 * (k - 1), "displacement": 0.25 * k,
                    "sequences_kept": 64 if method == "ppo" else kept, "updates": 8 * (k > 0),
                    "sampling_s": 1.0, "validation_s": 0.5 * (method != "ppo"), "influence_s": 0.25 * (method != "ppo"),
                    "optimise_s": 4.0 if method == "ppo" else 2.0,
                    "test_reward": 1.0 + k if ends else np.nan, "test_reward_se": 0.3 if ends else np.nan,
                    "test_kl": 2.0 * k if ends else np.nan, "test_perplexity": 10.0 + k if ends else np.nan,
                    "test_length": 28.0, "test_distinct_2": 0.9, "test_distinct_3": 0.95,
                    "test_tox_block": 0.3 - 0.1 * k / len(rewards), "test_tox_block_over_half": 0.2,
                }
            )  # fmt: skip
    curves = pd.DataFrame(rows)
    curves["training_s"] = curves[list(tables.PHASES)].sum(axis=1).where(curves["round"] > 0, 0)
    runs = curves.groupby(["method", "seed"])
    curves["training_so_far_s"], curves["updates_so_far"] = runs["training_s"].cumsum(), runs["updates"].cumsum()
    return curves


CURVES = made_up(
    {
        ("ppo", 5): [0, 1, 2, 5, 4, 4],
        ("iif", 5): [0, 2, 6, 5, 5, 5],
        ("ppo", 6): [0, 1, 1, 2, 3, 3],
        ("iif", 6): [0, 1, 2, 2, 2, 2],
    }
)


def test_runs_are_compared_with_ppos_best_of_their_seed():
    table = tables.per_seed(CURVES, "rlhf_fast").set_index(["method", "seed"])
    assert table.loc[("ppo", 5), ["rounds_to_best", "best_reached", "time_to_best_s"]].tolist() == [4, 1, 20.0]
    assert table.loc[("iif", 5), ["rounds_to_best", "best_reached", "time_to_best_s"]].tolist() == [3, 1, 11.25]
    assert table.loc[("iif", 6), ["rounds_to_best", "best_reached", "time_to_best_s"]].tolist() == [6, 0, 22.5]
    assert table["dropped_share"].tolist() == [0, 0.5, 0, 0.5]
    assert table["optimise_s"].tolist() == [4, 2, 4, 2]
    assert table["displacement"].tolist() == [0.25 * 3.5] * 4
    assert table.loc[("ppo", 5), "ppo_rise"] == pytest.approx(np.mean([1, 2, 5, 4, 4]))
    assert set(table["environment"]) == {"rlhf_fast"}


@pytest.mark.parametrize(
    ("rewards", "kept", "seeds", "verdict"),
    [
        (
            [0, 5, 6, 6, 6, 6, 6, 6, 6, 6],
            32,
            5,
            "replicated",
        ),  # PPO's best after 2 of its 10 rounds, half the sequences
        ([0, 1, 1, 2, 3, 3, 4, 4, 4, 6], 32, 5, "partly"),  # half the sequences, no fewer rounds
        ([0, 5, 6, 6, 6, 6, 6, 6, 6, 6], 60, 5, "not replicated"),  # hardly any is dropped
        ([0, 5, 6, 6, 6, 6, 6, 6, 6, 6], 32, 2, "incomplete"),  # fewer seeds than planned
    ],
)
def test_claim_17_is_judged_from_these_tables(tmp_path, rewards, kept, seeds, verdict):
    """From runs that would show it, half of it, or nothing; IIF's seconds are those of its updates."""
    for name, number in (("rlhf_fast", seeds), ("rlhf_study", min(3, seeds))):
        ppo = [0, 1, 1, 1, 2, 2, 3, 3, 4, 5]
        runs = {(m, s): [x + 0.1 * s for x in (ppo if m == "ppo" else rewards)] for s in range(5, 5 + number)
                for m in ("ppo", "iif")}  # fmt: skip
        curves = made_up(runs, kept)
        path = tmp_path / f"results/{name}/tables/rlhf_per_seed.csv"
        path.parent.mkdir(parents=True)
        tables.per_seed(curves, name).to_csv(path, index=False)
    rules = load_claims()
    rules = rules.model_copy(update={"claims": tuple(claim for claim in rules.claims if claim.claim == 17)})
    found = evaluate(
        rules, Config("config/config.yaml"), language_models(language_model_files(tmp_path)), load_reported()
    )
    assert found["claims"].iloc[0]["verdict"] == verdict


def test_rewards_at_equal_kl_lie_between_rounds():
    assert tables.at_first(np.array([0.0, 2, 4, 3, 8]), np.array([0.0, 1, 5, 6, 7]), 3.0) == pytest.approx(3.0)
    assert tables.at_first(np.array([0.0, 2]), np.array([0.0, 1]), 9.0) == 1.0
    assert tables.at_first(np.array([4.0, 5]), np.array([3.0, 1]), 2.0) == 3.0
    table = tables.per_seed(CURVES, "rlhf_fast").set_index(["method", "seed"])
    assert table.loc[("iif", 5), "equal_kl"] == pytest.approx(np.mean([2, 4, 6, 8, 10]))
    assert table.loc[("iif", 5), "reward_at_equal_kl"] == 5.0


def test_table_6_counts_validation_apart_and_has_the_papers_numbers():
    table = tables.table_6(CURVES).set_index(["method", "phase"])
    assert table.loc[("iif", "total_with_validation_s"), "mean_s"] == pytest.approx(3.75)
    assert table.loc[("iif", "total_s"), "mean_s"] == pytest.approx(3.25)
    assert table.loc[("iif", "total_s"), "share_of_ppo"] == pytest.approx(3.25 / 5)
    assert table.loc[("ppo", "sampling_s"), "paper_s"] == pytest.approx(1.59 + 0.99)
    assert table.loc[("iif", "optimise_s"), "paper_s"] == pytest.approx(40.39)
    assert np.isnan(table.loc[("iif", "validation_s"), "paper_s"])
    assert set(table["n"]) == {2}


def test_progress_is_in_standard_errors():
    table = tables.progress(CURVES)
    assert table["rise"].tolist() == [6.0] * 4
    assert table["standard_errors"].iloc[0] == pytest.approx(6 / np.hypot(0.3, 0.3))
    assert table["perplexity_ratio"].iloc[0] == pytest.approx(1.6)


def test_ends_are_means_over_seeds():
    table = tables.ends(CURVES).set_index(["method", "number"])
    assert table.loc[("ppo", "tox_block"), "start_mean"] == pytest.approx(0.3)
    assert table.loc[("ppo", "tox_block"), "end_mean"] == pytest.approx(0.2)
    assert table.loc[("iif", "reward"), "n"] == 2


def test_faithfulness_is_a_mean_over_the_seeds_that_are_there(tmp_path):
    study = load_study("config/rlhf_explain.yaml")
    assert tables.faithfulness(study, tmp_path).empty
    for path, (seed, number, _) in study.removals().items():
        if seed != 7:
            row = [seed, number, "f_seq", "reward", seed / 10, -1, 1, 24, 2, 0.5]
            names = "seed,round,outcome,scoring,spearman,low,high,sets,orders,reliability"
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(f"{names}\n{','.join(map(str, row))}\n")
    table = tables.faithfulness(study, tmp_path)
    assert table[["round", "n"]].to_numpy().tolist() == [[number, 2] for number in study.faithfulness.rounds]
    assert table["spearman"].tolist() == pytest.approx([0.55, 0.55]) and table["reliability"].tolist() == [0.5, 0.5]


def test_a_run_of_another_study_is_not_trained_again(tmp_path):
    study, fast = (load_study(f"config/{name}.yaml") for name in ("rlhf_explain", "rlhf_fast"))
    spec = study.run_spec("iif", 5)
    assert spec == fast.run_spec("iif", 5)
    own, other = (run_directory(name, "iif", 5, spec) for name in ("rlhf_explain", "rlhf_fast"))
    assert locate("rlhf_explain", "iif", 5, spec, tmp_path) == own
    (tmp_path / other).mkdir(parents=True)
    (tmp_path / other / "manifest.json").touch()
    assert locate("rlhf_explain", "iif", 5, spec, tmp_path) == other
    (tmp_path / own).mkdir(parents=True)
    (tmp_path / own / "manifest.json").touch()
    assert locate("rlhf_explain", "iif", 5, spec, tmp_path) == own


def test_figures_are_the_same_bytes_and_missing_runs_are_listed(tmp_path):
    study = load_study("config/rlhf_fast.yaml")
    with pytest.raises(ResultError, match="results/rlhf_fast: no run is there yet"):
        tables.write(study, tmp_path)
    folder = tmp_path / "results/rlhf_fast/tables"
    folder.mkdir(parents=True)
    CURVES.to_csv(folder / "curves.csv", index=False)
    first = [path.read_bytes() for path in figures.write(study, tmp_path)]
    second = [path.read_bytes() for path in figures.write(study, tmp_path)]
    assert first == second and len(first) == 4 and all(len(data) > 5000 for data in first)
