"""Test episodes: ours against a plain loop of gymnasium and Stable-Baselines3's `evaluate_policy`, the same policy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from stable_baselines3.common.evaluation import evaluate_policy

from benchmarks.registry import Figure, benchmark, cpu_seconds
from benchmarks.sb3 import copy_weights, sb3_ppo
from rl_influence.config import load_run_spec
from rl_influence.environments import make_env
from rl_influence.evaluation.returns import play
from rl_influence.ppo.inference import Inference
from rl_influence.runs.training import Trainer

EPISODES = 1000


def evaluation(environment: str, target: float, *, theirs: int) -> None:
    """Registers the comparison of 1000 episodes of the untrained policy; the loop plays `theirs` and is scaled up."""

    @benchmark(f"evaluation_{environment}")
    def compare() -> Iterator[Figure]:
        spec = load_run_spec(environment=environment, method="ppo", seed=0)
        policy, env = Trainer(spec).policy, make_env(spec.environment)
        model = sb3_ppo(spec.environment.network, env, spec.ppo, seed=0)
        copy_weights(spec.environment.network, model.policy, policy)
        lengths: list[np.ndarray] = []

        def play_ours(episodes: int) -> None:
            lengths.append(play(Inference(policy).act, spec.environment, episodes, seed=0)[1])

        def play_theirs(episodes: int) -> None:
            arguments = {"deterministic": False, "return_episode_rewards": True, "warn": False}
            lengths.append(np.array(evaluate_policy(model, env, episodes, **arguments)[1]))

        play_ours(100), play_theirs(1)  # not counted
        ours, loop = cpu_seconds(lambda: play_ours(EPISODES)), cpu_seconds(lambda: play_theirs(theirs))
        steps = [f"{length.mean():.0f} steps" for length in lengths[-2:]]
        detail = f"untrained policy: {ours:.2f} s for {EPISODES} episodes of {steps[0]} against {loop:.1f} s for "
        detail += f"{theirs} of {steps[1]}, scaled to {EPISODES}"
        yield Figure(f"evaluation_{environment}", loop / theirs * EPISODES / ours, "x", ">=", target, detail)


evaluation("acrobot", 20, theirs=20)
evaluation("highway", 20, theirs=25)
evaluation("lunarlander", 5, theirs=200)
