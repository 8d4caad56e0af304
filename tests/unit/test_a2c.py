"""A2C through the same loop: one objective and a few settings."""

from pathlib import Path

import numpy as np
import pytest

from rl_influence.config import Config
from rl_influence.evaluation import evaluate
from rl_influence.ppo.objective import PolicyGradient
from rl_influence.runs.trainer import Clock, Trainer

CONFIG = Config(Path(__file__).parents[2] / "config/a2c.yaml")


def trained(environment, method, rounds, seed=0):
    """A trainer after some rounds, and the exact return of its policy."""
    run = next(run for run in CONFIG.runs if (run.environment, run.method, run.seed) == (environment, method, seed))
    trainer = Trainer(run.spec)
    for _ in range(rounds or run.spec.rounds):
        counts = trainer.train_round(Clock())
        assert counts["updates"] == 1  # on all that is kept
    return trainer, evaluate(trainer.policy, run.spec.environment, run.spec.evaluation, 0).mean


@pytest.mark.slow
@pytest.mark.parametrize("method", ["a2c", "iif_a2c"])
def test_frozenlake_is_learned(method):
    assert trained("frozenlake", method, None)[1] > 0.98


@pytest.mark.parametrize("environment", ["frozenlake", "minigrid"])
@pytest.mark.parametrize("method", ["a2c", "iif_a2c"])
def test_rounds_train_and_filter(environment, method):
    trainer, _ = trained(environment, method, 3)
    assert trainer.learner.objective == PolicyGradient(value_coef=0.5)
    assert (trainer.scores is not None) == (len(trainer.selection.kept) < 64) == (method == "iif_a2c")
    if method == "iif_a2c":  # half of the negative ones, the most negative
        dropped = np.setdiff1d(np.arange(64), trainer.selection.kept)
        assert len(dropped) == (trainer.scores < 0).sum() // 2
        assert trainer.scores[dropped].max() <= trainer.scores[trainer.selection.kept].min()
