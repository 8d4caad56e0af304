"""Policies of Stable-Baselines3 as attribution wants them."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.preprocessing import get_obs_shape
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from rl_influence.attribution import ScoringError
from rl_influence.integrations.records import RolloutRecords
from rl_influence.ppo.objective import Batch

CHOICES = "PPO, A2C or MaskablePPO"


class SB3Policy(nn.Module):
    """A Stable-Baselines3 policy as attribution wants it. It shares the policy's parameters.

    Args:
        policy: `model.policy` of a PPO, A2C or MaskablePPO.

    Raises:
        ScoringError: for any other policy.
    """

    def __init__(self, policy: Any):
        super().__init__()
        if not hasattr(policy, "evaluate_actions") or is_a("Recurrent", policy):
            raise ScoringError(f"SB3Policy({type(policy).__name__}): the policy of {CHOICES} is needed")
        self.policy = policy
        # what trains is evaluate_actions; Stable-Baselines3's own is get_distribution, and the values, which cost time
        self._own = not is_theirs(type(policy).evaluate_actions)
        self.masks = mask_size(policy.action_space) if is_a("Maskable", policy) else 0
        shapes = get_obs_shape(policy.observation_space)
        self.keys = isinstance(shapes, dict)
        self.shapes = shapes if isinstance(shapes, dict) else {"": shapes}

    def log_prob(self, observations: Tensor, actions: Tensor) -> Tensor:
        """log pi(a|s), (n,), of raw actions and of observations as `encoded` gives them."""
        inputs, given = self._decoded(observations)
        with self._left_as_it_is():
            if self._own:
                return self.policy.evaluate_actions(inputs, actions, **given)[1]
            return self.policy.get_distribution(inputs, **given).log_prob(actions)

    def _decoded(self, observations: Tensor) -> tuple[Any, dict[str, Tensor]]:
        """Observations as the policy takes them, and its action masks, if it has some."""
        if not self.masks and not self.keys:
            return observations, {}
        sizes = [self.masks, *(math.prod(shape) for shape in self.shapes.values())]
        if observations.ndim != 2 or observations.shape[1] != sum(sizes):
            raise ScoringError(
                f"observations of shape {tuple(observations.shape)}: SB3Policy.encoded makes (n, {sum(sizes)}) of them"
            )
        masks, *parts = observations.split(sizes, dim=1)
        inputs = {key: x.reshape(-1, *shape) for (key, shape), x in zip(self.shapes.items(), parts, strict=True)}
        return inputs if self.keys else inputs[""], {"action_masks": masks} if self.masks else {}

    @contextmanager
    def _left_as_it_is(self) -> Iterator[None]:
        """Afterwards its distribution holds no tensor of ours, with which the policy could not be copied. Meanwhile a
        policy of another precision than Stable-Baselines3's float32 sees its inputs in that."""
        kept = vars(getattr(self.policy, "action_dist", SimpleNamespace()))
        before, handles, dtype = dict(kept), [], next(self.parameters()).dtype
        if dtype != torch.float32:
            extractors = [module for module in self.policy.modules() if isinstance(module, BaseFeaturesExtractor)]
            handles = [module.register_forward_pre_hook(partial(_cast, dtype)) for module in extractors]
        try:
            yield
        finally:
            kept.clear()
            kept.update(before)
            for handle in handles:
                handle.remove()

    def __deepcopy__(self, memo: dict[int, Any]) -> SB3Policy:
        """Without what the latest update has left in its distribution, which cannot be copied."""
        distribution = getattr(self.policy, "action_dist", None)
        memo[id(distribution)] = copy.copy(distribution)
        twin = type(self).__new__(type(self))
        twin.__dict__ = copy.deepcopy(vars(self), memo)
        return twin

    def encoded(self, records: RolloutRecords) -> Batch:
        """The records' arrays, with the observations as one, for targets, scores and objectives.

        Observations of a dictionary space are flattened and set side by side, after the action masks, which are part
        of log pi; others stay as they are.
        """
        arrays = {name: value for name, value in vars(records).items() if name != "action_masks"}
        if self.masks or self.keys:
            parts: list[Any] = [records.action_masks] if self.masks else []
            parts += [records.observations[key] if self.keys else records.observations for key in self.shapes]
            flat = [np.reshape(part, (len(records), -1)).astype(np.float32) for part in parts]
            arrays["observations"] = np.concatenate(flat, axis=1)
        return Batch(**arrays)


def is_theirs(method: Any) -> bool:
    """Whether a method is Stable-Baselines3's or sb3-contrib's, and not a subclass's."""
    return method.__module__.partition(".")[0] in ("stable_baselines3", "sb3_contrib")


def _cast(dtype: torch.dtype, module: nn.Module, args: tuple) -> tuple:
    def one(x: Any) -> Any:
        return {key: one(part) for key, part in x.items()} if isinstance(x, dict) else x.to(dtype)

    return tuple(map(one, args))


def is_a(word: str, value: Any) -> bool:
    """Whether the name of its class, or of one it inherits from, has this word; sb3-contrib need not be installed."""
    return any(word in cls.__name__ for cls in type(value).__mro__)


def mask_size(space: gym.Space) -> int:
    """Entries of an action mask, as sb3-contrib lays it out."""
    if isinstance(space, gym.spaces.Discrete):
        return int(space.n)
    return int(sum(space.nvec)) if isinstance(space, gym.spaces.MultiDiscrete) else 2 * math.prod(space.shape or ())
