"""The tanh MLP actor-critic by hand, in numpy.

For two 64-64 networks and mini-batches of 64 the cost of an update is call overhead, not arithmetic: these forty lines of
calculus take a quarter of the time of autograd. They read and write the memory of the torch module's own parameters, and
the tests compare every gradient with autograd in float64. All other networks go through autograd (`ppo.autograd_gradient`).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from rl_influence.networks import LOG_2PI, ActorCritic, OneHot


class FlatParameters:
    """All parameters of a module as one vector; the module's parameters become views of it.

    Attributes:
        vector: (p,) parameters; writing to it changes the module.
        gradient: (p,) scratch for the gradient.
    """

    def __init__(self, module: nn.Module):
        named = dict(module.named_parameters())
        self.shapes = {name: tuple(parameter.shape) for name, parameter in named.items()}
        self.vector = np.concatenate([parameter.detach().numpy().ravel() for parameter in named.values()])
        self.gradient = np.zeros_like(self.vector)
        for parameter, view in zip(named.values(), self.views(self.vector).values(), strict=True):
            parameter.data = torch.from_numpy(view)

    def views(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Parameter name -> view of `vector` in the parameter's shape."""
        views, start = {}, 0
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            views[name] = vector[start : start + size].reshape(shape)
            start += size
        return views


class MLPKernel:
    """Forward and backward passes of an `ActorCritic` with `is_mlp`.

    Args:
        policy: its parameters are read at each call, not copied.
    """

    def __init__(self, policy: ActorCritic):
        if not policy.is_mlp:
            raise ValueError("MLPKernel computes policies without a feature extractor only")
        weights = {name: parameter.detach().numpy() for name, parameter in policy.named_parameters()}
        self.actor = [(weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in ACTOR]
        self.critic = [(weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in CRITIC]
        self.log_std = weights.get("log_std.weight")
        self.one_hot = np.eye(policy.encode.n, dtype=self.dtype) if isinstance(policy.encode, OneHot) else None

    @property
    def dtype(self) -> np.dtype:
        return self.actor[0][0].dtype

    def encode(self, observations: np.ndarray) -> np.ndarray:
        """Network inputs of observations as the environment gives them; one observation without its batch axis also works."""
        if self.one_hot is not None:
            return self.one_hot[observations]
        return np.asarray(observations, dtype=self.dtype)

    def outputs(self, inputs: np.ndarray) -> np.ndarray:
        """Logits or means."""
        return forward(inputs, self.actor)[-1]

    def values(self, inputs: np.ndarray) -> np.ndarray:
        """V(s)."""
        return forward(inputs, self.critic)[-1][..., 0]

    def log_prob_gradient(
        self, outputs: np.ndarray, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """log pi(a|s) (n,), its derivatives by the outputs (n, k), and by log_std (n, dims) or None."""
        if self.log_std is None:
            log_probs = log_softmax(outputs)
            chosen = (np.arange(len(actions)), actions)
            derivative = -np.exp(log_probs)
            derivative[chosen] += 1
            return log_probs[chosen], derivative, None
        scaled = (actions - outputs) * np.exp(-self.log_std)
        log_probs = (-0.5 * scaled**2 - self.log_std - 0.5 * LOG_2PI).sum(-1)
        return log_probs, scaled * np.exp(-self.log_std), scaled**2 - 1

    def ppo_gradient(
        self,
        inputs: np.ndarray,
        actions: np.ndarray,
        old_log_probs: np.ndarray,
        advantages: np.ndarray,
        returns: np.ndarray,
        *,
        clip_range: float,
        value_coef: float,
        entropy_coef: float,
        out: dict[str, np.ndarray],
    ) -> tuple[float, float, float]:
        """Gradient of PPO's loss on one mini-batch, written to `out` (parameter name -> array).

        Returns:
            policy loss, value loss and mean entropy.
        """
        n = len(actions)
        hidden = forward(inputs, self.actor)
        log_probs, by_outputs, by_log_std = self.log_prob_gradient(hidden[-1], actions)
        ratio = np.exp(log_probs - old_log_probs)
        # the clipped branch is the smaller one, and flat, exactly where the ratio has moved too far in A's direction
        flat = np.where(advantages > 0, ratio > 1 + clip_range, ratio < 1 - clip_range)
        surrogate = advantages * np.where(flat, np.clip(ratio, 1 - clip_range, 1 + clip_range), ratio)
        by_log_prob = np.where(flat, 0, advantages * ratio)[:, None] / -n
        by_outputs *= by_log_prob
        if self.log_std is None:
            log_softmaxes = log_softmax(hidden[-1]) if entropy_coef else None
            entropy = float("nan")
            if entropy_coef:
                p = np.exp(log_softmaxes)
                entropies = -(p * log_softmaxes).sum(-1, keepdims=True)
                by_outputs += (entropy_coef / n) * p * (log_softmaxes + entropies)
                entropy = float(entropies.mean())
        else:
            out["log_std.weight"][:] = (by_log_prob * by_log_std).sum(0) - entropy_coef
            entropy = float((0.5 + 0.5 * LOG_2PI + self.log_std).sum())
        backward(inputs, hidden, by_outputs, self.actor, ACTOR, out)

        hidden = forward(inputs, self.critic)
        error = hidden[-1][:, 0] - returns
        backward(inputs, hidden, (2 * value_coef / n) * error[:, None], self.critic, CRITIC, out)
        return -float(surrogate.mean()), float(np.mean(error**2)), entropy


ACTOR = ("policy.0", "policy.2", "action_head")
CRITIC = ("value.0", "value.2", "value_head")
Layers = list[tuple[np.ndarray, np.ndarray]]


def forward(inputs: np.ndarray, layers: Layers) -> list[np.ndarray]:
    """Activations of each layer: tanh, tanh, linear."""
    (w1, b1), (w2, b2), (w3, b3) = layers
    first = np.tanh(inputs @ w1.T + b1)
    second = np.tanh(first @ w2.T + b2)
    return [first, second, second @ w3.T + b3]


def backward(
    inputs: np.ndarray,
    activations: list[np.ndarray],
    by_output: np.ndarray,
    layers: Layers,
    names: tuple[str, ...],
    out: dict[str, np.ndarray],
) -> None:
    """Gradients by weights and biases, written to `out`, from the derivative by the output (n, k)."""
    below = [inputs, *activations[:-1]]
    for depth in (2, 1, 0):
        np.matmul(by_output.T, below[depth], out=out[f"{names[depth]}.weight"])
        np.sum(by_output, axis=0, out=out[f"{names[depth]}.bias"])
        if depth:
            by_output = (by_output @ layers[depth][0]) * (1 - below[depth] ** 2)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
