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
from rl_influence.config import EvaluationConfig, RunSpec
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


def single_round(snapshot: Snapshot, *, repeats: int = 1, evaluation: EvaluationConfig | None = None) -> pd.DataFrame:
    """Test return before and after the round under each arm.

    Args:
        snapshot: of any method; the scores are those of `Snapshot.influence`.
        repeats: draws of the random arms.
        evaluation: default the run's own.

    Returns:
        Rows with round, arm (`all`, `negative`, `random`, and `negative_p`, `random_p` for the
        environment's p), repeat, records_removed, updates, return_before, return_after, delta (after - before),
        se_before and se_after (0 if exact).
    """
    spec, n = snapshot.spec, len(snapshot.records)
    episodes, removal = seeding.seed_sequence(spec.seed, "intervention", snapshot.round).spawn(2)
    episodes, removal = seeding.integer(episodes), np.random.default_rng(removal)

    def test_return(policy):
        return evaluate(policy, spec.environment, evaluation or spec.evaluation, episodes)

    scores = snapshot.influence()
    arms = [("all", 0, np.arange(n))]
    for suffix, fraction in (("", 1.0), ("_p", spec.environment.drop_percent / 100)):
        kept = drop_most_negative(scores, fraction)
        arms.append((f"negative{suffix}", 0, kept))
        for repeat in range(repeats):
            arms.append((f"random{suffix}", repeat, np.sort(removal.choice(n, len(kept), replace=False))))
    before = test_return(snapshot.policy())
    rows = []
    for arm, repeat, kept in arms:
        learner, updates = snapshot.redo(kept)
        after = test_return(learner.policy)
        rows.append(
            {
                "round": snapshot.round,
                "arm": arm,
                "repeat": repeat,
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


def analyse(spec: RunSpec, directory: str | Path, rounds: Sequence[int]) -> dict[str, pd.DataFrame]:
    """`single_round` of every round, one draw of each random arm, at most `EPISODES` test episodes.

    Args:
        directory: holds the snapshots of these rounds.

    Returns:
        interventions: round, arm, repeat, records_removed, updates, return_before, return_after, delta, se_before,
        se_after.
    """
    episodes = min(EPISODES, spec.evaluation.episodes)
    evaluation = spec.evaluation.model_copy(update={"episodes": episodes})
    parts = [single_round(snapshots.load(directory, k), evaluation=evaluation) for k in rounds]
    return {"interventions": pd.concat(parts, ignore_index=True)}


def over_seeds(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """What removing records of negative influence does to a round, from the table `interventions` of all runs.

    Returns:
        Rows with environment, method, arm, minus, n (seeds), difference (of delta, paired by round and averaged within
        each seed: mean, standard deviation and t interval over seeds), rounds (of all seeds together), ahead
        (share of these rounds in which the arm has the higher return; ties count half).
    """
    rows = []
    for place, table in tables["interventions"].groupby(["environment", "method"], sort=False):
        deltas = table.groupby(["seed", "round", "arm"], sort=False)["delta"].mean().unstack("arm")
        for arm, minus in COMPARISONS:
            differences = deltas[arm] - deltas[minus]
            seeds = differences.groupby("seed").mean()
            row = dict(zip(("environment", "method", "arm", "minus"), (*place, arm, minus), strict=True))
            row |= {"n": len(seeds)} | mean_columns("difference", seeds)
            rows.append(row | {"rounds": len(differences), "ahead": (1 + np.sign(differences)).mean() / 2})
    return pd.DataFrame(rows)


SUMMARIES = {"interventions_summary": over_seeds}
