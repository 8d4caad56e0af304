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

import base64
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from rl_influence import seeding
from rl_influence.analysis.registry import ANALYSES
from rl_influence.analysis.statistics import over_seeds, spearman
from rl_influence.config import ConfigError, RunSpec
from rl_influence.environments.tabular import TabularModel, policy_probabilities
from rl_influence.evaluation.returns import exact_model
from rl_influence.evaluation.true_advantages import (
    RecordStates,
    check_observations,
    exact_advantages,
    monte_carlo_advantages,
    record_states,
    replay,
    rollout_advantages,
)
from rl_influence.runs import snapshots
from rl_influence.runs.snapshots import Snapshot

TILES = ("floor", "start", "hole", "goal")  # the later ones count where several do
SOURCES = ("buffer", "rollouts", "exact")
BOTTOM = 100  # records, as in the paper's figures
SHOWN = 10  # records of each end that are listed one by one
MOST_ROLLOUTS, FEWEST_ROLLOUTS = 100, 4  # out of each place
TOTAL_ROLLOUTS = 20_000  # out of all places of a buffer; a few have more each, many have fewer
FRAME = (4, 84, 84)  # Atari observations: stacked frames, the last one shown


_LEG = ("hip{}_angle", "hip{}_speed", "knee{}_angle", "knee{}_speed", "contact{}")
STATE_NAMES = {
    "Acrobot-v1": ("cos1", "sin1", "cos2", "sin2", "velocity1", "velocity2"),
    "LunarLander-v3": ("x", "y", "vx", "vy", "angle", "angular_velocity", "contact1", "contact2"),
    "BipedalWalker-v3": (
        *("hull_angle", "hull_angular_velocity", "vx", "vy"),
        *(name.format(leg) for leg in (1, 2) for name in _LEG),
        *(f"lidar{ray}" for ray in range(10)),
    ),
    "highway-v0": tuple(
        f"{car}_{what}" for car in ("ego", "car1", "car2", "car3", "car4") for what in ("here", "x", "y", "vx", "vy")
    ),
}


def analyse(spec: RunSpec, directory: Path, rounds: Sequence[int]) -> dict[str, pd.DataFrame]:
    """What is wrong with the bottom records of these rounds of a run; `directory` holds their snapshots.

    Returns:
        - diagnosis: `summary` by round and source of true advantages (only `buffer` without an exact model);
        - diagnosis_by_rank: `by_rank`, likewise;
        - diagnosis_grid: `bottom_on_grid` by round, and diagnosis_map: `map_tiles`; no rows without an exact model;
        - diagnosis_records: `extreme_records` by round, with the mean and the standard deviation of the whole buffer as
          further ends; Atari frames as PNG files in base64.
    """
    found = {name: [] for name in ANALYSES["diagnosis"].tables}
    model = _model(spec)
    for k in rounds:
        snapshot = snapshots.load(directory, k)
        influence, estimated = snapshot.influence(), snapshot.records.advantages
        true = {source: true_advantages(snapshot, source) for source in (SOURCES if model else SOURCES[:1])}
        for source, advantages in true.items():
            errors = advantage_errors(influence, estimated, advantages)
            found["diagnosis"].append(_at(pd.DataFrame([summary(errors)]), round=k, source=source))
            found["diagnosis_by_rank"].append(_at(by_rank(errors), round=k, source=source))
        if model:
            found["diagnosis_grid"].append(_at(bottom_on_grid(snapshot, influence, true["exact"]), round=k))
        found["diagnosis_records"].append(_at(_listed(snapshot, influence), round=k))
    if model:
        found["diagnosis_map"].append(map_tiles(model))
    none = pd.DataFrame(columns=["x", "y"])
    return {name: pd.concat(parts, ignore_index=True) if parts else none for name, parts in found.items()}


def _at(table: pd.DataFrame, **place) -> pd.DataFrame:
    return pd.concat([pd.DataFrame(place, index=table.index), table], axis=1)


def _model(spec: RunSpec) -> TabularModel | None:
    try:
        model = exact_model(spec.environment)
        check_observations(model)
    except ConfigError:
        return None
    return model if spec.ppo.gamma < 1 else None


def _listed(snapshot: Snapshot, influence: np.ndarray) -> pd.DataFrame:
    """`SHOWN` records of both ends, and, where the state is a vector of named quantities, the mean and the standard
    deviation of these, the actions and the advantage over the whole buffer."""
    observations = snapshot.records.observations
    table = extreme_records(snapshot, influence, number=len(influence)).drop(columns="observation", errors="ignore")
    described = [name for name in STATE_NAMES.get(snapshot.spec.environment.gym_id, ()) if name in table]
    if snapshot.records.actions.ndim > 1:
        actions = pd.DataFrame(table.pop("action").tolist()).add_prefix("action")
        table = pd.concat([table, actions], axis=1)
        described += list(actions)
    shown = table[table["place"] <= SHOWN]
    if observations.shape[1:] == FRAME:
        shown = shown.assign(frame=[_png(observations[i][-1]) for i in shown["record"]])
    if described:
        all_records = table.loc[table["end"] == "top", [*described, "advantage"]]
        ends = [getattr(all_records, what)().to_frame().T.assign(end=what) for what in ("mean", "std")]
        shown = pd.concat([shown, *ends], ignore_index=True)
    return shown


def _png(frame: np.ndarray) -> str:
    """A grey picture as a PNG file in base64."""
    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def map_tiles(model: TabularModel) -> pd.DataFrame:
    """The floor of a grid world: x, y and tile, row by row; walls are no states, a goal ends an episode with a reward
    and a hole without."""
    places = model.labels[:, ::-1] if model.labels.shape[1] == 2 else model.labels[:, :2]  # row, column or x, y, way
    ends = model.terminated & (model.probabilities > 0)
    kinds = np.zeros(len(places), dtype=int)
    kinds[np.flatnonzero(model.start)] = TILES.index("start")
    for tile, rewarded in (("hole", False), ("goal", True)):  # a reached goal gives nothing more, and is a goal still
        kinds[model.next_states[ends & ((model.rewards > 0) == rewarded)]] = TILES.index(tile)
    table = pd.DataFrame(places, columns=["x", "y"]).assign(tile=kinds)
    table = table.groupby(["y", "x"], as_index=False)["tile"].max()  # several states may be at one place
    return table.assign(tile=np.array(TILES)[table["tile"]])[["x", "y", "tile"]]


def model_and_states(snapshot: Snapshot) -> tuple[TabularModel, RecordStates]:
    """The environment's exact model (`ConfigError` without one) and the state of every record in it."""
    model = exact_model(snapshot.spec.environment)
    actions = snapshot.episode_actions
    first = replay(model, actions)
    return model, record_states(model, snapshot.records, initial_state=first, initial_step=len(actions))


def true_advantages(snapshot: Snapshot, source: str) -> np.ndarray:
    """True advantages A(s, a) of the policy that collected the buffer, (n,), from `source`: `buffer` (averages over
    repeated visits), `rollouts` (fresh ones on the tabular model: 100 out of each (s, a) and each s, or fewer, but at
    least 4, where there are many of them) or `exact`. `ConfigError` for another one, or an environment without a
    tabular model."""
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
    places = len(np.unique(states if model.reward_slope == 0 else [states, steps], axis=-1).T)
    rollouts = min(max(TOTAL_ROLLOUTS // places, FEWEST_ROLLOUTS), MOST_ROLLOUTS)
    return rollout_advantages(*arguments, gamma=gamma, rollouts=rollouts, generator=generator)


def advantage_errors(influence: np.ndarray, estimated: np.ndarray, true: np.ndarray) -> pd.DataFrame:
    """One row per record by rank in decreasing influence (1 = most positive, ties by index): rank, record, influence,
    estimated, true, error (|true - estimated|), product, sign_agrees (False for opposite signs; nan where an advantage
    is 0)."""
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
    """Means of `advantage_errors` over bins of equal size along the rank; sign_agreement is the share of the records
    where both advantages have a sign (nan if none has)."""
    parts = np.array_split(np.arange(len(errors)), min(bins, len(errors)))
    bins_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return errors.groupby(bins_of).agg(
        first_rank=("rank", "first"),
        last_rank=("rank", "last"),
        records=("rank", "size"),
        influence=("influence", "mean"),
        error=("error", "mean"),
        product=("product", "mean"),
        sign_agreement=("sign_agrees", "mean"),
    )


def summary(errors: pd.DataFrame, bottom: int = BOTTOM) -> dict[str, float]:
    """A round's numbers (nan where undefined): correlations with influence, see the module's description (a negative
    one with |true - estimated| supports the paper), and error and sign agreement of all records and of the `bottom`
    ones of most negative influence."""
    worst = errors.tail(bottom)
    product = spearman(errors.influence, errors["product"])
    return {
        "records": len(errors),
        "spearman_product": product,
        "spearman_product_by_rank": -product,
        "spearman_error": spearman(errors.influence, errors.error),
        "error": errors.error.mean(),
        "error_bottom": worst.error.mean(),
        "sign_agreement": errors.sign_agrees.mean(),
        "sign_agreement_bottom": worst.sign_agrees.mean(),
    }


SUMMARIES = {
    "diagnosis_summary": lambda tables: over_seeds(
        tables["diagnosis"],
        ("environment", "method", "round", "source"),
        [name for measure in ("spearman", "error", "sign") for name in tables["diagnosis"] if name.startswith(measure)],
    ),
    "diagnosis_by_rank_summary": lambda tables: over_seeds(
        tables["diagnosis_by_rank"],
        ("environment", "method", "round", "source", "first_rank", "last_rank"),
        ("error", "product", "sign_agreement"),
    ),
}


def extreme_records(snapshot: Snapshot, scores: np.ndarray, *, number: int = BOTTOM) -> pd.DataFrame:
    """The records of most positive and most negative influence (n,), readable: `Snapshot.table` with influence, end
    (`top` or `bottom`), place (1 = the most extreme), and, instead of the observation, the state by name: row and
    column, or x, y and direction, where there is an exact model; the quantities that the vector holds. Frames stay in
    the snapshot."""
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


def bottom_on_grid(snapshot: Snapshot, scores: np.ndarray, true: np.ndarray, *, number: int = BOTTOM) -> pd.DataFrame:
    """The bottom records (of negative influence) gathered by state and action, for arrows on the grid (figure 3a): the
    state (row and column, or x, y and direction), action, records, influence (sum), estimated and true (mean
    advantages), positive (share of the records with a positive estimate). `scores` and `true`: influence and true
    advantages, (n,)."""
    labels, records = _labels(snapshot), snapshot.records
    frame = labels.assign(action=records.actions, influence=scores, estimated=records.advantages, true=true)
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
