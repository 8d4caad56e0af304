"""What rounds of several methods cost, measured so that it can be compared: in turn, in one process, by one version of
the code. Times of runs that were trained on different days, machines or versions cannot be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pandas as pd
import torch
from threadpoolctl import threadpool_limits

from rl_influence.config import RunSpec
from rl_influence.runs.columns import PHASES
from rl_influence.runs.files import write_atomic
from rl_influence.runs.provenance import code_fingerprint, processor
from rl_influence.runs.trainer import Clock, Trainer

REPEATS, ROUNDS = 5, 3


def time_methods(
    specs: Mapping[str, RunSpec], make: Callable[[RunSpec], Trainer] = Trainer
) -> Iterator[dict[str, int | str | float]]:
    """CPU seconds of the first rounds of several methods of one environment.

    Every repeat has a seed of its own and new trainers. Round by round the methods take turns, and which is first
    changes, so that what drifts on the machine meets all of them. A first round of each warms up and is not counted.

    Args:
        specs: method -> any of its specifications; the seeds are ours.
        make: a trainer of a specification.

    Yields:
        method, repeat, round (from 1), the seconds of each phase, `round_s` (influence and updates, as the paper
        counts) and `round_with_sampling_s`.
    """
    for repeat in range(REPEATS):
        trainers = {name: make(spec.model_copy(update={"seed": repeat})) for name, spec in specs.items()}
        for number in range(ROUNDS + 1):
            order = list(trainers)[:: 1 if (repeat + number) % 2 else -1]
            for name in order:
                clock = Clock()
                trainers[name].train_round(clock)
                if number:
                    seconds = {phase: clock.seconds[phase] for phase in PHASES}
                    round_s = seconds["influence_s"] + seconds["optimise_s"]
                    whole = {"round_s": round_s, "round_with_sampling_s": round_s + seconds["sampling_s"]}
                    yield {"method": name, "repeat": repeat, "round": number} | seconds | whole


def write_timings(
    specs: Mapping[str, Mapping[str, RunSpec]], output: str | Path, log: Callable[[str], None] = print
) -> None:
    """A table of the rounds of `time_methods` in several environments, on one thread, with code and processor.

    Args:
        specs: environment -> method -> specification.
        output: the CSV file, written at the end.
        log: called with a line for every environment.
    """
    rows, where = [], {"code": code_fingerprint(), "processor": processor()}
    torch.set_num_threads(1)
    with threadpool_limits(1):
        for environment, methods in specs.items():
            rows += [{"environment": environment} | row | where for row in time_methods(methods)]
            log(f"{environment}: {REPEATS} x {ROUNDS} rounds of {', '.join(methods)}")
    write_atomic(output, pd.DataFrame(rows).to_csv(index=False, float_format="%.6f", lineterminator="\n").encode())
