"""`docs/performance.md`: steps a second by engine, and how long the paper's whole grid takes on how many cores."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np

from benchmarks.engines import rates
from benchmarks.process import START_UP, fresh
from benchmarks.registry import Figure, benchmark, cpu_seconds, machine
from rl_influence.config import Config, Run, RunSpec
from rl_influence.evaluation.returns import COPIES, evaluate
from rl_influence.runs.files import write_atomic
from rl_influence.runs.progress import duration, evaluations
from rl_influence.runs.store import MANIFEST, load_any, read_manifest
from rl_influence.runs.training import Clock, Trainer

DOCUMENT = Path("docs/performance.md")
CORES = (2, 16, 128)
TRAINING = ("sampling_s", "influence_s", "optimise_s")


@benchmark("performance")
def performance() -> Iterator[Figure]:
    """An engine that an environment's file names instead of gymnasium is faster; writes the document as well."""
    config = Config("config/paper.yaml")
    steps = rates(config.environments)
    for name, (reference, single, batch) in steps.items():
        environment = config.environments[name]
        uses = (("training", environment.engine, single), ("evaluation", environment.evaluation_engine, batch))
        for use, engine, value in uses:
            if engine == "envpool":
                detail = f"{value:.0f} steps a second on envpool against {reference:.0f} on gymnasium"
                yield Figure(f"engine_{use}_{name}", value / reference, "x", ">=", 1, detail)
    costs = {name: cost(config, name) for name in dict.fromkeys(run.environment for run in config.runs)}
    start_up_s = fresh(START_UP, "acrobot")
    write_atomic(DOCUMENT, document(config, steps, costs, start_up_s).encode())


class Cost(NamedTuple):
    """CPU seconds of a round of training and of an evaluation, and the day of the run that they are means of."""

    training: float
    evaluation: float
    day: str = ""


def cost(config: Config, environment: str) -> Cost:
    """Means over PPO's run of an environment that was made last, in whatever study; measured now if there is none.

    Older runs are of older code and of other machines: times of different runs are not averaged.
    """
    folders = Path("results").glob(f"*/runs/{environment}/ppo/seed*")
    made = {folder: read_manifest(folder)["started"] for folder in folders if (folder / MANIFEST).exists()}
    if made:
        newest = max(made, key=made.__getitem__)
        spec, run = load_any(newest)
        return Cost(*timing(run.columns, evaluations(spec)), made[newest][:10])
    return measured(next(run.spec for run in config.runs if run.environment == environment and run.method == "ppo"))


def timing(columns: dict[str, list], evaluated: int) -> tuple[float, float]:
    """Mean CPU seconds of a round's training and of one of so many evaluations, from the columns of a run's timings."""
    training = mean(map(sum, zip(*(columns[phase][1:] for phase in TRAINING), strict=True)))
    return training, sum(columns["evaluate_s"]) / evaluated


def measured(spec: RunSpec) -> Cost:
    """Of a second round and the evaluation after it."""
    trainer, clock = Trainer(spec), Clock()
    trainer.train_round(Clock())
    trainer.train_round(clock)

    def once() -> None:
        evaluate(trainer.policy, spec.environment, spec.evaluation, 0)

    if spec.evaluation.kind == "exact":
        once()  # builds tables, which a run does once
    return Cost(sum(clock.seconds.values()), cpu_seconds(once))


def run_seconds(run: Run, costs: dict[str, Cost], start_up_s: float) -> float:
    """CPU time of one run."""
    cost = costs[run.environment]
    return start_up_s + run.spec.rounds * cost.training + evaluations(run.spec) * cost.evaluation


def makespan(seconds: Iterable[float], cores: int) -> float:
    """Time until all runs are done, the longest ones first, each on the core that is free first."""
    busy = [0.0] * cores
    for longest in sorted(seconds, reverse=True):
        heapq.heapreplace(busy, busy[0] + longest)
    return max(busy)


TEXT = """\
# Performance

Written by `python -m benchmarks performance`, not by hand. The comparisons with Stable-Baselines3 are in
[results/benchmarks.csv](../results/benchmarks.csv), written by `make bench`. All times are CPU seconds of one thread,
measured {date} on {processor}, with python {python}, gymnasium {gymnasium} and envpool {envpool}.

## Steps a second
Random actions, resets included. Training takes one step at a time. An evaluation moves {copies} copies at once, which
gymnasium does one after another. In bold: what the environment's file names (an exact evaluation has none).

| environment | gymnasium | envpool, one at a time | envpool, {copies} at once |
|---|---|---|---|
{steps}

Without envpool (the extra `fast`) everything runs on gymnasium, at the speed of its column.

## The paper's grid
The {n_runs} runs of `config/paper.yaml`. Seconds of a round of training (sampling, influence, updates) and of an
evaluation are means over the `timing.csv` of the run of PPO that was made last, in any study. Where there is none, a
second round of PPO and the evaluation after it are measured here; later episodes may take longer.

| environment | runs | rounds | a round, s | an evaluation, s | in all | from |
|---|---|---|---|---|---|---|
{environments}

In all {total} of one core. One run per core at a time, the longest first, on cores like this one's:

| cores | {numbers} |
|---|{columns}
| time | {makespans} |

Each run needs {start_up_s:.1f} s to start up, which is counted; what Snakemake needs for a job is not. The longest
run takes {longest}.
"""


def document(config: Config, steps: dict[str, tuple], costs: dict[str, Cost], start_up_s: float) -> str:
    """The text of `docs/performance.md`."""
    runs, seconds = defaultdict(list), defaultdict(list)
    for run in config.runs:
        runs[run.environment].append(run)
        seconds[run.environment].append(run_seconds(run, costs, start_up_s))
    every = [value for values in seconds.values() for value in values]
    return TEXT.format(
        **machine(),
        copies=COPIES,
        steps="\n".join(row(config.environments[name].label, *cells(config, name, r)) for name, r in steps.items()),
        n_runs=len(every),
        environments="\n".join(
            row(
                config.environments[name].label,
                len(own),
                ", ".join(map(str, sorted({run.spec.rounds for run in own}))),
                f"{costs[name].training:.2f}",
                f"{costs[name].evaluation:.2g}",
                duration(sum(seconds[name])),
                f"a run of {costs[name].day}" if costs[name].day else "2 rounds, measured here",
            )
            for name, own in runs.items()
        ),
        total=duration(sum(every)),
        numbers=" | ".join(map(str, CORES)),
        columns="---|" * len(CORES),
        makespans=" | ".join(duration(makespan(every, cores)) for cores in CORES),
        start_up_s=start_up_s,
        longest=duration(max(every)),
    )


def row(*values: object) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(map(str, values))} |"


def cells(config: Config, name: str, rate: tuple[float, float, float]) -> list[str]:
    """Three rates with two digits; those in use are bold."""
    environment = config.environments[name]
    used = {1 if environment.engine == "envpool" else 0}
    if environment.evaluation.kind != "exact":
        used.add(2 if environment.evaluation_engine == "envpool" else 0)
    shown = ["–" if np.isnan(value) else f"{float(f'{value:.2g}'):,.0f}" for value in rate]
    return [f"**{text}**" if i in used else text for i, text in enumerate(shown)]
