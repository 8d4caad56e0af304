"""The rollout buffer of one round: the records that influence is attributed to (section 3.1 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np


@dataclass
class Records:
    """n records in the order in which they were collected; record i is one environment step.

    `observations` are as the environment gives them, `actions` are the raw samples (continuous ones are clipped to the
    action space only when they are executed), `log_probs` belong to the raw actions. `next_values[i]` is the value of
    the observation that step i really led to: the final one at an episode's end, never that of the reset.
    """

    observations: np.ndarray  # (n, ...)
    actions: np.ndarray  # (n,) integers, or (n, dims)
    rewards: np.ndarray  # (n,)
    terminated: np.ndarray  # (n,) bool
    truncated: np.ndarray  # (n,) bool
    log_probs: np.ndarray  # (n,) at collection
    values: np.ndarray  # (n,) V(s) at collection
    next_values: np.ndarray  # (n,)
    advantages: np.ndarray  # (n,) GAE, not normalised
    returns: np.ndarray  # (n,) advantages + values: targets of the value function

    def __len__(self) -> int:
        return len(self.rewards)

    def arrays(self) -> dict[str, np.ndarray]:
        """Field name -> array."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __getitem__(self, indices: np.ndarray) -> Records:
        return Records(**{name: array[indices] for name, array in self.arrays().items()})
