"""What a results tree holds, and one tree out of several."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from rl_influence.cli import main
from rl_influence.config import Config
from rl_influence.runs.files import sha256
from rl_influence.runs.merge import check, merge
from rl_influence.runs.store import ResultError, run_directory
from synthetic import CATALOGUE, study, write_synthetic_study

CONFIG = study({"environments": ["frozenlake"], "methods": ["ppo", "iif_p50"], "seeds": [0, 1], "rounds": 3})
FOLDERS = [run_directory(CONFIG.study, run) for run in CONFIG.runs]


def files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.glob("results/*/runs/**/*") if path.is_file()
    }


def tree(root: Path, *numbers: int) -> Path:
    """A results tree with some of the runs."""
    expected = [CONFIG.runs[number] for number in numbers]
    write_synthetic_study(root, CONFIG, skip=lambda run: run not in expected)
    (root / "results" / CONFIG.study).mkdir(parents=True, exist_ok=True)
    return root


def trained_elsewhere(folder: Path) -> None:
    """Changes a run as another processor might: a whole run whose last digit differs."""
    curve, manifest = folder / "curve.csv", folder / "manifest.json"
    lines = curve.read_text().splitlines()
    fields = lines[-1].split(",")
    fields[2] = repr(float(fields[2]) + 1e-7)
    curve.write_text("\n".join([*lines[:-1], ",".join(fields)]) + "\n")
    record = json.loads(manifest.read_text())
    record["files_sha256"]["curve.csv"] = sha256(curve)
    record["host"]["processor"] = "Another one"
    manifest.write_text(json.dumps(record))


def test_a_tree_is_checked_run_by_run(tmp_path):
    root = tree(tmp_path, 0, 1, 2)
    (root / FOLDERS[1] / "curve.csv").write_text("round\n")
    other = study({"environments": ["frozenlake"], "methods": ["random"], "seeds": [5], "rounds": 3})
    [leftover] = write_synthetic_study(root, other)
    found = check(CONFIG, root)
    assert found.whole == 2
    assert found.missing == [f"frozenlake iif_p50 seed 1: no folder {FOLDERS[3].name}"]
    [damaged] = found.damaged
    assert damaged.startswith("frozenlake ppo seed 1: ") and "curve.csv: columns are 'round'" in damaged
    assert found.leftover == [leftover.relative_to(root).as_posix()]


def test_runs_of_other_settings_are_missing_and_named(tmp_path):
    other = study({"environments": ["frozenlake"], "methods": ["ppo"], "seeds": [0], "rounds": 4})
    [folder] = write_synthetic_study(tmp_path, other)
    assert f"only another configuration or version: {folder.name}" in check(CONFIG, tmp_path).missing[0]


def test_trees_of_two_machines_become_one(tmp_path):
    ours, theirs = tree(tmp_path / "ours", 0, 1), tree(tmp_path / "theirs", 1, 2, 3)
    merged = merge(CONFIG, theirs, ours)
    assert merged.added == ["frozenlake iif_p50 seed 0", "frozenlake iif_p50 seed 1"]
    assert merged.same == 1 and not merged.conflicts and not merged.damaged
    assert files(ours) == files(tree(tmp_path / "all", 0, 1, 2, 3))
    assert merge(CONFIG, theirs, ours).same == 3


def test_runs_that_differ_are_named_and_ours_is_kept(tmp_path):
    ours, theirs = tree(tmp_path / "ours", 0), tree(tmp_path / "theirs", 0)
    trained_elsewhere(theirs / FOLDERS[0])
    before = files(ours)
    merged = merge(CONFIG, theirs, ours)
    [line] = merged.conflicts
    assert line.startswith("frozenlake ppo seed 0: curves or weights differ") and "Another one with torch" in line
    assert files(ours) == before and not merged.added


def test_a_damaged_run_is_not_taken_and_replaced_by_a_whole_one(tmp_path):
    ours, theirs = tree(tmp_path / "ours", 0), tree(tmp_path / "theirs", 0, 1)
    for folder in (ours / FOLDERS[0], theirs / FOLDERS[1]):
        (folder / "timing.csv").unlink()
    merged = merge(CONFIG, theirs, ours)
    assert merged.added == ["frozenlake ppo seed 0"]
    assert len(merged.damaged) == 1 and "timing.csv: missing" in merged.damaged[0]
    assert check(CONFIG, ours).whole == 1


def test_another_seeds_result_under_a_runs_name_is_not_taken(tmp_path):
    theirs = tree(tmp_path / "theirs", 0, 1)
    shutil.copytree(theirs / FOLDERS[1], theirs / FOLDERS[0], dirs_exist_ok=True)
    merged = merge(CONFIG, theirs, tmp_path / "ours")
    assert merged.added == ["frozenlake ppo seed 1"] and "another configuration or version" in merged.damaged[0]


def test_runs_that_another_study_has_are_taken_too(tmp_path):
    another = Config({"study": "another", "grid": [CONFIG.study_config.grid[0].model_dump()]}, CATALOGUE)
    theirs = tmp_path / "theirs"
    write_synthetic_study(theirs, another, skip=lambda run: run.method == "ppo")
    merged = merge(CONFIG, theirs, tree(tmp_path / "ours", 0))
    assert merged.added == ["frozenlake iif_p50 seed 0", "frozenlake iif_p50 seed 1"]
    assert check(CONFIG, tmp_path / "ours").whole == 3
    assert files(tmp_path / "ours") == files(tree(tmp_path / "all", 0, 2, 3))


def test_diagnostics_come_along(tmp_path):
    theirs = tree(tmp_path / "theirs", 0) / FOLDERS[0]
    (theirs / "diagnostics.csv").write_text("round,episodes\n1,2\n")
    record = json.loads((theirs / "manifest.json").read_text())
    record["files_sha256"]["diagnostics.csv"] = sha256(theirs / "diagnostics.csv")
    (theirs / "manifest.json").write_text(json.dumps(record))
    merge(CONFIG, tmp_path / "theirs", tmp_path / "ours")
    assert files(tmp_path / "ours") == files(tmp_path / "theirs")


def test_no_results_at_all(tmp_path):
    with pytest.raises(ResultError, match="holds no folder results"):
        merge(CONFIG, tmp_path, tmp_path)


def test_the_commands(tmp_path, monkeypatch, capsys):
    tree(tmp_path, 0, 1)
    theirs = tree(tmp_path / "theirs", 1, 2)
    folder = shutil.copytree(Path(__file__).parents[2] / "config", tmp_path / "config")
    (folder / "mine.yaml").write_text(yaml.safe_dump(CONFIG.study_config.model_dump(mode="json")))
    assert [run.spec for run in Config(folder / "mine.yaml").runs] == [run.spec for run in CONFIG.runs]
    monkeypatch.chdir(tmp_path)
    main(["merge", "--config=config/mine.yaml", str(theirs)])
    assert capsys.readouterr().out == (
        f"added: frozenlake iif_p50 seed 0\n{theirs}: 1 runs added, 1 were here already\n"
    )
    main(["check", "--config=config/mine.yaml"])
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("missing: frozenlake iif_p50 seed 1: ")
    assert said[1] == "study made_up: 3 of 4 runs are whole, 1 missing, 0 damaged, 0 leftover"
    (FOLDERS[0] / "curve.csv").write_text("")
    trained_elsewhere(theirs / FOLDERS[1])
    for command, words in (("check", "1 damaged runs"), ("merge", "1 runs were not taken")):
        sources = [str(theirs)] if command == "merge" else []
        with pytest.raises(SystemExit) as stopped:
            main([command, "--config=config/mine.yaml", *sources])
        assert stopped.value.code == 1 and words in capsys.readouterr().err
