"""f_return's gradient and its products with record gradients by hand, for the tanh MLP actor-critic.

A full TracIn sum needs grad f over the whole buffer before each of a round's 320 steps. That is its cost, and large
matrices in torch; the 64 records of the mini-batch are small enough for numpy. The tests compare both with autograd.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rl_influence.attribution.targets import FReturn, Target
from rl_influence.fast_mlp import ACTOR, forward, log_softmax
from rl_influence.networks import LOG_2PI, ActorCritic


def is_by_hand(policy: nn.Module, target: Target) -> bool:
    """Whether `HandDerived` computes this policy and target."""
    return (
        type(policy) is ActorCritic
        and policy.is_mlp
        and type(target) is FReturn
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
        self.inputs, self.actions = policy.inputs(observations).numpy(), self._actions(actions).numpy()
        self.target_inputs, self.target_actions = policy.inputs(target.observations), self._actions(target.actions)
        self.weights = target.weights.to(self.target_inputs)[:, None]
        if policy.discrete:
            self.chosen = self.weights * F.one_hot(self.target_actions, policy.action_head.out_features)

    def _actions(self, actions: Tensor) -> Tensor:
        return actions.long().reshape(-1) if self.policy.discrete else actions.to(self.policy.action_head.weight.dtype)

    @torch.no_grad()
    def gradient(self) -> dict[str, Tensor]:
        """grad f_return, parameter name -> gradient."""
        first_layer, second_layer, head = self.layers
        x, gradient = self.target_inputs, {}
        first = _tanh_layer(x, first_layer)
        second = _tanh_layer(first, second_layer)
        outputs = torch.addmm(head.bias, second, head.weight.T)
        if self.policy.discrete:
            p = (outputs - outputs.amax(-1, keepdim=True)).exp_()  # torch's softmax is slow over a few columns
            delta = torch.addcmul(self.chosen, p, self.weights / p.sum(-1, keepdim=True), value=-1)
        else:
            log_std = self.policy.log_std.weight
            scaled = (self.target_actions - outputs) * (-log_std).exp()
            delta = self.weights * scaled * (-log_std).exp()
            gradient["log_std.weight"] = (self.weights * (scaled**2 - 1)).sum(0)
        for name, layer, below in zip(ACTOR[::-1], self.layers[::-1], (second, first, x), strict=True):
            gradient[f"{name}.weight"] = (below.T @ delta).T  # faster than delta.T @ below where inputs are few
            gradient[f"{name}.bias"] = delta.sum(0)
            if below is not x:
                delta = torch.ops.aten.tanh_backward(delta @ layer.weight, below)
        return gradient

    def derivatives(self, batch: np.ndarray, direction: dict[str, Tensor]) -> tuple[np.ndarray, np.ndarray]:
        """log pi(a|s) of the records in `batch` and its derivative along `direction`: forward mode by hand."""
        inputs, actions = self.inputs[batch], self.actions[batch]
        layers = [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in self.layers]
        activations = forward(inputs, layers)
        moved = 0
        for name, (weight, _), below in zip(ACTOR, layers, [inputs, *activations[:-1]], strict=True):
            if below is not inputs:
                moved = (moved * (1 - below**2)) @ weight.T
            moved = moved + below @ direction[f"{name}.weight"].numpy().T + direction[f"{name}.bias"].numpy()
        outputs = activations[-1]
        if self.policy.discrete:
            log_probs, chosen = log_softmax(outputs), (np.arange(len(batch)), actions)
            return log_probs[chosen], moved[chosen] - (np.exp(log_probs) * moved).sum(-1)
        log_std = self.policy.log_std.weight.detach().numpy()
        scaled = (actions - outputs) * np.exp(-log_std)
        by_log_std = (scaled**2 - 1) * direction["log_std.weight"].numpy()
        log_probs = (-0.5 * scaled**2 - log_std - 0.5 * LOG_2PI).sum(-1)
        return log_probs, (scaled * np.exp(-log_std) * moved + by_log_std).sum(-1)


def _tanh_layer(x: Tensor, layer: nn.Linear) -> Tensor:
    """tanh(z) of a linear layer's output z, as 2 sigmoid(2z) - 1: torch's sigmoid is four times as fast as its tanh."""
    return torch.addmm(2 * layer.bias, x, 2 * layer.weight.T).sigmoid_().mul_(2).sub_(1)
