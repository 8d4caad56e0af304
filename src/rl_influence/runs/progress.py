"""How far a study is, and how long the rest will take."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

from rl_influence.config import Run, RunSpec
from rl_influence.runs.store import load

# CPU seconds of a round of training, and of a test episode or exact evaluation, on one machine (docs/performance.md).
# Others are slower or faster, much the same in every environment.
SECONDS = {
    "frozenlake": (0.09, 0.0014),
    "minigrid": (0.43, 0.0029),
    "minigrid_adam": (0.51, 0.0033),
    "acrobot": (0.55, 0.003),
    "highway": (0.34, 0.0014),
    "lunarlander": (0.28, 0.0022),
    "lunarlander_adam": (0.2, 0.013),
    "bipedalwalker": (0.3, 0.059),
    "pong": (25.98, 0.83),
}
UNKNOWN = (0.5, 0.004)
START_UP_S = 1.5  # of a run's process


class Progress:
    """A study's runs while some of them train side by side.

    Every run has an expected cost (`SECONDS`). How long runs really took, in their own environment or else in all, says
    how much slower this machine is; that times the costs that are left, shared by the runs that train at the same time,
    is the estimate.

    Args:
        runs: all of the study, by any key.
        done: keys of those that are there.
        parallel: runs that train at the same time.
    """

    def __init__(self, runs: Mapping[str, Run], done: Collection[str], parallel: int):
        self.runs, self.done, self.parallel = runs, {*done}, parallel
        self.started: dict[str, float] = {}
        self.seconds, self.expected = defaultdict(float), defaultdict(float)  # of finished runs, by environment

    def start(self, key: str, now: float | None = None) -> None:
        """Notes that a run starts now (by the clock that never goes back)."""
        self.started[key] = time.monotonic() if now is None else now

    def finish(self, key: str, now: float | None = None) -> str:
        """Notes that a run has ended; says how many are done, and how long the others take."""
        now = time.monotonic() if now is None else now
        self.done.add(key)
        run, start = self.runs[key], self.started.pop(key, None)
        if start is not None:
            self.seconds[run.environment] += now - start
            self.expected[run.environment] += expected_seconds(run.spec)
        line = f"{len(self.done)} of {len(self.runs)} runs trained"
        seconds = self.left(now)
        return f"{line}, about {duration(seconds)} left" if seconds else line

    def left(self, now: float) -> float:
        """Seconds until all runs are done; 0 if they are."""
        pace = {name: self.seconds[name] / cost for name, cost in self.expected.items()}
        overall = sum(self.seconds.values()) / sum(self.expected.values()) if pace else 1.0
        waiting = []
        for key, run in self.runs.items():
            if key not in self.done:
                whole = pace.get(run.environment, overall) * expected_seconds(run.spec)
                waiting.append(max(0.1 * whole, whole - (now - self.started.get(key, now))))
        return max(sum(waiting) / self.parallel, max(waiting)) if waiting else 0.0


def expected_seconds(spec: RunSpec) -> float:
    """What a run takes on the machine of `SECONDS`."""
    a_round, an_episode = SECONDS.get(spec.environment.id, UNKNOWN)
    episodes = 1 if spec.evaluation.kind == "exact" else spec.evaluation.episodes
    return START_UP_S + spec.rounds * a_round + evaluations(spec) * episodes * an_episode


def evaluations(spec: RunSpec) -> int:
    """How often a run is evaluated: before the first round, after every so many, and after the last."""
    return 2 + (spec.rounds - 1) // spec.evaluation.every


def outcome(run: Run, folder: str | Path) -> str:
    """`frozenlake iif seed 2: test return 0.9978 after 50 rounds`.

    Raises:
        ResultError: if the run is not whole.
    """
    returns = load(folder, run.spec).columns["test_return"]
    return f"{run.name}: test return {returns[-1]:.4g} after {len(returns) - 1} round{'s' * (len(returns) != 2)}"


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
