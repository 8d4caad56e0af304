"""How far a round moves the actor, beside the rounds that a method saves: do larger steps explain the gain?

Dropping the records that pull the other way makes a round's step larger, as a larger learning rate does. So a method's
step is measured while it learns: in the rounds until it first reaches 90 % of PPO's rise (all rounds, if it never
does), after which every method stands still.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from .curves import KEY
from .first_passage import FRACTIONS, rise, saving
from .statistics import final_return, over_seeds

STEPS = ("displacement", "approx_kl", "clip_fraction", "grad_norm")  # means over a run's learning rounds
SUMMARY = [*KEY, "learning_rounds", "reached", *STEPS, "displacement_ratio", "rounds_saved", "rise_kept", "collapsed"]
MEASURES = (*STEPS, "displacement_ratio", "rounds_saved", "rise_kept", "collapsed")
COLLAPSE = 0.5  # of PPO's rise, lost between a run's best return and its final one


def diagnostics_summary(
    diagnostics: pd.DataFrame, passages: pd.DataFrame, curves: Mapping[tuple, np.ndarray], reference: str
) -> pd.DataFrame:
    """Each run that has diagnostics: its step while it learns, and what came of it.

    Args:
        diagnostics: environment, method, seed, round, and `STEPS`.
        passages: the table `rounds_to`.
        curves: (environment, method, seed) -> (K + 1,) test returns.
        reference: standard PPO.

    Returns:
        Rows with environment, method, seed; learning_rounds and reached (90 % of PPO's rise); means of `STEPS` over
        these rounds; displacement_ratio to PPO of the same seed; rounds_saved against it (mean over levels, [-1, 1]);
        rise_kept: the final return, 0 at PPO's start and 1 at the top of its mean curve; collapsed: 1 if half of PPO's
        rise is lost between the run's best and its final return. Empty without a rise of PPO's, or its run.
    """
    first = passages[passages["fraction"] == FRACTIONS[-1]].set_index(KEY)
    levels = {key: part.sort_values("fraction") for key, part in passages.groupby(KEY, sort=False)}
    rows = []
    for key, own in diagnostics.groupby(KEY, sort=False):
        row, standard = dict(zip(KEY, key, strict=True)), (key[0], reference, key[2])
        learning = own
        if key in first.index:
            row |= {"learning_rounds": max(1, first.loc[key, "rounds"]), "reached": bool(first.loc[key, "reached"])}
            learning = own[own["round"] <= row["learning_rounds"]]
        row |= learning[list(STEPS)].mean().to_dict()
        if key in levels and standard in levels and key != standard:
            a, b = levels[key], levels[standard]
            arrays = (part[name].to_numpy() for name in ("rounds", "reached") for part in (a, b))
            row["rounds_saved"] = saving(*arrays)[0].mean()
        row |= _outcome(curves[key], [curve for k, curve in curves.items() if k[:2] == standard[:2]])
        rows.append(row)
    table = pd.DataFrame(rows, columns=SUMMARY)
    steps = table.set_index(KEY)["displacement"]
    table["displacement_ratio"] = [
        steps[e, m, s] / steps.get((e, reference, s), np.nan) for e, m, s in table[KEY].itertuples(index=False)
    ]
    return table


def step_size(summary: pd.DataFrame, expected: Mapping[tuple[str, str], int]) -> pd.DataFrame:
    """Means over seeds of `diagnostics_summary` with 95 % t intervals, per environment and method."""
    table = over_seeds(summary, KEY[:2], MEASURES)
    if table.empty:
        return pd.DataFrame(columns=[*KEY[:2], "n", "expected"])
    table.insert(3, "expected", [expected[pair] for pair in table[KEY[:2]].itertuples(index=False, name=None)])
    return table


def _outcome(curve: np.ndarray, standard: list[np.ndarray]) -> dict[str, float]:
    start, top = rise(standard) if standard else (0.0, 0.0)
    if not top > start:
        return {}
    final = final_return(curve)
    lost = (np.nanmax(curve) - final) / (top - start)
    return {"rise_kept": (final - start) / (top - start), "collapsed": float(lost > COLLAPSE)}
