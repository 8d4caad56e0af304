"""Rounds of training: ours against Stable-Baselines3's, what influence adds, and what an exact evaluation costs."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import numpy as np
import torch

from benchmarks.registry import Figure, benchmark, cpu_seconds, side_by_side
from benchmarks.sb3 import sb3_ppo
from rl_influence.config import RunSpec, SelectionConfig, load_run_spec
from rl_influence.environments import make_env
from rl_influence.evaluation.returns import evaluate
from rl_influence.ppo.kernels import ByHand
from rl_influence.ppo.learner import Autograd
from rl_influence.runs.training import Clock, Trainer

REPEATS = 5


def run_spec(environment: str, *, influence: bool, n_steps: int = 2048) -> RunSpec:
    """PPO or IIF at the paper's p, sampling from the engine that the environment's file names."""
    spec = load_run_spec(environment=environment, method="ppo", seed=0)
    drop_percent = spec.environment.drop_percent
    selection = SelectionConfig(kind="influence", drop_percent=drop_percent) if influence else spec.selection
    return spec.model_copy(update={"selection": selection, "ppo": spec.ppo.model_copy(update={"n_steps": n_steps})})


def speed(environment: str, target: float, *, n_steps: int = 2048, repeats: int = REPEATS) -> None:
    """Registers the comparison of whole rounds (sampling and optimisation) on one environment.

    Stable-Baselines3 samples from gymnasium. Fewer steps are fewer on both sides; time grows in proportion to them.
    """

    @benchmark(f"speed_{environment}")
    def compare() -> Iterator[Figure]:
        spec = run_spec(environment, influence=False, n_steps=n_steps)
        trainer = Trainer(spec)
        env = make_env(spec.environment)
        model = sb3_ppo(spec.environment.network, env, spec.ppo, seed=0)
        ours, theirs = side_by_side(
            lambda: trainer.train_round(Clock()),
            lambda: model.learn(spec.ppo.n_steps, reset_num_timesteps=False),
            repeats=repeats,
        )
        detail = f"{ours:.3f} s a round of {n_steps} steps on {spec.environment.engine} against {theirs:.3f} s"
        yield Figure(f"speed_{environment}", theirs / ours, "x", ">=", target, detail)


speed("frozenlake", 12)
speed("acrobot", 6)
speed("minigrid", 3.3)
speed("lunarlander", 6)
speed("bipedalwalker", 5)
speed("highway", 100, n_steps=256, repeats=2)  # 2048 steps take Stable-Baselines3 a minute


@benchmark("speed_autograd")
def speed_autograd() -> Iterator[Figure]:
    """The same for a policy that no accelerator knows, with ReLU instead of tanh: torch alone."""
    spec = run_spec("acrobot", influence=False)
    trainer, env = Trainer(spec), make_env(spec.environment)
    for trunk in (trainer.policy.policy_net, trainer.policy.value_net):
        trunk[1], trunk[3] = torch.nn.ReLU(), torch.nn.ReLU()
    assert not ByHand.supports(trainer.learner.objective, trainer.policy)
    model = sb3_ppo(spec.environment.network, env, spec.ppo, seed=0, activation_fn=torch.nn.ReLU)
    ours, theirs = side_by_side(
        lambda: trainer.train_round(Clock()),
        lambda: model.learn(spec.ppo.n_steps, reset_num_timesteps=False),
        repeats=REPEATS,
    )
    detail = f"Acrobot, ReLU: {ours:.3f} s a round against {theirs:.3f} s"
    yield Figure("speed_autograd", theirs / ours, "x", ">=", 1.5, detail)


@benchmark("accelerator")
def accelerator() -> Iterator[Figure]:
    """One update of 64 records by hand and by autograd of the same objective: what the accelerator earns."""
    for environment in ("frozenlake", "acrobot", "minigrid", "bipedalwalker"):
        trainer = Trainer(run_spec(environment, influence=False))
        trainer.train_round(Clock())
        learner, records = trainer.learner, trainer.records
        batches = np.random.default_rng(0).permutation(len(records)).reshape(-1, 64)
        by_hand, autograd = (
            of(learner.objective, learner.policy, records, learner.gradients) for of in (ByHand, Autograd)
        )
        ours, theirs = side_by_side(
            lambda by_hand=by_hand, batches=batches: [by_hand(batch) for batch in batches],
            lambda autograd=autograd, batches=batches: [autograd(batch) for batch in batches],
            repeats=REPEATS,
        )
        detail = f"{1e3 * ours / len(batches):.2f} ms against {1e3 * theirs / len(batches):.2f} ms"
        yield Figure(f"accelerator_{environment}", theirs / ours, "x", ">=", 1.5, detail)


@benchmark("influence_share")
def influence_share() -> Iterator[Figure]:
    """Share of an IIF round (sampling, influence, optimisation) that scoring and selecting take."""
    for environment in ("frozenlake", "acrobot", "minigrid", "lunarlander", "bipedalwalker", "highway"):
        trainer = Trainer(run_spec(environment, influence=True))
        influence, total = [], []
        for _ in range(2 * REPEATS):
            clock = Clock()
            trainer.train_round(clock)
            influence.append(clock.seconds["influence_s"])
            total.append(sum(clock.seconds.values()))
        del influence[:2], total[:2]  # in which memory is asked for
        share = median(part / whole for part, whole in zip(influence, total, strict=True))
        detail = f"{1e3 * median(influence):.1f} ms of {median(total):.3f} s"
        yield Figure(f"influence_share_{environment}", 100 * share, "%", "<=", 6, detail)


@benchmark("exact_evaluation")
def exact_evaluation() -> Iterator[Figure]:
    """One exact test return of a policy that has trained a round, with the tables already there."""
    for environment in ("frozenlake", "minigrid"):
        spec = run_spec(environment, influence=False)
        trainer = Trainer(spec)
        trainer.train_round(Clock())

        def once(spec: RunSpec = spec, trainer: Trainer = trainer) -> None:
            evaluate(trainer.policy, spec.environment, spec.evaluation, 0)

        tables = cpu_seconds(once)
        (seconds,) = side_by_side(once, repeats=20)
        detail = f"the first, which builds the tables, {1e3 * tables:.0f} ms"
        yield Figure(f"exact_evaluation_{environment}", 1e3 * seconds, "ms", "<=", 20, detail)
