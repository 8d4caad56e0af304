"""Simulated power against closed forms, the size of looking twice, and what counting many checks does."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rl_influence.analysis.claims import CheckConfig, confidence_of, load_claims, power
from rl_influence.analysis.claims.power import DRAWS, multiplicity, outcome_shares
from rl_influence.analysis.statistics import (
    minimum_detectable_effect,
    pocock_confidence,
    prediction_interval,
    t_interval,
)
from synthetic import CATALOGUE


def check(**changes):
    keys = {"table": "x", "where": {"method": "a"}, "against": {"method": "b"}, "quantity": "y"}
    return CheckConfig(**keys | changes)


def test_shares_are_those_of_the_t_test():
    sd, n = 2.0, 6
    effect = minimum_detectable_effect(n, sd)  # power 80 %, both sides
    holds, fails = outcome_shares(check(above=0), effect, sd, n, 0.0, 0.95)
    assert abs(holds - 0.8) < 3 * np.sqrt(0.16 / DRAWS) and fails < 0.01
    holds, fails = outcome_shares(check(below=0), 0.0, sd, n, 0.0, 0.95)
    assert abs(holds - 0.025) < 3 * np.sqrt(0.025 / DRAWS) and abs(fails - 0.025) < 3 * np.sqrt(0.025 / DRAWS)
    # within the margin: the noncentral t distribution
    _, fails = outcome_shares(check(above=0), 0.0, sd, n, 2.5, 0.95)
    shift = 2.5 / sd * np.sqrt(n)
    assert abs(fails - stats.nct.sf(stats.t.ppf(0.975, n - 1), n - 1, shift)) < 3 * np.sqrt(0.25 / DRAWS)


def test_shares_are_the_same_every_time():
    one = [outcome_shares(check(above=0), 0.1, 1.0, 5, 0.05, 0.95) for _ in range(2)]
    assert one[0] == one[1]


def test_looking_twice_keeps_its_size():
    """Seeds are added once, to twice as many, if the first look does not exclude the truth."""
    level = pocock_confidence([1, 2], 0.05)
    assert level == pytest.approx(0.9706, abs=1e-4)
    for first in (5, 8, 20):
        draws = np.random.default_rng(first).standard_normal((40_000, 2 * first))
        false = np.zeros(len(draws), dtype=bool)
        for n in (first, 2 * first):
            part = draws[:, :n]
            half = stats.t.ppf((1 + level) / 2, n - 1) * part.std(1, ddof=1) / np.sqrt(n)
            false |= np.abs(part.mean(1)) > half
        assert abs(false.mean() - 0.05) < 0.004, first
        unadjusted = stats.t.ppf(0.975, first - 1) * draws[:, :first].std(1, ddof=1) / np.sqrt(first)
        again = stats.t.ppf(0.975, 2 * first - 1) * draws.std(1, ddof=1) / np.sqrt(2 * first)
        naive = (np.abs(draws[:, :first].mean(1)) > unadjusted) | (np.abs(draws.mean(1)) > again)
        assert naive.mean() > 0.075


@pytest.mark.slow
def test_pocock_level_of_textbooks():
    # Jennison and Turnbull 2000, table 2.1: constants 2.178, 2.289, 2.413 for 2, 3, 5 equal looks
    for looks, constant in ((2, 2.178), (3, 2.289), (5, 2.413)):
        expected = 2 * stats.norm.cdf(constant) - 1
        assert pocock_confidence(range(1, looks + 1)) == pytest.approx(expected, abs=2e-4)
    assert pocock_confidence([7]) == 0.95


def test_level_of_a_study_follows_from_its_looks():
    rules = load_claims(CATALOGUE)
    assert confidence_of(rules, "paper") == 0.95
    assert confidence_of(rules, "confirm") == pocock_confidence([1, 2])


def test_prediction_interval_covers_the_mean_of_other_seeds():
    rng = np.random.default_rng(3)
    hits = []
    for ours, theirs in zip(rng.normal(size=(4000, 5)), rng.normal(size=(4000, 3)), strict=True):
        predicted = prediction_interval(ours, 3)
        hits.append(predicted.low <= theirs.mean() <= predicted.high)
    assert abs(np.mean(hits) - 0.95) < 3 * np.sqrt(0.95 * 0.05 / 4000)
    for values in ([1.0, 2.0, 4.0], [1.0, 2.0]):
        assert prediction_interval(values, 10**9) == pytest.approx(t_interval(values))


def test_power_table_by_hand():
    rules = load_claims(CATALOGUE)
    row = {"claim": 2, "environment": "minigrid", "case": "", "role": "decides", "check": "words", "planned": 15}
    row |= {"quantity": "final_return", "threshold": 0.0, "sd": 0.1, "margin": 0.04, "paper_value": 0.185}
    other = row | {"environment": "lunarlander", "planned": 5, "sd": np.nan, "margin": 4.0, "paper_value": np.nan}
    unknown = row | {"environment": "highway", "sd": np.nan, "margin": 0.0}
    table = power(rules, pd.DataFrame([row, other, unknown, row | {"role": "requires"}]))
    assert table["environment"].tolist() == ["minigrid", "lunarlander"]  # no run says what Highway's rise is
    found = table.iloc[0]
    # a hundred times the range, and so a hundred times the standard deviation
    assert table[["sd", "sd_from"]].to_numpy().tolist() == [[0.1, "seeds"], [pytest.approx(10.0), "others"]]
    level = pocock_confidence(rules.sequential.looks)
    assert found["confidence"] == level and found["holds_if_paper"] > 0.99
    critical = stats.t.ppf((1 + level) / 2, 14)
    assert stats.nct.sf(critical, 14, found["detectable"] / 0.1 * np.sqrt(15)) == pytest.approx(0.8, abs=1e-6)
    one = rules.claims[1].checks[0]
    for truth, which, name in ((0.08, 0, "seeds_to_hold"), (0.0, 1, "seeds_to_fail")):
        n = int(found[name])
        assert outcome_shares(one, truth, 0.1, n, 0.04, level)[which] >= 0.8
        assert outcome_shares(one, truth, 0.1, n - max(1, n // 8), 0.04, level)[which] < 0.85


def test_multiplicity_by_hand():
    rules = load_claims(CATALOGUE)
    table = multiplicity(rules).set_index("claim")
    by_chance = (1 - pocock_confidence(rules.sequential.looks)) / 2
    first = table.loc[2]  # six environments, one check: replicated 5, partly 3
    assert first["false_holds"] == pytest.approx(6 * by_chance)
    assert first["replicated_if_true"] == pytest.approx(0.8**6 + 6 * 0.8**5 * 0.2)
    assert first["all_if_true"] == pytest.approx(0.8**6)
    assert first["false_partly"] == pytest.approx(sum(
        n * by_chance**k * (1 - by_chance) ** (6 - k) for k, n in ((3, 20), (4, 15), (5, 6), (6, 1))
    ))  # fmt: skip
    assert table.loc[5, "false_partly"] == pytest.approx(1 - (1 - by_chance) ** 2)


def test_the_documents_say_what_counting_does():
    rules = load_claims(CATALOGUE)
    text = (CATALOGUE.parent / "docs/claims.md").read_text()
    six = multiplicity(rules).set_index("claim").loc[2]
    assert f"{100 * six['replicated_if_true']:.0f} % for five of six" in text
    assert f"six of six would be {100 * six['all_if_true']:.0f} %" in text
    assert f"{100 * (1 - confidence_of(rules, 'confirm')) / 2:.1f} % of them hold by chance" in text
    assert f"{100 * confidence_of(rules, 'confirm'):.2f} %" in text
    unadjusted = 2 * stats.norm.sf(1.96)
    both = stats.multivariate_normal.cdf([1.96, 1.96], cov=[[1, 0.5**0.5], [0.5**0.5, 1]], lower_limit=[-1.96, -1.96])
    assert 0.08 < 1 - both < 0.085 and unadjusted < 0.0501 and "more than 8 % of the time" in text
    assert len(rules.claims) == 22 and 0.8**12 == pytest.approx(0.07, abs=0.002) and "a chance of 7 %" in text
