"""`rl-influence new`: what it writes works as it stands, and what was there stays."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from pictures import assert_legible
from rl_influence import figures, skeletons
from rl_influence.analysis.curves import load_study
from rl_influence.analysis.tables import make_tables
from rl_influence.cli import main
from rl_influence.config import Config, parse
from rl_influence.config.models import RunSpec
from rl_influence.figures import style
from rl_influence.runs.check import check_environment
from rl_influence.runs.trainer import Clock, Trainer
from synthetic import CATALOGUE, study, write_synthetic_study


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    return shutil.copytree(CATALOGUE, tmp_path / "config")


def new(catalogue: Path, kind: str, name: str, capsys) -> str:
    main(["new", kind, name, f"--config={catalogue / 'config.yaml'}"])
    return capsys.readouterr().out


def short(config: Config, environment: str, method: str) -> RunSpec:
    data = config.resolve(environment, method, 0).model_dump()
    data["ppo"] |= {"n_steps": 128, "n_epochs": 1}
    return parse(RunSpec, data, "test")


def test_a_new_environment_trains(catalogue, capsys):
    said = new(catalogue, "environment", "mine", capsys)
    assert said == f"{catalogue / 'environments/mine.yaml'}: change it, and name mine in a study's grid\n"
    config = Config(catalogue / "config.yaml")
    check_environment(config.environments["mine"])
    trainer = Trainer(short(config, "mine", "iif"))
    assert trainer.train_round(Clock())["updates"] > 0


def test_new_methods_train_and_are_settings_of_their_own(catalogue, capsys):
    before = yaml.safe_load((catalogue / "methods.yaml").read_text())
    for name in ("mine", "another"):
        assert name in new(catalogue, "method", name, capsys)
        config = Config(catalogue / "config.yaml")  # two ids of one setting are refused
        trainer = Trainer(short(config, "frozenlake", name))
        assert 0 < trainer.train_round(Clock())["records_kept"] < 128
    after = yaml.safe_load((catalogue / "methods.yaml").read_text())
    assert {name: after[name] for name in before} == before and [*after][-2:] == ["mine", "another"]


def test_a_new_figure_draws(tmp_path, catalogue, monkeypatch, capsys):
    folder = tmp_path / "figures"
    folder.mkdir()
    monkeypatch.setattr(skeletons, "FIGURES", folder)
    assert new(catalogue, "figure", "mine", capsys).startswith(f"{folder / 'mine.py'}: change it")
    entry = figures.discover(folder)["mine"]
    assert entry.caption.startswith("Test return after the last round")
    location = importlib.util.spec_from_file_location("rl_influence.figures.mine", folder / "mine.py")
    module = importlib.util.module_from_spec(location)
    monkeypatch.setitem(sys.modules, location.name, module)
    location.loader.exec_module(module)
    config = study({"environments": ["frozenlake", "acrobot"], "methods": ["ppo", "iif"], "seeds": [0, 1], "rounds": 3})
    write_synthetic_study(tmp_path, config)
    tables: dict[str, pd.DataFrame] = make_tables(load_study(config, tmp_path), entry.reads)
    with style.context():
        figure = module.draw(tables, config)
        assert_legible(figure)
    assert [axis.get_title() for axis in figure.axes] == ["FrozenLake", "Acrobot"]
    assert all(len(line.get_ydata()) == 2 for axis in figure.axes for line in axis.lines)


@pytest.mark.parametrize(
    "kind, name, words",
    [
        ("environment", "frozenlake", "frozenlake.yaml: exists already"),
        ("method", "ppo", "methods.yaml: there is a method ppo already"),
        ("figure", "returns", "returns.py: exists already"),
        ("method", "../x", "method '../x': expected a-z"),
        ("environment", "nan", "environment 'nan': is a value and no name"),
    ],
)
def test_what_is_there_stays_and_names_are_checked(kind, name, words, catalogue, capsys):
    files = [*catalogue.rglob("*.yaml"), *skeletons.FIGURES.glob("*.py")]
    before = {path: path.read_bytes() for path in files}
    with pytest.raises(SystemExit) as stopped:
        new(catalogue, kind, name, capsys)
    error = capsys.readouterr().err
    assert stopped.value.code == 1 and error.count("\n") == 1 and words in error
    assert {path: path.read_bytes() for path in files} == before
