"""The rollout buffer of one round: the records that influence is attributed to (section 3.1 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

REPEATABLE_BYTES = 1024  # integer observations up to this size are worth looking up; Pong's (28 kB) never repeat


class TrainingError(RuntimeError):
    """Training cannot go on; the message says where it stopped and why."""


@dataclass
class Records:
    """n records in the order in which they were collected; record i is one environment step.

    `observations` are as the environment gives them, `actions` are the raw samples (continuous ones are clipped to the
    action space only when they are executed), `log_probs` belong to the raw actions. `next_values[i]` is the value of
    the observation that step i really led to: the final one at an episode's end, never that of the reset.

    Raises:
        ValueError: for arrays of different lengths, or flags that are neither true nor false.
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

    def __post_init__(self):
        lengths = {name: len(array) for name, array in self.arrays().items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"records of different numbers: {', '.join(f'{n} {name}' for name, n in lengths.items())}")
        self.terminated, self.truncated = (as_flags(x, getattr(self, x)) for x in ("terminated", "truncated"))

    def __len__(self) -> int:
        return len(self.rewards)

    def arrays(self) -> dict[str, np.ndarray]:
        """Field name -> array."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __getitem__(self, indices: np.ndarray | slice | int) -> Records:
        """Some of the records; one alone is still a buffer, of length 1."""
        indices = [indices] if isinstance(indices, (int, np.integer)) else indices
        return Records(**{name: array[indices] for name, array in self.arrays().items()})


def as_flags(name: str, values: np.ndarray) -> np.ndarray:
    """`values` as booleans: they may be the numbers 0 and 1, which are no mask and are not negated by ~.

    Raises:
        ValueError: for anything else.
    """
    values = np.asarray(values)
    if values.dtype != bool and not (values.dtype.kind in "iuf" and np.isin(values, (0, 1)).all()):
        raise ValueError(f"{name}: expected true or false, found {values.dtype}, {values.ravel()[:5].tolist()}, ...")
    return values.astype(bool, copy=False)


def is_repeatable(observation: np.ndarray) -> bool:
    """Whether an observation belongs to a space so small that it is likely to occur again."""
    return observation.dtype.kind in "iu" and observation.nbytes <= REPEATABLE_BYTES


def distinct_observations(observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct observations (m, ...) and each record's row among them (n,); large or real-valued ones all count.

    Where all count, they are in the records' order.
    """
    if len(observations) == 0 or not is_repeatable(observations[0]):
        return observations, np.arange(len(observations))
    rows = np.ascontiguousarray(observations).reshape(len(observations), -1)
    if rows.shape[1] > 1:
        rows = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))
    _, first, inverse = np.unique(rows.ravel(), return_index=True, return_inverse=True)
    if len(first) == len(observations):
        return observations, np.arange(len(observations))
    return observations[first], inverse.ravel()
