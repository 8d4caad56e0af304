"""One run: collect -> score -> select -> update -> evaluate, for K rounds. The only training loop.

Round k's curve point is the policy after k rounds; round 0 is the untrained one. Sampling, scoring, selection, updates and
evaluation draw from separate streams: leaving one of them out changes nothing in the others.
"""

from __future__ import annotations

import hashlib
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from rl_influence import seeding
from rl_influence.checkpoints import Checkpoints
from rl_influence.config import RunSpec
from rl_influence.environments import make_sampler
from rl_influence.evaluation import evaluate
from rl_influence.networks import make_policy
from rl_influence.ppo import Learner, TrainingError, collect
from rl_influence.provenance import (
    CURVE_COLUMNS,
    TIMING_COLUMNS,
    fingerprint,
    manifest,
    now,
    write_atomic,
)
from rl_influence.selection import needs_scores, score, select

CHECKPOINT_EVERY_S = 5.0  # wall seconds between two saved states: a killed run loses at most these and the current round


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
        self.sampler = make_sampler(
            spec.environment, seeding.integer(seeding.seed_sequence(spec.seed, "environment"))
        )
        policy = make_policy(
            spec.environment.network,
            self.sampler.observation_space,
            self.sampler.action_space,
            seeding.torch_generator(spec.seed, "weights"),
        )
        self.learner = Learner(policy, spec.ppo)
        self.records = self.scores = self.selection = None

    @property
    def policy(self) -> torch.nn.Module:
        return self.learner.policy

    def train_round(self, clock: Clock) -> dict[str, int]:
        """Collects a buffer, chooses its records, trains on them.

        Returns:
            The round's columns of the curve.
        """
        spec, k = self.spec, self.round

        def stream(name: str) -> np.random.Generator:
            return seeding.generator(spec.seed, name, k)

        with clock("sampling_s"):
            self.records = collect(self.sampler, self.policy, spec.ppo.n_steps, stream("actions"), spec.ppo)
        with clock("influence_s"):
            self.scores = None
            if needs_scores(spec):
                self.scores = score(self.records, self.policy, spec.ppo, stream("scoring"))
            self.selection = select(spec, self.records, self.scores, stream("selection"))
        with clock("optimise_s"):
            try:
                updates = self.learner.update(
                    self.records, self.selection.epochs(spec.ppo.n_epochs, stream("minibatches"))
                )
            except TrainingError as error:
                raise TrainingError(f"round {k + 1}, {error}") from None
        self.round += 1
        return {"records_kept": len(self.selection.kept), "updates": updates}

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
    log: Callable[[str], None] = print,
) -> Path:
    """Trains one run and writes `curve.csv`, `timing.csv` and `manifest.json` to `output_dir`, all at the end.

    A run that was stopped continues from its last saved state and ends with the same curve and weights.

    Args:
        spec: see `config.load_run_spec`.
        output_dir: made if missing.
        state_dir: folder of the saved states; default `<output_dir>/state`.
        log: called with one line per round.

    Returns:
        `output_dir`.

    Raises:
        TrainingError: if a loss stops being finite.
        ResultError: if the saved state is another configuration's or in use by another process.
        Stopped: on SIGTERM, after the current round.
    """
    output_dir = Path(output_dir)
    state_dir = Path(state_dir) if state_dir else output_dir / "state"
    torch.set_num_threads(1)
    with threadpool_limits(1):
        checkpoints = Checkpoints(state_dir, fingerprint(spec))
        try:
            return _run(spec, output_dir, checkpoints, log)
        finally:
            checkpoints.close()


def _run(spec: RunSpec, output_dir: Path, checkpoints: Checkpoints, log: Callable[[str], None]) -> Path:
    trainer = Trainer(spec)
    curve, timing, started, resumed = [], [], now(), 0
    saved = checkpoints.load(log)
    if saved:
        trainer.restore(saved)
        curve, timing, started, resumed = saved["curve"], saved["timing"], saved["started"], saved["resumed"] + 1
        log(f"continuing after round {trainer.round} of {spec.rounds}")
    stop = _StopSignal()
    last_saved = time.monotonic()
    with stop:
        while len(curve) <= spec.rounds:
            clock = Clock()
            counts = {"records_kept": 0, "updates": 0}
            if curve:  # round 0 is the untrained policy
                counts = trainer.train_round(clock)
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
                    log(f"round {k}: {result.unfinished} test episodes did not end within {spec.evaluation.max_steps} steps")
            curve.append([k, k * spec.ppo.n_steps, test_return, test_return_se, *counts.values()])
            timing.append([k, *(round(seconds, 6) for seconds in clock.seconds.values())])
            log(_progress_line(spec, curve[-1], sum(clock.seconds.values())))
            if (stop.requested or time.monotonic() - last_saved > CHECKPOINT_EVERY_S) and k < spec.rounds:
                state = {"curve": curve, "timing": timing, "started": started, "resumed": resumed}
                checkpoints.save(trainer.state() | state)
                last_saved = time.monotonic()
            if stop.requested and k < spec.rounds:
                raise Stopped(f"stopped after round {k} of {spec.rounds}; the same command continues there")
    checkpoints.save(
        trainer.state() | {"curve": curve, "timing": timing, "started": started, "resumed": resumed}
    )
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
    return output_dir


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
