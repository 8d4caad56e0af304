"""How well IIF's shortcut agrees with full TracIn, which the paper never shows.

IIF scores a buffer once, at the round's start (section 5). The attribution framework (section 4) sums over the round's
optimisation steps, each at its own parameters. Here both score the same buffer; the sum follows standard PPO on all
records.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from rl_influence.analysis.statistics import over_seeds, spearman, why_undefined
from rl_influence.attribution import FReturn
from rl_influence.config import RunSpec
from rl_influence.runs import snapshots
from rl_influence.runs.snapshots import Snapshot
from rl_influence.selection import number_dropped


def analyse(spec: RunSpec, directory: Path, rounds: Sequence[int]) -> dict[str, pd.DataFrame]:
    """`agreement` of each of these rounds of a run; `directory` holds their snapshots."""
    return {"agreement": pd.concat([agreement(snapshots.load(directory, k)) for k in rounds], ignore_index=True)}


SUMMARIES = {
    "agreement_summary": lambda tables: over_seeds(
        tables["agreement"],
        ("environment", "method", "round", "shortcut", "drop_fraction"),
        ("spearman", "pearson", "overlap", "overlap_by_chance", "jaccard"),
    )
}


def agreement(snapshot: Snapshot, *, drop_fraction: float | None = None) -> pd.DataFrame:
    """Start-of-round scores against full TracIn on f_return.

    Args:
        drop_fraction: p of the dropped sets that are compared; default the environment's.

    Returns:
        One row per `shortcut` (advantages `raw`, or `normalised` as IIF's code does it): round, records, spearman,
        pearson (nan where undefined), drop_fraction, dropped (by the shortcut), dropped_full (by the full sum), overlap
        (share of the shortcut's drops that the full sum drops as well), overlap_by_chance (what a random set of that
        size would share), jaccard (of both sets).
    """
    spec, records = snapshot.spec, snapshot.records
    fraction = spec.environment.drop_percent / 100 if drop_fraction is None else drop_fraction
    full = snapshot.tracin(kept=np.arange(len(records)))
    target = FReturn(records)
    shortcuts = {
        "raw": snapshot.influence_on(target),
        "normalised": snapshot.influence_on(target, advantages=snapshot.normalized_advantages()),
    }
    return pd.DataFrame(
        [
            {"round": snapshot.round, "shortcut": name} | compare(scores, full, fraction)
            for name, scores in shortcuts.items()
        ]
    )


def compare(scores: np.ndarray, full: np.ndarray, fraction: float) -> dict[str, float]:
    """Correlations of two scorings of the same records, and the overlap of what they drop at p = `fraction`."""
    a, b = dropped(scores, fraction), dropped(full, fraction)
    both = len(a & b)
    pearson = np.nan if why_undefined(scores, full) else float(np.corrcoef(scores, full)[0, 1])
    return {
        "records": len(scores),
        "spearman": spearman(scores, full)[0],
        "pearson": pearson,
        "drop_fraction": fraction,
        "dropped": len(a),
        "dropped_full": len(b),
        "overlap": both / len(a) if a else np.nan,
        "overlap_by_chance": len(b) / len(full) if a else np.nan,
        "jaccard": both / len(a | b) if a | b else np.nan,
    }


def dropped(scores: np.ndarray, fraction: float) -> set[int]:
    """The records that IIF drops at p = `fraction`."""
    return set(np.argsort(scores, kind="stable")[: number_dropped(scores, fraction)].tolist())
