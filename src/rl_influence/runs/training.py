"""One run from beginning to end: K rounds of `trainer`, an evaluation after each, states to continue from, its files.

Round k's curve point is the policy after k rounds; round 0 is the untrained one.
"""

from __future__ import annotations

import hashlib
import math
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from rl_influence import seeding
from rl_influence.config import RunSpec
from rl_influence.environments import EnvironmentFault
from rl_influence.evaluation.returns import evaluate
from rl_influence.ppo.records import TrainingError
from rl_influence.runs import columns, snapshots, store
from rl_influence.runs.checkpoints import Checkpoints
from rl_influence.runs.provenance import fingerprint, manifest, now
from rl_influence.runs.store import ResultError, Status
from rl_influence.runs.trainer import Clock, Trainer

CHECKPOINT_EVERY_S = 5.0  # wall seconds between two saved states: a killed run loses these and the current round


class Stopped(RuntimeError):
    """The run was asked to stop (SIGTERM); its state is saved and the same command continues it."""


@contextmanager
def one_thread() -> Iterator[None]:
    """torch and numpy on one thread, and afterwards on as many as before: runs are parallel, not what is in them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def run(
    spec: RunSpec,
    output_dir: str | Path,
    *,
    state_dir: str | Path | None = None,
    snapshot_rounds: Iterable[int] = (),
    snapshot_dir: str | Path | None = None,
    log: Callable[[str], None] = print,
) -> Path:
    """Trains one run and writes its files, see `store`, to `output_dir`, all at the end.

    A run that was stopped continues from its last saved state and ends with the same curve and weights.

    Args:
        spec: see `config.load_run_spec`.
        output_dir: made if missing.
        state_dir: folder of the saved states; default `<output_dir>/state`.
        snapshot_rounds: rounds to keep for analysis, see `snapshots`; any trained before are trained again.
        snapshot_dir: their folder; default `<output_dir>/snapshots`.
        log: called with one line per round.

    Returns:
        `output_dir`. A whole result of this run that is already there is left as it is.

    Raises:
        TrainingError: if a loss stops being finite.
        ResultError: if the saved state is another configuration's or in use by another process, or `output_dir` holds
            another configuration's result.
        OSError: if a file cannot be written; what was saved before stays, and the same command continues there.
        Stopped: on SIGTERM, after the current round.
    """
    output_dir = Path(output_dir)
    state_dir = Path(state_dir) if state_dir else output_dir / "state"
    rounds = snapshots.check_rounds(snapshot_rounds, spec)
    snapshot_dir = Path(snapshot_dir) if snapshot_dir else output_dir / "snapshots"
    if _is_trained(spec, output_dir, log):
        take_snapshots(spec, rounds, snapshot_dir, log=log)
        return output_dir
    if rounds:
        snapshots.check_spec(snapshot_dir, spec)
    output_dir.mkdir(parents=True, exist_ok=True)
    with one_thread():
        checkpoints = Checkpoints(state_dir, fingerprint(spec))
        try:
            _run(spec, output_dir, checkpoints, log, rounds, snapshot_dir)
        finally:
            checkpoints.close()
    take_snapshots(spec, rounds, snapshot_dir, log=log)  # those that a resumed run had behind it
    return output_dir


def take_snapshots(
    spec: RunSpec, rounds: Iterable[int], directory: str | Path, *, log: Callable[[str], None] = print
) -> None:
    """Writes the snapshots of a run that its folder lacks, and the final policy, by training again without evaluation.

    The run is the same: what it draws does not depend on whether it is evaluated. Nothing is done if none is missing.

    Raises:
        ConfigError: for a round that the run does not have.
        ResultError: if the folder holds another run's snapshots.
        TrainingError: if a loss stops being finite.
    """
    directory, rounds = Path(directory), snapshots.check_rounds(rounds, spec)
    if rounds:
        snapshots.check_spec(directory, spec)
    missing = set(rounds) - set(snapshots.rounds_in(directory))
    last = max(missing, default=-1) + 1 if snapshots.has_final(directory) or not rounds else spec.rounds
    if last == 0:
        return
    log(f"training {last} rounds again, without evaluation, for the snapshots in {directory}")
    with one_thread():
        trainer, clock = Trainer(spec), Clock()
        while trainer.round < last:
            _train_round(trainer, clock, missing, directory)
        if last == spec.rounds:
            snapshots.save(directory, trainer.learner_now())


def _train_round(trainer: Trainer, clock: Clock, rounds: Iterable[int], directory: Path) -> dict[str, int]:
    """Trains a round, and keeps its snapshot if it is one of `rounds`."""
    if trainer.round not in rounds:
        return trainer.train_round(clock)
    start, episode_actions = trainer.learner_now(), trainer.episode_actions()
    counts = trainer.train_round(clock)
    snapshot = snapshots.Snapshot(
        **vars(start),
        records=trainer.records,
        selection=trainer.selection,
        scores=trainer.scores,
        episode_actions=episode_actions,
        step_scale=trainer.step_scale,
    )
    snapshots.save(directory, snapshot)
    return counts


def _is_trained(spec: RunSpec, output_dir: Path, log: Callable[[str], None]) -> bool:
    """Whether the folder holds this run's whole result; another configuration's is refused, a damaged one made anew."""
    if not (output_dir / store.MANIFEST).exists():
        return False
    try:
        store.check_run(output_dir, spec)
    except ResultError as error:
        if error.status is Status.STALE:
            raise ResultError(f"{error}; choose another folder, or remove this one", Status.STALE) from None
        log(f"{error}; trained anew, or from the saved state")
        return False
    log(f"{output_dir}: already trained")
    return True


@dataclass
class History:
    """What has been seen of a run so far; saved with its state.

    Attributes:
        curve, timing, diagnostics: rows of the three tables; the last has none for round 0.
        started: when, for people.
        resumed: how often it was continued.
    """

    curve: list[list] = field(default_factory=list)
    timing: list[list] = field(default_factory=list)
    diagnostics: list[list] = field(default_factory=list)
    started: str = field(default_factory=now)
    resumed: int = 0

    def files(self) -> dict[str, bytes]:
        """Name -> content of the run's tables."""
        tables = {
            "curve.csv": (columns.CURVE_COLUMNS, self.curve),
            "timing.csv": (columns.TIMING_COLUMNS, self.timing),
            store.DIAGNOSTICS: (columns.DIAGNOSTICS_COLUMNS, self.diagnostics),
        }
        return {name: columns.write(*table) for name, table in tables.items()}


def _run(
    spec: RunSpec,
    output_dir: Path,
    checkpoints: Checkpoints,
    log: Callable[[str], None],
    snapshot_rounds: tuple[int, ...],
    snapshot_dir: Path,
) -> None:
    trainer, history = Trainer(spec), History()
    saved = checkpoints.load(log)
    if saved:
        try:
            trainer.restore(saved)
        except ValueError as error:
            raise ResultError(f"{checkpoints.directory}: {error}") from None
        history = History(**{name: saved[name] for name in vars(history)})
        history.resumed += 1
        log(f"continuing after round {trainer.round} of {spec.rounds}")
    stop = _StopSignal()
    last_saved = time.monotonic()
    with stop:
        while len(history.curve) <= spec.rounds:
            clock = Clock()
            counts = {"records_kept": 0, "updates": 0}
            if history.curve:  # round 0 is the untrained policy
                counts = _train_round(trainer, clock, snapshot_rounds, snapshot_dir)
                history.diagnostics.append([trainer.round, *trainer.diagnostics.values()])
            k = trainer.round
            with clock("evaluate_s"):
                test_return = _evaluated(trainer, log)
            history.curve.append([k, k * spec.ppo.n_steps, *test_return, *counts.values()])
            history.timing.append([k, *(round(seconds, 6) for seconds in clock.seconds.values())])
            log(_progress_line(spec, history.curve[-1], trainer.diagnostics, sum(clock.seconds.values())))
            if (stop.requested or time.monotonic() - last_saved > CHECKPOINT_EVERY_S) and k < spec.rounds:
                checkpoints.save(trainer.state() | vars(history))
                last_saved = time.monotonic()
            if stop.requested and k < spec.rounds:
                raise Stopped(f"stopped after round {k} of {spec.rounds}; the same command continues there")
    checkpoints.save(trainer.state() | vars(history))
    if snapshot_rounds:
        snapshots.save(snapshot_dir, trainer.learner_now())
    _write(trainer, history, output_dir)


def _evaluated(trainer: Trainer, log: Callable[[str], None]) -> tuple[float | str, float | str]:
    """Test return and its standard error after a round that is evaluated, else two empty fields.

    Raises:
        TrainingError: if it is not finite, or a test episode gives what cannot be recorded.
    """
    spec, k = trainer.spec, trainer.round
    if k % spec.evaluation.every and k < spec.rounds:
        return "", ""
    stream = seeding.seed_sequence(spec.seed, "evaluation", k)
    try:
        result = evaluate(trainer.policy, spec.environment, spec.evaluation, seeding.integer(stream))
    except EnvironmentFault as error:
        raise TrainingError(f"test episodes after round {k}, {error}") from None
    if not math.isfinite(result.mean):
        raise TrainingError(f"test return {result.mean} after round {k}: not finite")
    if result.unfinished:
        log(f"round {k}: {result.unfinished} test episodes did not end within {spec.evaluation.max_steps} steps")
    return result.mean, result.se


def _write(trainer: Trainer, history: History, output_dir: Path) -> None:
    files = history.files()
    record = manifest(
        trainer.spec,
        started=history.started,
        weights_sha256=hashlib.sha256(trainer.learner.parameters.vector.tobytes()).hexdigest(),
        files={name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        resumed=history.resumed,
    )
    store.write(output_dir, files, record)


class _StopSignal:
    """Notes SIGTERM instead of dying in the middle of a round (only the main thread may install it)."""

    def __init__(self):
        self.requested = False

    def __enter__(self) -> _StopSignal:
        try:
            self._previous = signal.signal(signal.SIGTERM, self._note)
        except ValueError:
            self._previous = None
        return self

    def __exit__(self, *_) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGTERM, self._previous)

    def _note(self, *_) -> None:
        self.requested = True


def _progress_line(spec: RunSpec, row: list, diagnostics: dict[str, Any] | None, seconds: float) -> str:
    k, steps, test_return, se, kept, updates = row
    shown = f"test return {test_return:.4g}" + (f" ± {se:.2g}" if se else "") if test_return != "" else "not evaluated"
    trained = ""
    if diagnostics:
        train_return, kl, clipped, entropy = (
            diagnostics[name] for name in ("train_return", "approx_kl", "clip_fraction", "entropy")
        )
        trained = f"train return {train_return:.4g}, " if train_return != "" else ""
        trained += f"KL {kl:.2g}, {100 * clipped:.2g} % clipped, entropy {entropy:.3g}, "
    return (
        f"round {k}/{spec.rounds}: {steps} steps, {shown}, {trained}{kept} records kept, {updates} updates, "
        f"{seconds:.2f} s"
    )
