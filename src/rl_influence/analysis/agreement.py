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

from rl_influence.analysis.statistics import over_seeds, spearman
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


def agreement(snapshot: Snapshot) -> pd.DataFrame:
    """Start-of-round scores against full TracIn on f_return, and what both drop at the environment's p.

    One row per `shortcut`: advantages `raw`, or `normalised` as IIF's code does it. Beside the correlations: dropped
    (by the shortcut), dropped_full (by the full sum), overlap (share of the shortcut's drops that the full sum drops as
    well), overlap_by_chance (what a random set of that size would share), jaccard (of both sets).
    """
    full, target = snapshot.tracin(kept=np.arange(len(snapshot.records))), FReturn(snapshot.records)
    fraction = snapshot.spec.environment.drop_percent / 100
    rows = []
    for shortcut, advantages in (("raw", None), ("normalised", snapshot.normalized_advantages())):
        scores = snapshot.influence_on(target, advantages=advantages)
        rows.append({"round": snapshot.round, "shortcut": shortcut} | compare(scores, full, fraction))
    return pd.DataFrame(rows)


def compare(scores: np.ndarray, full: np.ndarray, fraction: float) -> dict[str, float]:
    """Correlations of two scorings of the same records, and the overlap of what they drop at p = `fraction`."""
    a, b = (set(np.argsort(x, kind="stable")[: number_dropped(x, fraction)].tolist()) for x in (scores, full))
    both, rho = len(a & b), spearman(scores, full)
    return {
        "records": len(scores),
        "spearman": rho,
        "pearson": np.nan if np.isnan(rho) else float(np.corrcoef(scores, full)[0, 1]),
        "drop_fraction": fraction,
        "dropped": len(a),
        "dropped_full": len(b),
        "overlap": both / len(a) if a else np.nan,
        "overlap_by_chance": len(b) / len(full) if a else np.nan,
        "jaccard": both / len(a | b) if a | b else np.nan,
    }
