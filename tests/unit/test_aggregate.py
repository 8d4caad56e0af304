"""All environments together: against slow twins, closed forms and cases that can be counted by hand."""

import numpy as np
import pytest
from scipy import stats

from oracles import curve_at_share, interquartile_mean_of_copies
from rl_influence.analysis.aggregate import SHARES, resamples, weighted_iqm
from rl_influence.analysis.curves import load_study
from rl_influence.analysis.reported import load_reported
from rl_influence.analysis.statistics import level, percentiles, t_interval, welch_interval
from rl_influence.analysis.tables import make_tables
from synthetic import CATALOGUE, study, write_synthetic_study

FROZEN = {"environments": ["frozenlake"], "methods": ["ppo", "iif_p50", "random"], "seeds": [0, 1, 2], "rounds": 4}
GRID = {"environments": ["minigrid"], "methods": ["ppo", "iif_p12_5", "random"], "seeds": [0, 1, 2, 3], "rounds": 8}


def test_the_weighted_interquartile_mean_is_that_of_copies():
    generator = np.random.default_rng(0)
    for n in (3, 4, 7, 20):
        values, copies = generator.normal(size=(5, n)), generator.integers(1, 6, (5, n))
        found = weighted_iqm(values, copies.astype(float))
        slow = [interquartile_mean_of_copies(v, c) for v, c in zip(values, copies, strict=True)]
        np.testing.assert_allclose(found, slow, rtol=1e-12)
    assert weighted_iqm(np.array([0.0, 1.0, 2.0, 100.0]), np.ones(4)) == 1.5


def test_resampled_means_vary_as_means_do():
    values = np.random.default_rng(1).normal(size=4)
    (index,) = resamples([4], 200_000, np.random.default_rng(2))
    assert values[index].mean(axis=1).var() == pytest.approx(values.var(ddof=1) / 4, rel=0.02)
    assert np.bincount(index.ravel()).min() > 149_000


def tables_of(root, blocks, make, **arguments):
    """The curves that `make` gives each run, and the tables made of them."""
    config, made = study(*blocks), {}

    def curve(run):
        made[run.environment, run.method, run.seed] = make(run.environment, run.method, run.seed, run.spec.rounds + 1)
        return made[run.environment, run.method, run.seed]

    write_synthetic_study(root, config, curve=curve, **arguments)
    tables = make_tables(load_study(config, root), ["aggregate_curves", "improvement"], load_reported(CATALOGUE))
    return made, *tables.values()


def rising(environment, method, seed, points):
    """PPO rises from 1 to 3 (or 10 to 30) on a line; IIF twice as fast, random half as fast; seeds are shifted."""
    scale = 10.0 if environment == "minigrid" else 1.0
    speed = 2.0 if method.startswith("iif") else 0.5 if method == "random" else 1.0
    return scale * (1 + 2 * np.clip(speed * np.linspace(0, 1, points), 0, 1) + 0.02 * (seed - 1))


def test_curves_are_normalised_by_ppos_rise_and_environments_weigh_the_same(tmp_path):
    made, table, _ = tables_of(tmp_path, [FROZEN, GRID], rising)
    assert list(table["method"].unique()) == ["ppo", "chosen", "random"] and set(table["environment"]) == {"all"}
    assert set(table["environments"]) == {2} and set(table["runs"]) == {7}
    assert table["share"].to_numpy()[: len(SHARES)] == pytest.approx(SHARES)
    for role, ids in (("ppo", ("ppo", "ppo")), ("chosen", ("iif_p50", "iif_p12_5")), ("random", ("random", "random"))):
        for share in (0.0, 0.3, 1.0):
            values, copies = [], []
            for environment, method, seeds in (("frozenlake", ids[0], 3), ("minigrid", ids[1], 4)):
                ppo = np.mean([made[environment, "ppo", s] for s in range(seeds)], axis=0)
                for seed in range(seeds):
                    value = curve_at_share(made[environment, method, seed], share)
                    values.append((value - ppo[0]) / (ppo.max() - ppo[0]))
                    copies.append(12 // seeds)
            (row,) = table[(table["method"] == role) & np.isclose(table["share"], share)].to_dict("records")
            assert row["iqm"] == pytest.approx(interquartile_mean_of_copies(values, copies))
            assert row["low"] <= row["iqm"] <= row["high"]


def test_rounds_that_were_not_evaluated_lie_on_a_line(tmp_path):
    _, whole, _ = tables_of(tmp_path / "whole", [FROZEN], rising)
    _, thin, _ = tables_of(tmp_path / "thin", [FROZEN | {"evaluation_every": 2}], rising)
    whole, thin = (table.set_index(["method", "share"])["iqm"] for table in (whole, thin))
    assert thin.loc["random"].to_numpy() == pytest.approx(whole.loc["random"].to_numpy())  # straight lines
    assert thin.loc["chosen"].iloc[-1] == pytest.approx(whole.loc["chosen"].iloc[-1])


def test_improvement_by_environment_and_in_all(tmp_path):
    blocks = [FROZEN, GRID]
    _, _, table = tables_of(tmp_path, blocks, lambda e, m, s, n: rising(e, m, 1 if m != "random" else s, n))
    table = table.set_index(["method", "environment"])
    # 9 points, levels 50, 75, 90 %: PPO reaches them at rounds 4, 6, 8, IIF at 2, 3, 4
    assert table.loc[("chosen", "minigrid"), "rounds_saved"] == pytest.approx(0.5)
    # 5 points: 2, 3, 4 against 1, 2, 2
    assert table.loc[("chosen", "frozenlake"), "rounds_saved"] == pytest.approx((1 / 2 + 1 / 3 + 1 / 2) / 3)
    assert table.loc[("chosen", "all"), "rounds_saved"] == pytest.approx((0.5 + 4 / 9) / 2)
    assert table.loc[("chosen", "all"), ["n", "expected"]].tolist() == [7, 7]
    assert (table.loc["chosen", "probability"] == 1).all() and (table.loc["chosen", "unreached"].dropna() == 0).all()
    assert (table.loc["random", "probability"] == 0).all() and (table.loc["random", "unreached"].dropna() > 0.5).all()


def test_intervals_over_seeds(tmp_path):
    def noisy(environment, method, seed, points):
        shift = np.random.default_rng([seed, len(method), points]).random()
        return rising(environment, method, 20 * shift, points)

    _, curves, table = tables_of(tmp_path, [FROZEN, GRID], noisy)
    table = table.set_index(["method", "environment"])
    row, one = table.loc[("chosen", "all")], table.loc[("chosen", "frozenlake")]
    assert row["rounds_saved_low"] < row["rounds_saved"] < row["rounds_saved_high"]
    assert row["probability_low"] <= row["probability"] <= row["probability_high"]
    assert np.isnan(one["probability_low"]) and one["rounds_saved_high"] <= 1
    study_again = load_study(study(FROZEN, GRID), tmp_path)
    again = make_tables(study_again, ["aggregate_curves", "improvement"], load_reported(CATALOGUE))
    assert again["aggregate_curves"].equals(curves)
    assert again["improvement"].set_index(["method", "environment"]).equals(table)


def test_an_environment_with_too_few_seeds_takes_no_part(tmp_path):
    few = GRID | {"seeds": [0, 1]}
    _, table, _ = tables_of(tmp_path / "both", [FROZEN, few], rising)
    assert set(table["environments"]) == {1} and set(table["runs"]) == {3}
    _, table, alone = tables_of(tmp_path / "few", [few], rising)
    assert table.empty and "all" not in set(alone["environment"]) and set(alone["n"]) == {2}
    for table in tables_of(tmp_path / "none", [FROZEN], rising, skip=lambda run: True)[1:]:
        assert table.empty


def test_percentiles_have_the_studys_level():
    values = np.arange(1001.0)
    np.testing.assert_allclose(percentiles(values), [25, 975])
    with level(0.9):
        np.testing.assert_allclose(percentiles(values), [50, 950])
        narrow = welch_interval([values[:5], values[3:9]])
    wide = welch_interval([values[:5], values[3:9]])
    assert wide.low < narrow.low < narrow.high < wide.high


def test_the_coverage_of_few_seeds_is_near_its_level():
    """Of the mean over four environments of five seeds."""
    generator, hits = np.random.default_rng(4), np.zeros(2)
    for _ in range(1000):
        strata = generator.normal(size=(4, 5)) * [[1], [1], [2], [5]]
        drawn = resamples([5] * 4, 300, generator)
        means = sum(values[index].mean(axis=1) for values, index in zip(strata, drawn, strict=True)) / 4
        low, high = np.quantile(means, [0.025, 0.975])
        welch = welch_interval([*strata])
        hits += low <= 0 <= high, welch.low <= 0 <= welch.high
    assert 0.84 < hits[0] / 1000 < 0.94 and 0.93 < hits[1] / 1000 < 0.975


def test_welchs_interval_is_scipys_for_two_strata_and_students_for_one():
    a, b = np.array([1.0, 2.0, 4.0, 4.5]), np.array([0.1, 0.7, -0.9])
    found = welch_interval([a, -b])  # half of the difference of means
    scipys = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert (2 * found.low, 2 * found.high, found.n) == pytest.approx((scipys.low, scipys.high, 7))
    assert welch_interval([a]) == pytest.approx(t_interval(a))
