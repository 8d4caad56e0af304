"""The line that says how far a study is, by hand."""

import re
from pathlib import Path

import numpy as np
import pytest

from rl_influence.config import Config, EvaluationConfig, Run, load_run_spec
from rl_influence.runs.progress import SECONDS, START_UP_S, UNKNOWN, Progress, duration, expected_seconds, outcome
from synthetic import write_run

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "config/config.yaml"


def run(environment: str, seed: int, rounds: int, **changes) -> Run:
    spec = load_run_spec(environment=environment, method="ppo", seed=seed, config=CONFIG)
    spec = spec.model_copy(update={"rounds": rounds} | changes)
    return Run(environment=environment, method="ppo", seed=seed, spec=spec)


@pytest.mark.parametrize(
    "seconds, text",
    [(0, "0 s"), (40.4, "40 s"), (89.4, "89 s"), (90, "2 min"), (720, "12 min"), (3 * 3600 + 1200, "3 h 20 min")],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_what_a_run_is_expected_to_take():
    a_round, an_episode = SECONDS["acrobot"]
    evaluation = EvaluationConfig(kind="batched", episodes=200, every=4)  # rounds 0, 4, 8 and the last
    assert expected_seconds(run("acrobot", 0, 10, evaluation=evaluation).spec) == pytest.approx(
        START_UP_S + 10 * a_round + 4 * 200 * an_episode
    )
    a_round, an_evaluation = SECONDS["frozenlake"]
    assert expected_seconds(run("frozenlake", 0, 50).spec) == pytest.approx(
        START_UP_S + 50 * a_round + 51 * an_evaluation
    )


def test_an_environment_that_nobody_has_measured():
    known = run("frozenlake", 0, 10)
    environment = known.spec.environment.model_copy(update={"id": "mine"})
    spec = known.spec.model_copy(update={"environment": environment})
    assert expected_seconds(spec) == pytest.approx(START_UP_S + 10 * UNKNOWN[0] + 11 * UNKNOWN[1])


def test_every_run_is_done():
    progress = Progress({"a": run("frozenlake", 0, 10)}, [], 2)
    progress.start("a", 0)
    assert progress.finish("a", 10) == "1 of 1 runs trained"


@pytest.fixture
def study():
    """Two environments; on this machine runs take three times what is expected, and minigrid's four times."""
    runs = {f"f{seed}": run("frozenlake", seed, 10) for seed in range(4)}
    return runs | {f"m{seed}": run("minigrid", seed, 20) for seed in range(3)}


def cost(study, key) -> float:
    return expected_seconds(study[key].spec)


def test_an_environment_is_estimated_by_its_own_pace_and_one_without_by_all(study):
    progress, now = Progress(study, [], 1), 0.0
    progress.start("f0", now)
    now += 3 * cost(study, "f0")
    progress.finish("f0", now)
    assert progress.left(now) == pytest.approx(3 * sum(cost(study, key) for key in study if key != "f0"))
    progress.start("m0", now)
    now += 4 * cost(study, "m0")
    progress.finish("m0", now)
    frozen, mini = (cost(study, key) for key in ("f1", "m1"))
    assert progress.left(now) == pytest.approx(3 * 3 * frozen + 4 * 2 * mini)


def test_runs_that_train_side_by_side(study):
    """What they have behind them counts; and the longest one that is left takes its time on any number of cores."""
    whole = {key: 2 * cost(study, key) for key in study}
    progress = Progress(study, ["f3", "m2"], 2)
    for key in ("f0", "m0"):
        progress.start(key, 0)
    now = whole["f0"]
    line = progress.finish("f0", now)
    left = sum(whole[key] for key in ("f1", "f2", "m1")) + whole["m0"] - now
    assert progress.left(now) == pytest.approx(left / 2)
    assert line == f"3 of 7 runs trained, about {duration(left / 2)} left"
    progress.parallel = 64
    assert progress.left(now) == pytest.approx(whole["m1"])


def remaining(runs: dict[str, Run], seconds: dict[str, float]) -> list[tuple[float, float]]:
    """(estimate, truth) after each finished run of a study that two workers train in order."""
    progress, waiting, training, found = Progress(runs, [], 2), list(runs), {}, []
    now = 0.0
    while waiting or training:
        while waiting and len(training) < 2:
            key = waiting.pop(0)
            training[key] = now + seconds[key]
            progress.start(key, now)
        key = min(training, key=training.get)
        now = training.pop(key)
        progress.finish(key, now)
        found.append((progress.left(now), now))
    return [(estimate, now - then) for estimate, then in found]


@pytest.mark.parametrize("order", ["as planned", "backwards", 1, 2, 3])
@pytest.mark.parametrize("machine", [0.4, 3.0])
def test_from_the_third_run_on_the_time_left_is_right_within_a_factor_of_one_and_a_half(order, machine):
    """On a machine of another speed, where one environment is 15 % slower than the table says, the other 15 % faster,
    and runs of one kind differ by 8 %; at the very end within a tenth of a run."""
    runs = {run.name: run for run in Config(CONFIG).runs}
    names, random = list(runs), np.random.default_rng(0)
    if order == "backwards":
        names.reverse()
    elif order != "as planned":
        np.random.default_rng(order).shuffle(names)
    pace = {"frozenlake": 0.85 * machine, "minigrid": 1.15 * machine}
    seconds = {
        name: pace[run.environment] * expected_seconds(run.spec) * random.uniform(0.92, 1.08)
        for name, run in runs.items()
    }
    found = remaining({name: runs[name] for name in names}, seconds)
    assert len(found) == len(runs)
    for estimate, truth in found[2:]:
        assert truth / 1.5 <= estimate <= 1.5 * truth or abs(estimate - truth) < 0.1 * max(seconds.values())


def test_a_run_that_takes_longer_than_expected_is_not_done(study):
    progress = Progress(study, [key for key in study if key not in ("f0", "m0")], 2)
    progress.start("f0", 0)
    progress.start("m0", 0)
    now = cost(study, "f0")
    progress.finish("f0", now)
    assert progress.left(now + 1e6) == pytest.approx(0.1 * cost(study, "m0"))


def test_a_run_that_was_done_before_says_nothing_of_the_pace(study):
    progress = Progress(study, [], 1)
    progress.finish("f0", 5.0)
    assert progress.left(5.0) == pytest.approx(sum(cost(study, key) for key in study if key != "f0"))


def test_how_a_run_ended(tmp_path):
    one = run("frozenlake", 7, 10)
    write_run(tmp_path, one, [0.1] * 10 + [0.123456])
    assert outcome(one, tmp_path) == "frozenlake ppo seed 7: test return 0.1235 after 10 rounds"


def test_runs_are_started_before_analyses_of_others():
    """Or the time left, which is that of runs, would be spent on analyses."""
    rules = {path.name: path.read_text() for path in (ROOT / "workflow/rules").glob("*.smk")}
    assert {name: re.findall(r"priority: *(\d+)", text) for name, text in rules.items() if "priority:" in text} == {
        "train.smk": ["1"]
    }
