"""Stable-Baselines3's PPO with our networks and settings, for comparison."""

from __future__ import annotations

import gymnasium as gym
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, NatureCNN
from torch import nn

from rl_influence.config import PPOConfig


class MiniGridCNN(BaseFeaturesExtractor):
    """The extractor of network `minigrid_cnn`."""

    def __init__(self, observation_space: gym.Space):
        super().__init__(observation_space, 64)
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 64), nn.ReLU()
        )

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.net(observations)


def sb3_ppo(network: str, env: gym.Env, config: PPOConfig, *, seed: int | None = None) -> PPO:
    """Stable-Baselines3's PPO.

    Args:
        network: `mlp`, `minigrid_cnn` or `nature_cnn`.
    """
    policy_kwargs = {
        "net_arch": {"pi": [64, 64], "vf": [64, 64]},
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
