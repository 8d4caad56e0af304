"""Shortcut against full TracIn: measures by hand, and a case in which both are proportional."""

import numpy as np
import pytest

from rl_influence.analysis.agreement import agreement, compare
from rl_influence.attribution import FReturn
from rl_influence.config import RunSpec
from rl_influence.runs import snapshots, training


def make_snapshot(folder, **ppo):
    environment = {
        "id": "frozenlake",
        "label": "FrozenLake",
        "gym_id": "FrozenLake-v1",
        "kwargs": {"map_name": "4x4", "is_slippery": False},
        "rounds": 2,
        "drop_percent": 50,
        "evaluation": {"kind": "exact"},
    }
    spec = RunSpec(
        environment=environment,
        selection={"kind": "influence", "drop_percent": 100},
        ppo={"n_steps": 128, "batch_size": 32, "n_epochs": 3} | ppo,
        rounds=2,
        evaluation=environment["evaluation"],
        seed=1,
    )
    training.take_snapshots(spec, [1], folder, log=lambda line: None)
    return snapshots.load(folder, 1)


def test_measures_by_hand():
    scores = np.array([-3.0, -2.0, -1.0, -1.0, 0.0, 1.0, 2.0, 4.0])
    full = np.array([-1.0, 5.0, -4.0, -2.0, -3.0, 1.0, 0.0, 6.0])
    found = compare(scores, full, 0.5)
    # negative: 0 1 2 3, of which half are 0 and 1; and 2 4 3 0, of which half are 2 and 4
    assert (found["dropped"], found["dropped_full"], found["overlap"], found["jaccard"]) == (2, 2, 0.0, 0.0)
    found = compare(scores, full, 1.0)
    assert (found["dropped"], found["dropped_full"], found["overlap"], found["overlap_by_chance"]) == (4, 4, 3 / 4, 0.5)
    assert found["jaccard"] == 3 / 5

    def ranks(values):
        return [sum(v < u for v in values) + (sum(v == u for v in values) + 1) / 2 for u in values]

    def correlation(x, y):
        x, y = np.array(x) - np.mean(x), np.array(y) - np.mean(y)
        return sum(x * y) / (sum(x * x) * sum(y * y)) ** 0.5

    assert found["pearson"] == pytest.approx(correlation(scores, full), abs=1e-12)
    assert found["spearman"] == pytest.approx(correlation(ranks(scores), ranks(full)), abs=1e-12)


def test_what_is_undefined_is_nan():
    found = compare(np.ones(5), np.arange(5.0), 1.0)
    assert found["dropped"] == 0
    assert all(np.isnan(found[key]) for key in ("spearman", "pearson", "overlap", "overlap_by_chance", "jaccard"))


def test_a_round_that_does_not_move_is_the_shortcut_once_per_epoch(tmp_path):
    snapshot = make_snapshot(tmp_path, batch_size=128, learning_rate=1e-9, normalize_advantage=False)
    raw, normalised = agreement(snapshot).to_dict("records")
    assert (raw["shortcut"], normalised["shortcut"]) == ("raw", "normalised")
    assert raw["pearson"] == pytest.approx(1, abs=1e-9)
    assert raw["overlap"] == raw["jaccard"] == 1
    assert normalised["pearson"] == pytest.approx(1, abs=1e-9)  # a round that does not normalise is scored so, too
    shifted, _ = agreement(make_snapshot(tmp_path / "other", batch_size=128, learning_rate=1e-9)).to_dict("records")
    assert shifted["pearson"] < 0.9999  # shifted advantages are other scores
    full = snapshot.tracin(kept=np.arange(128))
    normal = np.abs(full).max()
    influence = snapshot.influence_on(FReturn(snapshot.records))
    np.testing.assert_allclose(full, 3 * influence, atol=1e-5 * normal)


def test_all_records_are_scored_even_if_the_run_dropped_some(tmp_path):
    snapshot = make_snapshot(tmp_path)
    kept = len(snapshot.selection.kept)
    assert kept < 128
    full = snapshot.tracin(kept=np.arange(128))
    assert (full != 0).sum() > kept
    everything = compare(snapshot.scores, full, 1.0)
    assert (everything["dropped"], everything["dropped_full"]) == ((snapshot.scores < 0).sum(), (full < 0).sum())
    rows = agreement(snapshot)
    assert rows.dropped_full.tolist() == [(full < 0).sum() // 2] * 2
    assert rows.dropped[1] == (snapshot.scores < 0).sum() // 2
    assert rows.drop_fraction.tolist() == [0.5, 0.5]  # the environment's
    assert set(rows.columns) >= {"round", "records", "spearman", "overlap"}
