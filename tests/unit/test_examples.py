"""The examples: each ends in a picture; the one of a single file gives the project's own curves."""

from __future__ import annotations

import csv
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from rl_influence.config import load_run_spec
from rl_influence.runs import run

pytest.importorskip("stable_baselines3")
image = pytest.importorskip("matplotlib.image")

ROOT = Path(__file__).parents[2]
QUICK = {  # arguments that make a few seconds of each
    "custom_environment": ["--steps", "2048"],
    "iif_in_one_file": ["--rounds", "2"],
    "plain_torch_policy": ["--rounds", "2"],
    "score_sb3_rollout": [],
    "train_filtered_ppo": ["--steps", "2048", "--seeds", "1"],
}


def test_every_example_is_tested():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(QUICK)


@pytest.mark.parametrize("name", QUICK)
def test_every_example_takes_one_core(name):
    """Several threads on a busy machine made ten times as long of the same."""
    assert "torch.set_num_threads(1)" in (ROOT / f"examples/{name}.py").read_text()


@pytest.mark.parametrize("value", ["50", "-1", "nan"])
def test_the_one_file_refuses_a_share_that_is_none(value, monkeypatch, capsys):
    path = ROOT / "examples/iif_in_one_file.py"
    monkeypatch.setattr(sys, "argv", [str(path), f"--drop-fraction={value}"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"--drop-fraction {value}: a fraction in [0, 1] is needed")


def check_picture(path):
    """Large enough, with something on white."""
    pixels = image.imread(path)[..., :3]
    assert min(pixels.shape[:2]) >= 400
    coloured = np.ptp(pixels, axis=-1) > 0.2
    assert 0.001 < coloured.mean() < 0.5 and (pixels > 0.99).all(-1).mean() > 0.3


def run_example(name, arguments, folder):
    output = folder / "deep/picture.png"  # its folder is made
    command = [sys.executable, "-W", "error::FutureWarning", ROOT / "examples" / f"{name}.py", *arguments]
    done = subprocess.run(
        [*command, "--output", output],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"MPLBACKEND": "Agg"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(output) and "Warning" not in done.stderr
    check_picture(output)
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["iif_in_one_file", "plain_torch_policy", "score_sb3_rollout"])
def test_an_example_ends_in_a_picture(name, tmp_path):
    said = run_example(name, QUICK[name], tmp_path)
    if name == "score_sb3_rollout":
        assert said.startswith("last rollout: 512 records")
        rows = [line.split() for line in said.splitlines() if line[:1].isdigit()]
        influence = [float(row[-1]) for row in rows]
        assert len(rows) == 10
        assert influence[:5] == sorted(influence[:5], reverse=True) and influence[5:] == sorted(influence[5:])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, arguments in QUICK.items() if arguments])
def test_an_example_at_full_length(name, tmp_path):
    run_example(name, [], tmp_path)


@pytest.fixture(scope="module")
def one_file():
    return runpy.run_path(str(ROOT / "examples/iif_in_one_file.py"))


def test_one_file_reads_at_one_sitting_and_shares_no_code():
    text = (ROOT / "examples/iif_in_one_file.py").read_text()
    assert text.count("\n") <= 200
    assert "import rl_influence" not in text and "from rl_influence" not in text


def returns(folder):
    with open(folder / "curve.csv") as file:
        return np.array([float(row["test_return"]) for row in csv.DictReader(file)])


@pytest.mark.parametrize(
    ("rounds", "seed"),
    [(1, 0), *(pytest.param(10, seed, marks=pytest.mark.slow) for seed in (0, 1, 2))],
)
@pytest.mark.parametrize(("method", "fraction"), [("ppo", 0.0), ("iif_p50", 0.5)])
def test_one_file_trains_as_the_project_does(one_file, method, fraction, rounds, seed, tmp_path):
    assert torch.get_num_threads() == 1
    spec = load_run_spec(environment="frozenlake", method=method, seed=seed, config=ROOT / "config/config.yaml")
    run(spec.model_copy(update={"rounds": rounds}), tmp_path, log=lambda line: None)
    np.testing.assert_allclose(one_file["train"](seed, rounds, fraction), returns(tmp_path), rtol=0, atol=1e-4)


@pytest.mark.slow
def test_one_files_whole_curve_lies_within_the_seeds_spread(one_file):
    folders = sorted((ROOT / "results/paper/runs/frozenlake/iif_p50").glob("seed*"))
    curves = np.array([returns(folder) for folder in folders])
    assert len(curves) >= 5
    mine = np.array(one_file["train"](0, 50, 0.5))
    assert (mine >= curves.min(0) - 1e-3).all() and (mine <= curves.max(0) + 1e-3).all()
    assert mine[-1] > 0.9 > mine[5]
