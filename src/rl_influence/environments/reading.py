"""What an environment gives, taken for what it means.

Environments are written by many hands: flags are integers, rewards are arrays of one number, an observation is the
environment's own array, changed in place by the next step. Here these become a bool, a float and an array of our own;
what cannot be taken for one is refused in one line that names the environment, the step, the quantity and its value.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np

from rl_influence.config import ConfigError


class EnvironmentFault(ConfigError):
    """An environment gave something that cannot be recorded; the message is one line."""


class Reader:
    """Reads the episodes of one environment.

    Args:
        name: of the environment, for messages.
        space: of its observations: `Discrete` or `Box`.
    """

    def __init__(self, name: str, space: gym.Space):
        self.name, self.shape, self.step_number = name, space.shape, 0
        self.n = int(space.n) if isinstance(space, gym.spaces.Discrete) else None

    def reset(self, result: Any) -> np.ndarray:
        """The first observation, of what `env.reset` returned."""
        self.step_number = 0
        try:
            observation, _ = result
        except (TypeError, ValueError):
            raise self.fault("reset", result, "expected two values: observation, info") from None
        return self.observation(observation)

    def step(self, result: Any) -> tuple[np.ndarray, float, bool, bool]:
        """observation, reward, terminated, truncated, of what `env.step` returned."""
        self.step_number += 1
        try:
            observation, reward, terminated, truncated, _ = result
        except (TypeError, ValueError):
            needed = "expected five values: observation, reward, terminated, truncated, info"
            raise self.fault("step", result, needed) from None
        # almost always they are what they should be, and a call costs more than a look
        if terminated is not False and terminated is not True:
            terminated = self.flag("terminated", terminated)
        if truncated is not False and truncated is not True:
            truncated = self.flag("truncated", truncated)
        if type(reward) is not float or not math.isfinite(reward):
            reward = self.reward(reward)
        return self.observation(observation), reward, terminated, truncated

    def observation(self, value: Any) -> np.ndarray:
        """A copy, of the space's shape and finite; of a `Discrete` space an int64 from 0 to n - 1."""
        if type(value) is int and self.n is not None and 0 <= value < self.n:
            return np.array(value)
        try:
            array = np.asarray(value).copy()  # an environment may change its own at the next step
        except ValueError:
            raise self.fault("observation", value, "not an array") from None
        kind = array.dtype.kind
        if self.n is not None:
            if array.size != 1 or kind not in "iub" or not 0 <= int(array.item()) < self.n:
                raise self.fault("observation", value, f"expected a whole number from 0 to {self.n - 1}")
            return array.astype(np.int64).reshape(())
        if array.shape != self.shape or kind not in "fiub":
            raise self.fault("observation", value, f"expected numbers of shape {self.shape}, found {array.shape}")
        if kind == "f" and np.count_nonzero(np.isfinite(array)) < array.size:
            index = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
            raise self.fault(f"observation{list(index)}", array[index].item(), "not finite")
        return array

    def reward(self, value: Any) -> float:
        """One finite number."""
        if not isinstance(value, float):
            array = np.asarray(value)
            if array.size != 1 or array.dtype.kind not in "fiub":
                raise self.fault("reward", value, "expected one number")
            value = array.item()
        if not math.isfinite(value):
            raise self.fault("reward", value, "not finite")
        return float(value)

    def flag(self, name: str, value: Any) -> bool:
        """A bool, or an integer that is 0 or 1; also as an array of one."""
        array = np.asarray(value)
        if array.size != 1 or array.dtype.kind not in "iub" or array.item() not in (0, 1):
            raise self.fault(name, value, "expected true or false")
        return bool(array.item())

    def fault(self, what: str, value: Any, reason: str) -> EnvironmentFault:
        """The error for a value that cannot be taken."""
        shown = " ".join(repr(value).split())
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        place = f"at step {self.step_number} of an episode" if self.step_number else "at a reset"
        return EnvironmentFault(f"environment {self.name}: {what} = {shown} {place}: {reason}")
