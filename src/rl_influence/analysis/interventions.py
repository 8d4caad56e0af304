"""Single-round interventions (figures 5 and 11): each round on its own, trained again without some of its records.

A round is redone from theta^(k) on its own buffer with all records, without those of negative influence (all of them,
and the most negative share p as IIF drops them), and without as many random ones. Everything else is the same in all
of them: parameters, optimiser, mini-batch stream, test episodes. Fewer records also mean fewer updates; random
removal shares that.

As an analysis of the workflow, sampled test returns have fewer episodes than a curve's: every round needs six of them.
All arms of a round play the same episodes (common random numbers), so what the sample adds to a difference of two arms
is less than their standard errors say.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from rl_influence import seeding
from rl_influence.analysis.statistics import mean_columns
from rl_influence.config import RunSpec
from rl_influence.evaluation.returns import evaluate
from rl_influence.runs import snapshots
from rl_influence.runs.snapshots import Snapshot
from rl_influence.selection import drop_most_negative

EPISODES = 200  # per test return where it is sampled; the paper has 1000
COMPARISONS = (  # what a removal is compared with: nothing removed, and as many removed at random
    ("negative", "all"),
    ("negative", "random"),
    ("negative_p", "all"),
    ("negative_p", "random_p"),
)


def single_round(snapshot: Snapshot) -> pd.DataFrame:
    """Test return before and after the round under each arm (`all`, `negative`, `random`, and `negative_p`, `random_p`
    for the environment's p), by the scores of `Snapshot.influence`. Standard errors are 0 if returns are exact; repeat
    is that of the arm's random draw: 0."""
    spec, n = snapshot.spec, len(snapshot.records)
    episodes, removal = seeding.seed_sequence(spec.seed, "intervention", snapshot.round).spawn(2)
    episodes, removal = seeding.integer(episodes), np.random.default_rng(removal)
    evaluation = spec.evaluation.model_copy(update={"episodes": min(EPISODES, spec.evaluation.episodes)})
    scores = snapshot.influence()
    arms = {"all": np.arange(n)}
    for suffix, fraction in (("", 1.0), ("_p", spec.environment.drop_percent / 100)):
        kept = arms[f"negative{suffix}"] = drop_most_negative(scores, fraction)
        arms[f"random{suffix}"] = np.sort(removal.choice(n, len(kept), replace=False))
    before = evaluate(snapshot.policy(), spec.environment, evaluation, episodes)
    rows = []
    for arm, kept in arms.items():
        learner, updates = snapshot.redo(kept)
        after = evaluate(learner.policy, spec.environment, evaluation, episodes)
        rows.append(
            {
                "round": snapshot.round,
                "arm": arm,
                "repeat": 0,
                "records_removed": n - len(kept),
                "updates": updates,
                "return_before": before.mean,
                "return_after": after.mean,
                "delta": after.mean - before.mean,
                "se_before": before.se,
                "se_after": after.se,
            }
        )
    return pd.DataFrame(rows)


def analyse(spec: RunSpec, directory: Path, rounds: Sequence[int]) -> dict[str, pd.DataFrame]:
    """`single_round` of these rounds, whose snapshots `directory` holds."""
    return {"interventions": pd.concat([single_round(snapshots.load(directory, k)) for k in rounds], ignore_index=True)}


def over_seeds(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """What removing records of negative influence does to a round, from the table `interventions` of all runs:
    difference (of delta, paired by round and averaged within each of n seeds: mean, standard deviation and t interval
    over seeds), rounds (of all seeds together), ahead (share of these rounds in which the arm has the higher return;
    ties count half)."""
    rows = []
    for place, table in tables["interventions"].groupby(["environment", "method"], sort=False):
        deltas = table.groupby(["seed", "round", "arm"], sort=False)["delta"].mean().unstack("arm")
        for arm, minus in COMPARISONS:
            differences = deltas[arm] - deltas[minus]
            seeds = differences.groupby("seed").mean()
            row = {"environment": place[0], "method": place[1], "arm": arm, "minus": minus, "n": len(seeds)}
            row |= mean_columns("difference", seeds)
            rows.append(row | {"rounds": len(differences), "ahead": (1 + np.sign(differences)).mean() / 2})
    return pd.DataFrame(rows)


SUMMARIES = {"interventions_summary": over_seeds}
