"""Snapshots of single rounds: all that is needed to score, diagnose or redo round k of a run without training again.

The paper analyses single rounds (figures 3, 5, 8 to 11). A snapshot of round k holds the state at the start of that
round's update: the buffer collected by theta^(k), theta^(k) itself with the optimiser, and the selection. Mini-batches
follow from these and the run's seed. k = 0 is the first round, trained from the untrained policy.

Files: `round_<k>.npz` in the folder of `store.snapshot_directory`, and `final.npz`, the policy after the last
round (whose features the roughness of figures 4 and 10 uses). Compressed, checksummed, without pickle
(`checkpoints.pack`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch

from rl_influence import seeding
from rl_influence.attribution import FReturn, Target, influence_scores, tracin_scores
from rl_influence.config import ConfigError, RunSpec
from rl_influence.ppo.learner import Learner
from rl_influence.ppo.networks import ActorCritic, make_policy
from rl_influence.ppo.objective import objective_of, replaced
from rl_influence.ppo.records import Records
from rl_influence.rules import RULES
from rl_influence.runs.checkpoints import State, pack, unpack
from rl_influence.runs.files import write_atomic
from rl_influence.runs.provenance import fingerprint
from rl_influence.runs.store import ResultError, Status
from rl_influence.selection import Selection, score, score_again, scoring_advantages, select

if TYPE_CHECKING:
    import pandas as pd

VERSION = 1  # of the file format
FINAL = "final"


@dataclass(frozen=True)
class SavedLearner:
    """A run's policy and optimiser at one moment.

    Attributes:
        round: rounds that it was trained for.
        parameters: flat vector, as `ppo.Learner.parameters`.
        optimizer: state of the optimiser, see `ppo.Optimizer.state`.
    """

    spec: RunSpec
    round: int
    parameters: np.ndarray
    optimizer: dict[str, np.ndarray]
    observation_space: gym.Space
    action_space: gym.Space

    def learner(self) -> Learner:
        """A new policy and optimiser in this state; no environment is made."""
        weights = seeding.torch_generator(self.spec.seed, "weights")
        policy = make_policy(self.spec.environment.network, self.observation_space, self.action_space, weights)
        learner = Learner(policy.to(torch.from_numpy(self.parameters).dtype), self.spec.ppo)
        learner.parameters.vector[:] = self.parameters
        learner.optimizer.restore(self.optimizer)
        return learner

    def policy(self) -> ActorCritic:
        """The torch module."""
        return self.learner().policy


@dataclass(frozen=True)
class Snapshot(SavedLearner):
    """The start of the update of round `round`, whose policy was trained for as many rounds and collected `records`.

    Attributes:
        selection: the records that the run's method let train.
        scores: the influences that it used, (n,), or None.
        episode_actions: actions of the first record's episode before that record, so that its state can be replayed.
        step_scale: factor of the round's learning rate, see `displacement`.
    """

    records: Records
    selection: Selection
    scores: np.ndarray | None
    episode_actions: np.ndarray
    step_scale: float = 1.0

    def learner(self) -> Learner:
        """A new policy and optimiser in this state, with the round's learning rate."""
        learner = super().learner()
        learner.optimizer.learning_rate *= self.step_scale
        return learner

    def epochs(self, kept: np.ndarray | None = None, *, order: int = 0) -> Iterator[np.ndarray]:
        """Record indices of each epoch as the run trained on them.

        Args:
            kept: or as it would train on these records.
            order: 0 for the run's own mini-batch stream, 1, 2, ... for others.
        """
        return self._epochs(self._selection(kept, self.policy()), order)

    def redo(self, kept: np.ndarray | None = None, *, order: int = 0) -> tuple[Learner, int]:
        """Trains the round again; arguments as of `epochs`.

        Returns:
            The learner after the round, and the number of its updates.
        """
        learner = self.learner()
        selection = self._selection(kept, learner.policy)
        return learner, learner.update(self.records, self._epochs(selection, order), selection.weights)

    def _epochs(self, selection: Selection, order: int) -> Iterator[np.ndarray]:
        stream = seeding.seed_sequence(self.spec.seed, "minibatches", self.round)
        generator = np.random.default_rng(stream.spawn(order)[-1] if order else stream)
        return selection.epochs(self.spec.ppo.n_epochs, generator)

    def _selection(self, kept: np.ndarray | None, policy: ActorCritic) -> Selection:
        """The run's selection, or all of `kept`; one that is asked again every epoch is made anew, for this policy."""
        if kept is not None:
            return Selection(kept, len(kept))
        if not RULES[self.spec.selection.kind].every_epoch:
            return self.selection
        spec, own = self.spec, seeding.generator(self.spec.seed, "selection", self.round)
        return select(
            spec,
            self.records,
            self.scores,
            own,
            rescore=lambda: score_again(self.records, policy, spec.ppo, self._scoring()),
        )

    def influence(self) -> np.ndarray:
        """Start-of-round influence on f_return as IIF computes it, (n,); the scores that the run used, if any."""
        if self.scores is not None:
            return self.scores
        return score(self.records, self.policy(), self.spec.ppo, self._scoring())

    def normalized_advantages(self) -> np.ndarray:
        """The advantages that IIF's scores are made with, see `selection.scoring_advantages`."""
        return scoring_advantages(self.records.advantages, self.spec.ppo, self._scoring())

    def influence_on(
        self, target: Target, *, advantages: np.ndarray | None = None, backend: str | None = None
    ) -> np.ndarray:
        """Start-of-round influence on any target, with raw advantages unless others are given, (n,)."""
        scores = influence_scores(self.policy(), self.records, target, advantages=advantages, backend=backend)
        return scores.numpy()

    def tracin(
        self, target: Target | None = None, *, kept: np.ndarray | None = None, backend: str | None = None
    ) -> np.ndarray:
        """Influence summed over the round's optimisation steps, (n,); 0 for records that do not train.

        Args:
            target: default f_return.
            kept: the records to train on; default those of the run.
        """
        learner = self.learner()
        selection = self._selection(kept, learner.policy)
        weights = {} if selection.weights is None else {"weights": selection.weights}
        return tracin_scores(
            learner.policy,
            replaced(self.records, **weights),
            target or FReturn(self.records),
            learner.steps(self.records, self._epochs(selection, 0), selection.weights),
            objective=objective_of(self.spec.ppo, policy_only=True),
            backend=backend,
        ).numpy()

    def _scoring(self) -> np.random.Generator:
        return seeding.generator(self.spec.seed, "scoring", self.round)

    def table(self) -> pd.DataFrame:
        """One row per record: record, episode (0: the one the buffer begins in), its step, and the fields."""
        import pandas as pd  # training imports this module and needs no tables

        records = self.records
        ended = records.terminated | records.truncated
        episode = np.concatenate([[0], ended.cumsum()[:-1]])
        starts = np.concatenate([[-len(self.episode_actions)], np.flatnonzero(ended) + 1])
        columns: dict[str, Any] = {
            "record": np.arange(len(records)),
            "episode": episode,
            "step": np.arange(len(records)) - starts[episode],
        }
        if np.prod(records.observations.shape[1:]) <= 1024:  # frames stay in the snapshot
            columns["observation"] = _column(records.observations)
        columns["action"] = _column(records.actions)
        names = {"rewards": "reward", "log_probs": "log_prob", "values": "value", "next_values": "next_value"}
        names |= {"advantages": "advantage", "returns": "return"}
        for name, array in records.arrays().items():
            if name not in ("observations", "actions"):
                columns[names.get(name, name)] = array
        return pd.DataFrame(columns)


def check_rounds(rounds: Iterable[int], spec: RunSpec) -> tuple[int, ...]:
    """Rounds in ascending order, each once.

    Raises:
        ConfigError: for one that the run does not have.
    """
    rounds = tuple(sorted({int(k) for k in rounds}))
    for k in rounds:
        if not 0 <= k < spec.rounds:
            raise ConfigError(f"snapshot round {k}: the run has rounds 0 (untrained policy) to {spec.rounds - 1}")
    return rounds


def rounds_in(directory: str | Path) -> list[int]:
    """Rounds of which a folder holds a snapshot, ascending."""
    matches = (re.fullmatch(r"round_(\d+)\.npz", path.name) for path in Path(directory).glob("round_*.npz"))
    return sorted(int(match[1]) for match in matches if match)


def has_final(directory: str | Path) -> bool:
    """Whether a folder holds the policy after the last round."""
    return (Path(directory) / f"{FINAL}.npz").exists()


def save(directory: str | Path, snapshot: SavedLearner) -> Path:
    """Writes a snapshot, or the final policy, atomically."""
    name = FINAL
    state: State = {
        "version": VERSION,
        "fingerprint": fingerprint(snapshot.spec),
        "spec": snapshot.spec.model_dump(mode="json"),
        "round": snapshot.round,
        "parameters": snapshot.parameters,
    }
    state |= {f"optimizer/{key}": np.asarray(value) for key, value in snapshot.optimizer.items()}
    for key, space in (("observation", snapshot.observation_space), ("action", snapshot.action_space)):
        state |= {f"{key}_space/{part}": value for part, value in _space_state(space).items()}
    if isinstance(snapshot, Snapshot):
        name = f"round_{snapshot.round}"
        state |= {f"records/{key}": value for key, value in snapshot.records.arrays().items()}
        state |= {"kept": snapshot.selection.kept, "records_per_epoch": int(snapshot.selection.records_per_epoch)}
        state |= {"episode_actions": snapshot.episode_actions, "step_scale": snapshot.step_scale}
        chosen = snapshot.selection
        optional = {"scores": snapshot.scores, "probabilities": chosen.probabilities, "weights": chosen.weights}
        state |= {key: value for key, value in optional.items() if value is not None}
    path = Path(directory) / f"{name}.npz"
    write_atomic(path, pack(state))
    return path


def check_spec(directory: str | Path, spec: RunSpec) -> None:
    """Refuses a folder whose snapshots are another run's; nothing to refuse if it has none.

    Raises:
        ResultError: in one line.
    """
    for path in sorted(Path(directory).glob("*.npz"))[:1]:  # final.npz, if it is there: the smallest
        found = _read(path)["fingerprint"]
        if found != fingerprint(spec):
            raise ResultError(
                f"{path}: belongs to another run (fingerprint {found[:8]}, expected {fingerprint(spec)[:8]}); "
                "choose another folder, or remove this one",
                Status.STALE,
            )


def load(directory: str | Path, k: int) -> Snapshot:
    """The snapshot of round `k`.

    Args:
        directory: holds `round_<k>.npz` (or has a folder `snapshots` that does).

    Raises:
        ResultError: if there is none (which there are is said), or if it is damaged or another version's.
    """
    directory = folder(directory)
    path = directory / f"round_{k}.npz"
    if not path.exists():
        there = ", ".join(map(str, rounds_in(directory))) or "none"
        raise ResultError(f"{directory}: no snapshot of round {k}; rounds with one: {there}")
    state = _read(path)
    return Snapshot(
        **_learner_arguments(state),
        records=Records(**_part(state, "records/")),
        selection=Selection(
            state["kept"], state["records_per_epoch"], state.get("probabilities"), state.get("weights")
        ),
        scores=state.get("scores"),
        episode_actions=state["episode_actions"],
        step_scale=state.get("step_scale", 1.0),
    )


def load_final(directory: str | Path) -> SavedLearner:
    """The policy after the last round.

    Raises:
        ResultError: if it is not there, damaged, or another version's.
    """
    path = folder(directory) / f"{FINAL}.npz"
    if not path.exists():
        raise ResultError(f"{path.parent}: no final policy ({path.name}); a run with snapshots writes it when it ends")
    return SavedLearner(**_learner_arguments(_read(path)))


def load_learner(directory: str | Path, k: int | str) -> SavedLearner:
    """The policy at a snapshot's round, or after the last one (`final`); raises as `load` and `load_final` do."""
    return load_final(directory) if k == FINAL else load(directory, int(k))


def folder(directory: str | Path) -> Path:
    """The folder of snapshots that `directory` is or holds.

    Raises:
        ResultError: if it is not there.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise ResultError(f"{directory}: no such folder")
    inner = directory / "snapshots"
    return inner if inner.is_dir() and not rounds_in(directory) else directory


def _read(path: Path) -> State:
    try:
        state = unpack(path.read_bytes())
        version, spec = state["version"], RunSpec(**state["spec"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultError(f"{path}: not a snapshot, or a damaged one ({type(error).__name__})") from None
    if version != VERSION or state["fingerprint"] != fingerprint(spec):
        raise ResultError(f"{path}: written by another version, whose numbers differ; train the run again")
    return state | {"spec": spec}


def _learner_arguments(state: State) -> dict[str, Any]:
    return {
        "spec": state["spec"],
        "round": state["round"],
        "parameters": state["parameters"],
        "optimizer": _part(state, "optimizer/"),
        "observation_space": _space(_part(state, "observation_space/")),
        "action_space": _space(_part(state, "action_space/")),
    }


def _part(state: State, prefix: str) -> State:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def _space_state(space: gym.Space) -> State:
    if isinstance(space, gym.spaces.Discrete):
        return {"n": int(space.n)}
    return {"low": space.low, "high": space.high}


def _space(state: State) -> gym.Space:
    if "n" in state:
        return gym.spaces.Discrete(state["n"])
    return gym.spaces.Box(state["low"], state["high"], dtype=state["low"].dtype)


def _column(array: np.ndarray) -> np.ndarray | list[list]:
    return array if array.ndim == 1 else array.reshape(len(array), -1).tolist()
