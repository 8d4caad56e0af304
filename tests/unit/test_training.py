"""One run: nothing that only looks changes its numbers, and nothing that stops it does."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from rl_influence.attribution import ScoringError
from rl_influence.config import RunSpec, parse
from rl_influence.ppo import TrainingError
from rl_influence.runs import trainer as trainer_module
from rl_influence.runs import training
from rl_influence.runs.checkpoints import Checkpoints
from rl_influence.runs.columns import CURVE_COLUMNS, TIMING_COLUMNS
from rl_influence.runs.provenance import fingerprint
from rl_influence.runs.store import ResultError, diagnostics, files_of, load
from rl_influence.runs.training import Clock, Stopped, Trainer, run
from short_runs import influence, silent, spec

ENVIRONMENTS = ["frozenlake", *(pytest.param(name, marks=pytest.mark.slow) for name in ("acrobot", "minigrid"))]


def weights(folder: Path) -> str:
    return json.loads((folder / "manifest.json").read_text())["weights_sha256"]


def rows(folder: Path) -> list[list[str]]:
    return [line.split(",") for line in (folder / "curve.csv").read_text().splitlines()]


def outcome(folder: Path) -> tuple[bytes, bytes, str]:
    """All of a run that has to be the same bytes."""
    return (folder / "curve.csv").read_bytes(), (folder / "diagnostics.csv").read_bytes(), weights(folder)


@pytest.fixture
def save_always(monkeypatch):
    """A state after every round."""
    monkeypatch.setattr(training, "CHECKPOINT_EVERY_S", -1.0)


# What a run writes


def test_a_runs_files(tmp_path):
    one = spec(rounds=3, every=2)
    assert run(one, tmp_path, log=silent) == tmp_path
    header, *curve = rows(tmp_path)
    assert header == list(CURVE_COLUMNS)
    assert [row[:2] for row in curve] == [[str(k), str(k * 256)] for k in range(4)]
    assert [row[2] != "" for row in curve] == [True, False, True, True]  # 0, every second, and the last
    assert [row[3] for row in curve] == ["0.0", "", "0.0", "0.0"]  # exact
    assert curve[0][4:] == ["0", "0"] and all(row[4:] == ["256", "8"] for row in curve[1:])
    timing = (tmp_path / "timing.csv").read_text().splitlines()
    assert timing[0] == ",".join(TIMING_COLUMNS) and len(timing) == 5
    record = json.loads((tmp_path / "manifest.json").read_text())
    assert record["fingerprint"] == fingerprint(one) and record["resumed"] == 0 and len(record["weights_sha256"]) == 64
    assert len(load(tmp_path, one).columns["round"]) == 4
    assert {path.name for path in tmp_path.iterdir()} == {*files_of(record), "state"}
    assert files_of(record) == ("diagnostics.csv", "curve.csv", "timing.csv", "manifest.json")


def test_a_line_for_every_round(tmp_path):
    said: list[str] = []
    run(spec(rounds=2), tmp_path, log=said.append)
    assert [line.split(":")[0] for line in said] == ["round 0/2", "round 1/2", "round 2/2"]
    assert "512 steps" in said[2] and "256 records kept" in said[2] and "8 updates" in said[2]


def test_round_zero_is_the_untrained_policy(tmp_path):
    run(spec(rounds=1, seed=0), tmp_path / "a", log=silent)
    run(spec(rounds=1, seed=0, learning_rate=0.9, n_epochs=5), tmp_path / "b", log=silent)
    assert rows(tmp_path / "a")[1] == rows(tmp_path / "b")[1] and rows(tmp_path / "a")[2] != rows(tmp_path / "b")[2]


# Only looking changes nothing


ON_ENVPOOL = [pytest.param(n, marks=pytest.mark.slow) for n in ("highway", "lunarlander", "bipedalwalker")]


@pytest.mark.parametrize("environment", [*ENVIRONMENTS, *ON_ENVPOOL])
def test_evaluation_does_not_touch_training(environment, tmp_path):
    for every in (1, 1000):
        run(spec(environment, rounds=2, every=every, selection=influence(50)), tmp_path / str(every), log=silent)
    assert weights(tmp_path / "1") == weights(tmp_path / "1000")
    seldom, often = rows(tmp_path / "1000"), rows(tmp_path / "1")
    assert seldom[2][2] == "" != often[2][2]
    assert [row[4:] for row in seldom] == [row[4:] for row in often]
    assert seldom[3] == often[3]  # and the last evaluation is the same one


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("kind", ["influence", "random", "difficulty"])
def test_scoring_that_drops_nothing_does_not_touch_training(environment, kind, tmp_path):
    few = {"rounds": 2, "n_steps": 64}  # of which one percent is none
    run(spec(environment, **few), tmp_path / "ppo", log=silent)
    run(spec(environment, **few, selection={"kind": kind, "drop_percent": 1}), tmp_path / "scored", log=silent)
    assert outcome(tmp_path / "ppo")[::2] == outcome(tmp_path / "scored")[::2]
    for name, values in diagnostics(tmp_path / "ppo").items():  # the same but for what is known of influence
        scored = diagnostics(tmp_path / "scored")[name]
        influence = name.startswith("influence_") or name == "negative_share"
        np.testing.assert_array_equal(np.isnan(values) if influence else values, influence or scored)
        assert np.isfinite(scored).all() or not influence


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_same_run_twice(environment, optimizer, tmp_path):
    for name in ("a", "b"):
        run(spec(environment, rounds=2, optimizer=optimizer, selection=influence(50)), tmp_path / name, log=silent)
    assert outcome(tmp_path / "a") == outcome(tmp_path / "b")


def test_methods_of_one_seed_start_from_the_same_weights_and_first_buffer():
    trainers = [Trainer(spec(selection=selection)) for selection in (None, influence(50))]
    start = [trainer.learner.parameters.vector.copy() for trainer in trainers]
    np.testing.assert_array_equal(*start)
    for trainer in trainers:
        trainer.train_round(Clock())
    for name, array in trainers[0].records.arrays().items():
        np.testing.assert_array_equal(array, trainers[1].records.arrays()[name])
    assert len(trainers[1].selection.kept) < len(trainers[0].selection.kept) == 256
    assert (trainers[0].learner.parameters.vector != trainers[1].learner.parameters.vector).any()


def test_visits_of_one_state_have_one_value_to_the_last_bit():
    """A batch rounds its rows differently; ranks of TD errors must not come from that."""
    trainer = Trainer(spec(n_steps=1001))
    for _ in range(2):
        trainer.train_round(Clock())
    records = trainer.records
    for state in set(records.observations.tolist()):
        visits = records.observations == state
        assert len(set(records.values[visits].tolist())) == 1
        for action in range(4):
            assert len(set(records.log_probs[visits & (records.actions == action)].tolist())) <= 1


def test_another_seed_is_another_run(tmp_path):
    for seed in (0, 1):
        run(spec(rounds=1, seed=seed), tmp_path / str(seed), log=silent)
    assert weights(tmp_path / "0") != weights(tmp_path / "1")


def test_one_thread_whatever_was_set_before_and_as_many_again_afterwards(tmp_path):
    def used() -> tuple:
        return torch.get_num_threads(), *{pool["num_threads"] for pool in threadpool_info()}

    default, seen = torch.get_num_threads(), []
    torch.set_num_threads(2)
    try:
        before = used()
        run(spec(rounds=1), tmp_path, log=lambda line: seen.append(used()))
        assert seen == [(1, 1), (1, 1)] and used() == before and before[0] == 2
        with pytest.raises(TrainingError), np.errstate(all="ignore"):
            run(spec(learning_rate=1000, max_grad_norm=None), tmp_path / "fails", log=silent)
        training.take_snapshots(spec(rounds=1), [0], tmp_path / "snapshots", log=silent)
        assert used() == before
    finally:
        torch.set_num_threads(default)
    assert json.loads((tmp_path / "manifest.json").read_text())["threads"] == 1


@pytest.mark.slow
def test_threads_of_the_shell_change_no_byte(tmp_path):
    """The program with one and with several threads allowed, in the networks that use them most."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from rl_influence.runs.training import run
from short_runs import silent, spec
run(spec("minigrid", rounds=1), sys.argv[1], log=silent)
"""
    variables = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    for threads in ("1", "4"):
        environment = os.environ | dict.fromkeys(variables, threads)
        subprocess.run([sys.executable, "-c", code, str(tmp_path / threads)], env=environment, check=True)
    assert outcome(tmp_path / "1") == outcome(tmp_path / "4")


# Stopped and continued


class Killed(Exception):
    pass


def killed_at(k: int):
    """A log that dies when round `k` is reported, before its state is saved."""

    def log(line: str) -> None:
        if line.startswith(f"round {k}/"):
            raise Killed

    return log


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_killed_in_every_round_it_ends_with_the_same_bytes(environment, optimizer, tmp_path, save_always):
    one = spec(environment, rounds=4, optimizer=optimizer, selection=influence(50))
    run(one, tmp_path / "straight", log=silent)
    for k in (0, 1, 2, 2, 3, 4):
        with pytest.raises(Killed):
            run(one, tmp_path / "killed", log=killed_at(k))
        assert not (tmp_path / "killed/curve.csv").exists()
    said: list[str] = []
    run(one, tmp_path / "killed", log=said.append)
    assert said[0] == "continuing after round 3 of 4" and len(said) == 2
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "straight")
    assert json.loads((tmp_path / "killed/manifest.json").read_text())["resumed"] > 0


@pytest.mark.parametrize(
    "selection", [{"kind": "td_error", "priority_exponent": 0.6}, {"kind": "random", "drop_percent": 50}]
)
def test_methods_that_draw_at_random_continue_alike(selection, tmp_path, save_always):
    one = spec(rounds=3, selection=selection)
    run(one, tmp_path / "straight", log=silent)
    with pytest.raises(Killed):
        run(one, tmp_path / "killed", log=killed_at(2))
    run(one, tmp_path / "killed", log=silent)
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "straight")


def test_killed_long_after_the_last_state_trains_those_rounds_again(tmp_path, monkeypatch):
    one = spec(rounds=5)
    run(one, tmp_path / "straight", log=silent)
    clock = iter(range(0, 1000, 3))  # a state every second round: 3 s a round, 5 s between states
    monkeypatch.setattr(training.time, "monotonic", lambda: float(next(clock)))
    with pytest.raises(Killed):
        run(one, tmp_path / "killed", log=killed_at(5))
    said: list[str] = []
    run(one, tmp_path / "killed", log=said.append)
    assert said[0].startswith("continuing after round ") and len(said) > 2
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "straight")


def test_sigterm_finishes_the_round_and_the_same_call_continues(tmp_path):
    one = spec(rounds=3)
    run(one, tmp_path / "straight", log=silent)
    before = signal.getsignal(signal.SIGTERM)

    def terminate(line: str) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    for k in (0, 1, 2):
        with pytest.raises(Stopped, match=f"stopped after round {k} of 3"):
            run(one, tmp_path / "stopped", log=terminate if k == 0 else skip_first(terminate))
        assert signal.getsignal(signal.SIGTERM) is before
    run(one, tmp_path / "stopped", log=skip_first(terminate))  # in the last round there is nothing left to stop
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "straight")


def skip_first(log):
    """`log` without the line that says where a run continues, which is written before it listens to SIGTERM."""
    lines = []

    def skipping(line: str) -> None:
        lines.append(line)
        if len(lines) > 1:
            log(line)

    return skipping


def test_a_run_outside_the_main_thread(tmp_path):
    run(spec(rounds=1), tmp_path / "main", log=silent)
    thread = threading.Thread(target=run, args=(spec(rounds=1), tmp_path / "other"), kwargs={"log": silent})
    thread.start()
    thread.join()
    assert outcome(tmp_path / "main") == outcome(tmp_path / "other")


@pytest.mark.slow
def test_sigkill_at_any_moment(tmp_path):
    """The process itself, killed three times after seeded numbers of lines."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from rl_influence.runs import trainer as trainer_module
from rl_influence.runs import training
from rl_influence.runs.training import run
from short_runs import influence, spec
training.CHECKPOINT_EVERY_S = -1.0
run(spec(rounds=12, selection=influence(50)), sys.argv[1], log=lambda line: print(line, flush=True))
"""
    command = [sys.executable, "-c", code, str(tmp_path / "killed")]
    for lines in np.random.default_rng(0).integers(1, 5, size=3):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for _ in range(lines):
                assert process.stdout.readline()
            process.kill()
        assert process.returncode == -signal.SIGKILL and not (tmp_path / "killed/curve.csv").exists()
    subprocess.run(command, check=True, capture_output=True)
    run(spec(rounds=12, selection=influence(50)), tmp_path / "straight", log=silent)
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "straight")
    assert json.loads((tmp_path / "killed/manifest.json").read_text())["resumed"] >= 1


def test_a_damaged_newest_state_falls_back(tmp_path, save_always):
    one = spec(rounds=4)
    run(one, tmp_path / "straight", log=silent)
    with pytest.raises(Killed):
        run(one, tmp_path / "killed", log=killed_at(3))
    newest = tmp_path / "killed/state/a.npz"  # round 2; b.npz holds round 1
    newest.write_bytes(newest.read_bytes()[:-3])
    said: list[str] = []
    run(one, tmp_path / "killed", log=said.append)
    assert "a.npz: damaged" in said[0] and said[1] == "continuing after round 1 of 4"
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "straight")


@pytest.mark.slow
def test_a_state_that_the_environment_cannot_continue_from_is_named(tmp_path, save_always):
    one = spec("acrobot", rounds=2)
    with pytest.raises(Killed):
        run(one, tmp_path, log=killed_at(1))
    states = Checkpoints(tmp_path / "state", fingerprint(one))
    state = states.load()
    states.save(state | {"sampler/observation": state["sampler/observation"] + 1, "round": 1})
    states.close()
    with pytest.raises(ResultError, match="state: environment acrobot cannot be resumed"):
        run(one, tmp_path, log=silent)


# Folders that already hold something


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def never(*_):
    raise AssertionError("a run was trained")


def test_a_whole_result_is_left_as_it_is(tmp_path, monkeypatch):
    run(spec(), tmp_path, log=silent)
    before = contents(tmp_path)
    monkeypatch.setattr(training, "Trainer", never)
    said: list[str] = []
    run(spec(), tmp_path, log=said.append)
    assert said == [f"{tmp_path}: already trained"] and contents(tmp_path) == before


def test_another_configurations_result_is_refused_and_left_alone(tmp_path, monkeypatch):
    run(spec(), tmp_path, log=silent)
    before = contents(tmp_path)
    monkeypatch.setattr(training, "Trainer", never)
    with pytest.raises(ResultError, match="manifest.json: belongs to another configuration .* choose another folder"):
        run(spec(seed=1), tmp_path, log=silent)
    assert contents(tmp_path) == before


def test_another_configurations_state_is_refused_and_left_alone(tmp_path, save_always):
    with pytest.raises(Killed):
        run(spec(), tmp_path, log=killed_at(2))
    before = contents(tmp_path)
    with pytest.raises(ResultError, match="state of another configuration"):
        run(spec(seed=1), tmp_path, log=silent)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("state", ["kept", "lost"])
@pytest.mark.parametrize("file", ["curve.csv", "timing.csv", "diagnostics.csv", "manifest.json"])
def test_a_damaged_result_is_made_again(file, state, tmp_path):
    run(spec(), tmp_path, log=silent)
    before = outcome(tmp_path)
    (tmp_path / file).write_bytes((tmp_path / file).read_bytes()[:-5])
    if state == "lost":
        for path in (tmp_path / "state").iterdir():
            path.unlink()
    said: list[str] = []
    run(spec(), tmp_path, log=said.append)
    assert file in said[0] and ("continuing after round 3 of 3" in said) is (state == "kept")
    assert outcome(tmp_path) == before


def test_a_second_live_process_is_refused(tmp_path):
    owner = Checkpoints(tmp_path / "state", fingerprint(spec()))
    with pytest.raises(ResultError, match="another live process is training this run"):
        run(spec(), tmp_path, log=silent)
    owner.close()
    run(spec(), tmp_path, log=silent)


@pytest.mark.parametrize("taken", ["output", "output/state"])
def test_a_folder_that_cannot_be_made_is_named_before_anything_is_trained(taken, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "Trainer", never)
    (tmp_path / taken).parent.mkdir(exist_ok=True)
    (tmp_path / taken).touch()
    with pytest.raises(OSError, match=taken):
        run(spec(), tmp_path / "output", log=silent)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_folder(tmp_path):
    (tmp_path / "output").mkdir(mode=0o500)
    with pytest.raises(OSError, match="output"):
        run(spec(), tmp_path / "output", log=silent)


@pytest.mark.parametrize("write", range(7))
def test_a_disk_that_is_full_at_any_write(write, tmp_path, monkeypatch, save_always):
    """rounds 2: states of rounds 0, 1 and 2, then curve, timing, diagnostics, manifest."""
    one = spec(rounds=2)
    run(one, tmp_path / "straight", log=silent)
    left, fsync = [write], os.fsync

    def full(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left on device: '.*full/") as error:
            run(one, tmp_path / "full", log=silent)
    assert "\n" not in str(error.value)
    for name, content in contents(tmp_path / "full").items():  # nothing half-written
        assert not name.endswith(".tmp")
        if name == "curve.csv":
            assert content == (tmp_path / "straight/curve.csv").read_bytes()
    assert not (tmp_path / "full/manifest.json").exists()
    run(one, tmp_path / "full", log=silent)
    assert outcome(tmp_path / "full") == outcome(tmp_path / "straight")


# Values that are not finite, and selections that keep little


def test_a_loss_that_is_not_finite_names_round_and_update(tmp_path):
    wild = spec(learning_rate=1000, max_grad_norm=None, n_epochs=10)
    with pytest.raises(TrainingError, match=r"round 1, update \d+: .*not finite"), np.errstate(all="ignore"):
        run(wild, tmp_path, log=silent)
    assert not (tmp_path / "curve.csv").exists()


@pytest.mark.parametrize("mean", [float("nan"), float("inf")])
def test_a_test_return_that_is_not_finite_is_no_result(mean, tmp_path, monkeypatch):
    evaluate = training.evaluate

    def spoilt(policy, environment, evaluation, seed):
        return replace(evaluate(policy, environment, evaluation, seed), mean=mean)

    monkeypatch.setattr(training, "evaluate", spoilt)
    with pytest.raises(TrainingError, match=f"^test return {mean} after round 0: not finite$"):
        run(spec(), tmp_path, log=silent)
    assert not (tmp_path / "curve.csv").exists()


def test_scoring_that_is_refused_stops_the_run_and_names_the_round(monkeypatch):
    def refuse(*_):
        raise ScoringError("the policy ties records together")

    trainer = Trainer(spec(selection=influence(50)))
    trainer.train_round(Clock())
    monkeypatch.setattr(trainer_module, "score", refuse)
    with pytest.raises(TrainingError, match="^round 2, the policy ties records together$"):
        trainer.train_round(Clock())


def test_scores_that_are_not_finite(tmp_path, monkeypatch):
    monkeypatch.setattr("rl_influence.runs.trainer.score", lambda records, *_: np.full(len(records), np.nan))
    with pytest.raises(TrainingError, match="round 1, influence scores are not finite"):
        run(spec(selection=influence(50)), tmp_path, log=silent)


def test_parameters_that_are_not_finite_after_a_rounds_last_update(tmp_path, monkeypatch):
    def step(self, *_) -> None:
        self.parameters.vector[0] = np.inf

    monkeypatch.setattr("rl_influence.ppo.Optimizer.step", step)
    with pytest.raises(TrainingError, match="round 1, update 1: parameters are not finite"):
        run(spec(n_steps=64, n_epochs=1), tmp_path, log=silent)


@pytest.mark.parametrize("kept, updates", [(0, 0), (1, 2), (64, 2), (65, 2), (129, 4)])
def test_selections_that_keep_little(kept, updates, tmp_path, monkeypatch):
    def scores(records, *_):
        return np.where(np.arange(len(records)) < kept, 1.0, -1.0)

    monkeypatch.setattr("rl_influence.runs.trainer.score", scores)
    one = spec(rounds=2, selection=influence(100))
    untrained = Trainer(one).learner.parameters.vector.copy()
    run(one, tmp_path, log=silent)
    assert [row[4:] for row in rows(tmp_path)[2:]] == [[str(kept), str(updates)]] * 2
    final = Checkpoints(tmp_path / "state", fingerprint(one)).load()["parameters"]
    assert np.isfinite(final).all() and (final != untrained).any() == (updates > 0)


@pytest.mark.parametrize(
    "changes, kept, updates",
    [
        (dict(batch_size=1, n_steps=33), 33, 66),
        (dict(n_steps=1, batch_size=1), 1, 2),
        (dict(n_steps=65, batch_size=64, drop_short_minibatch=False), 65, 4),
        (dict(n_steps=65, batch_size=64, drop_short_minibatch=True), 65, 2),
        (dict(gamma=0, gae_lambda=0, value_coef=0), 256, 8),
        (dict(gamma=1, gae_lambda=1, normalize_advantage=False, max_grad_norm=None), 256, 8),
        (dict(clip_range=1e-12, entropy_coef=0.01), 256, 8),
        (dict(selection={"kind": "td_error", "priority_exponent": 1000}), 256, 8),
    ],
)
def test_unusual_settings_train_on_as_many_records_as_they_say(changes, kept, updates, tmp_path):
    one = spec(rounds=2, **changes)
    run(one, tmp_path, log=silent)
    final = Checkpoints(tmp_path / "state", fingerprint(one)).load()["parameters"]
    assert np.isfinite(final).all()
    assert [row[4:] for row in rows(tmp_path)[2:]] == [[str(kept), str(updates)]] * 2


@pytest.mark.slow
def test_test_episodes_that_do_not_end_are_reported(tmp_path):
    data = spec("acrobot", rounds=1).model_dump()
    data["evaluation"] |= {"max_steps": 5}
    said: list[str] = []
    with pytest.warns(UserWarning, match="did not end within"):
        run(parse(RunSpec, data, "test"), tmp_path, log=said.append)
    assert said[0] == "round 0: 4 test episodes did not end within 5 steps"
