"""Snapshots: what is read back redoes the round bit for bit, without an environment."""

import re

import numpy as np
import pandas as pd
import pytest
import torch

from rl_influence import seeding
from rl_influence.attribution import FAction, FReturn
from rl_influence.cli import main
from rl_influence.config import ConfigError, RunSpec
from rl_influence.runs import snapshots, training
from rl_influence.runs.checkpoints import unpack
from rl_influence.runs.store import ResultError
from rl_influence.selection import Selection

ROUNDS = (1, 2)


def make_spec(selection=None, environment=None, **ppo):
    frozenlake = {
        "id": "frozenlake",
        "label": "FrozenLake",
        "gym_id": "FrozenLake-v1",
        "kwargs": {"map_name": "4x4", "is_slippery": False},
        "rounds": 4,
        "drop_percent": 50,
        "evaluation": {"kind": "exact"},
    }
    environment = frozenlake | (environment or {})
    return RunSpec(
        environment=environment,
        selection=selection or {"kind": "influence", "drop_percent": 50},
        ppo={"n_steps": 128, "batch_size": 32, "n_epochs": 2} | ppo,
        rounds=environment["rounds"],
        evaluation=environment["evaluation"],
        seed=3,
    )


def quiet(line):
    pass


def reference(spec, rounds):
    """The run's own state at the start and end of each round, by stepping the trainer."""
    trainer, clock = training.Trainer(spec), training.Clock()
    seen = {}
    for k in range(rounds):
        before, optimizer = trainer.learner.parameters.vector.copy(), trainer.learner.optimizer.state()
        optimizer = {name: value.copy() for name, value in optimizer.items()}
        trainer.train_round(clock)
        after = trainer.learner.parameters.vector.copy()
        seen[k] = (before, optimizer, after, trainer.records, trainer.selection, trainer.scores)
    return seen


SPECS = {
    "iif": make_spec(),
    "adam": make_spec(optimizer="adam", learning_rate=1e-3),
    "td_error": make_spec({"kind": "td_error", "priority_exponent": 0.6}),
    "as_all": make_spec({"kind": "influence", "drop_percent": 100, "updates": "as_all"}),
    "displacement": make_spec({"kind": "all", "drop_percent": 50, "displacement": "as_influence"}),
    "bipedalwalker": make_spec(
        environment={"id": "walker", "gym_id": "BipedalWalker-v3", "kwargs": {}, "evaluation": {"kind": "batched"}},
    ),
}


@pytest.mark.parametrize("name", SPECS)
def test_round_is_redone_exactly(name, tmp_path):
    spec = SPECS[name]
    training.take_snapshots(spec, ROUNDS, tmp_path, log=quiet)
    expected = reference(spec, 4)
    assert snapshots.rounds_in(tmp_path) == list(ROUNDS)
    for k in ROUNDS:
        before, optimizer, after, records, selection, scores = expected[k]
        snapshot = snapshots.load(tmp_path, k)
        for field, array in records.arrays().items():
            restored = getattr(snapshot.records, field)
            assert restored.dtype == array.dtype
            np.testing.assert_array_equal(restored, array, err_msg=field)
        np.testing.assert_array_equal(snapshot.selection.kept, selection.kept)
        assert (snapshot.scores is None) == (scores is None)
        if scores is not None:
            np.testing.assert_array_equal(snapshot.influence(), scores)
        learner = snapshot.learner()
        np.testing.assert_array_equal(learner.parameters.vector, before)
        assert learner.optimizer.state().keys() == optimizer.keys()
        for part, array in optimizer.items():
            np.testing.assert_array_equal(learner.optimizer.state()[part], array)
        learner.update(snapshot.records, snapshot.epochs())
        np.testing.assert_array_equal(learner.parameters.vector, after)
    final = snapshots.load_final(tmp_path)
    assert final.round == 4
    np.testing.assert_array_equal(final.learner().parameters.vector, expected[3][2])


def test_run_keeps_snapshots_as_it_trains_and_again_when_asked_later(tmp_path):
    spec = SPECS["iif"]
    training.run(spec, tmp_path / "both", snapshot_rounds=[2, 1, 2], log=quiet)
    curve = (tmp_path / "both/curve.csv").read_bytes()
    training.run(spec, tmp_path / "later", log=quiet)
    assert (tmp_path / "later/curve.csv").read_bytes() == curve  # keeping snapshots changes no number
    timing = (tmp_path / "later/timing.csv").read_bytes()
    training.run(spec, tmp_path / "later", snapshot_rounds=ROUNDS, log=quiet)
    assert (tmp_path / "later/timing.csv").read_bytes() == timing  # the result that was there is untouched
    for name in ("round_1", "round_2", "final"):
        first, second = (
            unpack((tmp_path / folder / f"snapshots/{name}.npz").read_bytes()) for folder in ("both", "later")
        )
        assert first.keys() == second.keys()
        for key, value in first.items():
            np.testing.assert_array_equal(second[key], value, err_msg=key)
    assert snapshots.load(tmp_path / "later", 1).round == 1  # the run's folder will do


def test_another_runs_snapshots_are_refused_and_left_alone(tmp_path):
    training.take_snapshots(SPECS["iif"], [1], tmp_path, log=quiet)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    other = SPECS["iif"].model_copy(update={"seed": 4})
    for take in (
        lambda: training.take_snapshots(other, [1], tmp_path, log=quiet),
        lambda: training.run(other, tmp_path / "run", snapshot_rounds=[1], snapshot_dir=tmp_path, log=quiet),
    ):
        with pytest.raises(ResultError, match=r"final.npz: belongs to another run .* choose another folder"):
            take()
    (tmp_path / "final.npz").unlink()
    with pytest.raises(ResultError, match=r"round_1.npz: belongs to another run"):
        training.take_snapshots(other, [2], tmp_path, log=quiet)
    assert (tmp_path / "round_1.npz").read_bytes() == before["round_1.npz"]
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_has_the_snapshots_that_lay_behind_it(tmp_path, monkeypatch):
    spec = SPECS["iif"]
    monkeypatch.setattr(training, "CHECKPOINT_EVERY_S", -1)
    train_round, rounds = training.Trainer.train_round, []

    def stop_in_third(trainer, clock):
        if trainer.round == 2 and not rounds:
            rounds.append(2)
            raise KeyboardInterrupt
        return train_round(trainer, clock)

    monkeypatch.setattr(training.Trainer, "train_round", stop_in_third)
    with pytest.raises(KeyboardInterrupt):
        training.run(spec, tmp_path, log=quiet)
    training.run(spec, tmp_path, snapshot_rounds=(0, 3), log=quiet)
    assert snapshots.rounds_in(tmp_path / "snapshots") == [0, 3]
    np.testing.assert_array_equal(
        snapshots.load(tmp_path, 0).learner().parameters.vector, training.Trainer(spec).learner.parameters.vector
    )


def test_selection_of_ones_own_and_scores_on_demand(tmp_path):
    plain, filtered = make_spec({"kind": "all"}), make_spec()
    for spec, name in ((plain, "ppo"), (filtered, "iif")):
        training.take_snapshots(spec, [0], tmp_path / name, log=quiet)
    ppo, iif = snapshots.load(tmp_path / "ppo", 0), snapshots.load(tmp_path / "iif", 0)
    # one seed: the same buffer and the same scoring stream, whether the method scores or not
    assert ppo.scores is None
    np.testing.assert_array_equal(ppo.influence(), iif.scores)
    learner, _ = ppo.redo(iif.selection.kept)
    np.testing.assert_array_equal(learner.parameters.vector, reference(filtered, 1)[0][2])


def test_table_counts_steps_of_episodes(tmp_path):
    training.take_snapshots(make_spec(n_steps=124), [0, 1], tmp_path, log=quiet)
    first, second = snapshots.load(tmp_path, 0), snapshots.load(tmp_path, 1)
    step, episode, expected = 0, 0, []
    for snapshot in (first, second):  # the second buffer goes on where the first one stopped
        episode, rows = 0, []
        for i in range(len(snapshot.records)):
            rows.append((i, episode, step))
            step += 1
            if snapshot.records.terminated[i] or snapshot.records.truncated[i]:
                step, episode = 0, episode + 1
        expected.append(rows)
    for snapshot, rows in zip((first, second), expected, strict=True):
        table = snapshot.table()
        assert list(table[["record", "episode", "step"]].itertuples(index=False, name=None)) == rows
        np.testing.assert_array_equal(table["advantage"], snapshot.records.advantages)
    assert len(first.episode_actions) == 0
    n = expected[1][0][2]
    np.testing.assert_array_equal(second.episode_actions, first.records.actions[len(first.records) - n :])
    assert n > 0


def test_spaces_come_back(tmp_path):
    training.take_snapshots(SPECS["bipedalwalker"], [1], tmp_path, log=quiet)
    snapshot = snapshots.load(tmp_path, 1)
    sampler = training.Trainer(SPECS["bipedalwalker"]).sampler
    assert snapshot.observation_space == sampler.observation_space
    assert snapshot.action_space == sampler.action_space


def test_errors_are_one_line(tmp_path):
    spec = SPECS["iif"]
    training.take_snapshots(spec, ROUNDS, tmp_path, log=quiet)
    with pytest.raises(ResultError, match=r"no snapshot of round 3; rounds with one: 1, 2$"):
        snapshots.load(tmp_path, 3)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ResultError, match="rounds with one: none"):
        snapshots.load(tmp_path / "empty", 0)
    with pytest.raises(ResultError, match="no final policy"):
        snapshots.load_final(tmp_path / "empty")
    for load in (snapshots.load_final, lambda folder: snapshots.load(folder, 0)):
        with pytest.raises(ResultError, match="nothing: no such folder$"):
            load(tmp_path / "nothing")
    for k in (-1, 4):
        with pytest.raises(ConfigError, match=f"snapshot round {k}: the run has rounds 0"):
            training.run(spec, tmp_path / "run", snapshot_rounds=[k], log=quiet)
    path = tmp_path / "round_1.npz"
    data = path.read_bytes()
    for damaged in (data[: len(data) // 2], data[:-1] + bytes([data[-1] ^ 1]), b""):
        path.write_bytes(damaged)
        with pytest.raises(ResultError, match="damaged"):
            snapshots.load(tmp_path, 1)


def test_another_versions_snapshot_is_refused(tmp_path, monkeypatch):
    training.take_snapshots(SPECS["iif"], [1], tmp_path, log=quiet)
    monkeypatch.setattr("rl_influence.runs.provenance.RESULTS_VERSION", 10**6)
    with pytest.raises(ResultError, match="another version"):
        snapshots.load(tmp_path, 1)


def test_mini_batches_do_not_depend_on_what_was_scored(tmp_path):
    training.take_snapshots(SPECS["iif"], [1], tmp_path, log=quiet)
    snapshot = snapshots.load(tmp_path, 1)
    stream = seeding.generator(3, "minibatches", 1)
    for order in snapshot.epochs():
        np.testing.assert_array_equal(order, stream.permutation(snapshot.selection.kept))
    everything = [tuple(order) for number in (0, 1, 2) for order in snapshot.epochs(np.arange(128), order=number)]
    assert all(sorted(order) == list(range(128)) for order in everything)
    assert len(set(everything)) == 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("run")
    training.take_snapshots(SPECS["iif"], ROUNDS, path / "snapshots", log=quiet)
    return path


@pytest.mark.parametrize("settings", [{}, {"clip_range": 0.001, "normalize_advantage": False, "learning_rate": 1.0}])
def test_tracin_is_the_sum_over_the_steps_of_the_redone_round(settings, tmp_path):
    spec, kept, clipped = make_spec(**settings), np.arange(0, 128, 3), 0
    training.take_snapshots(spec, [1], tmp_path, log=quiet)
    snapshot = snapshots.load(tmp_path, 1)
    learner, records, expected = snapshot.learner(), snapshot.records, np.zeros(128)
    low, high = 1 - spec.ppo.clip_range, 1 + spec.ppo.clip_range
    order = seeding.generator(3, "minibatches", 1)
    for _ in range(2):
        batch = order.permutation(kept)[:32]  # of 43 records: the short second mini-batch is left out
        a = records.advantages[batch]
        if spec.ppo.normalize_advantage:
            a = (a - a.mean()) / (a.std(ddof=1) + 1e-8)
        actor = [p for name, p in learner.policy.named_parameters() if "value" not in name]

        def gradient(value, actor=actor):
            return torch.cat([g.flatten() for g in torch.autograd.grad(value, actor, retain_graph=True)]).double()

        observations, actions = torch.from_numpy(records.observations), torch.from_numpy(records.actions)
        log_probs = learner.policy.log_prob(observations, actions)
        direction = gradient((log_probs * torch.from_numpy(records.advantages)).mean())
        for row, i in enumerate(batch):
            ratio = (log_probs[i] - float(records.log_probs[i])).exp()
            objective = torch.min(ratio * float(a[row]), ratio.clamp(low, high) * float(a[row]))
            clipped += objective.item() < ratio.item() * float(a[row]) - 1e-9
            expected[i] += float(gradient(objective) @ direction)
        learner.update(records, [batch])
    assert clipped > 0 or not settings
    scores = snapshot.tracin(kept=kept)
    np.testing.assert_allclose(scores, expected, rtol=2e-4, atol=2e-6 * np.abs(expected).max())
    assert (scores[np.setdiff1d(np.arange(128), kept)] == 0).all()
    learner, updates = snapshot.redo(kept)
    assert updates == 2
    again = snapshot.learner()
    again.update(records, Selection(kept, len(kept)).epochs(2, seeding.generator(3, "minibatches", 1)))
    np.testing.assert_array_equal(learner.parameters.vector, again.parameters.vector)


def test_score_command(folder, capsys):
    output = folder / "scores.parquet"
    main(["score", "--run", str(folder), "--round", "1", "--output", str(output), "--show", "4"])
    table, snapshot = pd.read_parquet(output), snapshots.load(folder, 1)
    expected = snapshot.influence_on(FReturn(snapshot.records))
    np.testing.assert_allclose(table["influence"], expected, rtol=1e-4, atol=1e-7)
    np.testing.assert_array_equal(table["observation"], snapshot.records.observations)
    np.testing.assert_array_equal(np.flatnonzero(table["kept"]), snapshot.selection.kept)
    helpful, harmful = capsys.readouterr().out.split("most harmful")
    order = np.argsort(-table["influence"].to_numpy(), kind="stable")
    for text, records in ((helpful, order[:4]), (harmful, order[:-5:-1])):
        rows = [line.split() for line in text.splitlines()[2:6]]
        assert [int(row[0]) for row in rows] == records.tolist()

    def scores(*arguments):
        main(["score", "--run", str(folder), "--round", "1", *arguments])
        path = capsys.readouterr().out.split()[-1]
        return pd.read_parquet(path)["influence"].to_numpy()

    np.testing.assert_allclose(scores("--advantages", "normalised"), snapshot.influence(), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(scores("--full"), snapshot.tracin())
    target = FAction(np.array(4), np.array(1))
    by_action = scores("--target", "action", "--observation", "4", "--action", "1")
    np.testing.assert_allclose(by_action, snapshot.influence_on(target), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--round", "0"], "no snapshot of round 0; rounds with one: 1, 2"),
        (["--round", "1", "--target", "action"], "needs both"),
        (["--round", "1", "--action", "1"], "--target action"),
        (["--round", "1", "--target", "action", "--observation", "[1, 2]", "--action", "1"], "observation [1, 2]"),
        (["--round", "1", "--target", "action", "--observation", "16", "--action", "1"], "from 0 to 15"),
        (["--round", "1", "--target", "action", "--observation", "1", "--action", "4"], "from 0 to 3"),
        (["--round", "1", "--target", "action", "--observation", "[[1], [2, 3]]", "--action", "1"], "--observation"),
        (["--round", "1", "--full", "--advantages", "normalised"], "--full"),
    ],
)
def test_score_command_refuses_in_one_line(folder, capsys, arguments, message):
    with pytest.raises(SystemExit) as stopped:
        main(["score", "--run", str(folder), *arguments])
    error = capsys.readouterr().err
    assert stopped.value.code == 1
    assert message in error and error.count("\n") == 1


def test_score_command_refuses_nan_advantages(tmp_path, capsys):
    training.take_snapshots(SPECS["iif"], [1], tmp_path, log=quiet)
    snapshot = snapshots.load(tmp_path, 1)
    snapshot.records.advantages[7] = np.nan
    snapshots.save(tmp_path, snapshot)
    with pytest.raises(SystemExit) as stopped:
        main(["score", "--run", str(tmp_path), "--round", "1"])
    error = capsys.readouterr().err
    assert stopped.value.code == 1
    assert "advantages[7] is nan" in error and error.count("\n") == 1


def test_evaluate_command_agrees_with_the_curve(tmp_path, capsys):
    training.run(SPECS["iif"], tmp_path, snapshot_rounds=[2], log=quiet)
    curve = pd.read_csv(tmp_path / "curve.csv")
    for which, k in (("2", 2), ("final", 4)):
        main(["evaluate", "--run", str(tmp_path), "--round", which])
        assert capsys.readouterr().out == f"after {k} rounds: test return {curve.test_return[k]:.6g} (exact)\n"
    main(["evaluate", "--run", str(tmp_path), "--round", "final", "--kind", "batched", "--episodes", "300"])
    mean, error = map(float, re.search(r"return (\S+) \(± (\S+), 300 episodes", capsys.readouterr().out).groups())
    assert abs(mean - curve.test_return[4]) < 4 * error + 0.01
    with pytest.raises(SystemExit):
        main(["evaluate", "--run", str(tmp_path), "--round", "1"])
    assert "rounds with one: 2" in capsys.readouterr().err
