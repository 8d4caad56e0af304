"""Runs on disk: the same bytes after a stop, one-line errors, studies that are closed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import yaml

from rl_influence.config import ConfigError
from rl_influence.rlhf.__main__ import main
from rl_influence.rlhf.run import run
from rl_influence.rlhf.settings import load_study, run_directory
from rl_influence.rlhf.store import ROUND_COLUMNS, Stopped, check_run, read_csv
from rl_influence.rlhf.trainer import Trainer
from rl_influence.runs.store import ResultError

ROOT = Path(__file__).parents[2]


def quiet(line):
    assert len(line) < 200


def outcome(folder: Path) -> tuple:
    recorded = json.loads((folder / "manifest.json").read_text())
    return (folder / "curve.csv").read_bytes(), recorded["weights_sha256"]


@pytest.mark.parametrize("kind", ["gpt2", "gpt_neo"])
def test_a_stopped_run_ends_with_the_same_bytes(make_spec, tmp_path, kind):
    spec = make_spec(kind)
    run(spec, tmp_path / "whole", log=quiet)
    for stop in (0, 1, 2):
        with pytest.raises(Stopped, match=f"stopped after round {stop} of 3; the same command continues there"):
            run(spec, tmp_path / "stopped", log=quiet, stop_after=stop)
    run(spec, tmp_path / "stopped", log=quiet)
    assert outcome(tmp_path / "whole") == outcome(tmp_path / "stopped")
    assert check_run(tmp_path / "stopped", spec)["resumed"] == 3


def test_sigterm_ends_a_run_after_its_round(make_spec, tmp_path):
    spec, lines = make_spec(), []

    def log(line):
        lines.append(line)
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped, match="after round 0"):
        run(spec, tmp_path, log=log)
    assert lines[-1].startswith("round 0/3: test reward ")


def test_curves_hold_what_the_rounds_did(make_spec, tmp_path):
    spec = make_spec()
    lines: list[str] = []
    run(spec, tmp_path, log=lines.append)
    rows, times = read_csv(tmp_path / "curve.csv"), read_csv(tmp_path / "timing.csv")
    assert [row["round"] for row in rows] == [row["round"] for row in times] == ["0", "1", "2", "3"]
    assert [bool(row["test_reward"]) for row in rows] == [True, False, True, True]
    assert [row["test_generations"] for row in rows] == ["6", "", "4", "6"]
    assert abs(float(rows[0]["test_kl"])) < 1e-12 < 1e-6 < abs(float(rows[-1]["test_kl"]))
    assert rows[0]["reward"] == "" and all(float(row["reward_se"]) > 0 for row in rows[1:])
    for row, time in zip(rows[1:], times[1:], strict=True):
        assert int(row["updates"]) == 2 * -(-int(row["sequences_kept"]) // 2)
        assert float(time["influence_s"]) > 0 and float(time["validation_s"]) > 0
    assert 1 < float(rows[0]["test_perplexity"]) < 1000
    assert list(rows[0])[: len(ROUND_COLUMNS)] == list(ROUND_COLUMNS)
    assert "left" in lines[1] and "left" not in lines[-1]
    vocabulary = {"red", "green", "river", "stone", "bird"}
    written = "".join(path.read_text() for path in tmp_path.glob("*.*")) + "".join(lines)
    assert not any(word in written.split() for word in vocabulary)  # scores, never text


def test_a_seed_decides_everything_and_methods_share_it(make_spec):
    first, again, other = (Trainer(make_spec(seed=seed)) for seed in (3, 3, 4))
    for trainer in (first, again, other):
        trainer.batch = trainer.judge(trainer.prompts["train"][:4], np.random.default_rng(0))
    assert (first.batch.tokens == again.batch.tokens).all()
    assert not all((a == b).all() for a, b in zip(first.trained, other.trained, strict=True))


def test_results_of_other_settings_and_altered_ones_are_refused(make_spec, tmp_path):
    spec = make_spec(rounds=1)
    run(spec, tmp_path, log=quiet)
    before = outcome(tmp_path)
    run(spec, tmp_path, log=lambda line: None)
    with pytest.raises(ResultError, match="belongs to other settings"):
        run(make_spec(rounds=2), tmp_path, log=quiet)
    (tmp_path / "curve.csv").write_text("round\n")
    with pytest.raises(ResultError, match="curve.csv: differs from its checksum"):
        check_run(tmp_path, spec)
    run(spec, tmp_path, log=quiet)
    assert outcome(tmp_path) == before


def test_the_committed_studies_are_sound():
    for name, methods, seeds, rounds in (
        ("rlhf_fast", {"ppo", "iif", "iif_token", "random", "ppo_matched_updates"}, 5, 60),
        ("rlhf_study", {"ppo", "iif"}, 3, 25),
        ("rlhf_paper", {"ppo", "iif", "iif_token", "iif_as_published"}, 3, 200),
    ):
        study = load_study(ROOT / f"config/{name}.yaml")
        assert study.study == name and set(study.methods) == methods
        assert len(study.seeds) >= seeds and study.rounds >= rounds
        folders = [run_directory(name, m, s, spec) for m, s, spec in study.runs()]
        assert len(set(folders)) == len(folders) == len(study.seeds) * len(methods)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ppo": {"learning_rat": 1}}, r"unknown key 'ppo.learning_rat', did you mean 'learning_rate'"),
        ({"ppo": {"batch_size": 2, "minibatch_size": 4}}, "minibatch_size 4 is larger than batch_size 2"),
        ({"rounds": 0}, "rounds = 0"),
        (
            {"methods": {"iif": {"label": "x", "selection": {"target": "f_all"}}}},
            "method iif: selection.target = 'f_all'",
        ),
        ({"model": {"name": "x", "dtype": "float16"}}, "model.dtype = 'float16'"),
    ],
)
def test_a_mistake_in_a_study_is_one_line(tmp_path, capsys, change, message):
    data = yaml.safe_load((ROOT / "config/rlhf_fast.yaml").read_text()) | change
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(ConfigError, match=message):
        load_study(path)
    with pytest.raises(SystemExit) as stop:
        main(["study", "--config", str(path)])
    error = capsys.readouterr().err
    assert stop.value.code == 1 and error.count("\n") == 1 and "study.yaml" in error or "study " in error


def test_an_unknown_method_lists_the_choices(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--config", str(ROOT / "config/rlhf_fast.yaml"), "--method", "iff", "--seed", "0"])
    assert "unknown method 'iff', did you mean 'iif'? choices: iif, iif_token" in capsys.readouterr().err
