"""Targets f(theta) of attribution (section 4.1 of the paper) and their gradients.

A target is a callable: policy -> scalar tensor. `FReturn` and `FAction` are the paper's; any function of yours works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rl_influence.attribution.policies import (
    ScoringError,
    check_policy,
    finite,
    gradients,
    parameters,
    weighted_pairs,
)
from rl_influence.ppo.networks import is_box, is_discrete
from rl_influence.ppo.objective import Batch, log_prob, tensor
from rl_influence.ppo.records import distinct_observations

Target = Callable[[nn.Module], Tensor]
CHUNK_BYTES = 2**23  # of observations that share a pass: 297 stacked frames of Pong; grids and vectors fit in one


class FReturn:
    """f_return(theta) = mean over records of log pi_theta(a|s) * A, with raw advantages: a surrogate of the return.

    Args:
        records: anything with `observations`, `actions` and `advantages`; in the paper the round's own buffer.

    Records with equal (s, a) are merged, with their advantages added up: in FrozenLake 2048 records become 64 at most.

    Attributes:
        first: (m,) index of one record of each group of equal ones; group: (n,) each record's group.
    """

    def __init__(self, records: Any):
        self.observations, self.actions, advantages = weighted_pairs(records)
        n = len(self.actions)
        if n == 0:
            raise ScoringError("f_return of no records is undefined")
        weights = finite("advantages", advantages, n).double().cpu() / n
        # few distinct observations are found where they are integers; then actions, if discrete too, split them further
        self.first = self.group = np.arange(n)
        if (
            not (self.observations.is_floating_point() or self.actions.is_floating_point())
            and self.actions.numel() == n
        ):
            distinct, row = distinct_observations(self.observations.cpu().numpy())
            if len(distinct) < n:
                choice = self.actions.cpu().numpy().reshape(n).astype(np.int64)
                keys = row * (np.ptp(choice) + 1) + choice - choice.min()
                _, self.first, self.group = np.unique(keys, return_index=True, return_inverse=True)
                self.observations, self.actions = self.observations[self.first], self.actions[self.first]
                weights = torch.from_numpy(np.bincount(self.group, weights=weights.numpy()))
        self.weights = weights  # (m,) sum to the mean advantage

    def __call__(self, policy: nn.Module) -> Tensor:
        return self.part(slice(None), policy)

    def parts(self, chunk_size: int | None) -> Iterator[Target]:
        """Targets that sum to this one, each over at most `chunk_size` records."""
        for chunk in chunks(self, chunk_size):
            yield partial(self.part, chunk)

    def __len__(self) -> int:
        return len(self.actions)

    def part(self, chunk: Any, policy: nn.Module) -> Tensor:
        """What some of the records add."""
        log_probs = log_prob(policy, Batch(observations=self.observations[chunk], actions=self.actions[chunk]))
        return log_probs @ self.weights[chunk].to(log_probs)


class FAction:
    """f_action(theta) = log pi_theta(a|s) of one pair.

    Args:
        observation: as the environment gives it, without a batch axis.
        action: an integer, or (dims,) raw, which may lie outside the bounds that clip executed actions.
        observation_space, action_space: where they are given, the pair is checked against them.

    Raises:
        ScoringError: if observation or action do not fit their space.
    """

    def __init__(
        self,
        observation: Any,
        action: Any,
        *,
        observation_space: Any = None,
        action_space: Any = None,
    ):
        self.observation = tensor(_checked("observation", observation, observation_space, bounded=True))
        self.action = tensor(_checked("action", action, action_space, bounded=False))

    def __call__(self, policy: nn.Module) -> Tensor:
        pair = Batch(observations=self.observation[None], actions=self.action[None])
        check_policy(policy, log_prob, pair)
        return log_prob(policy, pair)[0]


def _checked(name: str, value: Any, space: Any, *, bounded: bool) -> np.ndarray:
    """The value as an array, if its space has it."""
    value = np.asarray(value)
    shown = str(value.tolist())
    if value.dtype.kind not in "biuf" or not np.isfinite(value).all():
        raise ScoringError(f"target {name} {shown} is not made of finite numbers")
    if is_box(space):
        if value.shape != space.shape:
            raise ScoringError(f"target {name} has shape {value.shape}; the {name} space needs {space.shape}")
        if bounded and not ((value >= space.low) & (value <= space.high)).all():
            raise ScoringError(f"target {name} {shown} lies outside the bounds of the {name} space")
    elif is_discrete(space):
        first, last = int(space.start), int(space.start + space.n - 1)
        if value.shape != () or value != int(value) or not first <= value <= last:
            raise ScoringError(
                f"target {name} {shown} is not in the {name} space; choices: integers from {first} to {last}"
            )
    elif space is not None and not space.contains(value):
        raise ScoringError(f"target {name} {shown} is not in the {name} space {space}")
    return value


@torch.enable_grad()
def target_gradient(policy: nn.Module, target: Target, chunk_size: int | None = None) -> dict[str, Tensor]:
    """grad f(theta), parameter name -> gradient; parameters that f does not reach are left out.

    Args:
        chunk_size: records of an `FReturn` that share a pass, see `chunks`; bounds memory, changes nothing else.
    """
    check_target(target)
    parameters(policy)  # there must be some
    total: dict[str, Tensor] = {}
    for part in target.parts(chunk_size) if isinstance(target, FReturn) else [target]:
        value = part(policy)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise ScoringError(f"a target must return a scalar tensor, not {_described(value)}")
        for name, gradient in gradients(policy, value.sum()).items():
            total[name] = total[name] + gradient if name in total else gradient
    if not total:
        raise ScoringError("the target does not depend on any trained parameter of the policy")
    return total


def check_target(target: Any) -> None:
    """Refuses what cannot be called with a policy."""
    if not callable(target) or isinstance(target, type):
        raise ScoringError(
            f"target: FReturn(records), FAction(observation, action) or a function policy -> scalar tensor is needed, "
            f"not {shown(target)}"
        )


def chunks(records: Any, chunk_size: int | None) -> list[slice]:
    """Slices of at most `chunk_size` records, or of as many as `CHUNK_BYTES` hold if it is None, that cover all."""
    if chunk_size is not None and not (isinstance(chunk_size, (int, np.integer)) and chunk_size >= 1):
        raise ScoringError(f"chunk_size is {chunk_size}; at least 1, or None for as many as memory is meant for")
    n, observations = len(records), getattr(records, "observations", None)
    size = chunk_size or max(1, n if observations is None else CHUNK_BYTES * n // max(1, observations.nbytes))
    return [slice(start, start + size) for start in range(0, n, size)]


def shown(value: Any) -> str:
    """What an argument is, for a message."""
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def _described(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
