"""Actor-critics as in Stable-Baselines3 with the paper's settings (appendix B): two tanh 64-64 heads, orthogonal
initialisation, and for images a feature extractor that both heads share.

Every policy takes observations as the environment gives them (integers, uint8 images, vectors) and has

- `log_prob(observations, actions) -> (n,)`: all that attribution needs;
- `heads(observations) -> (distribution parameters, values)` and `evaluate(observations, actions) -> (log_prob, values,
  entropy)`: what PPO needs;
- `distribution_parameters(observations)`: logits (n, actions), or mean (n, dims) of the Gaussian;
- `values(observations) -> (n,)`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rl_influence.errors import ConfigError

HIDDEN = 64
LOG_2PI = math.log(2 * math.pi)


def is_discrete(space: Any) -> bool:
    """Whether a space is gymnasium's Discrete: told by its attributes, since a policy needs no environments."""
    return hasattr(space, "n") and hasattr(space, "start")


def is_box(space: Any) -> bool:
    """Whether a space is gymnasium's Box."""
    return hasattr(space, "low") and hasattr(space, "high")


class OneHot(nn.Module):
    """Integer observation -> one-hot vector."""

    def __init__(self, n: int):
        super().__init__()
        self.n = n

    def forward(self, observations: Tensor, dtype: torch.dtype) -> Tensor:
        # comparing with arange keeps the dtype of the weights out of it and works under torch.func
        return (observations.long().reshape(-1, 1) == torch.arange(self.n, device=observations.device)).to(dtype)


class Flatten(nn.Module):
    """Vector observation -> float vector."""

    def forward(self, observations: Tensor, dtype: torch.dtype) -> Tensor:
        return observations.flatten(1).to(dtype)


class ScaledImage(nn.Module):
    """uint8 image -> channels first, divided by 255 (the paper's stack does so even for MiniGrid's category codes)."""

    def __init__(self, channels_last: bool):
        super().__init__()
        self.channels_last = channels_last

    def forward(self, observations: Tensor, dtype: torch.dtype) -> Tensor:
        image = observations.to(dtype) / 255
        return image.movedim(-1, 1) if self.channels_last else image


class LogStd(nn.Module):
    """State-independent log standard deviation of the Gaussian, initially 0 (a module, so that hooks can see it)."""

    def __init__(self, dims: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dims))

    def forward(self, mean: Tensor) -> Tensor:
        return self.weight.expand_as(mean)


class ActorCritic(nn.Module):
    """Policy and value function.

    Args:
        encode: parameter-free map from observations and a dtype to network input.
        features: feature extractor shared by both heads, or None.
        n_features: size of its output.
        action_space: `Discrete` or one-dimensional `Box`.
        generator: source of the initial weights.
    """

    def __init__(
        self,
        encode: nn.Module,
        features: nn.Module | None,
        n_features: int,
        action_space: Any,
        generator: torch.Generator,
    ):
        super().__init__()
        self.discrete = is_discrete(action_space)
        n_outputs = int(action_space.n) if self.discrete else action_space.shape[0]
        self.encode = encode
        self.features = features if features is not None else nn.Identity()
        self.policy = _mlp(n_features)
        self.action_head = nn.Linear(HIDDEN, n_outputs)
        self.log_std = None if self.discrete else LogStd(n_outputs)
        self.value = _mlp(n_features)
        self.value_head = nn.Linear(HIDDEN, 1)
        gains = {self.features: math.sqrt(2), self.policy: math.sqrt(2), self.value: math.sqrt(2)}
        for part, gain in (gains | {self.action_head: 0.01, self.value_head: 1.0}).items():
            for module in part.modules():
                if isinstance(module, (nn.Linear, nn.Conv2d)):
                    nn.init.orthogonal_(module.weight, gain, generator=generator)
                    nn.init.zeros_(module.bias)

    @property
    def is_mlp(self) -> bool:
        """Two separate tanh MLPs: the case that `kernels` computes by hand."""
        return isinstance(self.features, nn.Identity)

    def inputs(self, observations: Tensor) -> Tensor:
        """Encoded observations, in the dtype of the weights."""
        return self.encode(observations, self.action_head.weight.dtype)

    def heads(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution parameters and V(s), with one pass through the shared features."""
        features = self.features(self.inputs(observations))
        return self.action_head(self.policy(features)), self.value_head(self.value(features)).squeeze(-1)

    def distribution_parameters(self, observations: Tensor) -> Tensor:
        """Logits (n, actions), or means (n, dims)."""
        return self.action_head(self.policy(self.features(self.inputs(observations))))

    def values(self, observations: Tensor) -> Tensor:
        """V(s), shape (n,)."""
        return self.value_head(self.value(self.features(self.inputs(observations)))).squeeze(-1)

    def log_prob(self, observations: Tensor, actions: Tensor) -> Tensor:
        """log pi(a|s), shape (n,); for vector actions the sum over dimensions, of the raw (unclipped) action."""
        return self.log_prob_of(self.distribution_parameters(observations), actions)

    def evaluate(self, observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """log pi(a|s), V(s) and the policy's entropy, each (n,)."""
        outputs, values = self.heads(observations)
        return self.log_prob_of(outputs, actions), values, self.entropy_of(outputs)

    def log_prob_of(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """log pi(a|s) given the distribution's parameters."""
        if self.discrete:
            return outputs.log_softmax(-1).gather(-1, actions.long().reshape(-1, 1)).squeeze(-1)
        log_std = self.log_std(outputs)
        return (-0.5 * ((actions - outputs) / log_std.exp()) ** 2 - log_std - 0.5 * LOG_2PI).sum(-1)

    def entropy_of(self, outputs: Tensor) -> Tensor:
        """Entropy of the distribution, (n,)."""
        if self.discrete:
            log_probs = outputs.log_softmax(-1)
            return -(log_probs.exp() * log_probs).sum(-1)
        return (0.5 + 0.5 * LOG_2PI + self.log_std(outputs)).sum(-1)


def make_policy(network: str, observation_space: Any, action_space: Any, generator: torch.Generator) -> ActorCritic:
    """The network of an environment.

    Args:
        network: `mlp`, `minigrid_cnn` or `nature_cnn`.
        generator: source of the initial weights.

    Raises:
        ConfigError: if the spaces do not fit the network.
    """
    box = is_box(observation_space)
    if not (is_discrete(action_space) or (is_box(action_space) and len(action_space.shape) == 1)):
        raise ConfigError(f"action space {action_space} is not supported; choices: Discrete, one-dimensional Box")
    if network == "mlp":
        if is_discrete(observation_space):
            n = int(observation_space.n)
            return ActorCritic(OneHot(n), None, n, action_space, generator)
        if box and observation_space.dtype.kind == "f":
            return ActorCritic(Flatten(), None, int(np.prod(observation_space.shape)), action_space, generator)
        raise ConfigError(
            f"observation space {observation_space} does not fit network mlp; choices: Discrete, float Box"
        )
    if not (box and observation_space.dtype == np.uint8 and len(observation_space.shape) == 3):
        raise ConfigError(
            f"observation space {observation_space} does not fit network {network}: a uint8 image is needed"
        )
    if network == "minigrid_cnn":
        encode, channels = ScaledImage(channels_last=True), observation_space.shape[-1]
        layers = [nn.Conv2d(channels, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten()]
        n_features = 64
    else:
        encode, channels = ScaledImage(channels_last=False), observation_space.shape[0]
        layers = [nn.Conv2d(channels, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()]
        layers += [nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten()]
        n_features = 512
    with torch.no_grad():
        example = torch.zeros(1, *observation_space.shape, dtype=torch.uint8)
        try:
            n_flat = nn.Sequential(*layers)(encode(example, torch.get_default_dtype())).shape[1]
        except RuntimeError:
            raise ConfigError(
                f"observation space {observation_space} does not fit network {network}: the images are too small"
            ) from None
    features = nn.Sequential(*layers, nn.Linear(n_flat, n_features), nn.ReLU())
    return ActorCritic(encode, features, n_features, action_space, generator)


def _mlp(n_inputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(n_inputs, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh())
