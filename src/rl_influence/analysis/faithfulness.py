"""Do influence scores predict what removing records does? The linear datamodelling score (Park et al. 2023), for PPO;
the paper does not report it.

Sets of records are removed, the round is redone from theta^(k) without them, and the true outcome is measured:
f_return (on the whole buffer, the target that the scores are made for) and the test return. A scoring predicts that a
set's removal lowers the outcome by the sum of its scores, up to a factor; the datamodelling score is the Spearman
correlation of prediction and outcome over the sets. Random sets have one size, so that the number of updates is no
hint; groups (all records of a state and action, or of an episode) differ in size, and their size is a baseline of its
own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import stats

from rl_influence import seeding
from rl_influence.analysis import statistics
from rl_influence.analysis.statistics import spearman
from rl_influence.attribution import FReturn
from rl_influence.config import RunSpec
from rl_influence.evaluation.returns import evaluate
from rl_influence.ppo.records import distinct_observations
from rl_influence.runs import snapshots
from rl_influence.runs.snapshots import Snapshot

OUTCOMES = ("f_return", "test_return")
SUBSETS, FRACTION, GROUPS, ORDERS = 40, 0.5, 20, 2  # a round is redone (SUBSETS + GROUPS) * ORDERS times
RESAMPLES = 2000  # of the bootstrap over sets


def faithfulness(snapshot: Snapshot) -> pd.DataFrame:
    """Datamodelling scores of several scorings of one round, for `SUBSETS` random sets of `FRACTION` of the records and
    for the `GROUPS` largest groups: round, removal (`subsets` or `groups`) and the columns of
    `datamodelling_scores`."""
    spec, n = snapshot.spec, len(snapshot.records)
    _, random, sets, bootstrap = seeding.seed_sequence(spec.seed, "faithfulness", snapshot.round).spawn(4)
    scorings = score_table(snapshot, np.random.default_rng(random))
    subsets = random_subsets(n, SUBSETS, FRACTION, np.random.default_rng(sets))
    parts = []
    for removal, removed, more in (
        ("subsets", subsets, {}),
        ("groups", record_groups(snapshot)[:GROUPS], {"number of records": np.ones(n)}),
    ):
        outcomes, generator = removal_outcomes(snapshot, removed), np.random.default_rng(bootstrap)
        table = datamodelling_scores(outcomes, removed, scorings | more, generator=generator)
        table.insert(0, "round", snapshot.round)
        table.insert(1, "removal", removal)
        parts.append(table)
    return pd.concat(parts, ignore_index=True)


def random_subsets(n: int, number: int, fraction: float, generator: np.random.Generator) -> list[np.ndarray]:
    """`number` random sets of round(fraction * n) of n records, each sorted; `ValueError` if that leaves nothing to
    remove or nothing to train on."""
    size = round(fraction * n)
    if not 0 < size < n:
        raise ValueError(f"fraction {fraction} of {n} records removes {size}; at least 1 must go and 1 must stay")
    return [np.sort(generator.choice(n, size, replace=False)) for _ in range(number)]


def record_groups(snapshot: Snapshot) -> list[np.ndarray]:
    """Records that belong together, largest group first: those of one observation and action where observations repeat
    (grids with few actions), else those of one episode."""
    records = snapshot.records
    distinct, row = distinct_observations(records.observations)
    if len(distinct) < len(records) and records.actions.ndim == 1:
        keys = np.stack([row, records.actions], axis=1)
    else:
        keys = snapshot.table()[["episode"]].to_numpy()
    _, group = np.unique(keys, axis=0, return_inverse=True)
    members = [np.flatnonzero(group == number) for number in range(group.max() + 1)]
    return sorted(members, key=len, reverse=True)


def removal_outcomes(snapshot: Snapshot, removals: Sequence[np.ndarray]) -> pd.DataFrame:
    """Redoes the round without each set of records, in `ORDERS` mini-batch orders: set (number), order,
    records_removed, updates, f_return and test_return after the redone round. Test episodes (if not exact) are the same
    for all sets."""
    spec, n = snapshot.spec, len(snapshot.records)
    target = FReturn(snapshot.records)
    episodes = seeding.integer(seeding.seed_sequence(spec.seed, "faithfulness", snapshot.round).spawn(1)[0])
    rows = []
    for number, removed in enumerate(removals):
        kept = np.setdiff1d(np.arange(n), removed)
        for order in range(ORDERS):
            learner, updates = snapshot.redo(kept, order=order)
            with torch.no_grad():
                f_return = float(target(learner.policy))
            test_return = evaluate(learner.policy, spec.environment, spec.evaluation, episodes).mean
            rows.append((number, order, n - len(kept), updates, f_return, test_return))
    return pd.DataFrame(rows, columns=["set", "order", "records_removed", "updates", *OUTCOMES])


def score_table(snapshot: Snapshot, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Scorings of the records by name, (n,) each: influence three ways, and baselines."""
    records, target = snapshot.records, FReturn(snapshot.records)
    td_error = records.rewards + snapshot.spec.ppo.gamma * records.next_values * ~records.terminated - records.values
    return {
        "TracIn, full": snapshot.tracin(target, kept=np.arange(len(records))),
        "start of round": snapshot.influence_on(target),
        "start of round, normalised": snapshot.influence_on(target, advantages=snapshot.normalized_advantages()),
        "|advantage|": np.abs(records.advantages),
        "|TD error|": np.abs(td_error),
        "random": generator.standard_normal(len(records)),
    }


def datamodelling_scores(
    outcomes: pd.DataFrame,
    removals: Sequence[np.ndarray],
    scorings: Mapping[str, np.ndarray],
    *,
    generator: np.random.Generator,
) -> pd.DataFrame:
    """Spearman correlation, over the removed sets, of the outcome with minus the sum of the removed records' scores.

    `outcomes` (see `removal_outcomes`) are averaged over their orders. low and high are a 95 % bootstrap over sets;
    reliability is the Spearman correlation of the outcome between even and odd orders (nan for one order): no scoring
    can be expected to do much better.
    """
    orders = outcomes["order"].nunique()
    draws = generator.integers(len(removals), size=(RESAMPLES, len(removals)))
    rows = []
    for outcome in OUTCOMES:
        by_order = outcomes.pivot(index="set", columns="order", values=outcome).to_numpy()
        measured = by_order.mean(1)
        reliability = spearman(by_order[:, ::2].mean(1), by_order[:, 1::2].mean(1)) if orders > 1 else np.nan
        for name, values in scorings.items():
            predicted = np.array([-values[removed].sum(dtype=np.float64) for removed in removals])
            rho, low, high = spearman(predicted, measured), np.nan, np.nan
            if not np.isnan(rho):
                low, high = np.nanquantile(rank_correlations(predicted[draws], measured[draws]), [0.025, 0.975])
            rows.append((outcome, name, rho, low, high, len(removals), orders, reliability))
    columns = ["outcome", "scoring", "spearman", "low", "high", "sets", "orders", "reliability"]
    return pd.DataFrame(rows, columns=columns)


def rank_correlations(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Spearman correlation of each row of x with the same row of y; nan where a row is constant."""
    x, y = (stats.rankdata(values, axis=1) for values in (x, y))
    x, y = (ranks - ranks.mean(1, keepdims=True) for ranks in (x, y))
    norm = np.sqrt((x**2).sum(1) * (y**2).sum(1))
    return np.divide((x * y).sum(1), norm, out=np.full(len(x), np.nan), where=norm > 0)


def analyse(spec: RunSpec, directory: Path, rounds: Sequence[int]) -> dict[str, pd.DataFrame]:
    """`faithfulness` of these rounds, whose snapshots `directory` holds."""
    return {"faithfulness": pd.concat([faithfulness(snapshots.load(directory, k)) for k in rounds], ignore_index=True)}


def over_seeds(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """`statistics.over_seeds` of the table `faithfulness` of all runs, with sets, orders and the mean reliability."""
    keys = ["environment", "method", "round", "removal", "outcome", "scoring"]
    more = tables["faithfulness"].groupby(keys, sort=False)
    more = more.agg({"sets": "first", "orders": "first", "reliability": "mean"}).reset_index(drop=True)
    return pd.concat([statistics.over_seeds(tables["faithfulness"], keys, ["spearman"]), more], axis=1)


SUMMARIES = {"faithfulness_summary": over_seeds}
