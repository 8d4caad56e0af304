"""Matched displacement: a round goes as far as another method's would, and nothing else changes."""

from __future__ import annotations

import math

import numpy as np
import pytest

import oracles
from rl_influence.ppo import TrainingError
from rl_influence.runs.displacement import TOLERANCE, TRIALS, matching_scale
from rl_influence.runs.trainer import Clock, Trainer
from rl_influence.runs.training import run
from short_runs import influence, silent, spec

PPO_AS_IIF = {"kind": "all", "drop_percent": 50, "displacement": "as_influence"}
IIF_AS_PPO = influence(50) | {"displacement": "as_all"}
ACTOR = ("features", "policy", "action_head", "log_std")


# The search for a factor


def searched(target, moved) -> tuple[float, list[float]]:
    """The factor that is found, and those that were tried."""
    tried = []

    def noted(scale: float) -> float:
        tried.append(scale)
        return moved(scale)

    return matching_scale(target, noted), tried


@pytest.mark.parametrize("power", [0.3, 0.7, 1.0, 1.5, 2.5])
@pytest.mark.parametrize("target", [0.05, 0.9, 1.0, 4.0, 30.0])
def test_a_power_of_the_learning_rate(power, target):
    scale, tried = searched(target, lambda scale: scale**power)
    assert abs(scale**power / target - 1) <= TOLERANCE and len(tried) < TRIALS
    assert scale == tried[-1]  # what is taken was measured


def test_a_displacement_that_levels_off():
    scale, tried = searched(0.95, lambda scale: scale / (1 + scale))
    assert abs(scale / (1 + scale) / 0.95 - 1) <= TOLERANCE and len(tried) <= TRIALS


def test_jumps():
    """A record that stops being clipped moves the rest of a round; two factors on either side of the jump are told."""
    scale, tried = searched(1.4, lambda scale: scale * (1.3 if scale > 1.2 else 1.0))
    assert len(tried) == TRIALS
    errors = [abs(math.log(x * (1.3 if x > 1.2 else 1.0) / 1.4)) for x in tried]
    assert scale == tried[int(np.argmin(errors))]


def test_factors_at_which_training_breaks_down():
    scale, _ = searched(3.5, lambda scale: scale if scale < 4 else math.inf)
    assert abs(scale / 3.5 - 1) <= TOLERANCE
    scale, _ = searched(0.5, lambda scale: scale if scale < 0.8 else math.inf)
    assert abs(scale / 0.5 - 1) <= TOLERANCE


def test_nowhere_to_go_and_nothing_that_goes():
    assert searched(0.0, lambda scale: scale) == (0.0, [])
    assert searched(1.0, lambda scale: 0.0) == (1.0, [1.0])


# Rounds


def displacement_of(trainer: Trainer, selection: dict, factor: float = 1.0, **ppo) -> tuple[float, np.ndarray]:
    """One round of another run from the same state: how far its actor moves, and its parameters afterwards."""
    rate = trainer.spec.ppo.learning_rate
    other = Trainer(spec(seed=trainer.spec.seed, selection=selection, **ppo | {"learning_rate": rate * factor}))
    other.restore(trainer.state())
    before = {name: p.detach().clone() for name, p in other.policy.named_parameters()}
    other.train_round(Clock())
    moved = oracles.displacement(before, dict(other.policy.named_parameters()), ACTOR)
    return moved, other.learner.parameters.vector


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("own, other", [(PPO_AS_IIF, influence(50)), (IIF_AS_PPO, {"kind": "all"})])
def test_a_round_is_the_methods_own_at_the_learning_rate_that_goes_as_far_as_the_others(own, other, optimizer):
    """Against whole runs of the plain methods, put into the state before each round."""
    matched, plain = Trainer(spec(selection=own, optimizer=optimizer)), {k: own[k] for k in own if k != "displacement"}
    plain = {"kind": "all"} if plain["kind"] == "all" else plain
    scales = []
    for _ in range(3):
        target, _ = displacement_of(matched, other, optimizer=optimizer)
        state = matched.state()
        matched.train_round(Clock())
        matched_state, found = matched.state(), matched.diagnostics
        matched.restore(state)
        moved, parameters = displacement_of(matched, plain, matched.step_scale, optimizer=optimizer)
        matched.restore(matched_state)
        np.testing.assert_array_equal(matched.learner.parameters.vector, parameters)
        assert abs(moved / target - 1) <= TOLERANCE + 1e-6
        assert found["displacement"] == pytest.approx(moved, rel=1e-4)
        assert found["displacement_target"] == pytest.approx(target, rel=1e-4)
        assert found["step_scale"] == pytest.approx(matched.step_scale, rel=1e-4)
        scales.append(matched.step_scale)
    assert all(scale != 1 for scale in scales)


def test_the_rounds_of_other_methods_have_no_factor():
    trainer = Trainer(spec(selection=influence(50)))
    trainer.train_round(Clock())
    assert trainer.step_scale == 1
    assert trainer.diagnostics["step_scale"] == "" == trainer.diagnostics["displacement_target"]


def test_trials_leave_policy_and_optimiser_as_they_were():
    trainer = Trainer(spec(selection=PPO_AS_IIF, optimizer="adam"))
    trainer.train_round(Clock())
    before = {name: np.copy(value) for name, value in trainer.state().items() if isinstance(value, np.ndarray)}
    for scale in (0.1, 1.0, 30.0):
        assert trainer._displacement(trainer.selection, scale) > 0
        for name, value in before.items():
            np.testing.assert_array_equal(trainer.state()[name], value, err_msg=name)


def test_a_trial_that_breaks_down_is_too_far_and_leaves_nothing_behind():
    trainer = Trainer(spec(selection=PPO_AS_IIF, max_grad_norm=None))
    trainer.train_round(Clock())
    before = trainer.learner.parameters.vector.copy()
    with np.errstate(all="ignore"):
        assert trainer._displacement(trainer.selection, 1e9) == math.inf
    np.testing.assert_array_equal(trainer.learner.parameters.vector, before)


def test_where_the_other_method_keeps_nothing_the_round_stands_still(monkeypatch):
    monkeypatch.setattr("rl_influence.runs.trainer.score", lambda records, *_: np.full(len(records), -1.0))
    trainer = Trainer(spec(selection=PPO_AS_IIF | {"drop_percent": 100}))
    before = trainer.learner.parameters.vector.copy()
    trainer.train_round(Clock())
    assert trainer.step_scale == 0
    np.testing.assert_array_equal(trainer.learner.parameters.vector, before)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_stopped_and_continued_it_ends_with_the_same_bytes(optimizer, tmp_path, monkeypatch):
    monkeypatch.setattr("rl_influence.runs.training.CHECKPOINT_EVERY_S", -1.0)
    one = spec(rounds=3, selection=PPO_AS_IIF, optimizer=optimizer)
    run(one, tmp_path / "straight", log=silent)

    def killed(line: str) -> None:
        if line.startswith("round 2/"):
            raise TrainingError("killed")

    with pytest.raises(TrainingError, match="killed"):
        run(one, tmp_path / "killed", log=killed)
    run(one, tmp_path / "killed", log=silent)
    for name in ("curve.csv", "diagnostics.csv"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()
