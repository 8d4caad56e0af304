"""SE_ave, SE_peak, RT_peak against hand values and a literal transcription of their definition."""

import numpy as np
import pytest

import oracles
from rl_influence.analysis import sample_efficiency, time_efficiency

nan = np.nan


def test_hand_values():
    # levels 0.2 (round 1), 0.5 (round 3), 0.9 (round 4); 0.1 at round 0 and the fall at round 2 are none
    result = sample_efficiency([0.1, 0.2, 0.15, 0.5, 0.9, 0.7], [0.1, 0.5, 0.6, 0.9, 0.95, 0.95])
    assert result.levels["level"].tolist() == [0.2, 0.5, 0.9]
    assert result.levels["m_reference"].tolist() == [1, 3, 4]
    assert result.levels["m_method"].tolist() == [1, 1, 3]
    assert result.levels["reduction"].tolist() == pytest.approx([0, 2 / 3, 1 / 4])
    assert (result.se_ave, result.se_peak) == pytest.approx(((0 + 2 / 3 + 1 / 4) / 3, 1 / 4))
    assert result.unreached == 0 and result.levels["reached"].all()


def test_slower_method_is_negative():
    result = sample_efficiency([0, 1], [0, 0.5, 0.7, 1.0])
    assert (result.se_ave, result.se_peak) == (-2, -2)


def test_unreached_level_takes_the_budget_as_a_bound_and_is_counted():
    result = sample_efficiency([0, 0.2, 0.4, 0.6, 0.8], [0, 0.4, 0.4])  # the method stops at round 2
    assert result.levels["m_method"].tolist() == [1, 1, 2, 2]
    assert result.levels["reached"].tolist() == [True, True, False, False]
    assert result.unreached == 2
    assert result.se_ave == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)


def test_unevaluated_rounds_keep_their_index():
    result = sample_efficiency([0, nan, 0.5, nan, 1.0], [0, nan, 1.0, nan, 0.2])
    assert result.levels["m_reference"].tolist() == [2, 4]
    assert result.levels["m_method"].tolist() == [2, 2]
    # round 3 was not evaluated: the bound is round 2
    unreached = sample_efficiency([0, 0.5, nan, 1.0], [0, 0.4, 0.4, nan])
    assert unreached.levels["m_method"].tolist() == [2, 2] and unreached.unreached == 2


@pytest.mark.parametrize("reference", [[1, 1, 1], [3, 2, 1], [0.5], [0, nan, 0]])
def test_a_reference_that_never_rises_is_undefined(reference):
    result = sample_efficiency(reference, [0, 1, 2])
    assert np.isnan(result.se_ave) and np.isnan(result.se_peak)
    assert len(result.levels) == 0 and result.unreached == 0
    assert np.isnan(time_efficiency(reference, [0, 1, 2], range(len(reference)), [0, 1, 2]).rt_peak)


@pytest.mark.parametrize(
    ("curve", "message"),
    [([], "one value per round"), ([[0, 1]], "one value per round"), ([0, np.inf], "round 1"), ([nan], "no round")],
)
def test_bad_curves_are_refused(curve, message):
    with pytest.raises(ValueError, match=message):
        sample_efficiency(curve, [0, 1])
    with pytest.raises(ValueError, match=message):
        sample_efficiency([0, 1], curve)


def test_equals_the_literal_definition():
    rng = np.random.default_rng(0)
    for _ in range(500):
        curves = [np.cumsum(rng.integers(-2, 4, size=rng.integers(2, 30))) / 10 for _ in range(2)]
        for curve in curves:
            curve[1:][rng.random(len(curve) - 1) < 0.2] = nan
        reductions, unreached = oracles.reductions(*curves)
        result = sample_efficiency(*curves)
        assert result.levels["reduction"].tolist() == pytest.approx(reductions)
        assert result.unreached == unreached
        if reductions:
            assert (result.se_ave, result.se_peak) == pytest.approx((np.mean(reductions), reductions[-1]))


def test_time_efficiency_by_hand():
    # the maximum, 0.9, is reached after 10 s by the reference and after 6 s by the method
    result = time_efficiency([0, 0.5, 0.9], [0, 0.95, 0.95], [0, 5, 10], [0, 6, 12])
    assert (result.reference_s, result.method_s, result.rt_peak) == (10, 6, pytest.approx(0.4))
    assert result.reached
    assert time_efficiency([0, 0.5, 0.9], [0, 0.95, 0.95], [0, 10, 10], [0, 6, 12]).rt_peak == pytest.approx(0.4)
    never = time_efficiency([0, 0.5, 0.9], [0, 0.5, 0.5], [0, 5, 10], [0, 6, 12])
    assert never.rt_peak == pytest.approx(-0.2) and not never.reached


@pytest.mark.parametrize("time", [[0, 5], [0, 5, 4], [0, nan, 5]])
def test_bad_times_are_refused(time):
    with pytest.raises(ValueError, match="reference_time_s"):
        time_efficiency([0, 0.5, 0.9], [0, 1], time, [0, 1])
