"""How many steps a second each engine simulates."""

from __future__ import annotations

import time
from collections.abc import Callable

import gymnasium as gym
import numpy as np

from rl_influence.config import ConfigError, EnvironmentConfig
from rl_influence.environments import make_batch, make_sampler
from rl_influence.evaluation.returns import COPIES

SECONDS = 1.0  # of CPU time that each rate is measured for
ENGINES = ("gymnasium", "envpool")


def rate(steps: Callable[[], int]) -> float:
    """Steps a CPU second; `steps` takes some and says how many. Its first call is not counted."""
    steps()
    count, start = 0, time.process_time()
    while (elapsed := time.process_time() - start) < SECONDS:
        count += steps()
    return count / elapsed


def one_by_one(environment: EnvironmentConfig) -> float:
    """Random steps a second of the sampler that training collects records from, resets included."""
    sampler = make_sampler(environment, 0)
    actions = random_actions(sampler.action_space, 4096)
    position = 0

    def step() -> int:
        nonlocal position
        sampler.step(actions[position % len(actions)])
        position += 1
        return 1

    return rate(step)


def in_a_batch(environment: EnvironmentConfig) -> float:
    """Random steps a second of as many copies as an evaluation plays with, resets included."""
    batch, ids = make_batch(environment, COPIES, 0), np.arange(COPIES)
    space = make_sampler(environment, 0).action_space
    actions = random_actions(space, 100 * COPIES).reshape(100, COPIES, *space.shape)
    batch.reset(ids)
    position = 0

    def step() -> int:
        nonlocal position
        _, _, ended = batch.step(ids, actions[position % len(actions)])
        position += 1
        if ended.any():
            batch.reset(ids[ended])
        return COPIES

    return rate(step)


def random_actions(space: gym.Space, n: int) -> np.ndarray:
    """(n,) or (n, dims)."""
    rng = np.random.default_rng(0)
    if isinstance(space, gym.spaces.Discrete):
        return rng.integers(space.n, size=n)
    return rng.standard_normal((n, *space.shape))


def rates(environments: dict[str, EnvironmentConfig]) -> dict[str, tuple[float, float, float]]:
    """Environment -> steps a CPU second of gymnasium, of envpool, and of envpool in a batch; nan if it has none.

    gymnasium's copies are stepped one after another, in a batch as well.
    """
    found, seen = {}, []
    for name, environment in environments.items():
        simulator = environment.gym_id, environment.kwargs
        if simulator in seen:
            continue
        seen.append(simulator)
        reference, fast = (
            environment.model_copy(update={"engine": engine, "evaluation_engine": engine}) for engine in ENGINES
        )
        try:
            pair = one_by_one(fast), in_a_batch(fast)
        except ConfigError:
            pair = np.nan, np.nan
        found[name] = (one_by_one(reference), *pair)
    return found
