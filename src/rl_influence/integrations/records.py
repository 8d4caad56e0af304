"""The records of a Stable-Baselines3 rollout, their table and their picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_influence.rules import as_array

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SHOWN = 32  # an observation of more numbers, an image say, is no row of a table
HELPS, HARMS = "#0072b2", "#d55e00"


@dataclass
class RolloutRecords:
    """The n = n_steps * n_envs records of a rollout buffer; record i is step i % n_steps of environment i // n_steps.

    Observations of a dictionary space are a dictionary of arrays; `SB3Policy.encoded` makes one array of them.
    """

    observations: Any  # (n, ...), or key -> (n, ...)
    actions: np.ndarray  # (n,) integers for Discrete, else (n, dims)
    values: np.ndarray  # (n,)
    log_probs: np.ndarray  # (n,)
    advantages: np.ndarray  # (n,) GAE, not normalised
    returns: np.ndarray  # (n,)
    rewards: np.ndarray  # (n,); Stable-Baselines3 adds the bootstrap value to the reward of a truncated step
    episode_starts: np.ndarray  # (n,) 1 for an episode's first record
    environments: np.ndarray  # (n,)
    steps: np.ndarray  # (n,) of the rollout
    action_masks: np.ndarray | None = None  # (n, choices) 1 where an action was allowed; MaskablePPO's only

    def __len__(self) -> int:
        return len(self.rewards)

    def __getitem__(self, indices: Any) -> RolloutRecords:
        def part(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: array[indices] for key, array in value.items()}
            return None if value is None else value[indices]

        return RolloutRecords(**{name: part(value) for name, value in vars(self).items()})

    def to_frame(self, scores: np.ndarray | None = None) -> pd.DataFrame:
        """One row per record; needs pandas.

        Args:
            scores: (n,), the column `influence`.

        Returns:
            Columns environment, step, episode_start (bool), observation and action (numbered where they are vectors,
            `observation_KEY` of a dictionary; left out above 32 numbers), reward, value, return, advantage, log_prob.

        Raises:
            ValueError: for scores of another length.
        """
        import pandas as pd

        columns = {
            "environment": self.environments,
            "step": self.steps,
            "episode_start": self.episode_starts.astype(bool),
        }
        of_a_key = isinstance(self.observations, dict)
        for key, array in self.observations.items() if of_a_key else [("", self.observations)]:
            columns |= _columns(f"observation_{key}" if of_a_key else "observation", array)
        columns |= _columns("action", self.actions)
        for name in ("rewards", "values", "returns", "advantages", "log_probs"):
            columns[name.removesuffix("s")] = getattr(self, name)
        if scores is not None:
            columns["influence"] = _scores(self, scores)
        return pd.DataFrame(columns)


def _columns(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    flat = array.reshape(len(array), int(np.prod(array.shape[1:])))
    if flat.shape[1] > SHOWN:
        return {}
    if flat.shape[1] == 1:
        return {name: flat[:, 0]}
    return {f"{name}_{i}": column for i, column in enumerate(flat.T)}


def _scores(records: Any, scores: np.ndarray) -> np.ndarray:
    scores = as_array(scores)
    if scores.shape != (len(records.advantages),):
        raise ValueError(f"scores have shape {scores.shape}, but there are {len(records.advantages)} records")
    return scores


def _indices(kept: Any, n: int) -> np.ndarray:
    kept = np.asarray(kept)
    if kept.dtype == bool and kept.shape == (n,):
        return np.flatnonzero(kept)
    if kept.ndim != 1 or kept.dtype == bool or not np.isin(kept, np.arange(n)).all():
        raise ValueError(f"kept: indices of the {n} records are needed, or a mask of them")
    return kept


def plot_scores(records: Any, scores: np.ndarray, *, kept: np.ndarray | None = None) -> Figure:
    """Influence along the rollout and against the advantage; needs matplotlib.

    Args:
        records: with `advantages`, and `episode_starts` if episodes are to be marked.
        scores: (n,).
        kept: indices of the records that train, or a mask (n,) of them; the others are crossed out.

    Returns:
        A matplotlib figure of two panels; `.savefig(path)` writes it.

    Raises:
        ValueError: for scores of another length, or kept records that are none of them.
    """
    import matplotlib.pyplot as plt

    scores, index = _scores(records, scores), np.arange(len(scores))
    out = None if kept is None else np.setdiff1d(index, _indices(kept, len(scores)))
    colours = np.where(scores < 0, HARMS, HELPS)
    figure, (along, against) = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    starts = np.flatnonzero(getattr(records, "episode_starts", np.zeros(0)))
    along.vlines(starts, 0, 1, transform=along.get_xaxis_transform(), color="0.85", linewidth=0.6, zorder=0)
    along.set(xlabel="record" + (" (grey: an episode begins)" if len(starts) else ""), ylabel="influence on the target")
    against.set(xlabel="advantage")
    for axes, x in ((along, index), (against, as_array(records.advantages))):
        axes.axhline(0, color="0.4", linewidth=0.8, zorder=1)
        axes.scatter(x, scores, s=8, c=colours, linewidths=0, zorder=2)
        if out is not None:
            axes.scatter(x[out], scores[out], s=22, c="0.2", marker="x", linewidths=0.7, zorder=3, label="dropped")
    helps, harms = (scores > 0).mean(), (scores < 0).mean()
    along.set_title(f"{len(scores)} records: {helps:.0%} help (blue), {harms:.0%} harm (orange)", fontsize="medium")
    if out is not None:
        against.legend(loc="best", title=f"{len(out)} record{'s' * (len(out) != 1)}")
    return figure
