"""Small Stable-Baselines3 models of every kind, and the slow way to score their buffers."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from torch import nn

VECTOR = gym.spaces.Box(-1, 1, (3,), np.float32)
IMAGE = gym.spaces.Box(0, 255, (36, 36, 1), np.uint8)
FOUR = gym.spaces.Discrete(4)
DICTIONARY = gym.spaces.Dict({"image": IMAGE, "place": gym.spaces.Discrete(5), "vector": VECTOR})


class Toy(gym.Env):
    """Observations are samples of the space; an action's reward is the sum of its numbers. Masks allow half of all."""

    def __init__(self, observations=VECTOR, actions=FOUR):
        self.observation_space, self.action_space = observations, actions

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        ends = self.np_random.random(2) < 0.1
        return self.observation_space.sample(), float(np.sum(action)), bool(ends[0]), bool(ends[1]), {}

    def action_masks(self):
        sizes = [self.action_space.n] if isinstance(self.action_space, gym.spaces.Discrete) else self.action_space.nvec
        parts = []
        for n in sizes:
            allowed = self.np_random.permutation(n) < (n + 1) // 2
            parts.append(allowed)
        return np.concatenate(parts)


class Normalised(BaseFeaturesExtractor):
    """An extractor whose BatchNorm ties records together while it trains."""

    def __init__(self, space):
        super().__init__(space, 8)
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU())

    def forward(self, observations):
        return self.layers(observations)


class Collected(BaseCallback):
    """Stops after one rollout, before it trains."""

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        raise StopIteration


def collected(cls=PPO, env="CartPole-v1", n_envs=1, n_steps=96, *, policy="MlpPolicy", normalize=False, **kwargs):
    """A model whose buffer has just been collected.

    Args:
        env: id, or a function that makes one.
        normalize: by VecNormalize.
    """
    envs = DummyVecEnv([(lambda: gym.make(env)) if isinstance(env, str) else env] * n_envs)
    minibatches = {} if cls.__name__.endswith("A2C") else {"batch_size": 32, "n_epochs": 2}
    model = cls(
        policy,
        VecNormalize(envs) if normalize else envs,
        n_steps=n_steps,
        **minibatches | {"seed": 4, "device": "cpu"} | kwargs,
    )
    with pytest.raises(StopIteration):
        model.learn(10**6, callback=Collected())
    return model


def gradient(value, parameters):
    found = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
    return torch.cat([g.flatten().double() for g in found if g is not None])


def by_record(model, advantages):
    """Influence on f_return by a backward pass per record.

    Args:
        advantages: (environment, step) -> A.

    Returns:
        (environment, step) -> influence.
    """
    buffer, policy = model.rollout_buffer, model.policy
    parameters = list({id(p): p for name, p in policy.named_parameters() if "value" not in name}.values())
    log_probs = {}
    policy.set_training_mode(False)
    for step in range(buffer.buffer_size):
        for env in range(buffer.n_envs):
            observation = buffer.observations
            if isinstance(observation, dict):
                observation = {key: torch.as_tensor(x[step, env][None]) for key, x in observation.items()}
            else:
                observation = torch.as_tensor(observation[step, env][None])
            action = torch.as_tensor(buffer.actions[step, env][None].astype(np.float32))
            if isinstance(model.action_space, gym.spaces.Discrete):
                action = action.long().flatten()
            masks = {}
            if hasattr(buffer, "action_masks"):
                masks["action_masks"] = buffer.action_masks[step, env][None]
            log_probs[env, step] = policy.evaluate_actions(observation, action, **masks)[1][0]
    f_return = sum(value * float(buffer.advantages[step, env]) for (env, step), value in log_probs.items())
    direction = gradient(f_return / len(log_probs), parameters)
    return {
        place: advantages[place] * float(gradient(value, parameters) @ direction) for place, value in log_probs.items()
    }
