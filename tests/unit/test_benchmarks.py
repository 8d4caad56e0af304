"""What the benchmarks compute of their measurements."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from benchmarks.performance import Cost, document, makespan, run_seconds, timing
from rl_influence.config import Config
from rl_influence.runs.progress import SECONDS

GRID = [
    {"environments": ["frozenlake"], "methods": ["ppo", "iif_p50", "random"], "seeds": [0, 1, 2], "rounds": 2},
    {"environments": ["acrobot"], "methods": ["ppo"], "seeds": [0], "rounds": 1},
]
CONFIG = Config({"study": "test", "grid": GRID}, Path(__file__).parents[2] / "config")


def test_makespan_is_within_a_third_of_the_best_schedule():
    """Longest first is at most 4/3 of the shortest possible, which a search finds; and by hand."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        seconds = rng.integers(1, 20, size=6).tolist()
        schedules = product(range(2), repeat=6)
        best = min(
            max(sum(s for s, c in zip(seconds, cores, strict=True) if c == core) for core in (0, 1))
            for cores in schedules
        )
        assert best <= makespan(seconds, 2) <= 4 / 3 * best
    assert makespan([5, 4, 3, 3, 1], 2) == 8
    assert makespan([5, 4, 3], 1) == 12
    assert makespan([5, 4, 3], 16) == 5


def test_seconds_of_a_run_and_of_its_timings():
    rounds = [(0, 0, 0, 3), (1, 0.5, 2, 0.25), (2, 0.5, 3, 5)]
    columns = dict(
        zip(("sampling_s", "influence_s", "optimise_s", "evaluate_s"), zip(*rounds, strict=True), strict=True)
    )
    assert timing(columns, 2) == (4.5, 4.125)
    run = next(run for run in CONFIG.runs if run.environment == "acrobot")  # 1 round: evaluated before and after it
    assert run_seconds(run, {"acrobot": Cost(10, 3)}, 0.5) == 0.5 + 10 + 2 * 3


def test_the_document_names_every_environment():
    costs = {"frozenlake": Cost(3600, 0, "2026-12-01"), "acrobot": Cost(7200, 0)}
    rates = {"frozenlake": (12_345.6, np.nan, np.nan), "acrobot": (1.0, 22.0, 333.0)}
    text = document(CONFIG, rates, costs, 0.0)
    assert "| FrozenLake | **12,000** | – | – |" in text
    assert "| Acrobot | **1** | 22 | **330** |" in text  # training on gymnasium, evaluation on envpool
    assert "| FrozenLake | 9 | 2 | 3600.00 | 0 | 18 h 0 min | a run of 2026-12-01 |" in text
    assert "| Acrobot | 1 | 1 | 7200.00 | 0 | 2 h 0 min | 2 rounds, measured here |" in text
    assert "In all 20 h 0 min of" in text and "| time | 10 h 0 min | 2 h 0 min | 2 h 0 min |" in text


def test_time_left_starts_from_the_costs_of_the_document():
    """Rows of its last table: environment, runs, rounds, seconds of a round, seconds of an evaluation."""
    root = Path(__file__).parents[2]
    config = Config(root / "config/paper.yaml")
    labels = {environment.label: environment for environment in config.environments.values()}
    text = (root / "docs/performance.md").read_text().split("## The paper's grid")[1]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    found = {labels[row[0]].id: row for row in rows if row and row[0] in labels}
    assert found.keys() == SECONDS.keys()
    for name, (a_round, an_episode) in SECONDS.items():
        evaluation = config.environments[name].evaluation
        episodes = 1 if evaluation.kind == "exact" else evaluation.episodes
        seconds = a_round, an_episode * episodes
        assert seconds == pytest.approx([float(found[name][3]), float(found[name][4])], rel=0.1), name
