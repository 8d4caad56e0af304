"""Interventions redo a round by hand: same parameters, same mini-batches, only the records differ."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from rl_influence import seeding
from rl_influence.analysis import interventions
from rl_influence.analysis.interventions import analyse, over_seeds, single_round
from rl_influence.config import EvaluationConfig, RunSpec
from rl_influence.environments import make_env, tabular
from rl_influence.runs import snapshots, training


def make_spec(kind="exact", episodes=40, **selection):
    environment = {
        "id": "frozenlake",
        "label": "FrozenLake",
        "gym_id": "FrozenLake-v1",
        "kwargs": {"map_name": "4x4", "is_slippery": False},
        "rounds": 2,
        "drop_percent": 25,
        "evaluation": {"kind": kind, "episodes": episodes},
    }
    return RunSpec(
        environment=environment,
        selection=selection or {"kind": "all"},
        ppo={"n_steps": 256, "batch_size": 32, "n_epochs": 2, "learning_rate": 0.05},
        rounds=2,
        evaluation=environment["evaluation"],
        seed=5,
    )


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    folder = tmp_path_factory.mktemp("snapshots")
    training.take_snapshots(make_spec(), [1], folder, log=lambda line: None)
    return snapshots.load(folder, 1)


def test_each_arm_equals_the_round_by_hand(snapshot):
    rows = single_round(snapshot).set_index("arm")
    model = tabular.tabular_model(make_env(snapshot.spec.environment))
    scores = snapshot.influence()
    negative = sorted((i for i in range(256) if scores[i] < 0), key=lambda i: (scores[i], i))
    removed = {"all": [], "negative": negative, "negative_p": negative[: int(0.25 * len(negative))]}
    assert len(negative) > 20  # otherwise nothing is tested

    def test_return(learner):
        return tabular.expected_return(model, tabular.policy_probabilities(learner.policy, model))

    before = test_return(snapshot.learner())
    for arm, without in removed.items():
        kept = np.array([i for i in range(256) if i not in set(without)])
        learner, stream, updates = snapshot.learner(), seeding.generator(5, "minibatches", 1), 0
        for _ in range(2):
            order = stream.permutation(kept)
            for start in range(0, len(order) - 31, 32):
                updates += learner.update(snapshot.records, [order[start : start + 32]])
        row = rows.loc[arm]
        assert (row.records_removed, row.updates) == (len(without), updates)
        assert row.return_before == before
        assert row.return_after == pytest.approx(test_return(learner), abs=1e-12)
        assert row.delta == row.return_after - row.return_before
    assert {*rows.index} == {*removed, "random", "random_p"}
    for arm in ("negative", "negative_p"):  # as many records and updates as without the negative ones
        random = rows.loc[arm.replace("negative", "random")]
        assert (random.records_removed, random.updates) == (rows.loc[arm].records_removed, rows.loc[arm].updates)
        assert random.return_after != rows.loc[arm].return_after


def test_it_can_be_repeated_and_leaves_the_snapshot_alone(snapshot):
    before = {name: array.copy() for name, array in snapshot.records.arrays().items()}
    parameters = snapshot.parameters.copy()
    first, second = single_round(snapshot), single_round(snapshot)
    assert first.equals(second)
    np.testing.assert_array_equal(snapshot.parameters, parameters)
    for name, array in before.items():
        np.testing.assert_array_equal(snapshot.records.arrays()[name], array)


def test_arms_share_their_test_episodes(snapshot, monkeypatch):
    monkeypatch.setattr(interventions, "EPISODES", 400)
    rows = single_round(with_episodes(snapshot, 400)).set_index("arm")
    assert (rows.se_before > 0).all() and (rows.se_after > 0).all()
    assert rows.return_before.nunique() == 1


def with_episodes(snapshot, episodes):
    evaluation = EvaluationConfig(kind="batched", episodes=episodes)
    return replace(snapshot, spec=snapshot.spec.model_copy(update={"evaluation": evaluation}))


def test_the_analysis_covers_its_rounds_with_few_episodes(tmp_path, monkeypatch):
    spec = make_spec("batched", episodes=8)
    training.take_snapshots(spec, [0, 1], tmp_path, log=lambda line: None)
    for limit, episodes in ((5, 5), (1000, 8)):  # the run's own at most
        monkeypatch.setattr(interventions, "EPISODES", limit)
        table = analyse(spec, tmp_path, (0, 1))["interventions"]
        by_hand = [single_round(with_episodes(snapshots.load(tmp_path, k), episodes)) for k in (0, 1)]
        pd.testing.assert_frame_equal(table, pd.concat(by_hand, ignore_index=True))
    assert (
        table.groupby("round")["arm"].apply(list).tolist()
        == [["all", "negative", "random", "negative_p", "random_p"]] * 2
    )


def test_differences_over_seeds_by_hand():
    deltas = {  # (seed, round) -> all, negative, random, negative_p, random_p
        (0, 0): [0.1, 0.3, 0.0, 0.1, 0.1],
        (0, 1): [0.2, 0.2, 0.3, 0.4, 0.1],
        (1, 0): [0.0, 0.5, 0.1, 0.2, 0.0],
        (1, 1): [0.1, 0.0, 0.2, 0.1, 0.3],
    }
    arms = ["all", "negative", "random", "negative_p", "random_p"]
    rows = [
        ("frozenlake", "ppo", *place, arm, delta)
        for place, values in deltas.items()
        for arm, delta in zip(arms, values, strict=True)
    ]
    table = pd.DataFrame(rows, columns=["environment", "method", "seed", "round", "arm", "delta"])
    found = over_seeds({"interventions": table}).set_index(["arm", "minus"])
    assert (found["n"] == 2).all() and (found["rounds"] == 4).all()
    row = found.loc["negative", "all"]  # by seed: (0.2 + 0) / 2 and (0.5 - 0.1) / 2
    assert row["difference"] == pytest.approx(0.15) and row["ahead"] == pytest.approx((1 + 0.5 + 1 + 0) / 4)
    half = np.tan(0.475 * np.pi) * 0.05  # t(0.975, 1) times the standard error
    assert [row["difference_low"], row["difference_high"]] == pytest.approx([0.15 - half, 0.15 + half])
    assert found.loc["negative", "random"]["difference"] == pytest.approx((0.1 + 0.1) / 2)
    assert found.loc["negative_p", "random_p"]["difference"] == pytest.approx((0.15 + 0.0) / 2)
    assert found.loc["negative_p", "all"]["difference"] == pytest.approx((0.1 + 0.1) / 2)
