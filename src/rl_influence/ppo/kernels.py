"""An accelerator: the gradient of an objective by hand, in numpy, for the networks that most of the paper's runs train.

For two 64-64 networks and mini-batches of 64 the cost of an update is call overhead, not arithmetic: these lines of
calculus take a sixth of autograd's time. With MiniGrid's convolutions, whose patches are laid out once a round and only
for images that differ, they take a fifth. They read and write the memory of the torch module's own parameters, say
strictly what they support, and are compared with autograd where they are used (`learner`), and in float64 by the tests.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch
from torch import nn

from rl_influence.ppo.convolutions import Convolutions, is_convolutional
from rl_influence.ppo.networks import LOG_2PI, ActorCritic, Flatten, LogStd, OneHot, ScaledImage, check_states
from rl_influence.ppo.objective import Batch, ClippedPPO, Objective, PolicyGradient, prepared
from rl_influence.ppo.records import Records, distinct_observations

Layers = list[tuple[np.ndarray, np.ndarray]]  # weight (outputs, inputs) and bias of each linear layer
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class FlatParameters:
    """All parameters of a module as one vector; the module's parameters become views of it.

    Attributes:
        vector: (p,) parameters; writing to it changes the module.
        gradient: (p,) scratch for the gradient.
    """

    def __init__(self, module: nn.Module):
        self.module = module
        named = dict(module.named_parameters())
        self.shapes = {name: tuple(parameter.shape) for name, parameter in named.items()}
        self.vector = np.concatenate([parameter.detach().numpy().ravel() for parameter in named.values()])
        self.gradient = np.zeros_like(self.vector)
        self.bind()

    def bind(self) -> None:
        """Makes the vector the module's memory again, with the module's values: after `module.double().float()`, say,
        or another `FlatParameters`, it is not.

        Raises:
            ValueError: if the module's parameters have other names, shapes or another dtype by now.
        """
        named, dtype = dict(self.module.named_parameters()), torch.from_numpy(self.vector).dtype
        if {name: tuple(p.shape) for name, p in named.items()} != self.shapes or {p.dtype for p in named.values()} != {
            dtype
        }:
            raise ValueError(
                f"the parameters of {type(self.module).__name__} are no longer the {dtype} ones that were to be "
                "trained; make a new learner"
            )
        for parameter, view in zip(named.values(), self.views(self.vector).values(), strict=True):
            if parameter.data_ptr() != view.ctypes.data:
                view[...] = parameter.detach().numpy()
                parameter.data = torch.from_numpy(view)

    def views(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Parameter name -> view of `vector` in the parameter's shape."""
        views, start = {}, 0
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            views[name] = vector[start : start + size].reshape(shape)
            start += size
        return views


def is_supported(policy: nn.Module) -> bool:
    """Whether `Network` computes what this module does: an `ActorCritic` as `make_policy` builds it from tanh layers,
    on integers, vectors, or images through `Convolutions`, with nothing changed about it since."""
    if type(policy) is not ActorCritic or type(policy.log_std) not in (LogStd, type(None)):
        return False
    if type(policy.encode) is ScaledImage:
        if not is_convolutional(policy.features):
            return False
    elif type(policy.encode) not in (OneHot, Flatten) or type(policy.features) is not nn.Identity:
        return False
    heads = ((policy.policy_net, policy.action_head), (policy.value_net, policy.value_head))
    if not all(type(trunk) is nn.Sequential and _is_tanh_chain([*trunk, head]) for trunk, head in heads):
        return False
    modules = [module for _, module in policy.named_modules(remove_duplicate=False)]
    parameters = [p for module in modules for p in vars(module)["_parameters"].values() if p is not None]
    as_made = all(map(_as_made, modules)) and all(map(_trained_here, parameters))
    return as_made and len(parameters) == len({*map(id, parameters)})  # none are tied


def _is_tanh_chain(layers: list[nn.Module]) -> bool:
    linear, between = layers[::2], layers[1::2]
    return (
        len(linear) == len(between) + 1
        and all(type(layer) is nn.Tanh for layer in between)
        and all(type(layer) is nn.Linear and layer.bias is not None for layer in linear)
        and all(a.out_features == b.in_features for a, b in zip(linear, linear[1:], strict=False))
    )


def _as_made(module: nn.Module) -> bool:
    """No hooks, and no method replaced on the instance."""
    own = vars(module)
    return not any(own[name] for name in HOOKS) and own.keys().isdisjoint(_methods(type(module)))


@functools.cache
def _methods(kind: type) -> frozenset[str]:
    return frozenset(name for name in dir(kind) if callable(getattr(kind, name, None)))


def _trained_here(parameter: nn.Parameter) -> bool:
    return (
        parameter.requires_grad
        and parameter.device.type == "cpu"
        and parameter.dtype in (torch.float32, torch.float64)
        and parameter.is_contiguous()
        and not parameter._backward_hooks
    )


class Network:
    """Forward and backward passes of a policy of `is_supported`, whose memory it reads."""

    def __init__(self, policy: ActorCritic):
        parameters = dict(policy.named_parameters())
        self._weights = weights = {name: parameter.detach().numpy() for name, parameter in parameters.items()}
        self._places = [(parameter, parameter.data_ptr()) for parameter in parameters.values()]
        parts = ((policy.policy_net, "policy_net", "action_head"), (policy.value_net, "value_net", "value_head"))
        self.names = [[*(f"{part}.{2 * i}" for i in range(len(trunk) // 2)), head] for trunk, part, head in parts]
        self.actor, self.critic = (
            [(weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in names] for names in self.names
        )
        self.log_std = weights.get("log_std.weight")
        self.dtype = self.actor[0][0].dtype
        self.one_hot = np.eye(policy.encode.n, dtype=self.dtype) if type(policy.encode) is OneHot else None
        image, last = type(policy.encode) is ScaledImage, getattr(policy.encode, "channels_last", None)
        self.extractor = Convolutions(policy.features, last, weights) if image else None

    @property
    def is_current(self) -> bool:
        """Whether the policy's parameters still lie where they did when this was made."""
        return all(parameter.data_ptr() == place for parameter, place in self._places)

    @property
    def actor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters that the outputs depend on."""
        return {name: x.shape for name, x in self._weights.items() if not name.startswith(("value_net", "value_head"))}

    def encode(self, observations: np.ndarray) -> np.ndarray:
        """What the first layers take, a row for each observation."""
        if self.one_hot is not None:
            check_states(observations, len(self.one_hot))
            return self.one_hot[observations]
        if self.extractor:
            return self.extractor.encode(observations, self.dtype)
        return observations.astype(self.dtype).reshape(len(observations), math.prod(observations.shape[1:]))

    def outputs(self, inputs: np.ndarray) -> np.ndarray:
        """Logits or means (n, k)."""
        return forward(self._features(inputs)[0], self.actor)[-1]

    def values(self, inputs: np.ndarray) -> np.ndarray:
        """V(s), (n,)."""
        return forward(self._features(inputs)[0], self.critic)[-1][:, 0]

    def forward(self, inputs: np.ndarray, *, values: bool = True) -> tuple[np.ndarray, np.ndarray | None, tuple]:
        """Outputs (n, k), values (n,) if they are asked for, and what `backward` and `tangent` need."""
        features, below = self._features(inputs)
        actor, critic = forward(features, self.actor), forward(features, self.critic) if values else None
        return actor[-1], critic[-1][:, 0] if values else None, (actor, critic, below)

    def backward(
        self, tape: tuple, by_outputs: np.ndarray, by_values: np.ndarray | None, out: dict[str, np.ndarray]
    ) -> None:
        """Writes the gradients to `out`, from the derivatives by outputs (n, k) and values (n,)."""
        actor, critic, below = tape
        ends = [(self.actor, backward(actor, by_outputs, self.actor, self.names[0], out))]
        if by_values is not None:
            ends.append((self.critic, backward(critic, by_values[:, None], self.critic, self.names[1], out)))
        if self.extractor:
            by_features = sum(by_first @ layers[0][0] for layers, by_first in ends)
            self.extractor.backward(below, actor[0], by_features, out)

    def tangent(self, tape: tuple, direction: dict[str, np.ndarray]) -> np.ndarray:
        """Derivative of the outputs along a direction of the parameters, (n, k); missing names stand still."""
        activations, _, below = tape
        moved = self.extractor.tangent(below, activations[0], direction) if self.extractor else None
        for depth, (name, (weight, bias)) in enumerate(zip(self.names[0], self.actor, strict=True)):
            change = np.zeros((len(activations[0]), len(bias)), self.dtype) if moved is None else moved @ weight.T
            if f"{name}.weight" in direction:
                change += activations[depth] @ direction[f"{name}.weight"].T
            change += direction.get(f"{name}.bias", 0)
            moved = change if name == self.names[0][-1] else change * (1 - activations[depth + 1] ** 2)
        return moved

    def _features(self, inputs: np.ndarray) -> tuple[np.ndarray, Any]:
        return self.extractor.forward(inputs) if self.extractor else (inputs, None)


class ByHand:
    """The gradient of `ClippedPPO` or `PolicyGradient` on mini-batches of one round's records.

    Args:
        out: parameter name -> array that each call writes the gradient of the loss to, which is to be minimised.
    """

    def __init__(self, objective: PolicyGradient, policy: ActorCritic, records: Records, out: dict[str, np.ndarray]):
        self.objective, self.out, self.network = objective, out, Network(policy)
        held, names = vars(records), ("actions", "log_probs", "advantages", "returns", "weights")
        self.batch = Batch(**{name: held[name] for name in names if name in held})
        # Records that share an observation share its passes: in a grid a mini-batch of 64 has some 10 different ones.
        distinct, self.rows = distinct_observations(records.observations)
        self.inputs, self.shared = self.network.encode(distinct), len(distinct) < len(records)

    @staticmethod
    def supports(objective: Objective, policy: nn.Module) -> bool:
        """Whether this computes that objective of that policy."""
        return type(objective) in (ClippedPPO, PolicyGradient) and is_supported(policy)

    def __call__(self, indices: np.ndarray) -> tuple[float, float]:
        """Policy loss and value loss of the records with these indices."""
        network, objective, n = self.network, self.objective, len(indices)
        batch = prepared(objective, self.batch[indices])
        needed, rows = distinct_rows(self.rows[indices], len(self.inputs)) if self.shared else (indices, None)
        outputs, values, tape = network.forward(self.inputs[needed])
        if rows is not None:
            outputs, values = outputs[rows], values[rows]
        log_probs, by_outputs, by_log_std = log_prob_gradient(outputs, batch.actions, network.log_std)
        terms, by_log_prob = surrogate(objective, log_probs, batch)
        error = values - batch.returns
        by_log_prob, by_values = by_log_prob / -n, (2 * objective.value_coef / n) * error
        by_entropy = np.full(n, objective.entropy_coef / -n, network.dtype)
        if hasattr(batch, "weights"):
            weights = batch.weights.astype(network.dtype)
            by_log_prob, by_values, by_entropy = by_log_prob * weights, by_values * weights, by_entropy * weights
        by_log_prob, by_entropy = by_log_prob[:, None], by_entropy[:, None]
        by_outputs *= by_log_prob
        if by_log_std is not None:
            self.out["log_std.weight"][:] = (by_log_prob * by_log_std + by_entropy).sum(0)
        elif objective.entropy_coef:
            log_p = log_softmax(outputs)
            p = np.exp(log_p)
            by_outputs -= by_entropy * p * (log_p - (p * log_p).sum(-1, keepdims=True))
        if rows is not None:  # records that share a row share its backward pass
            shares = (rows == np.arange(len(needed))[:, None]).astype(network.dtype)
            by_outputs, by_values = shares @ by_outputs, shares @ by_values
        network.backward(tape, by_outputs, by_values, self.out)
        return -float(terms.sum()) / n, float(error @ error) / n


def distinct_rows(rows: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """As `np.unique(rows, return_inverse=True)` of integers from 0 to n - 1, which costs more than these lines."""
    present = np.zeros(n, dtype=bool)
    present[rows] = True
    needed, place = np.flatnonzero(present), np.empty(n, dtype=np.intp)
    place[needed] = np.arange(len(needed))
    return needed, place[rows]


def surrogate(objective: PolicyGradient, log_probs: np.ndarray, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """The objective's terms of the policy, and their derivatives by log pi, each (n,)."""
    advantages = batch.advantages
    if type(objective) is PolicyGradient:
        return advantages * log_probs, advantages
    ratio = np.exp(log_probs - batch.log_probs)
    low, high = 1 - objective.clip_range, 1 + objective.clip_range
    # the clipped branch is the smaller one, and flat, exactly where the ratio has moved too far in A's direction
    flat = np.where(advantages > 0, ratio > high, ratio < low)
    terms = advantages * np.where(flat, np.minimum(np.maximum(ratio, low), high), ratio)
    return terms, np.where(flat, 0, terms)


def log_prob_gradient(
    outputs: np.ndarray, actions: np.ndarray, log_std: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """log pi(a|s) (n,), its derivatives by the outputs (n, k), and by log_std (n, dims) or None.

    Raises:
        ValueError: for actions of another shape, which would be broadcast.
    """
    wanted = outputs.shape[:1] if log_std is None else outputs.shape
    if actions.shape != wanted:
        raise ValueError(f"actions of shape {wanted} are needed, not {actions.shape}")
    if log_std is None:
        log_probs = log_softmax(outputs)
        chosen = (np.arange(len(actions)), actions)
        derivative = -np.exp(log_probs)
        derivative[chosen] += 1
        return log_probs[chosen], derivative, None
    scaled = (actions - outputs) * np.exp(-log_std)
    log_probs = (-0.5 * scaled**2 - log_std - 0.5 * LOG_2PI).sum(-1)
    return log_probs, scaled * np.exp(-log_std), scaled**2 - 1


def forward(inputs: np.ndarray, layers: Layers) -> list[np.ndarray]:
    """The activations below each layer, then the last one's output: tanh, ..., tanh, linear."""
    found = [inputs]
    for weight, bias in layers[:-1]:
        found.append(np.tanh(found[-1] @ weight.T + bias))
    weight, bias = layers[-1]
    return [*found, found[-1] @ weight.T + bias]


def backward(
    activations: list[np.ndarray], by_output: np.ndarray, layers: Layers, names: list[str], out: dict[str, np.ndarray]
) -> np.ndarray:
    """Gradients by weights and biases, written to `out`, from the derivative by the output (n, k).

    Returns:
        The derivative by the first layer's output.
    """
    for depth in range(len(layers) - 1, -1, -1):
        below = activations[depth]
        np.matmul(by_output.T, below, out=out[f"{names[depth]}.weight"])
        by_output.sum(0, out=out[f"{names[depth]}.bias"])
        if depth:
            by_output = (by_output @ layers[depth][0]) * (1 - below**2)
    return by_output


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
