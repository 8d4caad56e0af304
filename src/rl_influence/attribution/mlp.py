"""f_return's gradient and its products with record gradients by hand, for the tanh MLP actor-critic.

A full TracIn sum needs grad f over the whole buffer before each of a round's 320 steps, and that is its cost. Autograd
spends much of it in torch's tanh, in memory that it allocates anew, and, for few distinct records, in calls. The tests
compare all of this with autograd in float64.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from rl_influence.attribution.targets import FReturn, Target
from rl_influence.ppo.kernels import ACTOR, Layers, log_softmax
from rl_influence.ppo.networks import HIDDEN, LOG_2PI, ActorCritic

LAYERS = [nn.Linear, nn.Tanh, nn.Linear, nn.Tanh, nn.Linear]


def is_by_hand(policy: nn.Module, target: Target) -> bool:
    """Whether `HandDerived` computes this policy and target: f_return of an actor-critic as `make_policy` builds it."""
    return (
        type(target) is FReturn
        and type(policy) is ActorCritic
        and policy.is_mlp
        and [type(layer) for layer in (*policy.policy, policy.action_head)] == LAYERS
        and all(parameter.requires_grad and parameter.device.type == "cpu" for parameter in policy.parameters())
    )


class HandDerived:
    """Reads the policy's parameters at each call.

    Args:
        observations, actions: of the records to score, (n, ...) and (n,) or (n, dims).
    """

    def __init__(self, policy: ActorCritic, target: FReturn, observations: Tensor, actions: Tensor):
        self.policy = policy
        self.layers = [policy.get_submodule(name) for name in ACTOR]
        self.inputs, self.actions = self._arrays(observations, actions)
        self.target_inputs, self.target_actions = self._arrays(target.observations, target.actions)
        self.weights = target.weights.numpy().astype(self.inputs.dtype)
        self.buffers = np.empty((4, 0, HIDDEN), self.inputs.dtype)
        if policy.discrete:
            choices = np.arange(policy.action_head.out_features)[:, None]
            self.chosen = self.weights * (self.target_actions == choices)  # (choices, records)

    def _arrays(self, observations: Tensor, actions: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Network inputs and actions."""
        inputs = self.policy.inputs(observations)
        return inputs.numpy(), (actions.long().reshape(-1) if self.policy.discrete else actions.to(inputs)).numpy()

    def _scratch(self, n: int) -> np.ndarray:
        """Four arrays (n, HIDDEN) of no content, the same memory at each call: new memory is as dear as a product."""
        if n > self.buffers.shape[1]:
            self.buffers = np.empty((4, n, HIDDEN), self.inputs.dtype)
        return self.buffers[:, :n]

    @np.errstate(over="ignore", invalid="ignore")  # scores that are not finite are named by the caller
    def derivatives(self, batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log pi(a|s) of the records with indices `batch`, and its derivative along grad f_return."""
        layers = [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in self.layers]
        log_std = None if self.policy.discrete else self.policy.log_std.weight.detach().numpy()
        return self._derivatives(batch, self._gradient(layers, log_std), layers, log_std)

    def _gradient(self, layers: Layers, log_std: np.ndarray | None) -> dict[str, np.ndarray]:
        """grad f_return, parameter name -> gradient."""
        gradient, inputs, (first, second, delta, _) = {}, self.target_inputs, self._scratch(len(self.weights))
        _tanh_layers(inputs, layers, first, second)
        # the few outputs are kept (outputs, records): reductions over a short last axis are slow
        outputs = layers[2][0] @ second.T + layers[2][1][:, None]
        if log_std is None:
            p = np.exp(outputs - outputs.max(0))
            by_output = self.chosen - p * (self.weights / p.sum(0))
        else:
            scaled = (self.target_actions.T - outputs) * np.exp(-log_std)[:, None]
            by_output = self.weights * scaled * np.exp(-log_std)[:, None]
            gradient["log_std.weight"] = (scaled**2 - 1) @ self.weights
        gradient["action_head.weight"], gradient["action_head.bias"] = by_output @ second, by_output.sum(1)
        np.matmul(by_output.T, layers[2][0], out=delta)
        _times_tanh_slope(delta, second)
        gradient["policy.2.weight"], gradient["policy.2.bias"] = delta.T @ first, delta.sum(0)
        delta = np.matmul(delta, layers[1][0], out=second)
        _times_tanh_slope(delta, first)
        gradient["policy.0.weight"], gradient["policy.0.bias"] = (inputs.T @ delta).T, delta.sum(0)
        return gradient

    def _derivatives(
        self, batch: np.ndarray, direction: dict[str, np.ndarray], layers: Layers, log_std: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Forward mode."""
        inputs, actions = self.inputs[batch], self.actions[batch]
        first, second, moved, other = self._scratch(len(batch))
        _tanh_layers(inputs, layers, first, second)
        outputs = second @ layers[2][0].T + layers[2][1]
        towards = [(direction[f"{name}.weight"].T, direction[f"{name}.bias"]) for name in ACTOR]
        np.matmul(inputs, towards[0][0], out=moved)
        moved += towards[0][1]
        np.matmul(first, towards[1][0], out=other)
        _times_tanh_slope(moved, first)
        moved = np.matmul(moved, layers[1][0].T, out=first)
        moved += other
        moved += towards[1][1]
        other = second @ towards[2][0]
        _times_tanh_slope(moved, second)
        moved = moved @ layers[2][0].T + other + towards[2][1]
        if log_std is None:
            log_probs, chosen = log_softmax(outputs), (np.arange(len(batch)), actions)
            return log_probs[chosen], moved[chosen] - (np.exp(log_probs) * moved).sum(-1)
        scaled = (actions - outputs) * np.exp(-log_std)
        by_log_std = (scaled**2 - 1) * direction["log_std.weight"]
        log_probs = (-0.5 * scaled**2 - log_std - 0.5 * LOG_2PI).sum(-1)
        return log_probs, (scaled * np.exp(-log_std) * moved + by_log_std).sum(-1)


def _tanh_layers(inputs: np.ndarray, layers: Layers, first: np.ndarray, second: np.ndarray) -> None:
    """Writes both hidden activations. tanh(z) is 2 sigmoid(2z) - 1, since torch is four times as fast at sigmoid."""
    for x, (weight, bias), out in zip((inputs, first), layers, (first, second), strict=False):
        np.matmul(x, 2 * weight.T, out=out)
        out += 2 * bias
        torch.from_numpy(out).sigmoid_()
        out *= 2
        out -= 1


def _times_tanh_slope(delta: np.ndarray, activation: np.ndarray) -> None:
    """delta *= 1 - activation^2; destroys the activation."""
    np.multiply(activation, activation, out=activation)
    np.subtract(1, activation, out=activation)
    delta *= activation
