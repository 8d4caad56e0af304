"""Made-up rollouts for every kind of network, for the comparisons with Stable-Baselines3."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import torch

from rl_influence.ppo.inference import Inference
from rl_influence.ppo.records import Records
from rl_influence.ppo.rollout import gae

BOX = gym.spaces.Box
SPACES = {
    "one_hot": ("mlp", gym.spaces.Discrete(16), gym.spaces.Discrete(4)),
    "vector": ("mlp", BOX(-1, 1, (6,), np.float32), gym.spaces.Discrete(3)),
    "gaussian": ("mlp", BOX(-1, 1, (24,), np.float32), BOX(-1, 1, (4,), np.float32)),
    "minigrid": ("minigrid_cnn", BOX(0, 255, (7, 7, 3), np.uint8), gym.spaces.Discrete(7)),
    "nature": ("nature_cnn", BOX(0, 255, (4, 84, 84), np.uint8), gym.spaces.Discrete(6)),
}


class Spaces(gym.Env):
    """An environment that is never stepped."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space


def flat(tensors):
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).numpy().copy()


def random_records(kind, n, policy, config):
    """Records of random episodes, with ratios far enough from 1 that some are clipped."""
    generator = np.random.default_rng(0)
    space = SPACES[kind][1]
    if kind == "one_hot":
        observations = generator.integers(16, size=n)
    elif kind == "minigrid":
        observations = generator.integers(0, 11, (150, 7, 7, 3)).astype(np.uint8)[generator.integers(150, size=n)]
    elif kind == "nature":
        observations = generator.integers(0, 256, (n, 4, 84, 84)).astype(np.uint8)
    else:
        observations = generator.standard_normal((n, *space.shape)).astype(np.float32)
    inference = Inference(policy)
    actions = inference.act(observations, generator)
    if kind == "gaussian":  # Stable-Baselines3 stores them so
        actions = actions.astype(np.float32).astype(actions.dtype)
    log_probs, values = inference.log_probs(inference.outputs(observations), actions), inference.values(observations)
    rewards, ended = generator.standard_normal(n), generator.random(n) < 0.05
    next_values = np.roll(values, -1)
    advantages = gae(
        rewards, values, next_values, ended, np.zeros(n, bool), gamma=config.gamma, gae_lambda=config.gae_lambda
    ).astype(values.dtype)
    return Records(
        observations=observations,
        actions=actions,
        rewards=rewards.astype(values.dtype),
        terminated=ended,
        truncated=np.zeros(n, bool),
        log_probs=(log_probs + 0.1 * generator.standard_normal(n)).astype(values.dtype),
        values=values,
        next_values=next_values,
        advantages=advantages,
        returns=values + advantages,
    )


class Log:
    """Stands in for Stable-Baselines3's logger."""

    def __init__(self):
        self.values = {}

    def record(self, key, value, **_):
        self.values[key] = value


def error(ours, theirs):
    """Largest difference, relative to their largest number if that is above 1."""
    return float(np.abs(ours - theirs).max() / max(1, np.abs(theirs).max()))
