"""`rl-influence run`: what it prints, and how it ends. Bad configurations are in test_config.py."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import rl_influence
from rl_influence import cli
from rl_influence.cli import main
from rl_influence.ppo import TrainingError
from rl_influence.runs import training

ROOT = Path(__file__).parents[2]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """FrozenLake in rounds of some hundredths of a second."""
    folder = shutil.copytree(ROOT / "config", tmp_path / "config")
    environment = folder / "environments/frozenlake.yaml"
    data = yaml.safe_load(environment.read_text())
    data["ppo"] |= {"n_steps": 128, "n_epochs": 1}
    environment.write_text(yaml.safe_dump(data))
    block = {"environments": ["frozenlake"], "methods": ["ppo", "iif_p50"], "seeds": [0], "rounds": 3}
    (folder / "study.yaml").write_text(yaml.safe_dump({"study": "s", "grid": [block]}))
    return folder / "study.yaml"


def arguments(study: Path, method: str = "iif_p50") -> list[str]:
    options = {"config": study, "method": method, "output": study.parent / "out"}
    return ["run", "--environment=frozenlake", "--seed=0", *(f"--{key}={value}" for key, value in options.items())]


def ends(study: Path, capsys, code: int) -> str:
    """Standard error of a run that ends with `code`, which is one line."""
    with pytest.raises(SystemExit) as stopped:
        main(arguments(study))
    error = capsys.readouterr().err
    assert stopped.value.code == code and error.count("\n") == 1 and error.startswith("rl-influence: "), error
    return error


def test_the_version(capsys):
    with pytest.raises(SystemExit, match="^0$"):
        main(["--version"])
    assert capsys.readouterr().out == f"rl-influence {rl_influence.__version__}\n"


def test_a_run(study, capsys):
    main(arguments(study))
    said = capsys.readouterr()
    assert said.err == ""
    assert [line.split(":")[0] for line in said.out.splitlines()] == [f"round {k}/3" for k in range(4)]
    record = json.loads((study.parent / "out/manifest.json").read_text())
    assert record["spec"]["selection"]["drop_percent"] == 50 and record["spec"]["ppo"]["n_steps"] == 128
    main(arguments(study))
    assert capsys.readouterr().out == f"{study.parent / 'out'}: already trained\n"


def test_another_methods_folder(study, capsys):
    main(arguments(study, "ppo"))
    capsys.readouterr()
    assert "belongs to another configuration" in ends(study, capsys, 1)


def test_training_that_cannot_go_on(study, capsys, monkeypatch):
    def fail(*_, **__):
        raise TrainingError("round 3, update 7: policy loss nan")

    monkeypatch.setattr(training, "run", fail)
    assert "round 3, update 7: policy loss nan" in ends(study, capsys, 1)


def test_a_disk_that_is_full(study, capsys, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left on device: " in ends(study, capsys, 1)


def test_sigterm(study, capsys, monkeypatch):
    evaluate = training.evaluate

    def terminated(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return evaluate(*arguments)

    monkeypatch.setattr(training, "evaluate", terminated)
    assert "stopped after round 0 of 3; the same command continues there" in ends(study, capsys, cli.STOPPED)
    monkeypatch.undo()
    main(arguments(study))
    assert capsys.readouterr().out.startswith("continuing after round 0 of 3\n")


def test_control_c(study, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "evaluate", interrupted)
    assert "interrupted" in ends(study, capsys, cli.INTERRUPTED)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"gym_id": "FrozenLak-v1"}, "environment frozenlake: gym_id 'FrozenLak-v1'"),
        ({"package": "no_such_package"}, "package no_such_package: install it, or name the folder that holds it"),
        ({"evaluation_engine": "envpool"}, "environment frozenlake: envpool has no FrozenLake with is_slippery false"),
        ({"gym_id": "Blackjack-v1", "kwargs": {}}, "observation space Tuple is not supported"),
        ({"network": "minigrid_cnn"}, "environment frozenlake: observation space Discrete(16) does not fit network"),
    ],
)
def test_an_environment_that_cannot_be_made(changes, message, study, capsys):
    environment = study.parent / "environments/frozenlake.yaml"
    environment.write_text(yaml.safe_dump(yaml.safe_load(environment.read_text()) | changes))
    assert message in ends(study, capsys, 1)
    assert not (study.parent / "out").exists()


@pytest.fixture
def acrobot(study) -> list[str]:
    """Arguments of a run whose test episodes are envpool's, of some tenths of a second."""
    environment = study.parent / "environments/acrobot.yaml"
    data = yaml.safe_load(environment.read_text()) | {"rounds": 1}
    data["ppo"] |= {"n_steps": 64, "n_epochs": 1}
    data["evaluation"] |= {"episodes": 2, "max_steps": 50}
    environment.write_text(yaml.safe_dump(data))
    return [*arguments(study), "--environment=acrobot", "--snapshot-rounds=0"]


def test_without_envpool_a_run_says_that_it_is_slower(acrobot, study, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    main(acrobot)
    said = capsys.readouterr()
    assert said.err.startswith("rl-influence: environment acrobot: envpool is not installed; gymnasium simulates")
    assert said.out.splitlines()[-1].startswith("round 1/1")
    spec = json.loads((study.parent / "out/manifest.json").read_text())["spec"]["environment"]
    assert (spec["engine"], spec["evaluation_engine"]) == ("gymnasium", "gymnasium")


def test_without_envpool_a_snapshot_that_was_made_with_it_is_evaluated(acrobot, study, capsys, monkeypatch):
    main(acrobot)
    spec = json.loads((study.parent / "out/manifest.json").read_text())["spec"]["environment"]
    assert (spec["engine"], spec["evaluation_engine"]) == ("gymnasium", "envpool")
    capsys.readouterr()
    monkeypatch.setitem(sys.modules, "envpool", None)
    main(["evaluate", f"--run={study.parent / 'out'}", "--round=final"])
    said = capsys.readouterr()
    assert "envpool is not installed" in said.err and "2 of 2 test episodes did not end within max_steps 50" in said.err
    assert said.out == "after 1 rounds: test return -50 (± 0, 2 episodes)\n"


def test_an_evaluation_that_the_environment_does_not_have(study, capsys):
    environment = study.parent / "environments/frozenlake.yaml"
    text = environment.read_text().replace("FrozenLake-v1", "Taxi-v4").replace("is_slippery: false", "")
    data = yaml.safe_load(text) | {"kwargs": {}}
    environment.write_text(yaml.safe_dump(data))
    error = ends(study, capsys, 1)
    assert "exact" in error and "batched" in error


def test_a_terminal_without_plus_minus(study, monkeypatch):
    """Standard output in ASCII, as in some batch systems."""
    monkeypatch.setattr(training, "run", lambda *_, log, **__: log("test return 3 ± 1"))
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    main(arguments(study))
    assert [stream.buffer.getvalue() for stream in streams] == [b"test return 3 ? 1\n", b""]


@pytest.mark.parametrize("kind", [None, *cli.LISTS])
def test_what_there_is_is_listed(kind, study, capsys):
    main(["list", f"--config={study}", *([kind] if kind else [])])
    said = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    expected = {
        "environments": "frozenlake FrozenLake; 50 rounds, p = 50 %, network mlp",
        "methods": "ppo_noclip PPO, no clipping",
        "figures": "fig_controls What the gain of IIF over PPO is made of.",
        "studies": f"{study.as_posix()} study s: 2 runs of frozenlake",
    }
    for name, words in expected.items():
        listed = f"{name}:" in said and any(line.startswith(words) for line in said)
        assert listed == (kind in (None, name)), words


@pytest.mark.parametrize("command", [["list"], ["check"], ["check", "--config=nowhere/mine.yaml"]])
def test_without_a_catalogue_a_line_says_what_to_do(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(command)
    error = capsys.readouterr().err
    file = "nowhere/mine.yaml" if len(command) > 1 else "config/config.yaml"
    assert stopped.value.code == 1 and error.startswith(f"rl-influence: {file}: no such file; work in the clone, ")
    assert error.count("\n") == 1


def test_no_arguments_show_the_usage(capsys):
    with pytest.raises(SystemExit) as stopped:
        main([])
    assert stopped.value.code == 2 and "usage: rl-influence" in capsys.readouterr().err


@pytest.mark.slow
def test_the_program_itself_stops_at_sigterm_and_continues(study):
    data = yaml.safe_load(study.read_text())
    data["grid"][0]["rounds"] = 1000
    study.write_text(yaml.safe_dump(data))
    command = [sys.executable, "-m", "rl_influence", *arguments(study)]
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            while "round 4/" not in (line := process.stdout.readline()) and "continuing" not in line:
                assert line
            process.stdout.readline()
            process.terminate()
            error = process.stderr.read()
        assert process.returncode == 143 and error.count("\n") == 1 and "the same command continues" in error
    assert not (study.parent / "out/curve.csv").exists()


def test_a_reader_who_has_had_enough_is_no_error():
    command = [sys.executable, "-m", "rl_influence", "list"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as listing:
        listing.stdout.close()
        assert listing.stderr.read() == b"" and listing.wait() == 0
