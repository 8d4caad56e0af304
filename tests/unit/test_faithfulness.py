"""Datamodelling scores: planted scores, a round in which they must be perfect, and slow twins of every part."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from rl_influence import seeding
from rl_influence.analysis import faithfulness as module
from rl_influence.analysis.faithfulness import (
    analyse,
    datamodelling_scores,
    faithfulness,
    over_seeds,
    random_subsets,
    rank_correlations,
    record_groups,
    removal_outcomes,
    score_table,
)
from rl_influence.config import RunSpec
from rl_influence.environments import make_env, tabular
from rl_influence.runs import snapshots, training


def make_snapshot(folder, environment=None, **ppo):
    frozenlake = {
        "id": "frozenlake",
        "label": "FrozenLake",
        "gym_id": "FrozenLake-v1",
        "kwargs": {"map_name": "4x4", "is_slippery": False},
        "rounds": 2,
        "drop_percent": 50,
        "evaluation": {"kind": "exact"},
    }
    environment = frozenlake | (environment or {})
    spec = RunSpec(
        environment=environment,
        selection={"kind": "all"},
        ppo={"n_steps": 128, "batch_size": 32, "n_epochs": 1} | ppo,
        rounds=2,
        evaluation=environment["evaluation"],
        seed=2,
    )
    training.take_snapshots(spec, [1], folder, log=lambda line: None)
    return snapshots.load(folder, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("snapshots")


@pytest.fixture(scope="module")
def snapshot(folder):
    return make_snapshot(folder)


def test_one_gradient_step_is_predicted_perfectly(tmp_path, monkeypatch):
    # one full-batch step of plain gradient ascent, raw advantages: to first order the outcome is linear in the records
    snapshot = make_snapshot(
        tmp_path, batch_size=128, max_grad_norm=None, normalize_advantage=False, learning_rate=0.02
    )
    for name, value in {"SUBSETS": 30, "GROUPS": 3, "ORDERS": 1, "RESAMPLES": 200}.items():
        monkeypatch.setattr(module, name, value)
    scores = faithfulness(snapshot)
    f_return = scores[(scores.outcome == "f_return") & (scores.removal == "subsets")].set_index("scoring")
    for scoring in ("TracIn, full", "start of round"):
        assert f_return.loc[scoring, "spearman"] > 0.97
    assert abs(f_return.loc["random", "spearman"]) < 0.6
    assert (f_return["sets"] == 30).all() and f_return["reliability"].isna().all()


def test_outcomes_equal_the_round_by_hand(snapshot):
    removals = [np.array([3, 4, 90]), np.arange(0, 128, 2)]
    found = removal_outcomes(snapshot, removals).set_index(["set", "order"])
    records = snapshot.records
    observations, actions = torch.from_numpy(records.observations), torch.from_numpy(records.actions)
    model = tabular.tabular_model(make_env(snapshot.spec.environment))
    for number, removed in enumerate(removals):
        kept = [i for i in range(128) if i not in removed.tolist()]
        learner = snapshot.learner()
        stream = seeding.generator(2, "minibatches", 1)
        learner.update(records, [stream.permutation(kept)])
        with torch.no_grad():
            log_probs = learner.policy.log_prob(observations, actions).double().numpy()
        row = found.loc[number, 0]
        assert row.f_return == pytest.approx(np.mean(log_probs * records.advantages), abs=1e-6)
        probabilities = tabular.policy_probabilities(learner.policy, model)
        assert row.test_return == pytest.approx(tabular.expected_return(model, probabilities), abs=1e-12)
        assert row.records_removed == len(removed)
        assert found.loc[number, 1].f_return != row.f_return  # another mini-batch order


def test_planted_scores_are_found_and_the_bootstrap_is_right(monkeypatch):
    monkeypatch.setattr(module, "RESAMPLES", 50)
    generator = np.random.default_rng(0)
    scores, other = generator.standard_normal((2, 40))
    removals = random_subsets(40, 25, 0.3, generator)
    truth = np.array([-scores[removed].sum() for removed in removals])
    outcomes = pd.DataFrame(
        [(s, o, truth[s] + 0.1 * o, -truth[s]) for s in range(25) for o in range(3)],
        columns=["set", "order", "f_return", "test_return"],
    )
    rows = datamodelling_scores(
        outcomes, removals, {"planted": scores, "other": other}, generator=np.random.default_rng(1)
    ).set_index(["outcome", "scoring"])
    assert rows.loc[("f_return", "planted"), "spearman"] == pytest.approx(1)
    assert rows.loc[("test_return", "planted"), "spearman"] == pytest.approx(-1)
    predicted = [-other[removed].sum() for removed in removals]
    assert rows.loc[("f_return", "other"), "spearman"] == pytest.approx(stats.spearmanr(predicted, truth).statistic)
    draws = np.random.default_rng(1).integers(25, size=(50, 25))
    resampled = [stats.spearmanr(np.array(predicted)[draw], truth[draw]).statistic for draw in draws]
    low, high = np.quantile(resampled, [0.025, 0.975])
    assert rows.loc[("f_return", "other"), ["low", "high"]].tolist() == pytest.approx([low, high])
    assert (rows.sets == 25).all() and (rows.orders == 3).all()
    assert rows.reliability.to_numpy() == pytest.approx(1)


def test_undefined_scores_are_nan_and_one_order_has_no_reliability():
    removals = [np.array([i, i + 1]) for i in range(6)]
    outcomes = pd.DataFrame(
        [(s, 0, float(s), 1.0) for s in range(6)], columns=["set", "order", "f_return", "test_return"]
    )
    rows = datamodelling_scores(outcomes, removals, {"size": np.ones(8)}, generator=np.random.default_rng(0))
    assert rows[["spearman", "low", "high", "reliability"]].isna().all(axis=None)


def test_rank_correlations_row_by_row():
    generator = np.random.default_rng(3)
    x, y = generator.integers(0, 4, (2, 20, 7)).astype(float)
    x[4] = 1.0
    found = rank_correlations(x, y)
    for row in range(20):
        if row == 4:
            assert np.isnan(found[row])
        else:
            assert found[row] == pytest.approx(stats.spearmanr(x[row], y[row]).statistic)


def test_random_subsets():
    subsets = random_subsets(50, 30, 0.1, np.random.default_rng(0))
    assert all(len(set(subset)) == 5 and (np.diff(subset) > 0).all() for subset in subsets)
    assert len({tuple(subset) for subset in subsets}) == 30
    for fraction in (0.0, 1.0, 0.005):
        with pytest.raises(ValueError, match=f"fraction {fraction} of 50"):
            random_subsets(50, 1, fraction, np.random.default_rng(0))


def test_groups_partition_the_buffer(snapshot, tmp_path):
    groups = record_groups(snapshot)
    assert sorted(np.concatenate(groups).tolist()) == list(range(128))
    assert [len(group) for group in groups] == sorted((len(group) for group in groups), reverse=True)
    pairs = {(int(s), int(a)) for s, a in zip(snapshot.records.observations, snapshot.records.actions, strict=True)}
    assert len(groups) == len(pairs)
    for group in groups:
        assert len({(int(snapshot.records.observations[i]), int(snapshot.records.actions[i])) for i in group}) == 1
    cartpole = {"gym_id": "CartPole-v1", "kwargs": {}, "evaluation": {"kind": "batched", "episodes": 4}}
    episodes = make_snapshot(tmp_path, cartpole)
    expected = episodes.table().groupby("episode").record.apply(list).tolist()
    found = [group.tolist() for group in record_groups(episodes)]
    assert sorted(found) == sorted(expected)


def test_score_table_columns(snapshot):
    records = snapshot.records
    table = score_table(snapshot, np.random.default_rng(0))
    delta = [
        records.rewards[i] + 0.99 * (0 if records.terminated[i] else records.next_values[i]) - records.values[i]
        for i in range(128)
    ]
    np.testing.assert_allclose(table["|TD error|"], np.abs(delta), atol=1e-6)
    np.testing.assert_array_equal(table["|advantage|"], np.abs(records.advantages))
    np.testing.assert_allclose(table["start of round, normalised"], snapshot.influence(), rtol=1e-4, atol=1e-6)
    assert all(values.shape == (128,) for values in table.values())


def test_the_analysis_is_reproducible_and_covers_groups(snapshot, folder, monkeypatch):
    for name, value in {"SUBSETS": 6, "FRACTION": 0.25, "GROUPS": 5, "RESAMPLES": 20}.items():
        monkeypatch.setattr(module, name, value)
    (first,), (second,) = (analyse(snapshot.spec, folder, (1,)).values() for _ in range(2))
    pd.testing.assert_frame_equal(first, second)
    assert first.groupby("removal")["sets"].unique().str[0].to_dict() == {"groups": 5, "subsets": 6}
    assert set(first[first.removal == "groups"].scoring) - set(first[first.removal == "subsets"].scoring) == {
        "number of records"
    }
    assert set(module.OUTCOMES) == set(first.outcome)
    assert (first["round"] == 1).all() and (first["orders"] == 2).all()


def test_means_over_seeds_leave_out_what_is_undefined():
    rows = [
        ("frozenlake", "ppo", seed, 3, "subsets", "f_return", scoring, rho, 50, 2, reliability)
        for seed, reliability in ((0, 0.9), (1, 0.7), (2, 0.8))
        for scoring, rho in {"a": [0.2, 0.4, 0.9][seed], "b": [0.5, np.nan, 0.1][seed]}.items()
    ]
    columns = ["environment", "method", "seed", "round", "removal", "outcome", "scoring", "spearman", "sets", "orders"]
    found = over_seeds({"faithfulness": pd.DataFrame(rows, columns=[*columns, "reliability"])}).set_index("scoring")
    assert found["spearman"].to_dict() == pytest.approx({"a": 0.5, "b": 0.3})
    half = 4.302653 * np.std([0.2, 0.4, 0.9], ddof=1) / np.sqrt(3)  # t(0.975, 2)
    assert found.loc["a", ["spearman_low", "spearman_high"]].tolist() == pytest.approx([0.5 - half, 0.5 + half])
    assert (found["n"] == 3).all() and (found["sets"] == 50).all()
    assert found["reliability"].tolist() == pytest.approx([0.8, 0.8])
