"""Rounds to parts of PPO's rise, against hand values."""

import itertools

import numpy as np
import pytest

from rl_influence.analysis import first_passage as fp
from rl_influence.analysis.sample_efficiency import sample_efficiency

nan = np.nan
CURVES = {
    ("e", "ppo", 0): np.array([0.0, 0.2, 0.4, 0.8, 1.0]),
    ("e", "ppo", 1): np.array([0.2, 0.2, 0.6, 0.6, 0.8]),
    ("e", "iif", 0): np.array([0.0, 0.8, 0.4, 1.0, 1.0]),
    ("e", "iif", 1): np.array([0.0, 0.4, 0.4, 0.6, 0.6]),
    ("flat", "ppo", 0): np.array([0.5, 0.4, 0.3, 0.2, 0.1]),
    ("flat", "iif", 0): np.array([0.5, 0.6, 0.7, 0.8, 0.9]),
}


def test_rise_is_that_of_the_mean_curve():
    # mean curve: 0.1 0.2 0.5 0.7 0.9
    assert fp.rises(CURVES, "ppo")["e"] == pytest.approx((0.1, 0.9))
    assert fp.rises({("a", "ppo", 0): np.array([0.0, nan, 0.5, nan, 0.4])}, "ppo") == {"a": (0.0, 0.5)}
    assert np.isnan(fp.rises({("a", "iif", 0): np.ones(3)}, "ppo")["a"]).all()


def test_first_rounds_by_hand():
    table = fp.rounds_to(CURVES, "ppo")
    assert set(table["environment"]) == {"e"}  # elsewhere PPO never rises
    assert table.groupby("fraction")["level"].first().tolist() == pytest.approx([0.5, 0.7, 0.82])
    rounds = {key: part["rounds"].tolist() for key, part in table.groupby(["method", "seed"])}
    assert rounds == {("ppo", 0): [3, 3, 4], ("ppo", 1): [2, 4, 4], ("iif", 0): [1, 1, 3], ("iif", 1): [3, 4, 4]}
    reached = {key: part["reached"].tolist() for key, part in table.groupby(["method", "seed"])}
    assert reached["ppo", 1] == [True, True, False] and reached["iif", 1] == [True, False, False]


def test_rounds_that_were_not_evaluated_reach_nothing():
    first, reached = fp.first_rounds([0.0, nan, 0.6, nan, 0.5, nan], [0.5, 0.7])
    assert first.tolist() == [2, 4] and reached.tolist() == [True, False]


def test_saving_by_hand_with_its_least_and_most():
    value, least, most = fp.saving(
        [5, 10, 20, 4, 20, 0], [10, 5, 10, 20, 20, 0], [1, 1, 0, 1, 0, 1], [1, 1, 1, 0, 0, 1]
    )
    assert value.tolist() == pytest.approx([0.5, -0.5, -0.5, 0.8, 0, 0])
    assert least.tolist() == pytest.approx([0.5, -0.5, -1, 0.8, -1, 0])
    assert most.tolist() == pytest.approx([0.5, -0.5, -0.5, 1, 1, 0])


def test_saving_is_the_papers_reduction_where_the_method_is_first_and_mirrors():
    rng = np.random.default_rng(0)
    a, b = rng.integers(1, 50, size=(2, 200))
    value = fp.saving(a, b, a > 0, b > 0)[0]
    np.testing.assert_allclose(value[a <= b], (1 - a / b)[a <= b])
    np.testing.assert_allclose(value, -fp.saving(b, a, b > 0, a > 0)[0])
    assert (np.abs(value) <= 1).all()


def test_the_truth_lies_between_least_and_most():
    """Budgets cut off what longer runs would show."""
    rng = np.random.default_rng(1)
    true = rng.integers(1, 100, size=(2, 500))
    seen, reached = np.minimum(true, 40), true <= 40
    truth = fp.saving(*true, true[0] > 0, true[1] > 0)[0]
    _, least, most = fp.saving(*seen, *reached)
    assert (least <= truth + 1e-12).all() and (truth <= most + 1e-12).all()


def test_between_equal_methods_rounds_saved_is_zero_and_se_ave_is_not():
    rng = np.random.default_rng(2)
    ramp = np.concatenate([np.linspace(0, 1, 30), np.ones(20)])
    curves = {("e", "ppo", seed): ramp + rng.normal(0, 0.1, 50) for seed in range(6)}
    table = fp.null_values(curves, "ppo").set_index("metric")
    assert table["seeds"].eq(6).all() and table["pairs"].eq(30).all()
    for name in ("rounds_saved", "final_return", "mean_training_return"):
        assert table.loc[name, "mean"] == pytest.approx(0, abs=1e-12)
    own = [curves["e", "ppo", seed] for seed in range(6)]
    slow = [sample_efficiency(b, a).se_ave for a, b in itertools.permutations(own, 2)]
    assert table.loc["se_ave", ["mean", "sd"]].tolist() == pytest.approx([np.mean(slow), np.std(slow, ddof=1)])
    assert table.loc["se_ave", "mean"] < -0.05
    assert fp.null_values({("e", "ppo", 0): ramp}, "ppo").empty
