"""Statistics against hand values, closed forms and simulation."""

import numpy as np
import pytest
from scipy import stats

from rl_influence.analysis import statistics as st

nan = np.nan


def test_t_interval_by_hand():
    # mean 3, sd sqrt(2.5), se sqrt(0.5); t(0.975, 4) = 2.776445105
    interval = st.t_interval([1, 2, 3, 4, 5])
    half = 2.7764451051977987 * np.sqrt(0.5)
    assert interval == pytest.approx((3, 3 - half, 3 + half, 5))
    # two values: t(0.975, 1) = tan(0.475 pi)
    assert st.t_interval([0, 2]).high == pytest.approx(1 + np.tan(0.475 * np.pi))


def test_one_seed_has_no_interval_and_none_no_mean():
    one, none = st.t_interval([4.0]), st.t_interval([])
    assert one.mean == 4 and np.isnan([one.low, one.high]).all() and one.n == 1
    assert np.isnan([none.mean, none.low, none.high]).all() and none.n == 0


def test_interval_stays_where_the_values_can_be():
    whole, cut = st.t_interval([0.2, 0.9, 0.7]), st.t_interval([0.2, 0.9, 0.7], most=1.0)
    assert whole.high > 1 and cut == (whole.mean, whole.low, 1.0, 3)
    assert st.t_interval([0.2], most=1.0).n == 1 and np.isnan(st.t_interval([0.2], most=1.0).low)


def test_one_level_for_all_intervals_made_inside():
    values = [1.0, 2.0, 4.0, 3.0]
    with st.level(0.99):
        inside = st.t_interval(values)
        assert inside == st.t_interval(values, 0.99)
        assert st.mean_columns("x", values)["x_low"] == inside.low
        assert st.minimum_detectable_effect(4) == st.minimum_detectable_effect(4, confidence=0.99)
    assert st.t_interval(values) == st.t_interval(values, 0.95)


@pytest.mark.parametrize("values", [[1, nan], [1, np.inf], [[1, 2]]])
def test_values_that_are_no_sample_are_refused(values):
    with pytest.raises(ValueError, match="values"):
        st.t_interval(values)


def test_columns_of_a_mean_by_hand():
    half = np.tan(0.475 * np.pi)  # t(0.975, 1)
    assert st.mean_columns("x", [0, 2]) == pytest.approx(
        {"x": 1, "x_sd": np.sqrt(2), "x_low": 1 - half, "x_high": 1 + half}
    )
    assert st.mean_columns("x", [3]) == pytest.approx({"x": 3, "x_sd": nan, "x_low": nan, "x_high": nan}, nan_ok=True)


def test_t_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = [low <= 1 <= high for _, low, high, _ in map(st.t_interval, rng.normal(1, 2, size=(4000, 5)))]
    assert abs(np.mean(hits) - 0.95) < 3 * np.sqrt(0.95 * 0.05 / 4000)


def test_probability_of_improvement_by_hand():
    # pairs: (2,1) ahead, (2,2) tie, (3,1) ahead, (3,2) ahead
    assert st.probability_of_improvement([2, 3], [1, 2]) == pytest.approx(3.5 / 4)
    assert st.probability_of_improvement([1, 1], [1]) == 0.5
    assert np.isnan(st.probability_of_improvement([], [1]))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=7).round(1), rng.normal(size=5).round(1)
    u = stats.mannwhitneyu(x, y).statistic
    assert st.probability_of_improvement(x, y) == pytest.approx(u / 35)


def test_mean_training_return_by_hand():
    assert st.mean_training_return([0, 1, 1]) == pytest.approx(0.75)
    assert st.mean_training_return([0, nan, 1]) == pytest.approx(0.5)
    assert st.mean_training_return([0, nan, 1, 1]) == pytest.approx((1 + 1) / 3)
    assert st.mean_training_return([7]) == 7
    for bad in ([nan], [], [0, np.inf]):
        with pytest.raises(ValueError, match="returns"):
            st.mean_training_return(bad)


def test_final_return_is_the_mean_of_the_last_tenth():
    assert st.final_return(np.arange(101.0)) == np.mean(np.arange(91, 101))  # rounds 91 to 100
    assert st.final_return([0, 1, 2, 3, 4, 9]) == 9  # of five rounds the last
    assert st.final_return(np.arange(13.0)) == 11.5  # a tenth of twelve, rounded up: two
    assert st.final_return([0.0, *[nan] * 17, 5.0, nan, 7.0]) == 7  # of twenty: round 20; 19 was not evaluated
    assert st.final_return([3.0]) == 3


def test_minimum_detectable_effect_is_found_with_its_power():
    # textbook values (G*Power, paired t test, two sided 0.05, power 0.8)
    assert st.minimum_detectable_effect(5) == pytest.approx(1.6822, abs=2e-3)
    assert st.minimum_detectable_effect(34) == pytest.approx(0.4950, abs=2e-3)
    assert st.minimum_detectable_effect(5, sd=2.0) == pytest.approx(2 * st.minimum_detectable_effect(5))
    # many seeds: the normal approximation
    normal = (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) / 100
    assert st.minimum_detectable_effect(10_000) == pytest.approx(normal, rel=1e-3)
    assert np.isnan(st.minimum_detectable_effect(1)) and np.isnan(st.minimum_detectable_effect(5, nan))
    # just above the test's own error rate, 0.05: the noncentrality is small
    shift = st.minimum_detectable_effect(5, power=0.06) * np.sqrt(5)
    critical = stats.t.ppf(0.975, 4)
    assert 0 < shift < 1
    assert stats.nct.sf(critical, 4, shift) + stats.nct.cdf(-critical, 4, shift) == pytest.approx(0.06, abs=1e-9)
    for n in (2, 3, 5):
        shift = st.minimum_detectable_effect(n)
        samples = np.random.default_rng(n).normal(shift, 1, size=(20_000, n))
        found = np.mean(stats.ttest_1samp(samples, 0, axis=1).pvalue < 0.05)
        assert abs(found - 0.8) < 4 * np.sqrt(0.8 * 0.2 / 20_000)


@pytest.mark.parametrize("arguments", [{"power": 0.03}, {"power": 1.0}, {"confidence": 0.0}])
def test_impossible_power_is_refused(arguments):
    with pytest.raises(ValueError, match="power"):
        st.minimum_detectable_effect(5, **arguments)


def test_spearman_by_hand():
    # ranks 1 2 3 4 against 1 3 2 4: 1 - 6 * 2 / (4 * 15)
    assert st.spearman([1, 2, 3, 40], [10, 30, 20, 40]) == pytest.approx(0.8)
    assert st.spearman([1, 2, 3], [9, 5, 1]) == pytest.approx(-1)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([1, 1, 1], [1, 2, 3]),
        ([1, 2, 3], [0, 0, 0]),
        ([0, 0, 0], [0, 0, 0]),
        ([1, 2], [1, 2]),
        ([], []),
        ([1, 2, nan, 4], [1, nan, 3, 4]),
    ],
)
def test_spearman_is_undefined_without_points_or_spread(x, y):
    assert np.isnan(st.spearman(x, y))


@pytest.mark.parametrize("x, y", [([1, 2, 3], [1, 2]), ([[1, 2, 3]], [[1, 2, 3]])])
def test_points_are_two_lists_of_one_length(x, y):
    with pytest.raises(ValueError, match="expected two equally long lists"):
        st.spearman(x, y)
