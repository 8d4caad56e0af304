"""One run on disk: rounds, curve, times and manifest; stopped runs continue exactly where they were."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from rl_influence.rlhf.evaluation import Evaluator
from rl_influence.rlhf.settings import RESULTS_VERSION, RunSpec
from rl_influence.rlhf.store import ROUND_COLUMNS, TIMING_COLUMNS, Stopped, is_whole
from rl_influence.rlhf.trainer import Trainer
from rl_influence.runs.checkpoints import Checkpoints
from rl_influence.runs.files import sha256, write_atomic
from rl_influence.runs.progress import duration
from rl_influence.runs.provenance import now, processor

PACKAGES = ("torch", "transformers", "peft", "numpy", "tokenizers")
CHECKPOINT_EVERY_S = 20.0


class Clock:
    """Seconds by phase: of this process's CPU if it computes on one thread, else of the wall."""

    def __init__(self, spec: RunSpec):
        alone = spec.model.device == "cpu" and spec.model.threads == 1
        self.name, self._now = ("cpu", time.process_time) if alone else ("wall", self._wall)
        self.seconds = dict.fromkeys(TIMING_COLUMNS[1:], 0.0)

    @staticmethod
    def _wall() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        start = self._now()
        yield
        self.seconds[phase] += self._now() - start


def run(
    spec: RunSpec, output: str | Path, *, log: Callable[[str], None] = print, stop_after: int | None = None
) -> Path:
    """Trains one run and writes `curve.csv`, `timing.csv` and `manifest.json` at its end.

    Args:
        output: folder; its `state` holds what a stopped run continues from.
        stop_after: rounds after which to stop as if asked to.

    Raises:
        ConfigError: for a model, detector or prompts that cannot be had.
        ResultError: if the folder holds another run's state or result, or another process trains it.
        TrainingError: at the first value that is not finite.
        Stopped: on SIGTERM, after the current round.
    """
    output = Path(output)
    if (output / "manifest.json").exists() and is_whole(output, spec):
        log(f"{output}: already trained")
        return output
    torch.set_num_threads(spec.model.threads)
    with threadpool_limits(spec.model.threads):
        checkpoints = Checkpoints(output / "state", spec.fingerprint())
        try:
            _run(spec, output, checkpoints, log, stop_after)
        finally:
            checkpoints.close()
    return output


def _run(spec: RunSpec, output: Path, checkpoints: Checkpoints, log: Callable, stop_after: int | None) -> None:
    trainer = Trainer(spec)
    evaluator = Evaluator(trainer)
    curve, timing, started, resumed = [], [], now(), 0
    saved = checkpoints.load(log)
    if saved:
        trainer.restore(saved)
        curve, timing, started, resumed = saved["curve"], saved["timing"], saved["started"], saved["resumed"] + 1
        log(f"continuing after round {trainer.round} of {spec.rounds}")
    asked: list[int] = []
    previous = signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    last_saved, begun, first = time.monotonic(), time.monotonic(), len(curve)
    try:
        while len(curve) <= spec.rounds:
            clock, row = Clock(spec), dict.fromkeys((*ROUND_COLUMNS, *evaluator.columns()), "")
            if curve:  # round 0 is the start model
                row |= trainer.train_round(clock)
            k = trainer.round
            row |= {"round": k, "sequences": k * spec.ppo.batch_size}
            if evaluator.due(k):
                with clock("evaluate_s"):
                    row |= evaluator.evaluate(k)
            curve.append(list(row.values()))
            timing.append([k, *(round(seconds, 4) for seconds in clock.seconds.values())])
            pace = (time.monotonic() - begun) / (len(curve) - first)
            log(progress_line(spec, row, sum(clock.seconds.values()), pace * (spec.rounds - k)))
            stop = k < spec.rounds and (bool(asked) or k == stop_after)
            if stop or k == spec.rounds or time.monotonic() - last_saved > CHECKPOINT_EVERY_S:
                state = {"curve": curve, "timing": timing, "started": started, "resumed": resumed}
                checkpoints.save(trainer.state() | state)
                last_saved = time.monotonic()
            if stop:
                raise Stopped(f"stopped after round {k} of {spec.rounds}; the same command continues there")
    finally:
        signal.signal(signal.SIGTERM, previous)
    columns = (*ROUND_COLUMNS, *evaluator.columns())
    files = {"curve.csv": _csv(columns, curve), "timing.csv": _csv(TIMING_COLUMNS, timing)}
    for name, data in files.items():
        write_atomic(output / name, data)
    record = manifest(spec, trainer, files, started=started, resumed=resumed)
    write_atomic(output / "manifest.json", (json.dumps(record, indent=1) + "\n").encode())


def manifest(spec: RunSpec, trainer: Trainer, files: dict[str, bytes], *, started: str, resumed: int) -> dict[str, Any]:
    """What is recorded beside a curve."""
    weights = hashlib.sha256()
    for parameter in trainer.trained:
        weights.update(parameter.detach().cpu().numpy().tobytes())
    return {
        "fingerprint": spec.fingerprint(),
        "results_version": RESULTS_VERSION,
        "spec": spec.model_dump(mode="json"),
        "start_model_sha256": start_model_hash(spec.model.name),
        "weights_sha256": weights.hexdigest(),
        "files_sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        "packages": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "clock": Clock(spec).name,
        "host": {"system": platform.platform(), "processor": processor(), "cores": os.cpu_count()},
        "started": started,
        "ended": now(),
        "resumed": resumed,
    }


def start_model_hash(name: str) -> dict[str, str]:
    """Checksums of a local model's weights; nothing for a name on a hub."""
    return {file.name: sha256(file) for file in sorted(Path(name).glob("*.safetensors"))}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def progress_line(spec: RunSpec, row: dict[str, Any], seconds: float, left: float) -> str:
    """Scores of a round, never its text."""
    parts = []
    if row["reward"] != "":
        parts.append(f"reward {row['reward']:.3g} ± {row['reward_se']:.2g}, KL {row['kl']:.3g}")
        parts.append(f"{row['sequences_kept']} of {spec.ppo.batch_size} kept, {row['updates']} updates")
    if row["test_generations"] != "":
        parts.append(f"test reward {row['test_reward']:.3g} ± {row['test_reward_se']:.2g}, KL {row['test_kl']:.3g}")
    ahead = f", about {duration(left)} left" if row["round"] < spec.rounds else ""
    return f"round {row['round']}/{spec.rounds}: {', '.join(parts)}, {seconds:.2f} s{ahead}"


def _csv(columns: tuple[str, ...], rows: list[list]) -> bytes:
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    return ("\n".join(lines) + "\n").encode()
