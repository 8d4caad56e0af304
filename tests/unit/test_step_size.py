"""Steps of the actor beside rounds saved, counted by hand and against slow twins."""

import numpy as np
import pandas as pd
import pytest

from oracles import learning_step
from rl_influence.analysis.curves import load_study
from rl_influence.analysis.reported import load_reported
from rl_influence.analysis.statistics import t_interval
from rl_influence.analysis.tables import make_tables, write_table
from synthetic import CATALOGUE, study, write_synthetic_study

BLOCK = {
    "environments": ["frozenlake"],
    "methods": ["ppo", "iif_p50", "random", "iif_p100"],
    "seeds": [0, 1, 2],
    "rounds": 20,
}
LINE = np.linspace(0, 1, 21)
# PPO reaches 50, 75, 90 % at rounds 10, 15, 18; IIF twice as early, and one seed collapses; random never 90 %;
# at p = 100 % one seed never learns
CURVES = {
    "ppo": lambda seed: LINE,
    "iif_p50": lambda seed: np.where((seed == 2) & (np.arange(21) > 15), 0.05, np.minimum(2 * LINE, 1)),
    "random": lambda seed: 0.8 * LINE,
    "iif_p100": lambda seed: (0.08 if seed == 1 else 1) * LINE,
}


def step(run):
    """Rounds of PPO move by 1, of IIF by 3 (+ seed / 10) while it learns and by 0.1 afterwards, of random by 0.5."""
    rounds = np.arange(1, 21)
    return {
        "ppo": np.ones(20),
        "iif_p50": np.where(rounds <= 9, 3 + run.seed / 10, 0.1),
        "random": np.full(20, 0.5),
        "iif_p100": np.full(20, 4.0),
    }[run.method]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    root, config = tmp_path_factory.mktemp("steps"), study(BLOCK)
    write_synthetic_study(root, config, curve=lambda run: CURVES[run.method](run.seed), step=step)
    return make_tables(load_study(config, root), ["diagnostics_summary", "step_size"], load_reported(CATALOGUE))


def test_a_runs_step_is_that_of_its_learning_rounds(tables):
    table = tables["diagnostics_summary"].set_index(["method", "seed"])
    assert len(table) == 12
    for (method, seed), row in table.iterrows():
        moves = {
            "ppo": np.ones(20),
            "iif_p50": [3 + seed / 10] * 9 + [0.1] * 11,
            "random": [0.5] * 20,
            "iif_p100": [4] * 20,
        }
        moves = moves[method]
        slow = learning_step(moves, CURVES[method](seed), 0.9)
        assert row["displacement"] == pytest.approx(slow), (method, seed)
        assert row["displacement_ratio"] == pytest.approx(slow)  # PPO's is 1
    assert table.loc[("iif_p50", 0), ["learning_rounds", "reached"]].tolist() == [9, True]
    assert table.loc[("random", 0), ["learning_rounds", "reached"]].tolist() == [20, False]
    assert (table["approx_kl"] == 1).all()


def test_what_came_of_it(tables):
    table = tables["diagnostics_summary"].set_index(["method", "seed"])
    # IIF is there at rounds 5, 8, 9 instead of 10, 15, 18
    assert table.loc[("iif_p50", 0), "rounds_saved"] == pytest.approx((5 / 10 + 7 / 15 + 9 / 18) / 3)
    # random at 13 and 19 instead of 10 and 15, and never (20) instead of 18
    assert table.loc[("random", 0), "rounds_saved"] == pytest.approx((-3 / 13 - 4 / 19 - 2 / 20) / 3)
    assert table.loc["ppo", "rounds_saved"].isna().all()
    assert table.loc["iif_p50", "collapsed"].tolist() == [0, 0, 1]
    assert table.loc["iif_p100", "collapsed"].tolist() == [0, 0, 0]
    assert table.loc["iif_p100", "never_rose"].tolist() == [0, 1, 0]  # seed 1 ends at 0.078
    assert not table.loc[["ppo", "iif_p50", "random"], "never_rose"].any()  # nor does one that collapses to nothing
    assert table.loc["iif_p50", "rise_kept"].tolist() == pytest.approx([1, 1, 0.05])
    assert table.loc[("random", 0), "rise_kept"] == pytest.approx(0.8 * (0.95 + 1) / 2)  # the last tenth: two rounds


def test_means_over_seeds(tables):
    table, steps = tables["step_size"].set_index("method"), tables["diagnostics_summary"]
    assert table["n"].tolist() == table["expected"].tolist() == [3] * 4
    own = steps[steps["method"] == "iif_p50"]
    interval = t_interval(own["displacement_ratio"])
    found = table.loc["iif_p50", ["displacement_ratio", "displacement_ratio_low", "displacement_ratio_high"]]
    assert found.tolist() == pytest.approx([interval.mean, interval.low, interval.high])
    assert table.loc["iif_p50", "collapsed"] == table.loc["iif_p100", "never_rose"] == pytest.approx(1 / 3)


def test_runs_without_diagnostics_or_without_ppo_are_left_out_or_empty(tmp_path):
    config = study(BLOCK)
    write_synthetic_study(tmp_path / "old", config)
    found = make_tables(load_study(config, tmp_path / "old"), ["diagnostics_summary", "step_size"])
    for name, table in found.items():
        assert table.empty
        write_table(table, tmp_path / f"{name}.csv")
        assert list(pd.read_csv(tmp_path / f"{name}.csv"))[:2] == ["environment", "method"]
    root = tmp_path / "alone"
    write_synthetic_study(root, config, step=step, skip=lambda run: run.method == "ppo")
    table = make_tables(load_study(config, root), ["diagnostics_summary"])["diagnostics_summary"]
    assert len(table) == 9 and table[["rounds_saved", "displacement_ratio", "rise_kept"]].isna().all().all()
    assert table["displacement"].notna().all()
