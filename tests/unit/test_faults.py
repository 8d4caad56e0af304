"""A small version of `make faults`, and that its counts would show a failure."""

from __future__ import annotations

import os

import numpy as np
import pytest
import yaml

from benchmarks.faults import Tally, files, runs
from rl_influence import config
from rl_influence.config import ConfigError
from rl_influence.runs import checkpoints, store, training


def outcome(tally: Tally) -> tuple[int, int]:
    return tally.wrong, tally.unclear


# Nothing goes wrong


@pytest.mark.slow
@pytest.mark.parametrize("environment, kills", [("frozenlake", 24), ("acrobot", 8)])
def test_runs_killed_at_any_moment_end_with_the_same_bytes(environment, kills):
    tally = runs.kill_runs(environment, kills, seed=11)
    assert tally.faults == kills and outcome(tally) == (0, 0)
    assert tally.kinds["SIGKILL"] and tally.kinds["SIGTERM"] and tally.kinds["runs"] > 1


@pytest.mark.slow
def test_clocks_that_jump_change_nothing():
    tally = runs.kill_runs("frozenlake", 6, seed=12, turn_clock=True)
    assert tally.faults == 6 and outcome(tally) == (0, 0)


@pytest.mark.slow
def test_two_processes_on_one_folder():
    tally = runs.two_at_once(4, seed=13)
    assert tally.faults == 4 and outcome(tally) == (0, 0)


@pytest.mark.slow
def test_disks_that_are_full_or_read_only():
    try:
        tallies = runs.full_disks(5, seed=14), runs.read_only_disks(2, seed=15)
    except PermissionError as error:
        pytest.skip(f"this process may not mount a small disk: {error}")
    assert [tally.faults for tally in tallies] == [5, 2]
    assert [outcome(tally) for tally in tallies] == [(0, 0), (0, 0)]


def test_damaged_files_are_refused_in_one_line():
    tally = files.damage_files(400, seed=16)
    assert tally.faults == 400 and outcome(tally) == (0, 0)
    assert set(tally.kinds) == set(files.DAMAGES)


@pytest.mark.slow
def test_spoilt_configurations_are_refused_in_one_line():
    tally = files.spoil_configurations(300, seed=17)
    assert tally.faults == 300 and outcome(tally) == (0, 0)
    assert tally.kinds["refused"] > 200 and tally.kinds["accepted"] > 3


# A failure would be seen


def test_every_damage_changes_the_content():
    rng = np.random.default_rng(0)
    content = b"\0" * 64 + b"\n"
    assert all(files.damaged(content, rng)[1] != content for _ in range(200))


def test_files_that_are_believed_are_counted(monkeypatch):
    monkeypatch.setattr(store, "check_run", lambda *_: {})  # no checksums
    assert files.damage_files(400, seed=18).wrong > 0


def test_tracebacks_are_counted(monkeypatch, capsys):
    def broken(*_):
        raise KeyError("seed")

    monkeypatch.setattr(files, "Config", broken)
    tally = files.spoil_configurations(3, seed=19)
    assert tally.unclear == 3 and "KeyError" in capsys.readouterr().err


@pytest.mark.parametrize("message, unclear", [("one line", 0), ("two\nlines", 1), ("long" * 300, 1)])
def test_messages_of_several_lines_are_counted(message, unclear, monkeypatch):
    def refuse(*_):
        raise ConfigError(message)

    monkeypatch.setattr(files, "Config", refuse)
    assert files.spoil_configurations(1, seed=20).unclear == unclear


def test_the_small_study_is_accepted(tmp_path):
    study = runs.small_study(tmp_path / "config")
    loaded = config.Config(study)
    assert len(loaded.runs) == 16 and yaml.safe_load(study.read_text())["study"] == "faults"


def test_bytes_that_differ_are_counted(tmp_path):
    shop = runs.Workshop(tmp_path)
    run = shop.run("frozenlake")
    shop._undisturbed[run.environment, run.method] = (b"abcd", 0.0)
    for found, wrong in ((b"abcd", 0), (b"abxd", 1), (b"ab", 2), (b"abcdef", 2)):
        tally = Tally()
        run.outcome = lambda found=found: found
        shop.count(run, tally)
        assert tally.wrong == wrong


def test_a_run_continues_where_its_newest_state_is_whatever_its_time(tmp_path, monkeypatch):
    """Not the file's time decides, but the round in it."""
    monkeypatch.setattr(training, "CHECKPOINT_EVERY_S", -1.0)
    states = checkpoints.Checkpoints(tmp_path, "f")
    for k, time in ((1, 4e9), (2, 0)):
        states.save({"round": k})
        os.utime(tmp_path / ("ab"[k - 1] + ".npz"), (time, time))
    assert states.load()["round"] == 2
    states.close()
