"""The two tanh MLPs of an actor-critic by hand, in numpy.

For two 64-64 networks and mini-batches of 64 the cost of an update is call overhead, not arithmetic: these lines of
calculus take a quarter of the time of autograd. They read and write the memory of the torch module's own parameters,
and the tests compare every gradient with autograd in float64. A feature extractor below them is left to autograd.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from rl_influence.ppo.networks import LOG_2PI, ActorCritic, OneHot

CHUNK = 256  # images that pass the extractor together: activations for 84x84 pixels then stay near 15 MB


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
    """Forward and backward passes of an `ActorCritic`'s two heads; its parameters are read at each call, not copied."""

    def __init__(self, policy: ActorCritic):
        self.policy = policy
        weights = {name: parameter.detach().numpy() for name, parameter in policy.named_parameters()}
        self.actor = [(weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in ACTOR]
        self.critic = [(weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in CRITIC]
        self.log_std = weights.get("log_std.weight")
        self.dtype = self.actor[0][0].dtype
        self.one_hot = np.eye(policy.encode.n, dtype=self.dtype) if isinstance(policy.encode, OneHot) else None

    def encode(self, observations: np.ndarray) -> np.ndarray:
        """The heads' inputs (n, n_features): one-hot or float vectors, or the features of images."""
        if self.one_hot is not None:
            return self.one_hot[observations]
        if self.policy.is_mlp:
            return observations.astype(self.dtype).reshape(len(observations), math.prod(observations.shape[1:]))
        with torch.no_grad():
            chunks = torch.from_numpy(np.ascontiguousarray(observations)).split(CHUNK)
            return np.concatenate([self.policy.features(self.policy.inputs(chunk)).numpy() for chunk in chunks])

    def outputs(self, inputs: np.ndarray) -> np.ndarray:
        """Logits or means (n, k)."""
        return forward(inputs, self.actor)[-1]

    def values(self, inputs: np.ndarray) -> np.ndarray:
        """V(s), (n,)."""
        return forward(inputs, self.critic)[-1][:, 0]

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
        rows: np.ndarray | None,
        actions: np.ndarray,
        old_log_probs: np.ndarray,
        advantages: np.ndarray,
        returns: np.ndarray,
        *,
        clip_range: float,
        value_coef: float,
        entropy_coef: float,
        out: dict[str, np.ndarray],
    ) -> tuple[float, float, np.ndarray]:
        """Gradient of PPO's loss on one mini-batch, written to `out` (parameter name -> array).

        Args:
            inputs: (m, n_features).
            rows: (n,) each record's row of `inputs`; None: record i has row i.

        Returns:
            policy loss, value loss, and the derivative by the inputs if a feature extractor needs it, else None.
        """
        n = len(actions)
        actor, critic = forward(inputs, self.actor), forward(inputs, self.critic)
        outputs, values = actor[-1], critic[-1][:, 0]
        if rows is not None:
            outputs, values = outputs[rows], values[rows]
        log_probs, by_outputs, by_log_std = self.log_prob_gradient(outputs, actions)
        ratio = np.exp(log_probs - old_log_probs)
        # the clipped branch is the smaller one, and flat, exactly where the ratio has moved too far in A's direction
        flat = np.where(advantages > 0, ratio > 1 + clip_range, ratio < 1 - clip_range)
        clipped = np.minimum(np.maximum(ratio, 1 - clip_range), 1 + clip_range)
        surrogate = advantages * np.where(flat, clipped, ratio)
        by_log_prob = (np.where(flat, 0, surrogate) / -n)[:, None]
        by_outputs *= by_log_prob
        if by_log_std is not None:
            out["log_std.weight"][:] = (by_log_prob * by_log_std).sum(0) - entropy_coef
        elif entropy_coef:
            log_p = log_softmax(outputs)
            p = np.exp(log_p)
            by_outputs += (entropy_coef / n) * p * (log_p - (p * log_p).sum(-1, keepdims=True))
        error = values - returns
        by_values = (2 * value_coef / n) * error[:, None]
        if rows is not None:  # records that share a row share its backward pass
            shares = (rows == np.arange(len(inputs))[:, None]).astype(self.dtype)
            by_outputs, by_values = shares @ by_outputs, shares @ by_values
        by_actor = backward(inputs, actor, by_outputs, self.actor, ACTOR, out)
        by_critic = backward(inputs, critic, by_values, self.critic, CRITIC, out)
        by_inputs = None if self.policy.is_mlp else by_actor @ self.actor[0][0] + by_critic @ self.critic[0][0]
        return -float(surrogate.sum()) / n, float(error @ error) / n, by_inputs


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
) -> np.ndarray:
    """Gradients by weights and biases, written to `out`, from the derivative by the output (n, k).

    Returns:
        The derivative by the first layer before its tanh, (n, 64).
    """
    below = [inputs, *activations[:-1]]
    for depth in (2, 1, 0):
        np.matmul(by_output.T, below[depth], out=out[f"{names[depth]}.weight"])
        by_output.sum(0, out=out[f"{names[depth]}.bias"])
        if depth:
            by_output = (by_output @ layers[depth][0]) * (1 - below[depth] ** 2)
    return by_output


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
