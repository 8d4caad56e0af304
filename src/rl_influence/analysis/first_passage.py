"""Rounds to fixed parts of PPO's rise: the robust companion of SE_ave, and what it is between equal methods.

PPO's rise in an environment goes from the mean of its untrained returns to the highest point of its mean curve over
seeds. So the levels are the same for every run of an environment, and hang on no single lucky evaluation, as the levels
of SE_ave do (each new maximum of one noisy curve). How many rounds method A saves against B at a level is

    (m_B - m_A) / max(m_A, m_B)     m: first round at or above the level

which is the paper's 1 - m_A / m_B where A is first, and its mirror image where B is. It lies in [-1, 1], swaps its sign
with the methods, and is 0 on average between equal ones. A level that is never reached takes the last round (a
restricted mean, as in survival analysis); how much more or less it could be is known too: -1 if A, 1 if B never
reached it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pandas as pd

from .curves import rows_of
from .sample_efficiency import first_rounds, sample_efficiency
from .statistics import final_return, mean_training_return

Curves = Mapping[tuple[str, str, int], np.ndarray]  # (environment, method, seed) -> (K + 1,) test returns
FRACTIONS = (0.5, 0.75, 0.9)
ROUNDS_TO = ["environment", "method", "seed", "fraction", "level", "rounds", "reached"]
NULL = ["environment", "metric", "seeds", "pairs", "mean", "sd", "median", "low", "high"]


def rises(curves: Curves, reference: str) -> dict[str, tuple[float, float]]:
    """Environment -> start and top of standard PPO's mean curve over seeds; nan where there is no PPO."""
    found = {}
    for environment in dict.fromkeys(key[0] for key in curves):
        standard = [curve for key, curve in curves.items() if key[:2] == (environment, reference)]
        mean = np.mean(standard, axis=0) if standard else np.array([np.nan])
        found[environment] = float(mean[0]), float(np.nanmax(mean)) if standard else np.nan
    return found


def saving(method, reference, method_reached, reference_reached) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rounds that a method saves against a reference at each level, as a share in [-1, 1]; the least and the most.

    `method` and `reference` are first rounds, the last round where a level was not reached.
    """
    a, b = np.asarray(method, dtype=float), np.asarray(reference, dtype=float)
    value = np.divide(b - a, np.maximum(a, b), out=np.zeros_like(a), where=np.maximum(a, b) > 0)
    return value, np.where(method_reached, value, -1.0), np.where(reference_reached, value, 1.0)


def rounds_to(curves: Curves, reference: str) -> pd.DataFrame:
    """First rounds of every run at `FRACTIONS` of PPO's rise (`reference` is PPO): environment, method, seed, fraction,
    level, rounds, reached; no rows for an environment where PPO does not rise."""
    rows = []
    for environment, (start, top) in rises(curves, reference).items():
        levels = start + np.array(FRACTIONS) * (top - start)
        for key, curve in curves.items():
            if top > start and key[0] == environment:
                rows += [(*key, *row) for row in zip(FRACTIONS, levels, *first_rounds(curve, levels), strict=True)]
    return pd.DataFrame(rows, columns=ROUNDS_TO)


def saved(passages: pd.DataFrame, environment: str, method: str, reference: str) -> pd.DataFrame:
    """Rounds that a method saves against another, for every seed and level that `rounds_to` has of both: seed,
    fraction, saved (in [-1, 1]), never (whether either does not reach the level)."""
    own, other = (rows_of(passages, (environment, name)) for name in (method, reference))
    both = own.merge(other, on=["seed", "fraction"], suffixes=("", "_other"))
    arrays = (both[name].to_numpy() for name in ("rounds", "rounds_other", "reached", "reached_other"))
    both = both.assign(saved=saving(*arrays)[0], never=~(both["reached"] & both["reached_other"]).astype(bool))
    return both[["seed", "fraction", "saved", "never"]]


def null_values(curves: Curves, reference: str) -> pd.DataFrame:
    """Each metric between PPO and PPO of another seed, over all ordered pairs (none for fewer than two seeds): what no
    effect looks like. low and high are the 2.5 and 97.5 % quantiles."""
    rows = []
    passages = rounds_to(curves, reference)
    for environment in dict.fromkeys(key[0] for key in curves):
        own = {seed: curve for (e, m, seed), curve in curves.items() if (e, m) == (environment, reference)}
        of_seed = dict(iter(rows_of(passages, (environment, reference)).groupby("seed")))
        found = []
        for one, other in itertools.permutations(own, 2):
            efficiency = sample_efficiency(own[other], own[one])
            sides = [of_seed[seed] for seed in (one, other) if seed in of_seed]
            arrays = [side[name].to_numpy() for name in ("rounds", "reached") for side in sides]
            found.append(
                {
                    "se_ave": efficiency.se_ave,
                    "se_peak": efficiency.se_peak,
                    "rounds_saved": saving(*arrays)[0].mean() if arrays else np.nan,
                    "final_return": final_return(own[one]) - final_return(own[other]),
                    "mean_training_return": mean_training_return(own[one]) - mean_training_return(own[other]),
                }
            )
        for metric, values in pd.DataFrame(found).items():
            values = values.dropna().to_numpy()
            if len(values):
                low, median, high = np.quantile(values, [0.025, 0.5, 0.975])
                # sums over both orders of a pair cancel up to rounding, which differs between machines
                numbers = (round(values.mean(), 12), values.std(ddof=1), round(median, 12), low, high)
                rows.append((environment, metric, len(own), len(values), *numbers))
    return pd.DataFrame(rows, columns=NULL)
