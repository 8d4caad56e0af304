"""Analyses run by run: the same bytes from any snapshots, and tables that name what is missing."""

import fcntl
import json
import shutil
import threading
import time
from types import SimpleNamespace

import pandas as pd
import pytest

from rl_influence.analysis import single_rounds
from rl_influence.analysis.curves import load_study
from rl_influence.analysis.registry import analysis_directory
from rl_influence.analysis.single_rounds import load_analyses, run_analysis, source
from rl_influence.analysis.tables import runs, write_table
from rl_influence.config import Config
from rl_influence.runs import snapshots, training
from rl_influence.runs.store import Status, run_directory, snapshot_directory
from synthetic import CATALOGUE, write_synthetic_study


@pytest.fixture(scope="module")
def config() -> Config:
    grid = [{"environments": ["frozenlake"], "methods": ["ppo"], "seeds": [0, 1], "rounds": 2}]
    agreement = {"analysis": "agreement", "environments": ["frozenlake"], "seeds": [0, 1], "rounds": [1]}
    diagnosis = {"analysis": "diagnosis", "environments": ["frozenlake"], "seeds": [1], "rounds": [0, 1]}
    return Config({"study": "made_up", "grid": grid, "analyses": [agreement, diagnosis]}, CATALOGUE)


def run_all(config: Config, root, **arguments) -> None:
    for analysis in config.analyses:
        folder = root / snapshot_directory(config.study, analysis.run)
        output = root / analysis_directory(config.study, analysis)
        run_analysis(analysis, output, snapshot_dir=folder, log=lambda line: None, **arguments)


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory):
    root = tmp_path_factory.mktemp("finished")
    run_all(config, root)
    return root


@pytest.fixture
def copy(finished, tmp_path):
    shutil.copytree(finished / "results", tmp_path / "results")
    return tmp_path


def files(root) -> dict:
    return {p.relative_to(root): p.read_bytes() for p in sorted((root / "results/made_up/analyses").rglob("*.*"))}


def test_snapshots_of_the_training_itself_give_the_same_bytes(config, finished, tmp_path):
    for run in config.runs:
        folders = run_directory(config.study, run), snapshot_directory(config.study, run)
        output, kept = (tmp_path / folder for folder in folders)
        training.run(run.spec, output, snapshot_rounds=[0, 1], snapshot_dir=kept, log=lambda line: None)
    run_all(config, tmp_path)
    assert files(tmp_path) == files(finished) and len(files(finished)) == 2 * 2 + 6


def test_only_what_is_lacking_is_trained_again(config, copy):
    analysis = config.analyses[0]
    folder, output = copy / snapshot_directory("made_up", analysis.run), copy / "again"
    said = []
    run_analysis(analysis, output, snapshot_dir=folder, log=said.append)
    assert len(said) == 1 and said[0].startswith("agreement of 1 rounds")
    (folder / "round_1.npz").unlink()
    run_analysis(analysis, output, snapshot_dir=folder, snapshot_rounds=[0], log=said.append)
    assert said[1].startswith("training 2 rounds again") and snapshots.rounds_in(folder) == [0, 1]


def test_other_weights_than_the_runs_are_logged(config, copy, tmp_path):
    analysis = config.analyses[0]
    folder = copy / snapshot_directory("made_up", analysis.run)
    own = json.loads((copy / analysis_directory("made_up", analysis) / "manifest.json").read_text())["weights_sha256"]
    for weights, lines in ((own, 1), ("other", 2)):
        (tmp_path / "manifest.json").write_text(json.dumps({"weights_sha256": weights}))
        said = []
        run_analysis(analysis, tmp_path / "again", snapshot_dir=folder, trained=tmp_path, log=said.append)
        assert len(said) == lines and ("ends with other weights" in said[0]) == (lines == 2)


def test_two_analyses_of_a_run_train_it_one_after_the_other(config, copy, tmp_path, monkeypatch):
    events = []

    def take_snapshots(*_, **__):
        events.append("begin")
        time.sleep(0.05)
        events.append("end")

    def analyse(*_):  # torch's forward mode does not work in two threads at once
        return {"agreement": pd.DataFrame({"round": [1]})}

    monkeypatch.setattr(training, "take_snapshots", take_snapshots)
    monkeypatch.setattr(single_rounds, "load", lambda name: SimpleNamespace(analyse=analyse))
    analysis = config.analyses[0]
    folder = copy / snapshot_directory("made_up", analysis.run)
    jobs = [
        threading.Thread(target=run_analysis, args=(analysis, tmp_path / str(i)), kwargs={"snapshot_dir": folder})
        for i in range(2)
    ]
    with open(folder / "lock", "w") as lock:  # a third process
        fcntl.flock(lock, fcntl.LOCK_EX)
        for job in jobs:
            job.start()
        time.sleep(0.05)
        assert events == []
    for job in jobs:
        job.join()
    assert events == ["begin", "end"] * 2


def test_tables_over_all_runs(config, finished):
    found = load_analyses(config, finished)
    assert found.missing == () and found.tables["missing_analyses"].empty
    table = found.tables["agreement"]
    assert table.columns[:3].tolist() == ["environment", "method", "seed"]
    assert table["seed"].tolist() == [0, 0, 1, 1] and table["round"].tolist() == [1] * 4
    for analysis in config.analyses[:2]:
        own = pd.read_csv(finished / analysis_directory("made_up", analysis) / "agreement.csv")
        mine = table[table["seed"] == analysis.run.seed].drop(columns=["environment", "method", "seed"])
        pd.testing.assert_frame_equal(mine.reset_index(drop=True), own)
    summary = found.tables["agreement_summary"].set_index("shortcut")
    spearman = table[table["shortcut"] == "raw"]["spearman"]
    assert summary.loc["raw", "spearman"] == pytest.approx(spearman.mean(), abs=1e-12)
    assert summary.loc["raw", ["n", "expected"]].tolist() == [2, 2]
    listed = found.tables["analyses"]
    assert listed["analysis"].tolist() == ["diagnosis", "agreement", "agreement"] and (listed["reason"] == "").all()
    assert (listed["python"] != "").all()


def test_what_is_missing_is_named_and_enters_no_mean(config, copy):
    shutil.rmtree(copy / analysis_directory("made_up", config.analyses[0]))
    shutil.rmtree(copy / analysis_directory("made_up", config.analyses[2]))
    found = load_analyses(config, copy)
    missing = found.tables["missing_analyses"]
    assert missing[["analysis", "environment", "method", "seed"]].values.tolist() == [
        ["diagnosis", "frozenlake", "ppo", 1],
        ["agreement", "frozenlake", "ppo", 0],
    ]
    assert missing["reason"].str.startswith("no folder seed").all()
    assert set(found.tables["agreement"]["seed"]) == {1}
    assert found.tables["agreement_summary"][["n", "expected"]].values.tolist() == [[1, 2]] * 2
    for name in ("diagnosis", "diagnosis_summary", "diagnosis_map"):
        assert found.tables[name].empty and "environment" in found.tables[name]


@pytest.mark.parametrize(
    ("file", "damage", "reason", "status"),
    [
        ("agreement.csv", lambda text: text[:-3], "agreement.csv: differs from the checksum", Status.DAMAGED),
        ("agreement.csv", lambda text: None, "agreement.csv: missing", Status.DAMAGED),
        ("manifest.json", lambda text: text[:20], "manifest.json: not a manifest", Status.DAMAGED),
        ("manifest.json", lambda text: None, "no folder", Status.MISSING),
        ("manifest.json", lambda text: text.replace('"fingerprint": "', '"fingerprint": "0'), "another", Status.STALE),
    ],
)
def test_a_damaged_result_is_named(config, copy, file, damage, reason, status):
    analysis = config.analyses[0]
    path = copy / analysis_directory("made_up", analysis) / file
    text = damage(path.read_text())
    path.unlink()
    if text is not None:
        path.write_text(text)
    found = load_analyses(config, copy)
    [one] = found.missing
    assert one.expected == analysis and one.status is status
    assert path.parent.name in one.reason and reason in one.reason and str(copy) not in one.reason


def test_an_analysis_without_its_manifest_is_not_there(config, copy):
    folder = copy / analysis_directory("made_up", config.analyses[0])
    (folder / "manifest.json").unlink()
    [one] = load_analyses(config, copy).missing
    assert (one.expected, one.status, one.reason) == (config.analyses[0], Status.MISSING, f"no folder {folder.name}")


def test_what_figures_say_of_their_analyses(config, finished, tmp_path):
    write_synthetic_study(tmp_path, config)
    write_table(runs(load_study(config, tmp_path)), tmp_path / "runs.csv")
    assert "agreement" not in source(["curves_summary"], tmp_path, "made_up")
    write_table(load_analyses(config, finished).tables["analyses"], tmp_path / "analyses.csv")
    text = source(["agreement_summary", "curves_summary"], tmp_path, "made_up")
    assert text.startswith("study made_up: 2 of 2 runs") and "; agreement of 2 of 2 runs, digest" in text
    assert text.endswith("see results/made_up/tables/analyses.csv") and "diagnosis" not in text
    assert single_rounds.source(["diagnosis_grid"], tmp_path, "made_up") != text
