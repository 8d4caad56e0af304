"""Actor-critics as in Stable-Baselines3 with the paper's settings (appendix B): two tanh 64-64 heads, orthogonal
initialisation, and for images a feature extractor that both heads share.

Every policy takes observations as the environment gives them (integers, uint8 images, vectors) and has

- `log_prob(observations, actions) -> (n,)`: all that attribution needs;
- `evaluate(observations, actions) -> (log_prob, values, entropy)`, each (n,): what objectives with a value or entropy
  term need;
- `distribution_parameters(observations)`: logits (n, actions), or mean (n, dims) of the Gaussian;
- `values(observations) -> (n,)`.

A network is one function with the decorator `network`: its name is what an environment's file says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rl_influence.errors import ConfigError

LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Body:
    """What lies below the two heads' last layers.

    Attributes:
        encode: parameter-free map from observations and a dtype to network input.
        n_features: size of what the two trunks take.
        features: extractor that they share, or None.
        hidden: widths of each trunk.
        activation: between their layers.
    """

    encode: nn.Module
    n_features: int
    features: nn.Module | None = None
    hidden: tuple[int, ...] = (64, 64)
    activation: type[nn.Module] = nn.Tanh

    def trunk(self) -> nn.Sequential:
        """A new one: linear layers, each with its activation."""
        sizes = (self.n_features, *self.hidden)
        layers = [(nn.Linear(n, m), self.activation()) for n, m in zip(sizes, self.hidden, strict=False)]
        return nn.Sequential(*(part for layer in layers for part in layer))


NETWORKS: dict[str, Callable[[Any], Body]] = {}


def network(build: Callable[[Any], Body]) -> Callable[[Any], Body]:
    """Registers a network under its function's name; it takes the observation space, and raises a `ConfigError` for one
    that does not fit."""
    NETWORKS[build.__name__] = build
    return build


class OneHot(nn.Module):
    """Integer observation -> one-hot vector."""

    def __init__(self, n: int):
        super().__init__()
        self.n = n

    def forward(self, observations: Tensor, dtype: torch.dtype) -> Tensor:
        check_states(observations, self.n)
        # comparing with arange keeps the dtype of the weights out of it
        return (observations.long().reshape(-1, 1) == torch.arange(self.n, device=observations.device)).to(dtype)


def check_states(observations: Tensor | np.ndarray, n: int) -> None:
    """Refuses what no one-hot vector of n stands for: -1 would be the last state, and 1.7 the second.

    Raises:
        ValueError: unless all are integers from 0 to n - 1.
    """
    if "int" not in str(observations.dtype):
        raise ValueError(f"observations: expected integers from 0 to {n - 1}, found {observations.dtype}")
    if len(observations) and not getattr(observations, "is_meta", False):
        low, high = int(observations.min()), int(observations.max())
        if low < 0 or high >= n:
            raise ValueError(f"observations from {low} to {high}: expected integers from 0 to {n - 1}")


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
        action_space: `Discrete` or one-dimensional `Box`.
        generator: source of the initial weights.
    """

    def __init__(self, body: Body, action_space: Any, generator: torch.Generator):
        super().__init__()
        self.discrete = is_discrete(action_space)
        n_outputs = int(action_space.n) if self.discrete else action_space.shape[0]
        n_hidden = (body.n_features, *body.hidden)[-1]
        self.encode = body.encode
        self.features = body.features if body.features is not None else nn.Identity()
        self.policy_net = body.trunk()
        self.action_head = nn.Linear(n_hidden, n_outputs)
        self.log_std = None if self.discrete else LogStd(n_outputs)
        self.value_net = body.trunk()
        self.value_head = nn.Linear(n_hidden, 1)
        gains = dict.fromkeys((self.features, self.policy_net, self.value_net), math.sqrt(2))
        for part, gain in (gains | {self.action_head: 0.01, self.value_head: 1.0}).items():
            for module in part.modules():
                if isinstance(module, (nn.Linear, nn.Conv2d)):
                    nn.init.orthogonal_(module.weight, gain, generator=generator)
                    nn.init.zeros_(module.bias)

    def inputs(self, observations: Tensor) -> Tensor:
        """Encoded observations, in the dtype of the weights."""
        return self.encode(observations, self.action_head.weight.dtype)

    def embedding(self, observations: Tensor) -> Tensor:
        """What the action head takes: the policy's last hidden layer, (n, width)."""
        return self.policy_net(self.features(self.inputs(observations)))

    def distribution_parameters(self, observations: Tensor) -> Tensor:
        """Logits (n, actions), or means (n, dims)."""
        return self.action_head(self.embedding(observations))

    def values(self, observations: Tensor) -> Tensor:
        """V(s), shape (n,)."""
        return self.value_head(self.value_net(self.features(self.inputs(observations)))).squeeze(-1)

    def log_prob(self, observations: Tensor, actions: Tensor) -> Tensor:
        """log pi(a|s), shape (n,); for vector actions the sum over dimensions, of the raw (unclipped) action."""
        return self.log_prob_of(self.distribution_parameters(observations), actions)

    def evaluate(self, observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """log pi(a|s), V(s) and the policy's entropy, each (n,), with one pass through the shared features."""
        features = self.features(self.inputs(observations))
        outputs, values = self.action_head(self.policy_net(features)), self.value_head(self.value_net(features))
        return self.log_prob_of(outputs, actions), values.squeeze(-1), self.entropy_of(outputs)

    def log_prob_of(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """log pi(a|s) given the distribution's parameters.

        Raises:
            ValueError: for actions of another shape or kind: they would be broadcast, or cut to whole numbers.
        """
        wanted = outputs.shape[:1] if self.discrete else outputs.shape
        if actions.shape != wanted or (self.discrete and actions.is_floating_point()):
            kind = "integer" if self.discrete else "real"
            raise ValueError(
                f"actions: {kind} ones of shape {tuple(wanted)} are needed, not {actions.dtype} {tuple(actions.shape)}"
            )
        if self.discrete:
            return outputs.log_softmax(-1).gather(-1, actions.long()[:, None]).squeeze(-1)
        log_std = self.log_std(outputs)
        return (-0.5 * ((actions - outputs) / log_std.exp()) ** 2 - log_std - 0.5 * LOG_2PI).sum(-1)

    def entropy_of(self, outputs: Tensor) -> Tensor:
        """Entropy of the distribution, (n,)."""
        if self.discrete:
            log_probs = outputs.log_softmax(-1)
            return -(log_probs.exp() * log_probs).sum(-1)
        return (0.5 + 0.5 * LOG_2PI + self.log_std(outputs)).sum(-1)


def make_policy(name: str, observation_space: Any, action_space: Any, generator: torch.Generator) -> ActorCritic:
    """The network of an environment.

    Args:
        name: of a function with the decorator `network`.
        generator: source of the initial weights.

    Raises:
        ConfigError: for an unknown name, or if the spaces do not fit the network.
    """
    if name not in NETWORKS:
        raise ConfigError(f"network {name!r} is unknown; choices: {', '.join(NETWORKS)}")
    if not (is_discrete(action_space) or (is_box(action_space) and len(action_space.shape) == 1)):
        raise ConfigError(f"action space {action_space} is not supported; choices: Discrete, one-dimensional Box")
    return ActorCritic(NETWORKS[name](observation_space), action_space, generator)


def is_discrete(space: Any) -> bool:
    """Whether a space is gymnasium's Discrete: told by its attributes, since a policy needs no environments."""
    return hasattr(space, "n") and hasattr(space, "start")


def is_box(space: Any) -> bool:
    """Whether a space is gymnasium's Box."""
    return hasattr(space, "low") and hasattr(space, "high")


@network
def mlp(space: Any) -> Body:
    """Integers one-hot, vectors and matrices flattened."""
    if is_discrete(space):
        return Body(OneHot(int(space.n)), int(space.n))
    if is_box(space) and space.dtype.kind == "f":
        return Body(Flatten(), int(np.prod(space.shape)))
    raise ConfigError(f"observation space {space} does not fit network mlp; choices: Discrete, float Box")


@network
def minigrid_cnn(space: Any) -> Body:
    """Two small convolutions, for MiniGrid's 7x7 cells with channels last."""
    channels = _image(space, "minigrid_cnn")[-1]
    layers = (nn.Conv2d(channels, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten())
    return _convolutional("minigrid_cnn", space, ScaledImage(channels_last=True), layers, 64)


@network
def nature_cnn(space: Any) -> Body:
    """Mnih et al. (2015), for stacked Atari frames."""
    channels = _image(space, "nature_cnn")[0]
    layers = (nn.Conv2d(channels, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU())
    layers += (nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten())
    return _convolutional("nature_cnn", space, ScaledImage(channels_last=False), layers, 512)


def _image(space: Any, name: str) -> tuple[int, ...]:
    if not (is_box(space) and space.dtype == np.uint8 and len(space.shape) == 3):
        raise ConfigError(f"observation space {space} does not fit network {name}: a uint8 image is needed")
    return space.shape


@torch.no_grad()
def _convolutional(name: str, space: Any, encode: nn.Module, layers: tuple[nn.Module, ...], n_features: int) -> Body:
    """Convolutions and one linear layer, with as many inputs as the convolutions leave of an image."""
    example = torch.zeros(1, *space.shape, dtype=torch.uint8)
    try:
        n_flat = nn.Sequential(*layers)(encode(example, torch.get_default_dtype())).shape[1]
    except RuntimeError:
        raise ConfigError(f"observation space {space} does not fit network {name}: the images are too small") from None
    return Body(encode, n_features, nn.Sequential(*layers, nn.Linear(n_flat, n_features), nn.ReLU()))
