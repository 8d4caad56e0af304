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

import numpy as np
import pandas as pd
import torch

from rl_influence.analysis.diagnosis import extreme_records
from rl_influence.analysis.geometry import LANE, vehicles
from rl_influence.analysis.roughness import NEIGHBOURS, embeddings, roughness_table
from rl_influence.attribution import FAction
from rl_influence.config import ConfigError, RunSpec, choose
from rl_influence.runs import snapshots

THIRDS = ("first", "middle", "last")
PHASES, SHORTEST = 3, 3  # phases of a behaviour, and how many rounds each has at least
RECORDS = 10  # of most positive influence, of each phase
TAILING_GAP = 30.0  # metres; at 25 m/s about a second behind
SWINGING = 2.0  # rad/s


@dataclass(frozen=True)
class Behaviour:
    """What to look at in an environment. The target state is the one of median measure (the lower one of two, ties by
    index)."""

    label: str
    rule: str  # for captions
    action: int  # whose probability is followed
    measure: Callable[[np.ndarray], np.ndarray]  # observations (n, dims) -> (n,), nan where the rule does not hold


def tailing_gap(observations: np.ndarray) -> np.ndarray:
    """Metres to the nearest vehicle ahead in the own lane; nan unless it is at most 30 and shrinking."""
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


def analyse(spec: RunSpec, directory: Path, rounds: Sequence[int]) -> dict[str, pd.DataFrame]:
    """How the environment's behaviour was learned in one run; too few rounds for `PHASES` phases give fewer.

    Returns:
        - behaviour: per round and number of neighbours u: third (of the run's rounds: first, middle, last),
          probability, neighbours, sigma, nodes, edges, roughness (empty for the final policy, which has no buffer);
        - behaviour_phases: phase, first_round, last_round, shown_round, probability (mean);
        - behaviour_records: the records of most positive influence in each phase's shown round, observations as JSON;
        - behaviour_targets: label, rule, action, round, record, observation of the target state; one row.

    Raises:
        ResultError, ConfigError: if snapshots are missing, no record follows the rule, or rounds are too few.
    """
    final, last = snapshots.load_final(directory), snapshots.load(directory, rounds[-1])
    behaviour = BEHAVIOURS[choose("behaviour", spec.environment.gym_id, BEHAVIOURS)]
    record = target_record(behaviour, last.records.observations)
    observation = last.records.observations[record]
    target, end = FAction(observation, np.array(behaviour.action)), final.policy()

    parts = []
    for k in rounds:
        snapshot = snapshots.load(directory, k)
        table = roughness_table(snapshot.influence_on(target), embeddings(end, snapshot.records.observations))
        parts.append(table.assign(round=k, probability=_probability(snapshot.policy(), target)))
    without_buffer = {"neighbours": NEIGHBOURS, "round": final.round, "probability": _probability(end, target)}
    trajectory = pd.concat([*parts, pd.DataFrame(without_buffer)], ignore_index=True)
    third = np.minimum(len(THIRDS) * trajectory["round"] // spec.rounds, len(THIRDS) - 1)
    phases, records = _phases(directory, trajectory.groupby("round")["probability"].first(), target)
    place = {"label": behaviour.label, "rule": behaviour.rule, "action": behaviour.action, "round": last.round}
    measures = ["probability", "neighbours", "sigma", "nodes", "edges", "roughness"]
    return {
        "behaviour": trajectory.assign(third=np.array(THIRDS)[third])[["round", "third", *measures]],
        "behaviour_phases": phases,
        "behaviour_records": records,
        "behaviour_targets": pd.DataFrame([place | {"record": record, "observation": _text(observation)}]),
    }


def _phases(directory: Path, probabilities: pd.Series, target: FAction) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tables of phases and of their records; `probabilities` of the target at each round and of the final policy,
    which has no buffer."""
    ends = probabilities.index
    starts = breakpoints(probabilities, max(1, min(PHASES, len(ends) // SHORTEST)))
    phases, records = [], []
    for phase, (first, after) in enumerate(zip(starts, [*starts[1:], len(ends)], strict=True), start=1):
        shown = ends[min((first + after - 1) // 2, len(ends) - 2)]
        phases.append((phase, ends[first], ends[after - 1], shown, probabilities.iloc[first:after].mean()))
        snapshot = snapshots.load(directory, shown)
        table = extreme_records(snapshot, snapshot.influence_on(target), number=RECORDS)
        top = table[table["end"] == "top"]
        seen = [_text(snapshot.records.observations[record]) for record in top["record"]]
        records.append(top.assign(phase=phase, round=shown, observation=seen))
    fields = ["phase", "round", "place", "record", "action", "reward", "advantage", "influence", "observation"]
    columns = ["phase", "first_round", "last_round", "shown_round", "probability"]
    return pd.DataFrame(phases, columns=columns), pd.concat(records, ignore_index=True)[fields]


def _text(observation: np.ndarray) -> str:
    """A vector as JSON, six significant digits as in all tables."""
    return json.dumps([float(f"{x:.6g}") for x in observation.tolist()])


def target_record(behaviour: Behaviour, observations: np.ndarray) -> int:
    """The record whose measure is the median among those that follow the behaviour's rule."""
    measure = behaviour.measure(observations)
    following = np.flatnonzero(~np.isnan(measure))
    if not len(following):
        raise ConfigError(f"behaviour {behaviour.label!r}: no record of the buffer follows its rule ({behaviour.rule})")
    return int(following[np.argsort(measure[following], kind="stable")[(len(following) - 1) // 2]])


@torch.no_grad()
def _probability(policy: torch.nn.Module, target: FAction) -> float:
    return float(target(policy).exp())


def breakpoints(values: Sequence[float], pieces: int = PHASES, *, shortest: int = SHORTEST) -> list[int]:
    """First index of each of the `pieces`, at least `shortest` long, of a series' piecewise constant fit of least
    squares; the earliest choice among equal fits. `ConfigError` if the series is too short."""
    x = np.asarray(values, dtype=float)
    n = len(x)
    if n < pieces * shortest:
        phases = f"{pieces} phase{'s' if pieces > 1 else ''}"
        raise ConfigError(f"{n} rounds are too few for {phases} of at least {shortest}")
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
