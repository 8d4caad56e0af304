"""Stable-Baselines3's PPO with our networks and settings, for comparison."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, NatureCNN
from torch import nn

from rl_influence.config import PPOConfig
from rl_influence.ppo.networks import ActorCritic
from rl_influence.ppo.records import Records


class MiniGridCNN(BaseFeaturesExtractor):
    """The extractor of network `minigrid_cnn`."""

    def __init__(self, observation_space: gym.Space):
        super().__init__(observation_space, 64)
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 64), nn.ReLU()
        )

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.net(observations)


def sb3_ppo(
    network: str, env: gym.Env, config: PPOConfig, *, seed: int | None = None, activation_fn: type[nn.Module] = nn.Tanh
) -> PPO:
    """Stable-Baselines3's PPO.

    Args:
        network: `mlp`, `minigrid_cnn` or `nature_cnn`.
    """
    policy_kwargs = {
        "net_arch": {"pi": [64, 64], "vf": [64, 64]},
        "activation_fn": activation_fn,
        "optimizer_class": {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[config.optimizer],
    }
    if network != "mlp":
        policy_kwargs["features_extractor_class"] = {"minigrid_cnn": MiniGridCNN, "nature_cnn": NatureCNN}[network]
    return PPO(
        "MlpPolicy" if network == "mlp" else "CnnPolicy",
        env,
        learning_rate=config.learning_rate,
        n_steps=config.n_steps,
        batch_size=config.batch_size,
        n_epochs=config.n_epochs,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        clip_range=config.clip_range,
        ent_coef=config.entropy_coef,
        vf_coef=config.value_coef,
        max_grad_norm=float("inf") if config.max_grad_norm is None else config.max_grad_norm,
        normalize_advantage=config.normalize_advantage,
        policy_kwargs=policy_kwargs,
        seed=seed,
        device="cpu",
    )


def sb3_name(network: str, name: str) -> str:
    """Stable-Baselines3's name of one of our parameters."""
    if name == "log_std.weight":
        return "log_std"
    module, rest = name.split(".", 1)
    if module == "features":
        if network == "minigrid_cnn":
            return f"features_extractor.net.{rest}"
        return f"features_extractor.{f'linear.0.{rest[2:]}' if rest.startswith('7.') else f'cnn.{rest}'}"
    names = {
        "policy_net": "mlp_extractor.policy_net",
        "value_net": "mlp_extractor.value_net",
        "action_head": "action_net",
        "value_head": "value_net",
    }
    return f"{names[module]}.{rest}"


def sb3_parameters(network: str, policy: nn.Module, ours: ActorCritic) -> dict[str, nn.Parameter]:
    """Its parameters by our names, in our order, with nothing left over."""
    theirs = dict(policy.named_parameters())
    mapped = {name: theirs.pop(sb3_name(network, name)) for name in dict(ours.named_parameters())}
    assert not theirs
    return mapped


@torch.no_grad()
def copy_weights(network: str, policy: nn.Module, ours: ActorCritic) -> None:
    """Gives a policy of Stable-Baselines3 our weights."""
    for name, parameter in sb3_parameters(network, policy, ours).items():
        parameter.copy_(dict(ours.named_parameters())[name])


def fill_buffer(model: PPO, records: Records) -> None:
    """Makes our records the rollout that its `train` learns from."""
    buffer, n, observations = model.rollout_buffer, len(records), records.observations
    if observations.ndim == 4 and observations.shape[1:] != buffer.obs_shape:  # it puts an image's channels first
        observations = np.moveaxis(observations, -1, 1)
    buffer.observations = observations.reshape(n, 1, *buffer.obs_shape)
    buffer.actions = records.actions.reshape(n, 1, -1)
    for name in ("values", "log_probs", "advantages", "returns"):
        setattr(buffer, name, getattr(records, name).reshape(n, 1))
    buffer.full, buffer.generator_ready = True, False
