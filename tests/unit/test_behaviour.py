"""Behaviours over rounds: target states against the simulator, breakpoints by brute force, trajectories by hand."""

import itertools
import json

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_influence.analysis.behaviour import (
    BEHAVIOURS,
    Behaviour,
    analyse,
    breakpoints,
    swing_velocity,
    tailing_gap,
    target_record,
)
from rl_influence.analysis.roughness import embeddings, roughness_table
from rl_influence.attribution import FAction, influence_scores
from rl_influence.config import ConfigError, RunSpec
from rl_influence.runs import snapshots, training
from rl_influence.runs.store import ResultError

WHATEVER = Behaviour("push right", "every record; median position", 1, lambda x: x[:, 0].astype(float))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    environment = {
        "id": "cartpole",
        "label": "CartPole",
        "gym_id": "CartPole-v1",
        "rounds": 9,
        "drop_percent": 50,
        "evaluation": {"kind": "batched"},
    }
    spec = RunSpec(
        environment=environment,
        selection={"kind": "all"},
        ppo={"n_steps": 96, "batch_size": 32, "n_epochs": 2, "learning_rate": 0.05},
        rounds=9,
        evaluation=environment["evaluation"],
        seed=0,
    )
    path = tmp_path_factory.mktemp("run")
    training.take_snapshots(spec, range(9), path, log=lambda line: None)
    return path


@pytest.mark.slow
def test_tailing_gap_is_the_simulators():
    pytest.importorskip("highway_env")
    config = {"vehicles_count": 30, "vehicles_density": 2, "duration": 60}
    env = gym.make("highway-v0", config=config)
    observations, expected = [], []
    for seed in range(12):
        observation, _ = env.reset(seed=seed)
        for _ in range(3):
            ego = env.unwrapped.vehicle
            ahead = [
                other
                for other in env.unwrapped.road.vehicles
                if other is not ego
                and other.position[0] > ego.position[0]
                and abs(other.position[1] - ego.position[1]) < 2.0
            ]
            gap = np.nan
            if ahead:
                nearest = min(ahead, key=lambda other: other.position[0])
                distance = nearest.position[0] - ego.position[0]
                if distance <= 30 and nearest.velocity[0] < ego.velocity[0]:
                    gap = distance
            observations.append(np.array(observation))
            expected.append(gap)
            observation, _, terminated, *_ = env.step(3)
            if terminated:
                break
    observations = np.stack(observations)
    found = tailing_gap(observations.reshape(len(observations), -1))  # flattened, as the runs see it
    assert 3 < (~np.isnan(expected)).sum() < len(expected) - 3
    np.testing.assert_allclose(found, expected, atol=0.01)


def test_tailing_gap_by_hand():
    def road(*others):
        vehicles = [[1, 0.9, 0.25, 0.3, 0], *others]
        return np.array(vehicles + [[0, 0, 0, 0, 0]] * (5 - len(vehicles)), dtype=np.float32).ravel()

    slow, fast = -0.05, 0.05
    rows = [
        (road(), np.nan),  # the empty rows are no vehicles
        (road([1, 0.1, 0, slow, 0]), 20),
        (road([1, 0.1, 0, fast, 0]), np.nan),  # getting away
        (road([1, 0.1, 0.25, slow, 0]), np.nan),  # in the next lane
        (road([1, 0.1, 0.1, slow, 0]), 20),  # changing lanes, still more here than there
        (road([1, -0.1, 0, slow, 0]), np.nan),  # behind
        (road([1, 0.16, 0, slow, 0]), np.nan),  # too far
        (road([1, 0.12, 0, slow, 0], [1, 0.05, 0, slow, 0]), 10),  # the nearest counts
        (road([1, 0.12, 0, slow, 0], [1, 0.05, 0, fast, 0]), np.nan),
    ]
    found = tailing_gap(np.stack([row for row, _ in rows]))
    np.testing.assert_allclose(found, [gap for _, gap in rows], rtol=1e-5)


def test_target_records_are_medians():
    observations = np.zeros((7, 6))
    observations[:, 5] = [5, -3, 2, 1.9, 4, 3, 9]
    np.testing.assert_array_equal(swing_velocity(observations), [5, np.nan, 2, np.nan, 4, 3, 9])
    acrobot = BEHAVIOURS["Acrobot-v1"]
    assert target_record(acrobot, observations) == 4  # of 2 3 4 5 9
    assert target_record(acrobot, observations[:6]) == 5  # the lower one of 3 and 4
    with pytest.raises(ConfigError, match="no record of the buffer follows its rule"):
        target_record(acrobot, np.zeros((4, 6)))


@pytest.mark.parametrize("seed", range(4))
def test_breakpoints_by_brute_force(seed):
    generator = np.random.default_rng(seed)
    values = generator.standard_normal(14) + np.repeat([0, 2, 1], [4, 6, 4])
    for pieces, shortest in ((1, 3), (2, 3), (3, 3), (3, 1), (4, 2)):

        def error(starts, shortest=shortest):
            parts = np.split(values, starts[1:])
            if any(len(part) < shortest for part in parts):
                return np.inf
            return sum(((part - part.mean()) ** 2).sum() for part in parts)

        candidates = [(0, *rest) for rest in itertools.combinations(range(1, 14), pieces - 1)]
        best = min(candidates, key=error)
        assert breakpoints(values, pieces, shortest=shortest) == list(best)


def test_breakpoints_of_steps_and_of_too_little():
    assert breakpoints([0.3] * 5 + [0.9] * 4 + [0.1] * 7) == [0, 5, 9]
    assert breakpoints([1.0] * 9) == [0, 3, 6]
    with pytest.raises(ConfigError, match="8 rounds are too few for 3 phases of at least 3"):
        breakpoints(range(8))


def test_trajectory_by_hand(folder, monkeypatch):
    monkeypatch.setitem(BEHAVIOURS, "CartPole-v1", WHATEVER)
    last, final = snapshots.load(folder, 8), snapshots.load_final(folder).policy()
    found = analyse(last.spec, folder, range(9))
    positions = last.records.observations[:, 0]
    record = np.argsort(positions, kind="stable")[47]  # lower median of 96
    observation = last.records.observations[record]
    assert found["behaviour_targets"][["record", "round", "action"]].values.tolist() == [[record, 8, 1]]

    def probability(policy):
        with torch.no_grad():
            return float(policy.distribution_parameters(torch.from_numpy(observation[None])).softmax(-1)[0, 1])

    target = FAction(observation, np.array(1))
    expected = [probability(snapshots.load(folder, k).policy()) for k in range(9)] + [probability(final)]
    table = found["behaviour"].set_index(["round", "neighbours"])
    assert len(table) == 30
    for k in range(9):
        snapshot = snapshots.load(folder, k)
        influence = influence_scores(snapshot.policy(), snapshot.records, target, backend="per_record").numpy()
        by_hand = roughness_table(influence, embeddings(final, snapshot.records.observations))
        for u, value in zip(by_hand["neighbours"], by_hand["roughness"], strict=True):
            row = table.loc[k, u]
            assert row.probability == pytest.approx(expected[k], rel=1e-5)
            assert row.roughness == pytest.approx(value, rel=1e-3)
            assert row.nodes == (influence > 0).sum()
    assert table.loc[9, 20].probability == pytest.approx(expected[9], rel=1e-5)
    assert np.isnan(table.loc[9, 20].roughness)

    starts, phases = breakpoints(expected), found["behaviour_phases"]
    assert phases.first_round.tolist() == starts
    assert phases.last_round.tolist() == [starts[1] - 1, starts[2] - 1, 9]
    for phase in phases.itertuples():
        assert phase.shown_round == (phase.first_round + phase.last_round) // 2
        assert phase.probability == pytest.approx(np.mean(expected[phase.first_round : phase.last_round + 1]), rel=1e-5)


def test_refusals(folder, tmp_path):
    spec = snapshots.load_final(folder).spec
    with pytest.raises(ConfigError, match="unknown behaviour 'CartPole-v1'"):
        analyse(spec, folder, (0, 8))
    with pytest.raises(ResultError, match="no final policy"):
        analyse(spec, tmp_path, (0, 8))


def test_the_analysis_of_some_rounds(folder, monkeypatch):
    monkeypatch.setitem(BEHAVIOURS, "CartPole-v1", WHATEVER)
    rounds = (0, 1, 2, 4, 5, 7)
    final = snapshots.load_final(folder)
    tables = analyse(final.spec, folder, rounds)
    table = tables["behaviour"]
    assert table["round"].unique().tolist() == [*rounds, 9]
    few = table[table["neighbours"] == 20]
    assert few["third"].tolist() == ["first"] * 3 + ["middle"] * 2 + ["last"] * 2  # of 9 rounds
    assert few["roughness"].isna().tolist() == [False] * 6 + [True]
    target = tables["behaviour_targets"].iloc[0]
    last = snapshots.load(folder, 7)
    assert (target["round"], target["record"]) == (7, target_record(WHATEVER, last.records.observations))
    observation = last.records.observations[target["record"]]
    np.testing.assert_allclose(json.loads(target["observation"]), observation, rtol=1e-5)
    # seven points are enough for two phases of three
    assert tables["behaviour_phases"]["phase"].tolist() == [1, 2]
    followed = FAction(observation, np.array(1))
    for phase, part in tables["behaviour_records"].groupby("phase"):
        shown = int(tables["behaviour_phases"].set_index("phase").loc[phase, "shown_round"])
        snapshot = snapshots.load(folder, shown)
        scores = snapshot.influence_on(followed)
        assert part["place"].tolist() == list(range(1, 11)) and (part["round"] == shown).all()
        assert part["record"].tolist() == np.argsort(-scores, kind="stable")[:10].tolist()
        for row in part.itertuples():
            assert (row.action, row.advantage) == (
                snapshot.records.actions[row.record],
                pytest.approx(snapshot.records.advantages[row.record]),
            )
            seen = json.loads(row.observation)
            np.testing.assert_allclose(seen, snapshot.records.observations[row.record], rtol=1e-5)


def test_few_rounds_have_one_phase_and_fewer_none(folder, monkeypatch):
    monkeypatch.setitem(BEHAVIOURS, "CartPole-v1", WHATEVER)
    spec = snapshots.load_final(folder).spec
    phases = analyse(spec, folder, (2, 8))["behaviour_phases"]
    assert phases[["phase", "first_round", "last_round", "shown_round"]].values.tolist() == [[1, 2, 9, 8]]
    with pytest.raises(ConfigError, match="2 rounds are too few for 1 phase of at least 3"):
        analyse(spec, folder, (8,))
