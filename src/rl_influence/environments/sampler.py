"""One environment that records are collected from, step by step, and that can be rebuilt exactly after an interruption.

An episode's end is explicit here: `step` returns the observation that the step really led to, and only then is the
environment reset. So no reset row can become a record (vector environments of gymnasium >= 1 and envpool produce such
rows by default), and a truncated episode is bootstrapped from its own last observation.
"""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from rl_influence.config import EnvironmentConfig
from rl_influence.environments.reading import Reader


class Batch(Protocol):
    """Copies of an environment for test episodes. Nothing resets by itself.

    `ids` (k,) selects the copies to move; what they give has k rows, is finite, and belongs to the caller.
    """

    def reset(self, ids: np.ndarray) -> np.ndarray:
        """First observations of new episodes, (k, ...)."""

    def step(self, ids: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Takes one raw action per copy, (k,) or (k, dims), clipped here to the action space.

        Returns:
            observations (k, ...), rewards (k,), and whether each episode has ended (k,), bool.
        """


class Sampler:
    """Base of the engines' samplers. They define `_start`, `_advance` and `_next_episode`, and no constructor: it calls
    `_start`, which sets `_reader` and both spaces.

    Args:
        environment: its configuration.
        seed: of all episodes.

    Attributes:
        observation_space, action_space: gymnasium spaces.
        observation: the current observation, ready to be acted on: an array that nothing changes afterwards.
        episode_step: steps taken in the current episode.
        episode_returns: (undiscounted return, length) of the episodes that finished since the last `pop_statistics`.
    """

    observation_space: gym.Space
    action_space: gym.Space
    observation: np.ndarray
    _reader: Reader

    def __init__(self, environment: EnvironmentConfig, seed: int):
        self.environment, self.seed = environment, int(seed)
        self.episode_returns: list[tuple[float, int]] = []
        self._begin(None)

    def step(self, action: int | np.ndarray) -> tuple[float, np.ndarray, bool, bool]:
        """Takes one raw action (int, or (dims,) array, clipped here to the action space).

        Returns:
            reward, the observation that the step led to (the final one at an episode's end), terminated, truncated.

        Raises:
            EnvironmentFault: for what cannot be recorded: a reward that is not finite, a flag that is none.
        """
        if self._discrete:
            action = int(action)
        else:
            # actions are recorded raw; only what is executed lies in the box
            action = np.minimum(np.maximum(action, self._low), self._high).astype(self._low.dtype)
        self._actions.append(action if self._discrete else action.copy())  # the environment may change its own
        observation, reward, terminated, truncated = self._reader.step(self._advance(action))
        self.episode_step += 1
        self._return += reward
        if terminated or truncated:
            self.episode_returns.append((float(self._return), self.episode_step))
            self.episode_step, self._return = 0, 0.0
            self._actions.clear()
            self._origin, first = self._next_episode()
            self.observation = self._reader.reset(first)
        else:
            self.observation = observation
        return reward, observation, terminated, truncated

    def pop_statistics(self) -> list[tuple[float, int]]:
        """(return, length) of the episodes finished since the last call."""
        finished, self.episode_returns = self.episode_returns, []
        return finished

    def state(self) -> dict[str, Any]:
        """What `restore` needs: arrays (`actions`, `observation`) and JSON values (the others)."""
        dtype = np.min_scalar_type(int(self.action_space.n) - 1) if self._discrete else self._low.dtype
        return {
            "origin": self._origin,
            "actions": np.array(self._actions, dtype).reshape(-1, *self.action_space.shape),
            "observation": self.observation,
            "return": self._return,
            "episode_returns": [list(episode) for episode in self.episode_returns],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continues where a sampler of the same environment and seed was, by replaying the current episode.

        Raises:
            ValueError: if the replay does not lead to the observation and the return that were saved.
        """
        self._begin(state["origin"])
        actions = state["actions"]
        for action in actions.tolist() if self._discrete else actions:
            self.step(action)
        self.episode_returns = [(float(value), int(length)) for value, length in state["episode_returns"]]
        same = np.array_equal(self.observation, state["observation"])
        if not same or self._return != state.get("return"):
            raise ValueError(
                f"environment {self.environment.id} cannot be resumed: replaying {len(actions)} actions gives another "
                f"{'return' if same else 'observation'} than the saved one (saved with another version of the "
                "environment, or by chance that does not follow from its seed?)"
            )

    def _begin(self, origin: dict | None) -> None:
        self._actions: list = []  # as executed, since the episode began
        self._origin = origin
        self.episode_step, self._return = 0, 0.0
        first = self._start(origin)
        self.observation = self._reader.reset(first)
        self._discrete = isinstance(self.action_space, gym.spaces.Discrete)
        if not self._discrete:
            self._low, self._high = self.action_space.low, self.action_space.high

    def _start(self, origin: dict | None) -> tuple[Any, Any]:
        """Makes the environment, sets `_reader` and the spaces, begins the episode of this origin (None: the first).

        Returns:
            observation, info: what the environment's `reset` gave.
        """
        raise NotImplementedError

    def _advance(self, action: int | np.ndarray) -> tuple[Any, ...]:
        """One executed action: what gymnasium's `step` gives, five values. No reset."""
        raise NotImplementedError

    def _next_episode(self) -> tuple[dict, tuple[Any, Any]]:
        """Begins the next episode: its origin, which is all that it depends on (JSON), and what `reset` gave."""
        raise NotImplementedError
