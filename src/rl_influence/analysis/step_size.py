"""How far a round moves the actor, beside the rounds that a method saves: do larger steps explain the gain?

Dropping the records that pull the other way makes a round's step larger, as a larger learning rate does. So a method's
step is measured while it learns: in the rounds until it first reaches 90 % of PPO's rise (all rounds, if it never
does), after which every method stands still.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from .curves import KEY, StudyCurves, reference_method
from .first_passage import FRACTIONS, rises, saved
from .groups import expected_seeds, returns_by_run, with_expected
from .statistics import final_return, over_seeds

STEPS = ("displacement", "approx_kl", "clip_fraction", "grad_norm")  # means over a run's learning rounds
MEASURES = (*STEPS, "displacement_ratio", "rounds_saved", "rise_kept", "collapsed", "never_rose")
SUMMARY = [*KEY, "learning_rounds", "reached", *MEASURES]
COLLAPSE = 0.5  # of PPO's rise, lost between a run's best return and its final one
RISEN = 0.1  # of PPO's rise, without which at the end a run that did not collapse never rose


def diagnostics_summary(passages: pd.DataFrame, study: StudyCurves) -> pd.DataFrame:
    """Each run that has diagnostics: its step while it learns, and what came of it; `passages` is the table
    `rounds_to`.

    learning_rounds and reached are those of 90 % of PPO's rise, over which `STEPS` are means; displacement_ratio is to
    PPO of the same seed, rounds_saved against it (mean over levels, [-1, 1]). rise_kept: the final return, 0 at PPO's
    start and 1 at the top of its mean curve; collapsed: 1 if half of PPO's rise is lost between the run's best and its
    final return; never_rose: 1 if the final return is below a tenth of PPO's rise without that. Empty without PPO's
    rise.
    """
    curves, reference = returns_by_run(study), reference_method(study.config)
    ways = rises(curves, reference)
    last = passages[passages["fraction"] == FRACTIONS[-1]].set_index(KEY)
    savings = {
        pair: saved(passages, *pair, reference).groupby("seed")["saved"].mean()
        for pair in study.diagnostics[KEY[:2]].drop_duplicates().itertuples(index=False, name=None)
    }
    rows = []
    for key, own in study.diagnostics.groupby(KEY, sort=False):
        environment, method, seed = key
        row, learning = dict(zip(KEY, key, strict=True)), own
        if key in last.index:
            row |= {"learning_rounds": max(1, last.loc[key, "rounds"]), "reached": bool(last.loc[key, "reached"])}
            learning = own[own["round"] <= row["learning_rounds"]]
        row |= learning[list(STEPS)].mean().to_dict()
        if method != reference:
            row["rounds_saved"] = savings[environment, method].get(seed, np.nan)
        rows.append(row | _outcome(curves[key], *ways[environment]))
    table = pd.DataFrame(rows, columns=SUMMARY)
    steps = table.set_index(KEY)["displacement"]
    table["displacement_ratio"] = [
        steps[e, m, s] / steps.get((e, reference, s), np.nan) for e, m, s in table[KEY].itertuples(index=False)
    ]
    return table


def step_size(summary: pd.DataFrame, study: StudyCurves) -> pd.DataFrame:
    """Means over seeds of `diagnostics_summary` with t intervals, per environment and method."""
    if summary.empty:
        return pd.DataFrame(columns=[*KEY[:2], "n", "expected"])
    return with_expected(over_seeds(summary, KEY[:2], MEASURES), expected_seeds(study))


def _outcome(curve: np.ndarray, start: float, top: float) -> dict[str, float]:
    if not top > start:
        return {}
    final = final_return(curve)
    kept, lost = (final - start) / (top - start), (np.nanmax(curve) - final) / (top - start)
    collapsed = lost > COLLAPSE
    return {"rise_kept": kept, "collapsed": float(collapsed), "never_rose": float(kept < RISEN and not collapsed)}
