"""How far a round moves the actor, beside the rounds that a method saves: do larger steps explain the gain?

Dropping the records that pull the other way makes a round's step larger, as a larger learning rate does. So a method's
step is measured while it learns: in the rounds until it first reaches 90 % of PPO's rise (all rounds, if it never
does), after which every method stands still.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from .curves import KEY, StudyCurves, reference_method
from .first_passage import FRACTIONS, rise, saved
from .groups import expected_seeds, returns_by_run
from .statistics import final_return, over_seeds

STEPS = ("displacement", "approx_kl", "clip_fraction", "grad_norm")  # means over a run's learning rounds
MEASURES = (*STEPS, "displacement_ratio", "rounds_saved", "rise_kept", "collapsed", "never_rose")
SUMMARY = [*KEY, "learning_rounds", "reached", *MEASURES]
COLLAPSE = 0.5  # of PPO's rise, lost between a run's best return and its final one
RISEN = 0.1  # of PPO's rise, without which at the end a run that did not collapse never rose


def diagnostics_summary(passages: pd.DataFrame, study: StudyCurves) -> pd.DataFrame:
    """Each run that has diagnostics: its step while it learns, and what came of it.

    Args:
        passages: the table `rounds_to`.

    Returns:
        Rows with environment, method, seed; learning_rounds and reached (90 % of PPO's rise); means of `STEPS` over
        these rounds; displacement_ratio to PPO of the same seed; rounds_saved against it (mean over levels, [-1, 1]);
        rise_kept: the final return, 0 at PPO's start and 1 at the top of its mean curve; collapsed: 1 if half of PPO's
        rise is lost between the run's best and its final return; never_rose: 1 if the final return is below a tenth of
        PPO's rise without that. Empty without a rise of PPO's, or its run.
    """
    curves, reference = returns_by_run(study), reference_method(study.config)
    last = passages[passages["fraction"] == FRACTIONS[-1]].set_index(KEY)
    savings: dict[tuple, pd.Series] = {}
    rows = []
    for key, own in study.diagnostics.groupby(KEY, sort=False):
        environment, method, seed = key
        row, learning = dict(zip(KEY, key, strict=True)), own
        if key in last.index:
            row |= {"learning_rounds": max(1, last.loc[key, "rounds"]), "reached": bool(last.loc[key, "reached"])}
            learning = own[own["round"] <= row["learning_rounds"]]
        row |= learning[list(STEPS)].mean().to_dict()
        if method != reference:
            if key[:2] not in savings:
                both = saved(passages, environment, method, reference)
                savings[key[:2]] = both.groupby("seed")["saved"].mean()
            row["rounds_saved"] = savings[key[:2]].get(seed, np.nan)
        standard = [curve for (e, m, _), curve in curves.items() if (e, m) == (environment, reference)]
        rows.append(row | _outcome(curves[key], standard))
    table = pd.DataFrame(rows, columns=SUMMARY)
    steps = table.set_index(KEY)["displacement"]
    table["displacement_ratio"] = [
        steps[e, m, s] / steps.get((e, reference, s), np.nan) for e, m, s in table[KEY].itertuples(index=False)
    ]
    return table


def step_size(summary: pd.DataFrame, study: StudyCurves) -> pd.DataFrame:
    """Means over seeds of `diagnostics_summary` with t intervals, per environment and method."""
    table, expected = over_seeds(summary, KEY[:2], MEASURES), expected_seeds(study)
    if table.empty:
        return pd.DataFrame(columns=[*KEY[:2], "n", "expected"])
    table.insert(3, "expected", [expected[pair] for pair in table[KEY[:2]].itertuples(index=False, name=None)])
    return table


def _outcome(curve: np.ndarray, standard: list[np.ndarray]) -> dict[str, float]:
    start, top = rise(standard) if standard else (0.0, 0.0)
    if not top > start:
        return {}
    final = final_return(curve)
    kept, lost = (final - start) / (top - start), (np.nanmax(curve) - final) / (top - start)
    collapsed = lost > COLLAPSE
    return {"rise_kept": kept, "collapsed": float(collapsed), "never_rose": float(kept < RISEN and not collapsed)}
