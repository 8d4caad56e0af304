"""The worked examples of docs/extending.md, as the document writes them: their files saved, their commands run."""

import re
import shlex
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml
from PIL import Image

from rl_influence.cli import main
from rl_influence.config import Config, load_environments
from rl_influence.runs.check import check_environment
from synthetic import write_synthetic_study

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/extending.md").read_text()


def blocks(heading: str = "A new environment is one file") -> list[str]:
    """The code blocks of a section of the document, without the fences."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    return re.findall(r"^```\w*\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


@pytest.fixture
def extended(workspace):
    """A workspace with the example's two files."""
    environment, study, _ = blocks()
    (workspace.path / "config/environments/doorkey.yaml").write_text(environment)
    (workspace.path / "config/doorkey_first.yaml").write_text(study)
    return workspace


def test_the_environment(extended):
    environment = load_environments(extended.path / "config/environments")["doorkey"]
    assert environment.gym_id == "MiniGrid-DoorKey-8x8-v0"
    check_environment(environment)


@pytest.mark.slow
def test_the_run(extended, monkeypatch):
    command = shlex.split(blocks()[2].splitlines()[0])
    assert command[:2] == ["rl-influence", "run"]
    monkeypatch.chdir(extended.path)
    main(command[1:])
    curve = pd.read_csv("doorkey_run/curve.csv")
    assert curve["round"].tolist() == [0, 1] and curve["test_return"].between(0, 1).all()
    assert 0 < curve["records_kept"].iloc[1] < 2048


@pytest.mark.slow
def test_the_study(extended):
    command = shlex.split(blocks()[2].splitlines()[1])
    assert command == ["snakemake", "--cores", "all", "--configfile", "config/doorkey_first.yaml"]
    grid = yaml.safe_load(blocks()[1])["grid"][0]
    assert extended.planned("train", study="doorkey_first") == len(grid["methods"]) * len(grid["seeds"]) == 2


@pytest.mark.slow
def test_the_figure(workspace):
    """Nothing but its module is added to the package: here to a copy of it."""
    module, figures = blocks("A new figure is one module")
    shutil.copytree(ROOT / "src", workspace.path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (workspace.path / "src/rl_influence/figures/final_round.py").write_text(module)
    grid = [{"environments": ["frozenlake", "acrobot"], "methods": ["ppo", "random"], "seeds": [0, 1], "rounds": 3}]
    study = workspace.path / "config/mine.yaml"
    study.write_text(yaml.safe_dump({"study": "mine", "grid": grid} | yaml.safe_load(figures)))
    write_synthetic_study(workspace.path, Config(study), skip=lambda run: run.seed == 1 and run.method == "random")
    path = str(workspace.path / "src")
    result = workspace.snakemake("--cores", "2", study="mine", entry="figures.smk", PYTHONPATH=path)
    assert result.returncode == 0, result.stdout
    for name in yaml.safe_load(figures)["figures"]:
        with Image.open(workspace.path / f"paper_figures/mine/{name}.png") as picture:
            assert picture.size[0] > 600 and "1 of FrozenLake, Random" in picture.info["Comment"]
    report = (workspace.path / "report/mine.html").read_text()
    assert "Test return after the last round, every seed a point." in report
