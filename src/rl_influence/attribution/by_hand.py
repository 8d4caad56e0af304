"""Scores of the policies that `ppo.kernels` knows by its formulas: what training and the full sum over a round save.

The target's gradient, if that is f_return, is one backward pass over its distinct observations; the derivatives of the
records' terms along it are one forward-mode pass. Both are compared with autograd like every backend's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rl_influence.attribution.targets import FReturn, Target, target_gradient
from rl_influence.ppo.kernels import ByHand, Network, distinct_rows, log_prob_gradient, surrogate
from rl_influence.ppo.networks import ActorCritic
from rl_influence.ppo.objective import Batch, PolicyGradient
from rl_influence.ppo.records import distinct_observations

FIELDS = ("actions", "advantages", "log_probs", "weights")


class HandDerived:
    """Lays out inputs once; the policy's parameters are read at each call.

    Args:
        records: all that may be scored, tensors by name.
    """

    def __init__(self, policy: ActorCritic, target: Target, objective: PolicyGradient, records: Batch):
        self.policy, self.objective = policy, objective
        self.target: Any = target
        self._network, self.n = Network(policy), len(records)
        self._records = self._rows(records.observations)
        self._targets = self._rows(target.observations) if type(target) is FReturn else None

    @staticmethod
    def supports(objective: Any, policy: nn.Module, records: Any) -> bool:
        """Whether this computes the objective's terms of these records; it knows no value and entropy terms."""
        return (
            ByHand.supports(objective, policy)
            and not (objective.value_coef or objective.entropy_coef)
            and isinstance(records, Batch)
            and all(values.device.type == "cpu" for values in vars(records).values())
        )

    def direction(self) -> dict[str, Tensor]:
        """The target's gradient, parameter name -> gradient."""
        if not self._targets:
            return target_gradient(self.policy, self.target)
        weights = self.target.weights.numpy().astype(self._network.dtype)
        return self._gradient(self._targets, slice(None), self.target.actions.numpy(), lambda log_probs: weights)

    def gradient(self, batch: Batch, indices: Any) -> dict[str, Tensor]:
        """Of the sum of a batch's terms, the records with these indices: to be compared with autograd's."""
        arrays = self._arrays(batch)

        def weigh(log_probs: np.ndarray) -> np.ndarray:
            return surrogate(self.objective, log_probs, arrays)[1] * getattr(arrays, "weights", 1)

        return self._gradient(self._records, indices, arrays.actions, weigh)

    @np.errstate(over="ignore", invalid="ignore")  # scores that are not finite are named by the caller
    def derivatives(self, batch: Batch, indices: Any, direction: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The terms of a batch, the records with these indices, and their derivatives along a direction."""
        network, (inputs, rows) = self._current(), self._records
        needed, rows = distinct_rows(rows[indices], len(inputs))
        outputs, _, tape = network.forward(inputs[needed], values=False)
        along = {name: tangent.numpy() for name, tangent in direction.items()}
        moved, arrays = network.tangent(tape, along)[rows], self._arrays(batch)
        log_probs, by_outputs, by_log_std = log_prob_gradient(outputs[rows], arrays.actions, network.log_std)
        by_direction = (by_outputs * moved).sum(-1)
        if "log_std.weight" in along:
            by_direction += by_log_std @ along["log_std.weight"]
        terms, by_log_prob = surrogate(self.objective, log_probs, arrays)
        found = np.stack([terms, by_log_prob * by_direction]) * getattr(arrays, "weights", 1)
        return tuple(torch.from_numpy(found.astype(network.dtype)))

    @np.errstate(over="ignore", invalid="ignore")
    def _gradient(
        self, place: tuple[np.ndarray, np.ndarray], indices: Any, actions: np.ndarray, weigh: Callable
    ) -> dict[str, Tensor]:
        """Gradient of a weighted sum of log pi; `weigh` gives the weights (n,) from log pi."""
        network, (inputs, rows) = self._current(), place
        needed, rows = distinct_rows(rows[indices], len(inputs))
        outputs, _, tape = network.forward(inputs[needed], values=False)
        log_probs, by_outputs, by_log_std = log_prob_gradient(outputs[rows], actions, network.log_std)
        weights = weigh(log_probs)
        by_outputs *= weights[:, None]
        shared = np.zeros_like(outputs)
        np.add.at(shared, rows, by_outputs)
        gradient = {name: np.empty(shape, network.dtype) for name, shape in network.actor_shapes.items()}
        if by_log_std is not None:
            gradient["log_std.weight"][...] = weights @ by_log_std
        network.backward(tape, shared, None, gradient)
        return {name: torch.from_numpy(x) for name, x in gradient.items()}

    def _current(self) -> Network:
        """Formulas on the memory in which the policy's parameters are now."""
        if not self._network.is_current:
            self._network = Network(self.policy)
        return self._network

    def _rows(self, observations: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Inputs of the distinct observations, and each record's row among them."""
        distinct, rows = distinct_observations(observations.numpy())
        return self._network.encode(distinct), rows

    @staticmethod
    def _arrays(batch: Batch) -> Batch:
        return Batch(**{name: x.numpy() for name, x in vars(batch).items() if name in FIELDS})
