"""One environment that records are collected from, step by step, and that can be rebuilt exactly after an interruption.

An episode's end is explicit here: `step` returns the observation that the step really led to, and only then is the
environment reset. So no reset row can become a record (vector environments of gymnasium >= 1 and envpool produce such
rows by default), and a truncated episode is bootstrapped from its own last observation.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Sampler:
    """Base of the engines' samplers; they define `_start`, `_advance` and `_next_episode`.

    Attributes:
        observation_space, action_space: gymnasium spaces.
        observation: the current observation as the environment gives it (array or int), ready to be acted on.
        episode_step: steps taken in the current episode.
        episode_returns: (undiscounted return, length) of the episodes that finished since the last `pop_statistics`.
    """

    observation_space: gym.Space
    action_space: gym.Space
    observation: Any

    def __init__(self):
        self.episode_returns: list[tuple[float, int]] = []
        self._begin(None)

    def step(self, action) -> tuple[float, Any, bool, bool]:
        """Takes one raw action (int, or (dims,) array, clipped here to the action space).

        Returns:
            reward, the observation that the step led to (the final one at an episode's end), terminated, truncated.
        """
        if self._discrete:
            action = int(action)
        else:
            # actions are recorded raw; only what is executed lies in the box
            action = np.minimum(np.maximum(action, self._low), self._high).astype(self._low.dtype)
        self._actions.append(action)
        observation, reward, terminated, truncated = self._advance(action)
        self.episode_step += 1
        self._return += reward
        if terminated or truncated:
            self.episode_returns.append((float(self._return), self.episode_step))
            self.episode_step, self._return = 0, 0.0
            self._actions.clear()
            self._origin, self.observation = self._next_episode()
        else:
            self.observation = observation
        return reward, observation, terminated, truncated

    def pop_statistics(self) -> list[tuple[float, int]]:
        """(return, length) of the episodes finished since the last call."""
        finished, self.episode_returns = self.episode_returns, []
        return finished

    def state(self) -> dict[str, Any]:
        """What `restore` needs: arrays (`actions`, `observation`) and JSON values (`origin`, `episode_returns`)."""
        dtype = np.min_scalar_type(int(self.action_space.n) - 1) if self._discrete else self._low.dtype
        return {
            "origin": self._origin,
            "actions": np.array(self._actions, dtype).reshape(-1, *self.action_space.shape),
            "observation": np.array(self.observation),
            "episode_returns": [list(episode) for episode in self.episode_returns],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continues where a sampler of the same environment and seed was, by replaying the current episode.

        Raises:
            ValueError: if the replay does not lead to the observation that was saved.
        """
        self._begin(state["origin"])
        actions = state["actions"]
        for action in actions.tolist() if self._discrete else actions:
            self.step(action)
        self.episode_returns = [(float(value), int(length)) for value, length in state["episode_returns"]]
        if not np.array_equal(self.observation, state["observation"]):
            raise ValueError(
                f"environment {self._name} cannot be resumed: replaying {len(actions)} actions gives another "
                "observation than the saved one (saved with another version of the environment or another seed?)"
            )

    def _begin(self, origin: dict | None) -> None:
        self._actions: list = []  # as executed, since the episode began
        self._origin = origin
        self.episode_step, self._return = 0, 0.0
        self.observation = self._start(origin)
        self._discrete = isinstance(self.action_space, gym.spaces.Discrete)
        if not self._discrete:
            self._low, self._high = self.action_space.low, self.action_space.high

    def _start(self, origin: dict | None):
        """Makes the environment and begins the episode of this origin (None: the first); returns the observation."""
        raise NotImplementedError

    def _advance(self, action) -> tuple[Any, float, bool, bool]:
        """observation, reward, terminated, truncated of one executed action; no reset."""
        raise NotImplementedError

    def _next_episode(self) -> tuple[dict, Any]:
        """Begins the next episode; returns its origin, which is all that it depends on (JSON), and the observation."""
        raise NotImplementedError
