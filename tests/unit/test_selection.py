"""Which records train: every rule against a slow and obvious twin, or by hand."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from rl_influence import rules
from rl_influence.attribution import Step
from rl_influence.config import PPOConfig, RunSpec, SelectionConfig, load_run_spec
from rl_influence.ppo.networks import make_policy
from rl_influence.ppo.records import Records
from rl_influence.rules import RULES, drop_by_advantage, drop_extreme_rewards, td_probabilities
from rl_influence.selection import (
    Selection,
    drop_most_negative,
    needs_scores,
    needs_true_advantages,
    normalize_in_minibatches,
    number_dropped,
    score,
    score_again,
    select,
)

CONFIG = Path(__file__).parents[2] / "config/config.yaml"
BASE = load_run_spec(environment="frozenlake", method="ppo", seed=0, config=CONFIG)
SCORES = st.lists(st.sampled_from([-2.0, -1.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0]) | st.floats(-3, 3), max_size=40)
PERCENTS = (6.25, 12.5, 25, 50, 100)


def spec(kind: str, percent: float | None = None, updates: str = "own", exponent: float | None = None) -> RunSpec:
    selection = SelectionConfig(kind=kind, drop_percent=percent, updates=updates, priority_exponent=exponent)
    return BASE.model_copy(update={"selection": selection, "ppo": PPOConfig(gamma=0.5)})


def buffer(n: int, **arrays) -> Records:
    """n records of one long episode, zeros unless given."""
    zeros = {name: np.zeros(n) for name in ("rewards", "log_probs", "values", "next_values", "advantages", "returns")}
    never = {name: np.zeros(n, dtype=bool) for name in ("terminated", "truncated")}
    states = {"observations": np.zeros(n, dtype=int), "actions": np.zeros(n, dtype=int)}
    return Records(**(zeros | never | states | {name: np.asarray(array) for name, array in arrays.items()}))


# IIF


@settings(deadline=None)
@given(SCORES, st.sampled_from(PERCENTS))
def test_influence_filter(scores, percent):
    kept = drop_most_negative(np.array(scores, dtype=float), percent / 100)
    assert kept.tolist() == oracles.kept(scores, percent)


@pytest.mark.parametrize(
    "scores, fraction, kept",
    [
        ([], 1.0, []),
        ([0.0, 1.0, -0.0], 1.0, [0, 1, 2]),  # nothing negative
        ([-1.0, -2.0], 1.0, []),  # all negative
        ([-1.0, -2.0], 0.5, [0]),
        ([-1.0, -2.0], 0.0, [0, 1]),
        ([-1.0, -1.0, -1.0], 0.34, [1, 2]),  # ties: the first one goes
        ([-1.0, 3.0, -2.0, -1.0, -3.0], 0.75, [1, 3]),
        ([-float("inf"), 1.0, -1.0], 0.5, [1, 2]),
    ],
)
def test_influence_filter_by_hand(scores, fraction, kept):
    assert drop_most_negative(np.array(scores), fraction).tolist() == kept


def test_one_sixteenth_of_sixteen_negative_records_is_one():
    scores = np.r_[np.arange(5.0), -np.arange(1.0, 17.0)]
    assert number_dropped(scores, 0.0625) == 1
    assert np.setdiff1d(np.arange(21), drop_most_negative(scores, 0.0625)).tolist() == [20]
    assert number_dropped(scores[:-1], 0.0625) == 0


def test_percentages_do_not_suffer_from_binary_fractions():
    assert int(29 / 100 * 100) == 28  # what would go wrong
    for negative in (*range(0, 130), 1000, 2000, 2048):
        scores = -np.ones(negative)
        for percent in range(1, 101):
            assert number_dropped(scores, percent / 100) == percent * negative // 100


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
def test_influence_filter_refuses_a_fraction_outside_its_bounds(fraction):
    with pytest.raises(ValueError, match=r"^fraction = .*: a fraction in \[0, 1\] is needed"):
        drop_most_negative(np.array([-1.0]), fraction)


def test_a_percentage_is_recognised():
    with pytest.raises(ValueError, match=r"^fraction = 12.5: a fraction in \[0, 1\] is needed; did you mean 0.125\?$"):
        drop_most_negative(np.zeros(3), 12.5)


@pytest.mark.parametrize("scores", [[[3.0], [-1.0]], [[1.0, -1.0]], 1.0, [1j], ["a"]])
def test_influence_filter_refuses_what_is_no_list_of_numbers(scores):
    with pytest.raises(ValueError, match=r"expected real numbers of shape \(n,\)"):
        drop_most_negative(np.array(scores), 0.5)


def test_influence_filter_refuses_nan():
    with pytest.raises(ValueError, match="scores: 1 of 3 are NaN"):
        drop_most_negative(np.array([0.0, np.nan, -1.0]), 0.5)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("n", [64, 65, 66, 129])
def test_scores_are_advantages_as_training_weighs_them_times_the_targets_slope(n, normalize):
    """Every score by its own backward pass, normalisation chunk by chunk of the same random order."""
    policy = make_policy(
        "mlp", gym.spaces.Discrete(5), gym.spaces.Discrete(3), torch.Generator().manual_seed(1)
    ).double()
    rng = np.random.default_rng(0)
    records = buffer(
        n, observations=rng.integers(5, size=n), actions=rng.integers(3, size=n), advantages=rng.normal(3, size=n)
    )
    config = PPOConfig(batch_size=32, normalize_advantage=normalize)
    scores = score(records, policy, config, np.random.default_rng(7))
    order = np.random.default_rng(7).permutation(n)
    chunks = [order[start : start + 32] for start in range(0, n, 32)]
    if len(chunks[-1]) == 1:  # by itself it would keep its raw advantage, and be first or last in every ranking
        chunks[-2:] = [np.concatenate(chunks[-2:])]
    advantages = records.advantages.copy()
    for chunk in chunks if normalize else []:
        advantages[chunk] = oracles.normalized(records.advantages[chunk])
    expected = oracles.influence(policy, records, lambda p: oracles.f_return(p, records), advantages)
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-12)


def test_a_lone_record_is_ranked_like_the_others():
    """129 records in mini-batches of 64: whatever the order, it is not first or last by construction."""
    advantages = np.random.default_rng(0).normal(0, 100, 129)
    for seed in range(50):
        assert np.abs(normalize_in_minibatches(advantages, 64, np.random.default_rng(seed))).max() < 6
    ones = normalize_in_minibatches(advantages, 1, np.random.default_rng(0))
    np.testing.assert_array_equal(ones, advantages)  # as training with mini-batches of one record takes them


def test_equal_records_have_equal_scores_to_the_last_bit():
    """Otherwise rounding decides which of them are dropped, and differs from machine to machine."""
    policy = make_policy("mlp", gym.spaces.Discrete(5), gym.spaces.Discrete(3), torch.Generator().manual_seed(1))
    rng = np.random.default_rng(0)
    states, actions = rng.integers(5, size=1001), rng.integers(3, size=1001)
    advantages = (states - 2.0 * actions + 0.3).astype(np.float32)
    records = buffer(1001, observations=states, actions=actions, advantages=advantages)
    scores = score(records, policy, PPOConfig(batch_size=1001), rng)  # one chunk: one normalisation
    for state in range(5):
        for action in range(3):
            assert len(set(scores[(states == state) & (actions == action)].tolist())) == 1


def test_normalisation_covers_every_record_once():
    advantages = np.random.default_rng(0).normal(3, 2, size=100)
    normalised = normalize_in_minibatches(advantages, 50, np.random.default_rng(1))
    order = np.random.default_rng(1).permutation(100)
    for chunk in (order[:50], order[50:]):
        assert abs(normalised[chunk].mean()) < 1e-12 and abs(normalised[chunk].std(ddof=1) - 1) < 1e-7


# What IIF is compared with


@settings(deadline=None)
@given(SCORES, st.sampled_from(PERCENTS), st.integers(0, 5))
def test_random_and_difficulty_drop_as_many_as_influence(scores, percent, seed):
    scores = np.array(scores, dtype=float)
    records = buffer(len(scores), rewards=np.arange(len(scores)) % 3)
    expected = len(oracles.kept(scores.tolist(), percent))
    for kind in ("random", "difficulty"):
        chosen = select(spec(kind, percent), records, scores, np.random.default_rng(seed))
        assert len(chosen.kept) == chosen.records_per_epoch == expected
        assert chosen.probabilities is None and (np.diff(chosen.kept) > 0).all()


def test_random_drops_without_looking():
    scores = np.array([-1.0, -1.0, 5.0, 6.0])
    dropped = np.zeros(4)
    for seed in range(400):
        kept = select(spec("random", 50), buffer(4), scores, np.random.default_rng(seed)).kept
        dropped[np.setdiff1d(np.arange(4), kept)] += 1
    assert dropped.sum() == 400 and (abs(dropped - 100) < 5 * np.sqrt(400 * 0.25 * 0.75)).all()


def test_difficulty_by_hand():
    rewards = np.array([0.0, 5.0, -5.0, 1.0, 9.0, 2.0])
    for number, kept in ((0, [0, 1, 2, 3, 4, 5]), (1, [0, 1, 2, 3, 5]), (2, [0, 1, 3, 5]), (4, [3, 5]), (6, [])):
        assert drop_extreme_rewards(rewards, number, np.random.default_rng(0)).tolist() == kept


def test_difficulty_breaks_ties_at_random():
    kept = {tuple(drop_extreme_rewards(np.zeros(4), 2, np.random.default_rng(seed))) for seed in range(100)}
    assert len(kept) == 6  # every pair of four


BY = {"advantage_h1": "gap", "advantage_h2": "product"}
ESTIMATED = np.array([1.0, -1.0, 2.0, 0.0, -3.0, 0.5, 4.0])
TRUE = np.array([-1.0, 0.5, 1.0, -9.0, 3.0, -4.0, 4.0])
# opposite signs: 0, 1, 4, 5; gaps there 2, 1.5, 6, 4.5; products -1, -0.5, -9, -2


@pytest.mark.parametrize(
    "heuristic, fraction, dropped",
    [
        ("advantage_h1", 0.25, [4]),
        ("advantage_h1", 0.5, [4, 5]),
        ("advantage_h1", 0.75, [0, 4, 5]),
        ("advantage_h1", 1.0, [0, 1, 4, 5]),
        ("advantage_h1", 0.24, []),
        ("advantage_h2", 0.25, [4]),
        ("advantage_h2", 0.75, [0, 4, 5]),
        ("advantage_h2", 1.0, [0, 1, 4, 5]),
    ],
)
def test_advantage_heuristics_by_hand(heuristic, fraction, dropped):
    kept = drop_by_advantage(ESTIMATED, TRUE, fraction, by=BY[heuristic])
    assert kept.tolist() == [i for i in range(7) if i not in dropped]


def test_the_heuristics_differ_where_gap_and_product_do():
    estimated, true = np.array([0.1, 1.0]), np.array([-9.0, -2.0])  # gaps 9.1 and 3, products -0.9 and -2
    assert drop_by_advantage(estimated, true, 0.5, by="gap").tolist() == [1]
    assert drop_by_advantage(estimated, true, 0.5, by="product").tolist() == [0]


def test_advantage_heuristics_break_ties_by_index_and_see_tiny_signs():
    estimated, true = np.full(4, 1e-200), np.full(4, -1e-200)  # the product of these is 0
    for heuristic in ("advantage_h1", "advantage_h2"):
        assert drop_by_advantage(estimated, true, 0.5, by=BY[heuristic]).tolist() == [2, 3]


def test_advantage_heuristics_estimate_the_truth_from_repeated_visits():
    """State 0 twice, gamma 0.5: action 0 earns 1, action 1 earns 0, so that A(0, a) is +0.5 and -0.5."""
    records = buffer(
        4,
        observations=[0, 1, 0, 1],
        actions=[0, 0, 1, 0],
        rewards=[0.0, 2.0, 0.0, 0.0],
        terminated=[False, True, False, True],
        advantages=[-0.2, 0.4, 0.3, 0.4],
    )
    # true: [0.5, 0, -0.5, 0]; records 0 and 2 disagree, gaps 0.7 and 0.8, products -0.1 and -0.15
    for kind in ("advantage_h1", "advantage_h2"):
        assert select(spec(kind, 50), records, None, np.random.default_rng(0)).kept.tolist() == [0, 1, 3]
        assert select(spec(kind, 100), records, None, np.random.default_rng(0)).kept.tolist() == [1, 3]


TD_RECORDS = dict(
    rewards=[0.0, 1.0, 0.0, 0.0],
    values=[1.0, 0.0, 0.0, 1.0],
    next_values=[4.0, 8.0, 0.0, 8.0],
    terminated=[False, True, False, False],
    truncated=[False, False, False, True],
)  # gamma 0.5: delta = 1, 1 (nothing follows), 0, 3 (its own last value follows); ranks 2, 3, 4, 1


def test_td_error_by_hand():
    found = td_probabilities(buffer(4, **TD_RECORDS), gamma=0.5, exponent=0.6)
    weights = [2**-0.6, 3**-0.6, 4**-0.6, 1.0]
    np.testing.assert_allclose(found, np.array(weights) / sum(weights), rtol=1e-12)


@pytest.mark.parametrize(
    "exponent, expected", [(0.0, [0.25] * 4), (1e308, [0, 0, 0, 1]), (1.0, [6 / 25, 4 / 25, 3 / 25, 12 / 25])]
)
def test_td_error_exponents(exponent, expected):
    found = td_probabilities(buffer(4, **TD_RECORDS), gamma=0.5, exponent=exponent)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_td_error_draws_every_epoch_with_its_probabilities():
    chosen = select(spec("td_error", exponent=0.6), buffer(4, **TD_RECORDS), None, np.random.default_rng(0))
    assert chosen.kept.tolist() == [0, 1, 2, 3] and chosen.records_per_epoch == 4
    drawn = np.concatenate(list(chosen.epochs(5000, np.random.default_rng(0))))
    share = np.bincount(drawn, minlength=4) / len(drawn)
    error = np.sqrt(chosen.probabilities * (1 - chosen.probabilities) / len(drawn))
    assert (abs(share - chosen.probabilities) < 5 * error).all()


def test_ppo_keeps_everything():
    chosen = select(spec("all"), buffer(5), None, np.random.default_rng(0))
    assert chosen.kept.tolist() == [0, 1, 2, 3, 4] and chosen.records_per_epoch == 5 and chosen.probabilities is None


# Epochs


def test_an_epoch_is_a_permutation_and_no_two_are_alike():
    kept = np.array([2, 3, 5, 7, 11, 13, 17])
    epochs = list(Selection(kept, len(kept)).epochs(10, np.random.default_rng(0)))
    assert len(epochs) == 10 and len({tuple(epoch) for epoch in epochs}) == 10
    assert all(sorted(epoch) == kept.tolist() for epoch in epochs)


@pytest.mark.parametrize("n, per_epoch", [(3, 8), (3, 6), (1, 5), (4, 5)])
def test_more_updates_than_records_go_round_again(n, per_epoch):
    for epoch in Selection(np.arange(10, 10 + n), per_epoch).epochs(3, np.random.default_rng(0)):
        assert len(epoch) == per_epoch
        for start in range(0, per_epoch - n + 1, n):
            assert sorted(epoch[start : start + n]) == list(range(10, 10 + n))
        counts = np.bincount(epoch - 10, minlength=n)
        assert counts.max() - counts.min() <= 1


def test_fewer_updates_than_records_take_a_random_part():
    epochs = list(Selection(np.arange(10), 4).epochs(100, np.random.default_rng(0)))
    assert all(len(set(epoch)) == 4 for epoch in epochs)
    assert set(np.concatenate(epochs)) == set(range(10))


@pytest.mark.parametrize("per_epoch", [0, 7])
def test_nothing_kept_trains_on_nothing(per_epoch):
    assert [len(epoch) for epoch in Selection(np.arange(0), per_epoch).epochs(3, np.random.default_rng(0))] == [0, 0, 0]


@pytest.mark.parametrize(
    "kind, percent, updates, per_epoch",
    [
        ("influence", 50, "own", 6),
        ("influence", 50, "as_all", 8),
        ("all", 50, "as_influence", 6),
        ("all", 100, "as_influence", 4),
        ("random", 100, "as_all", 8),
    ],
)
def test_updates(kind, percent, updates, per_epoch):
    scores = np.array([-1.0, -2.0, -3.0, -4.0, 1.0, 2.0, 3.0, 4.0])
    chosen = select(spec(kind, percent, updates), buffer(8), scores, np.random.default_rng(0))
    assert chosen.records_per_epoch == per_epoch


@pytest.mark.parametrize(
    "selection, needed",
    [
        (("all",), False),
        (("all", 50, "as_influence"), True),
        (("influence", 50), True),
        (("random", 50), True),
        (("difficulty", 50), True),
        (("advantage_h1", 50), False),
        (("advantage_h1", 50, "as_influence"), True),
        (("td_error", None, "own", 0.6), False),
    ],
)
def test_scores_are_computed_where_they_are_used(selection, needed):
    assert needs_scores(spec(*selection)) is needed


def test_exact_advantages_are_computed_where_they_are_used():
    kinds = ("influence", "advantage_h1", "advantage_h1_exact", "advantage_h2_exact")
    assert [needs_true_advantages(spec(kind, 50)) for kind in kinds] == [False, False, True, True]


# Rules of one's own, and unknown ones


@pytest.fixture
def own_rules():
    before = dict(RULES)
    yield
    RULES.clear()
    RULES.update(before)


def test_every_kind_is_a_rule_and_unknown_ones_are_an_error():
    with open(CONFIG.parent / "methods.yaml") as file:
        used = {method["selection"]["kind"] for method in yaml.safe_load(file).values()}
    assert used == set(RULES)
    for kind in [*(f"{kind}s" for kind in RULES), "", "ALL", "iif"]:
        with pytest.raises(ValueError, match="expected 'all', 'influence', 'random'"):
            SelectionConfig(kind=kind)


@pytest.mark.parametrize("kind", RULES)
def test_every_rule_answers_with_some_of_the_records(kind):
    rule, rng, n = RULES[kind], np.random.default_rng(0), 40
    chosen_spec = spec(kind, 50 if rule.drops else None, exponent=0.6 if rule.arguments else None)
    states, actions, ends = np.arange(n) % 3, rng.integers(2, size=n), np.arange(n) % 5 == 4
    records = buffer(
        n,
        rewards=rng.normal(size=n),
        advantages=rng.normal(size=n),
        observations=states,
        actions=actions,
        terminated=ends,
    )
    exact = rng.normal(size=n) if rule.needs == "exact_advantages" else None
    chosen = select(chosen_spec, records, rng.normal(size=n), np.random.default_rng(1), exact)
    assert (np.diff(chosen.kept) > 0).all() and set(chosen.kept) <= set(range(n))
    assert (len(chosen.kept) < n) == rule.drops and chosen.weights is None and chosen.again is None


def test_a_rule_of_ones_own_is_one_function(own_rules):
    @rules.rule(drops=False)
    def weighted(buffer, *, temperature):
        weights = np.exp(buffer.records.advantages / temperature)
        return Selection(np.arange(len(weights)), 3, weights=weights)

    selection = SelectionConfig(kind="weighted", arguments={"temperature": 2.0})
    records = buffer(5, advantages=np.arange(5.0))
    chosen = select(BASE.model_copy(update={"selection": selection}), records, None, np.random.default_rng(0))
    np.testing.assert_allclose(chosen.weights, np.exp(np.arange(5.0) / 2))
    assert chosen.records_per_epoch == 3
    for wrong, message in (({}, "selection weighted needs temperature"), ({"heat": 1.0}, "takes no heat")):
        with pytest.raises(ValueError, match=message):
            SelectionConfig(kind="weighted", arguments=wrong)
    with pytest.raises(ValueError, match="selection all takes no temperature"):
        SelectionConfig(kind="all", arguments={"temperature": 2.0})


def test_a_rule_can_be_asked_again_before_every_epoch(own_rules):
    """With scores at the parameters of that moment, and weights that follow."""

    @rules.rule(needs="scores", every_epoch=True)
    def harmless(buffer):
        kept = np.flatnonzero(buffer.scores >= 0)
        return Selection(kept, len(kept), weights=1.0 + np.abs(buffer.scores))

    rounds = iter([np.array([1.0, -1.0, 1.0, -1.0]), np.array([-2.0, 2.0, -2.0, -2.0])])
    chosen = select(spec("harmless", 50), buffer(4), np.ones(4), np.random.default_rng(0), rescore=lambda: next(rounds))
    epochs = chosen.epochs(3, np.random.default_rng(0))
    for expected, weight in (([0, 1, 2, 3], 2), ([0, 2], 2), ([1], 3)):
        assert sorted(next(epochs)) == expected
        assert (chosen.weights == weight).all()
    others = select(spec("influence", 50), buffer(4), np.ones(4), np.random.default_rng(0), rescore=lambda: 1 / 0)
    assert others.again is None


def test_scores_within_a_round_see_ratios_and_clipping():
    policy = make_policy("mlp", gym.spaces.Discrete(5), gym.spaces.Discrete(3), torch.Generator().manual_seed(1))
    policy, rng, n = policy.double(), np.random.default_rng(0), 40
    records = buffer(
        n, observations=rng.integers(5, size=n), actions=rng.integers(3, size=n), advantages=rng.normal(size=n)
    )
    records.log_probs[:] = np.log(1 / 3) + 0.3 * rng.normal(size=n)
    config = PPOConfig(n_steps=n, batch_size=n, clip_range=0.1)
    scores = score_again(records, policy, config, np.random.default_rng(7))
    step = Step(np.random.default_rng(7).permutation(n))
    expected = oracles.tracin(policy, records, lambda p: oracles.f_return(p, records), [step], clip_range=0.1)
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-12)
    assert 0 < (scores == 0).sum() < n
