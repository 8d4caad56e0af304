"""What is wrong with the records of most negative influence (figures 3, 8 and 9; claim 4 of the paper's section 4).

The paper's answer is that their advantage estimates are wrong: the estimate that trains (GAE) has the other sign than
the true advantage, or lies far from it. The true one is estimated as in the paper, by averages over the repeated
visits in the buffer or over fresh rollouts out of (s, a), and computed exactly where the environment has a tabular
model.

Sign convention. `spearman_product` is the rank correlation of *influence* with (true advantage) * (estimate). The
paper plots the product against the rank in *decreasing* influence (rank 1 = most positive) and calls that Spearman
strongly negative: it is the same number with the opposite sign (`spearman_product_by_rank`). So a positive
`spearman_product` is what supports the paper: helpful records have advantages of the right sign, harmful ones do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from rl_influence import seeding, snapshots
from rl_influence.analysis.statistics import mean_columns, spearman
from rl_influence.analysis.true_advantages import (
    RecordStates,
    exact_advantages,
    monte_carlo_advantages,
    record_states,
    rollout_advantages,
)
from rl_influence.config import ConfigError, RunSpec
from rl_influence.environments import make_env
from rl_influence.environments.tabular import TabularModel, policy_probabilities, tabular_model
from rl_influence.snapshots import Snapshot

TABLES = ("diagnosis",)
SOURCES = ("buffer", "rollouts", "exact")
BOTTOM = 100  # records, as in the paper's figures


def _leg(number: int) -> tuple[str, ...]:
    joints = [f"{joint}{number}_{what}" for joint in ("hip", "knee") for what in ("angle", "speed")]
    return (*joints, f"contact{number}")


STATE_NAMES = {
    "Acrobot-v1": ("cos1", "sin1", "cos2", "sin2", "velocity1", "velocity2"),
    "LunarLander-v3": ("x", "y", "vx", "vy", "angle", "angular_velocity", "contact1", "contact2"),
    "BipedalWalker-v3": (
        *("hull_angle", "hull_angular_velocity", "vx", "vy"),
        *(*_leg(1), *_leg(2)),
        *(f"lidar{ray}" for ray in range(10)),
    ),
    "highway-v0": tuple(
        f"{car}_{what}" for car in ("ego", "car1", "car2", "car3", "car4") for what in ("here", "x", "y", "vx", "vy")
    ),
}


def analyse(spec: RunSpec, directory: Path, rounds: Sequence[int]) -> dict[str, pd.DataFrame]:
    """`diagnose` each of these rounds of a run; `directory` holds their snapshots."""
    return {"diagnosis": pd.concat([diagnose(snapshots.load(directory, k)) for k in rounds], ignore_index=True)}


def model_and_states(snapshot: Snapshot) -> tuple[TabularModel, RecordStates]:
    """The environment's exact model and the state of every record in it.

    Raises:
        ConfigError: if the environment has no exact model.
    """
    model = tabular_model(make_env(snapshot.spec.environment))
    actions = snapshot.episode_actions
    first = replay(model, actions)
    return model, record_states(model, snapshot.records, initial_state=first, initial_step=len(actions))


def replay(model: TabularModel, actions: Sequence[int]) -> int | None:
    """The state that an episode is in after these actions; None if more than one is possible."""
    possible = set(np.flatnonzero(model.start).tolist())
    for action in actions:
        goes_on = (model.probabilities[:, action] > 0) & ~model.terminated[:, action]
        possible = {int(s) for state in possible for s in model.next_states[state, action][goes_on[state]]}
    return next(iter(possible)) if len(possible) == 1 else None


def true_advantages(snapshot: Snapshot, source: str, *, rollouts: int = 100) -> np.ndarray:
    """True advantages A(s, a) of the policy that collected the buffer, (n,).

    Args:
        source: `buffer` (averages over repeated visits), `rollouts` (fresh ones, on the tabular model) or `exact`.
        rollouts: out of each (s, a) and each s.

    Raises:
        ConfigError: for another source, or an environment without a tabular model.
    """
    gamma = snapshot.spec.ppo.gamma
    if source == "buffer":
        return monte_carlo_advantages(snapshot.records, gamma=gamma)
    if source not in SOURCES:
        raise ConfigError(f"source {source!r} of true advantages is unknown; choices: {', '.join(SOURCES)}")
    model, (states, steps, *_) = model_and_states(snapshot)
    arguments = model, policy_probabilities(snapshot.policy(), model), states, snapshot.records.actions, steps
    if source == "exact":
        return exact_advantages(*arguments, gamma=gamma)
    generator = seeding.generator(snapshot.spec.seed, "diagnosis", snapshot.round)
    return rollout_advantages(*arguments, gamma=gamma, rollouts=rollouts, generator=generator)


def advantage_errors(influence: np.ndarray, estimated: np.ndarray, true: np.ndarray) -> pd.DataFrame:
    """One row per record, by rank in decreasing influence (ties by index).

    Returns:
        rank (1 = most positive influence), record, influence, estimated, true, error (|true - estimated|), product,
        sign_agrees (False for opposite signs; nan where an advantage is 0).
    """
    order = np.argsort(-np.asarray(influence), kind="stable")
    estimated, true = np.asarray(estimated, dtype=float)[order], np.asarray(true, dtype=float)[order]
    signs = np.sign(estimated) * np.sign(true)
    return pd.DataFrame(
        {
            "rank": np.arange(1, len(order) + 1),
            "record": order,
            "influence": np.asarray(influence)[order],
            "estimated": estimated,
            "true": true,
            "error": np.abs(true - estimated),
            "product": true * estimated,
            "sign_agrees": np.where(signs == 0, np.nan, signs > 0),
        }
    )


def by_rank(errors: pd.DataFrame, bins: int = 32) -> pd.DataFrame:
    """Means of `advantage_errors` over bins of equal size along the rank: error, product and sign agreement.

    Returns:
        Rows with first_rank, last_rank, records, influence, error, product, sign_agreement (share of the records where
        both advantages have a sign; nan if none has).
    """
    groups = np.array_split(np.arange(len(errors)), min(bins, len(errors)))
    rows = [errors.iloc[group] for group in groups]
    return pd.DataFrame(
        {
            "first_rank": [part["rank"].iloc[0] for part in rows],
            "last_rank": [part["rank"].iloc[-1] for part in rows],
            "records": [len(part) for part in rows],
            "influence": [part.influence.mean() for part in rows],
            "error": [part.error.mean() for part in rows],
            "product": [part["product"].mean() for part in rows],
            "sign_agreement": [part.sign_agrees.mean() for part in rows],
        }
    )


def summary(errors: pd.DataFrame, bottom: int = BOTTOM) -> dict[str, float]:
    """A round's numbers: correlations with influence, and the bottom records beside all of them.

    Returns:
        records, spearman_product and spearman_product_by_rank (see the module's description), spearman_error
        (influence with |true - estimated|; negative supports the paper), and error and sign_agreement of all and of
        the `bottom` records of most negative influence. nan where undefined.
    """
    worst = errors.tail(bottom)
    product = spearman(errors.influence, errors["product"])[0]
    return {
        "records": len(errors),
        "spearman_product": product,
        "spearman_product_by_rank": -product,
        "spearman_error": spearman(errors.influence, errors.error)[0],
        "error": errors.error.mean(),
        "error_bottom": worst.error.mean(),
        "sign_agreement": errors.sign_agrees.mean(),
        "sign_agreement_bottom": worst.sign_agrees.mean(),
    }


def diagnose(
    snapshot: Snapshot, sources: Sequence[str] = SOURCES, *, rollouts: int = 100, bottom: int = BOTTOM
) -> pd.DataFrame:
    """`summary` of one round for each source of true advantages, with round and source."""
    influence, estimated = snapshot.influence(), snapshot.records.advantages
    rows = []
    for source in sources:
        errors = advantage_errors(influence, estimated, true_advantages(snapshot, source, rollouts=rollouts))
        rows.append({"round": snapshot.round, "source": source} | summary(errors, bottom))
    return pd.DataFrame(rows)


def over_seeds(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Means over seeds, with 95 % t intervals, of the table `diagnosis` of all runs, by round and source.

    n counts the seeds; measures that are undefined for one of them are means of the others.
    """
    rows, keys = tables["diagnosis"], ["environment", "method", "round", "source"]
    measures = [column for column in rows.columns if column not in (*keys, "seed", "records")]
    found = []
    for key, group in rows.groupby(keys, sort=False):
        row = dict(zip(keys, key, strict=True)) | {"n": len(group)}
        for measure in measures:
            row |= mean_columns(measure, group[measure].dropna())
        found.append(row)
    return pd.DataFrame(found)


SUMMARIES = {"diagnosis_summary": over_seeds}


def extreme_records(snapshot: Snapshot, scores: np.ndarray | None = None, *, number: int = BOTTOM) -> pd.DataFrame:
    """The records of most positive and most negative influence, readable.

    Args:
        scores: (n,); default those of IIF.

    Returns:
        `Snapshot.table` with influence, end (`top` or `bottom`) and place (1 = the most extreme), and, instead of the
        observation, the state by name: row and column, or x, y and direction, where there is an exact model; the
        quantities that the vector holds; frames stay in the snapshot (`records.observations[record]`).
    """
    scores = snapshot.influence() if scores is None else scores
    table = snapshot.table().assign(influence=scores)
    names = STATE_NAMES.get(snapshot.spec.environment.gym_id, ())
    vectors = snapshot.records.observations.reshape(len(scores), -1)
    state = pd.DataFrame(vectors, columns=names) if len(names) == vectors.shape[1] else _labels(snapshot)
    if state is not None:
        table = pd.concat([table.drop(columns="observation", errors="ignore"), state], axis=1)
    order = np.argsort(-scores, kind="stable")
    number = min(number, len(order))
    parts = {"top": order[:number], "bottom": order[::-1][:number]}
    return pd.concat(
        [table.iloc[chosen].assign(end=end, place=range(1, number + 1)) for end, chosen in parts.items()],
        ignore_index=True,
    )


def bottom_on_grid(
    snapshot: Snapshot, scores: np.ndarray | None = None, *, number: int = BOTTOM, true: np.ndarray | None = None
) -> pd.DataFrame:
    """The bottom records (of negative influence) gathered by state and action, for arrows on the grid (figure 3a).

    Args:
        scores: (n,); default those of IIF.
        number: how many records of most negative influence.
        true: (n,) true advantages; default exact.

    Returns:
        Rows with the state (row and column, or x, y and direction), action, records, influence (sum), estimated and
        true (mean advantages), positive (share of the records with a positive estimate: green in the paper, else
        red).
    """
    scores = snapshot.influence() if scores is None else scores
    true = true_advantages(snapshot, "exact") if true is None else true
    labels = _labels(snapshot)
    if labels is None:
        raise ConfigError(f"environment {snapshot.spec.environment.id}: there is no grid to gather its records on")
    frame = labels.assign(
        action=snapshot.records.actions, influence=scores, estimated=snapshot.records.advantages, true=true
    )
    bottom = frame.iloc[np.argsort(scores, kind="stable")[:number]]
    bottom = bottom[bottom.influence < 0]
    groups = bottom.groupby([*labels.columns, "action"], sort=True)
    return groups.agg(
        records=("influence", "size"),
        influence=("influence", "sum"),
        estimated=("estimated", "mean"),
        true=("true", "mean"),
        positive=("estimated", lambda values: (values > 0).mean()),
    ).reset_index()


def _labels(snapshot: Snapshot) -> pd.DataFrame | None:
    """Each record's state by the names of the exact model, or None without one."""
    try:
        model, (states, *_) = model_and_states(snapshot)
    except ConfigError:
        return None
    labels = model.labels[states]
    return pd.DataFrame(labels, columns=["row", "column"] if labels.shape[1] == 2 else ["x", "y", "direction"])
