"""The line that says how far a study is, by hand."""

from pathlib import Path

import pytest

from rl_influence.config import Run, load_run_spec
from rl_influence.runs.progress import cpu_seconds, duration, progress
from rl_influence.runs.store import TIMING_COLUMNS, run_directory

CONFIG = Path(__file__).parents[2] / "config/config.yaml"
HEADER = ",".join(TIMING_COLUMNS) + "\n"


def run(environment: str, seed: int, rounds: int) -> Run:
    spec = load_run_spec(environment=environment, method="ppo", seed=seed, config=CONFIG)
    spec = spec.model_copy(update={"rounds": rounds})
    return Run(environment=environment, method="ppo", seed=seed, spec=spec)


def finish(root: Path, run: Run, text: str) -> None:
    folder = root / run_directory("s", run)
    folder.mkdir(parents=True)
    (folder / "timing.csv").write_text(text)


def timing(rounds: int, seconds_a_round: float) -> str:
    row = f"{seconds_a_round / 2},{seconds_a_round / 4},{seconds_a_round / 4},0"
    return HEADER + "0,0,0,0,0\n" + "".join(f"{k},{row}\n" for k in range(1, rounds + 1))


@pytest.mark.parametrize(
    "seconds, text",
    [(0, "0 s"), (40.4, "40 s"), (89.4, "89 s"), (90, "2 min"), (720, "12 min"), (3 * 3600 + 1200, "3 h 20 min")],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_nothing_done(tmp_path):
    assert progress("s", [run("frozenlake", 0, 10)], 2, tmp_path) == "0 of 1 runs trained, time left not known yet"


def test_everything_done(tmp_path):
    only = run("frozenlake", 0, 10)
    finish(tmp_path, only, timing(10, 1))
    assert progress("s", [only], 2, tmp_path) == "1 of 1 runs trained"
    assert progress("s", [], 2, tmp_path) == "0 of 0 runs trained"


def test_an_environment_is_estimated_by_its_own_speed_and_the_unknown_by_all(tmp_path):
    runs = [run("frozenlake", seed, 10) for seed in range(3)] + [run("minigrid", seed, 20) for seed in range(2)]
    runs.append(run("acrobot", 0, 30))
    finish(tmp_path, runs[0], timing(10, 1.0))  # 10 s for 10 rounds
    finish(tmp_path, runs[3], timing(20, 4.0))  # 80 s for 20 rounds
    # left: 2 * 10 rounds at 1 s, 20 at 4 s, 30 at 90 s / 30 rounds = 3 s: 20 + 80 + 90 s
    assert progress("s", runs, 1, tmp_path) == "2 of 6 runs trained, about 3 min left"  # 190 s
    assert progress("s", runs, 2, tmp_path) == "2 of 6 runs trained, about 2 min left"  # 95 s
    for cores in (4, 64):  # four runs are left: more cores than that are of no use
        assert progress("s", runs, cores, tmp_path) == "2 of 6 runs trained, about 48 s left"


@pytest.mark.parametrize(
    "text",
    [
        "",
        HEADER,
        HEADER + "0,1,2\n",
        HEADER + "0,1,2,3,4,5\n",
        HEADER + "0,1,2,x,4\n",
        HEADER + "0,1,2,nan,4\n",
        HEADER + "0,1,2,inf,4\n",
        "a" * 200_000,
    ],
)
def test_a_damaged_file_is_a_run_that_is_not_done(text, tmp_path):
    runs = [run("frozenlake", 0, 10), run("frozenlake", 1, 10)]
    finish(tmp_path, runs[0], text)
    with pytest.raises(ValueError, match="timing.csv|could not convert"):
        cpu_seconds(tmp_path / run_directory("s", runs[0]) / "timing.csv")
    assert progress("s", runs, 2, tmp_path) == "0 of 2 runs trained, time left not known yet"


def test_bytes_that_are_no_text(tmp_path):
    only = run("frozenlake", 0, 10)
    finish(tmp_path, only, "")
    (tmp_path / run_directory("s", only) / "timing.csv").write_bytes(bytes(range(256)))
    assert progress("s", [only], 2, tmp_path).startswith("0 of 1")


def test_another_configurations_run_does_not_count(tmp_path):
    finish(tmp_path, run("frozenlake", 0, 10), timing(10, 1))
    assert progress("s", [run("frozenlake", 0, 11)], 2, tmp_path).startswith("0 of 1")
