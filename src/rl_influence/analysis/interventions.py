"""Single-round interventions (figures 5 and 11): each round on its own, trained again without some of its records.

A round is redone from theta^(k) on its own buffer with all records, without those of negative influence (all of them,
and the most negative share p as IIF drops them), and without as many random ones. Everything else is the same in all
of them: parameters, optimiser, mini-batch stream, test episodes. Fewer records also mean fewer updates; random
removal shares that.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from rl_influence import seeding
from rl_influence.config import EvaluationConfig
from rl_influence.evaluation import evaluate
from rl_influence.selection import drop_most_negative
from rl_influence.snapshots import Snapshot


def single_round(
    snapshot: Snapshot, *, repeats: int = 1, evaluation: EvaluationConfig | None = None
) -> pd.DataFrame:
    """Test return before and after the round under each arm.

    Args:
        snapshot: of any method; the scores are those of `Snapshot.influence`.
        repeats: draws of the random arms.
        evaluation: default the run's own.

    Returns:
        Rows with environment, seed, round, arm (`all`, `negative`, `random`, and `negative_p`, `random_p` for the
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
                "environment": spec.environment.id,
                "seed": spec.seed,
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
