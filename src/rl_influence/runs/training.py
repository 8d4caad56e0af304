"""One run: collect -> score -> select -> update -> evaluate, for K rounds. The only training loop.

Round k's curve point is the policy after k rounds; round 0 is the untrained one. Sampling, scoring, selection, updates
and evaluation draw from separate streams: leaving one of them out changes nothing in the others.
"""

from __future__ import annotations

import hashlib
import json
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from rl_influence import seeding
from rl_influence.config import RunSpec
from rl_influence.environments import make_sampler
from rl_influence.evaluation.returns import evaluate, exact_model
from rl_influence.evaluation.true_advantages import exact_record_advantages
from rl_influence.ppo.learner import Learner
from rl_influence.ppo.networks import make_policy
from rl_influence.ppo.records import TrainingError
from rl_influence.ppo.rollout import collect
from rl_influence.runs import snapshots
from rl_influence.runs.checkpoints import Checkpoints
from rl_influence.runs.files import write_atomic
from rl_influence.runs.provenance import fingerprint, manifest, now
from rl_influence.runs.store import CURVE_COLUMNS, TIMING_COLUMNS, ResultError, StaleResultError, check_run
from rl_influence.selection import needs_scores, needs_true_advantages, score, select

CHECKPOINT_EVERY_S = 5.0  # wall seconds between two saved states: a killed run loses these and the current round


class Stopped(RuntimeError):
    """The run was asked to stop (SIGTERM); its state is saved and the same command continues it."""


class Trainer:
    """The state of a run and its rounds, without any files.

    Attributes:
        round: rounds trained so far.
        learner: policy and optimiser.
        records, scores, selection: of the latest round.
    """

    def __init__(self, spec: RunSpec):
        self.spec, self.round = spec, 0
        self.sampler = make_sampler(spec.environment, seeding.integer(seeding.seed_sequence(spec.seed, "environment")))
        policy = make_policy(
            spec.environment.network,
            self.sampler.observation_space,
            self.sampler.action_space,
            seeding.torch_generator(spec.seed, "weights"),
        )
        self.learner = Learner(policy, spec.ppo)
        self.model = exact_model(spec.environment) if needs_true_advantages(spec) else None
        self.records = self.scores = self.selection = None

    @property
    def policy(self) -> torch.nn.Module:
        return self.learner.policy

    def train_round(self, clock: Clock) -> dict[str, int]:
        """Collects a buffer, chooses its records, trains on them.

        Returns:
            The round's columns of the curve.

        Raises:
            TrainingError: at the first value that is not finite; names round and update.
        """
        spec, k = self.spec, self.round
        episode_actions = self.episode_actions() if self.model else None

        def stream(name: str) -> np.random.Generator:
            return seeding.generator(spec.seed, name, k)

        try:
            with clock("sampling_s"):
                self.records = collect(self.sampler, self.policy, spec.ppo.n_steps, stream("actions"), spec.ppo)
            with clock("influence_s"):
                self.scores = true = None
                if needs_true_advantages(spec):
                    true = exact_record_advantages(
                        self.model, self.policy, self.records, episode_actions, gamma=spec.ppo.gamma
                    )
                if needs_scores(spec):
                    self.scores = score(self.records, self.policy, spec.ppo, stream("scoring"))
                    if not np.isfinite(self.scores).all():
                        raise TrainingError("influence scores are not finite")
                self.selection = select(spec, self.records, self.scores, stream("selection"), true)
            with clock("optimise_s"):
                epochs = self.selection.epochs(spec.ppo.n_epochs, stream("minibatches"))
                updates = self.learner.update(self.records, epochs)
                if not np.isfinite(self.learner.parameters.vector).all():
                    raise TrainingError(f"update {updates}: parameters are not finite")
        except TrainingError as error:
            raise TrainingError(f"round {k + 1}, {error}") from None
        self.round += 1
        return {"records_kept": len(self.selection.kept), "updates": updates}

    def policy_now(self) -> snapshots.Policy:
        """A copy of policy and optimiser."""
        learner, sampler = self.learner, self.sampler
        optimizer = {name: value.copy() for name, value in learner.optimizer.state().items()}
        spaces = sampler.observation_space, sampler.action_space
        return snapshots.Policy(self.spec, self.round, learner.parameters.vector.copy(), optimizer, *spaces)

    def episode_actions(self) -> np.ndarray:
        """Actions of the current episode so far."""
        actions = self.sampler.state()["actions"]
        return actions[len(actions) - self.sampler.episode_step :]

    def state(self) -> dict[str, Any]:
        """All that the following rounds depend on."""
        sampler = {f"sampler/{name}": value for name, value in self.sampler.state().items()}
        optimizer = {f"optimizer/{name}": value for name, value in self.learner.optimizer.state().items()}
        return {"round": self.round, "parameters": self.learner.parameters.vector.copy()} | optimizer | sampler

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from `state`."""

        def part(prefix: str) -> dict[str, Any]:
            return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}

        self.round = state["round"]
        self.learner.parameters.vector[:] = state["parameters"]
        self.learner.optimizer.restore(part("optimizer/"))
        self.sampler.restore(part("sampler/"))


class Clock:
    """CPU seconds of this process by phase: other jobs on the machine do not show in them."""

    def __init__(self):
        self.seconds = dict.fromkeys(TIMING_COLUMNS[1:], 0.0)

    def __call__(self, phase: str) -> Clock:
        self._phase = phase
        return self

    def __enter__(self) -> None:
        self._start = time.process_time()

    def __exit__(self, *_) -> None:
        self.seconds[self._phase] += time.process_time() - self._start


def run(
    spec: RunSpec,
    output_dir: str | Path,
    *,
    state_dir: str | Path | None = None,
    snapshot_rounds: Iterable[int] = (),
    snapshot_dir: str | Path | None = None,
    log: Callable[[str], None] = print,
) -> Path:
    """Trains one run and writes `curve.csv`, `timing.csv` and `manifest.json` to `output_dir`, all at the end.

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
    output_dir.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    with threadpool_limits(1):
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
        TrainingError: if a loss stops being finite.
    """
    directory, rounds = Path(directory), snapshots.check_rounds(rounds, spec)
    missing = set(rounds) - set(snapshots.rounds_in(directory))
    last = max(missing, default=-1) + 1 if snapshots.has_final(directory) or not rounds else spec.rounds
    if last == 0:
        return
    log(f"training {last} rounds again, without evaluation, for the snapshots in {directory}")
    torch.set_num_threads(1)
    with threadpool_limits(1):
        trainer, clock = Trainer(spec), Clock()
        while trainer.round < last:
            _train_round(trainer, clock, missing, directory)
        if last == spec.rounds:
            snapshots.save(directory, trainer.policy_now())


def _train_round(trainer: Trainer, clock: Clock, rounds: Iterable[int], directory: Path) -> dict[str, int]:
    """Trains a round, and keeps its snapshot if it is one of `rounds`."""
    if trainer.round not in rounds:
        return trainer.train_round(clock)
    start, episode_actions = trainer.policy_now(), trainer.episode_actions()
    counts = trainer.train_round(clock)
    snapshot = snapshots.Snapshot(
        **vars(start),
        records=trainer.records,
        selection=trainer.selection,
        scores=trainer.scores,
        episode_actions=episode_actions,
    )
    snapshots.save(directory, snapshot)
    return counts


def _is_trained(spec: RunSpec, output_dir: Path, log: Callable[[str], None]) -> bool:
    """Whether the folder holds this run's whole result; another configuration's is refused, a damaged one made anew."""
    if not (output_dir / "manifest.json").exists():
        return False
    try:
        check_run(output_dir, spec)
    except StaleResultError as error:
        raise ResultError(f"{error}; choose another folder, or remove this one") from None
    except ResultError as error:
        log(f"{error}; trained anew, or from the saved state")
        return False
    log(f"{output_dir}: already trained")
    return True


def _run(
    spec: RunSpec,
    output_dir: Path,
    checkpoints: Checkpoints,
    log: Callable[[str], None],
    snapshot_rounds: tuple[int, ...],
    snapshot_dir: Path,
) -> None:
    trainer = Trainer(spec)
    curve, timing, started, resumed = [], [], now(), 0
    saved = checkpoints.load(log)
    if saved:
        try:
            trainer.restore(saved)
        except ValueError as error:
            raise ResultError(f"{checkpoints.directory}: {error}") from None
        curve, timing, started, resumed = saved["curve"], saved["timing"], saved["started"], saved["resumed"] + 1
        log(f"continuing after round {trainer.round} of {spec.rounds}")
    stop = _StopSignal()
    last_saved = time.monotonic()
    with stop:
        while len(curve) <= spec.rounds:
            clock = Clock()
            counts = {"records_kept": 0, "updates": 0}
            if curve:  # round 0 is the untrained policy
                counts = _train_round(trainer, clock, snapshot_rounds, snapshot_dir)
            k = trainer.round
            test_return = test_return_se = ""
            if k % spec.evaluation.every == 0 or k == spec.rounds:
                with clock("evaluate_s"):
                    result = evaluate(
                        trainer.policy,
                        spec.environment,
                        spec.evaluation,
                        seeding.integer(seeding.seed_sequence(spec.seed, "evaluation", k)),
                    )
                test_return, test_return_se = result.mean, result.se
                if result.unfinished:
                    cap = spec.evaluation.max_steps
                    log(f"round {k}: {result.unfinished} test episodes did not end within {cap} steps")
            curve.append([k, k * spec.ppo.n_steps, test_return, test_return_se, *counts.values()])
            timing.append([k, *(round(seconds, 6) for seconds in clock.seconds.values())])
            log(_progress_line(spec, curve[-1], sum(clock.seconds.values())))
            if (stop.requested or time.monotonic() - last_saved > CHECKPOINT_EVERY_S) and k < spec.rounds:
                state = {"curve": curve, "timing": timing, "started": started, "resumed": resumed}
                checkpoints.save(trainer.state() | state)
                last_saved = time.monotonic()
            if stop.requested and k < spec.rounds:
                raise Stopped(f"stopped after round {k} of {spec.rounds}; the same command continues there")
    checkpoints.save(trainer.state() | {"curve": curve, "timing": timing, "started": started, "resumed": resumed})
    if snapshot_rounds:
        snapshots.save(snapshot_dir, trainer.policy_now())
    files = {"curve.csv": _csv(CURVE_COLUMNS, curve), "timing.csv": _csv(TIMING_COLUMNS, timing)}
    for name, data in files.items():
        write_atomic(output_dir / name, data)
    record = manifest(
        spec,
        started=started,
        weights_sha256=hashlib.sha256(trainer.learner.parameters.vector.tobytes()).hexdigest(),
        files={name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        resumed=resumed,
    )
    write_atomic(output_dir / "manifest.json", (json.dumps(record, indent=1) + "\n").encode())


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


def _csv(columns: tuple[str, ...], rows: list[list]) -> bytes:
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    return ("\n".join(lines) + "\n").encode()


def _progress_line(spec: RunSpec, row: list, seconds: float) -> str:
    k, steps, test_return, se, kept, updates = row
    shown = f"test return {test_return:.4g}" + (f" ± {se:.2g}" if se else "") if test_return != "" else "not evaluated"
    return f"round {k}/{spec.rounds}: {steps} steps, {shown}, {kept} records kept, {updates} updates, {seconds:.2f} s"
