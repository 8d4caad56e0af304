"""How a behaviour is learned (figures 4 and 10): pi(a|s) of one state and action over the rounds, the roughness of the
records' influence on it, and the records that matter in each phase.

Nothing is chosen by eye. The target state is taken from the last buffer by the rule of its `Behaviour`; phases are the
pieces of the best piecewise constant fit of pi(a|s) (least squares); a phase is shown by its middle round. Influence
is that on f_action = log pi(a|s) at a round's start, with raw advantages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch

from rl_influence.analysis.diagnosis import extreme_records
from rl_influence.analysis.geometry import LANE, vehicles
from rl_influence.analysis.roughness import NEIGHBOURS, embeddings, roughness_table
from rl_influence.attribution import FAction
from rl_influence.config import ConfigError, RunSpec
from rl_influence.runs import snapshots

THIRDS = ("first", "middle", "last")
PHASES, SHORTEST = 3, 3  # phases of a behaviour, and how many rounds each has at least
TAILING_GAP = 30.0  # metres; at 25 m/s about a second behind
SWINGING = 2.0  # rad/s


@dataclass(frozen=True)
class Behaviour:
    """What to look at in an environment.

    Attributes:
        label, rule: for captions.
        action: the action whose probability is followed.
        measure: observations (n, dims) -> (n,), nan where the rule does not hold. The target state is the one of
            median measure (the lower one of two, ties by index).
    """

    label: str
    rule: str
    action: int
    measure: Callable[[np.ndarray], np.ndarray]


def tailing_gap(observations: np.ndarray) -> np.ndarray:
    """Metres to the nearest vehicle ahead in the own lane; nan unless it is at most 30 and shrinking.

    Observations are highway-env's Kinematics, see `geometry.vehicles`.
    """
    present, x, y, vx, _ = np.moveaxis(vehicles(observations)[:, 1:], -1, 0)
    ahead = (present > 0.5) & (x > 0) & (np.abs(y) < LANE / 2)
    gaps = np.where(ahead, x, np.inf)
    nearest = np.arange(len(gaps)), gaps.argmin(1)
    return np.where((gaps[nearest] <= TAILING_GAP) & (vx[nearest] < 0), gaps[nearest], np.nan)


def swing_velocity(observations: np.ndarray) -> np.ndarray:
    """Velocity of Acrobot's lower joint in rad/s; nan below 2."""
    velocity = observations[:, 5].astype(float)
    return np.where(velocity >= SWINGING, velocity, np.nan)


BEHAVIOURS = {  # by gym_id
    "highway-v0": Behaviour(
        label="slower while tailing",
        rule=f"nearest vehicle ahead in the own lane at most {TAILING_GAP:g} m away and getting closer; median gap",
        action=4,
        measure=tailing_gap,
    ),
    "Acrobot-v1": Behaviour(
        label="pushing with the swing",
        rule=f"lower joint swings forwards at {SWINGING:g} rad/s or more, torque with it adds energy; median velocity",
        action=2,
        measure=swing_velocity,
    ),
}


class Learned(NamedTuple):
    """How a behaviour was learned in one run."""

    target: dict  # label, rule, action, round and record that the state was taken from, observation (list)
    trajectory: pd.DataFrame  # round x number of neighbours: probability, sigma, nodes, edges, roughness
    phases: pd.DataFrame  # phase, first_round, last_round, shown_round, probability
    records: pd.DataFrame  # top records of each phase's shown round, with their observation (list)


def learned(
    directory: str | Path,
    *,
    rounds: Sequence[int] | None = None,
    behaviour: Behaviour | None = None,
    neighbours: Sequence[int] = NEIGHBOURS,
    phases: int = PHASES,
    number: int = 10,
) -> Learned:
    """Follows a behaviour through a run's snapshots.

    Args:
        directory: of the snapshots, with the final policy.
        rounds: default all of which there are snapshots.
        behaviour: default the environment's in `BEHAVIOURS`.
        neighbours: see `roughness.roughness_table`.
        phases: how many.
        number: top records per phase.

    Raises:
        ResultError: if snapshots or the final policy are missing.
        ConfigError: if the environment has no behaviour, no record of the last buffer follows its rule, or there are
            too few rounds for the phases.
    """
    directory = snapshots.folder(directory)
    final = snapshots.load_final(directory)
    rounds = snapshots.rounds_in(directory) if rounds is None else sorted(rounds)
    behaviour = behaviour or behaviour_of(final.spec.environment.gym_id)
    last = snapshots.load(directory, max(rounds, default=0))
    record = target_record(behaviour, last.records.observations)
    observation, action = last.records.observations[record], np.array(behaviour.action)
    target = FAction(observation, action)
    end = final.policy()

    parts, probabilities = [], []
    for k in rounds:
        snapshot = snapshots.load(directory, k)
        table = roughness_table(
            snapshot.influence_on(target), embeddings(end, snapshot.records.observations), neighbours=neighbours
        )
        probabilities.append(probability(snapshot.policy(), target))
        parts.append(table.assign(round=k, probability=probabilities[-1]))
    probabilities.append(probability(end, target))
    without_buffer = pd.DataFrame({"neighbours": neighbours, "round": final.round, "probability": probabilities[-1]})
    parts.append(without_buffer)
    trajectory = pd.concat(parts, ignore_index=True)

    rows, records = _phases(directory, [*rounds, final.round], probabilities, target, phases, number)
    columns = ["phase", "first_round", "last_round", "shown_round", "probability"]
    order = ["round", "probability", "neighbours", "sigma", "nodes", "edges", "roughness"]
    return Learned(
        target={name: getattr(behaviour, name) for name in ("label", "rule", "action")}
        | {"round": last.round, "record": record, "observation": observation.tolist()},
        trajectory=trajectory[order],
        phases=pd.DataFrame(rows, columns=columns),
        records=pd.concat(records, ignore_index=True),
    )


def _phases(
    directory: Path, ends: list[int], probabilities: list[float], target: FAction, phases: int, number: int
) -> tuple[list[tuple], list[pd.DataFrame]]:
    """Each phase with its rounds and mean probability, and its shown round's top records.

    Args:
        ends: the rounds, and the one of the final policy, which has no buffer.
        probabilities: of the behaviour's action at each of `ends`.
    """
    rows, records, starts = [], [], breakpoints(probabilities, phases)
    for phase, (first, after) in enumerate(zip(starts, [*starts[1:], len(probabilities)], strict=True), start=1):
        shown = ends[min((first + after - 1) // 2, len(ends) - 2)]
        rows.append((phase, ends[first], ends[after - 1], shown, float(np.mean(probabilities[first:after]))))
        snapshot = snapshots.load(directory, shown)
        table = extreme_records(snapshot, snapshot.influence_on(target), number=number)
        top = table[table.end == "top"]
        seen = [snapshot.records.observations[record].tolist() for record in top["record"]]
        records.append(top.assign(phase=phase, round=shown, observation=seen))
    return rows, records


def analyse(spec: RunSpec, directory: str | Path, rounds: Sequence[int]) -> dict[str, pd.DataFrame]:
    """How the environment's behaviour was learned in one run, as tables.

    Args:
        directory: holds the snapshots of these rounds and the final policy.
        rounds: too few of them for `PHASES` phases give fewer.

    Returns:
        - behaviour: per round and number of neighbours u: third (of the run's rounds: first, middle, last),
          probability, neighbours, sigma, nodes, edges, roughness (empty for the final policy, which has no buffer);
        - behaviour_phases: phase, first_round, last_round, shown_round, probability (mean);
        - behaviour_records: the records of most positive influence in each phase's shown round: phase, round, place,
          record, action, reward, advantage, influence, observation (a JSON list);
        - behaviour_targets: label, rule, action, round, record, observation of the target state; one row.

    Raises:
        ConfigError, ResultError: as `learned`.
    """
    found = learned(directory, rounds=rounds, phases=max(1, min(PHASES, (len(rounds) + 1) // SHORTEST)))
    third = np.minimum(len(THIRDS) * found.trajectory["round"] // spec.rounds, len(THIRDS) - 1)
    trajectory = found.trajectory.assign(third=np.array(THIRDS)[third])
    records = found.records.assign(observation=[_text(x) for x in found.records["observation"]])
    target = found.target | {"observation": _text(found.target["observation"])}
    measures = ["probability", "neighbours", "sigma", "nodes", "edges", "roughness"]
    fields = ["record", "action", "reward", "advantage", "influence", "observation"]
    return {
        "behaviour": trajectory[["round", "third", *measures]],
        "behaviour_phases": found.phases,
        "behaviour_records": records[["phase", "round", "place", *fields]],
        "behaviour_targets": pd.DataFrame([target]),
    }


def _text(observation: Sequence[float]) -> str:
    """A vector as JSON, six significant digits as in all tables."""
    return json.dumps([float(f"{x:.6g}") for x in observation])


def behaviour_of(gym_id: str) -> Behaviour:
    """The behaviour that is followed in an environment."""
    if gym_id not in BEHAVIOURS:
        raise ConfigError(f"no behaviour is defined for {gym_id}; choices: {', '.join(BEHAVIOURS)}, or give one")
    return BEHAVIOURS[gym_id]


def target_record(behaviour: Behaviour, observations: np.ndarray) -> int:
    """The record whose measure is the median among those that follow the behaviour's rule."""
    measure = behaviour.measure(observations)
    following = np.flatnonzero(~np.isnan(measure))
    if not len(following):
        raise ConfigError(f"behaviour {behaviour.label!r}: no record of the buffer follows its rule ({behaviour.rule})")
    return int(following[np.argsort(measure[following], kind="stable")[(len(following) - 1) // 2]])


@torch.no_grad()
def probability(policy: torch.nn.Module, target: FAction) -> float:
    """pi(a|s) of the target's pair."""
    return float(target(policy).exp())


def breakpoints(values: Sequence[float], pieces: int = PHASES, *, shortest: int = SHORTEST) -> list[int]:
    """Where a series changes: the piecewise constant fit of least squares.

    Args:
        values: (n,) equally spaced.
        pieces: number of constant pieces, each at least `shortest` long.

    Returns:
        First index of each piece, the earliest choice among equal fits.

    Raises:
        ConfigError: if the series is too short.
    """
    x = np.asarray(values, dtype=float)
    n = len(x)
    if n < pieces * shortest:
        raise ConfigError(
            f"{n} rounds are too few for {pieces} phase{'s' if pieces > 1 else ''} of at least {shortest}"
        )
    sums, squares = (np.concatenate([[0.0], power.cumsum()]) for power in (x, x**2))

    def cost(first: int, after: int) -> float:
        return squares[after] - squares[first] - (sums[after] - sums[first]) ** 2 / (after - first)

    best = {0: (0.0, [])}  # end of the pieces so far -> (squared error, their first indices)
    for _ in range(pieces):
        extended = {}
        for first, (error, starts) in best.items():
            for after in range(first + shortest, n + 1):
                found = error + cost(first, after)
                if after not in extended or found < extended[after][0] - 1e-12:
                    extended[after] = found, [*starts, first]
        best = extended
    return best[n][1]
