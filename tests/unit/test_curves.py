"""Runs' folders: what is read, what is refused and how it is named; a study's table of curves."""

import json
import re
import shutil

import numpy as np
import pytest

from rl_influence.analysis import curves
from rl_influence.config import Config, ConfigError
from rl_influence.runs.files import sha256
from rl_influence.runs.provenance import fingerprint
from rl_influence.runs.store import CURVE_COLUMNS, TIMING_COLUMNS, ResultError, run_directory
from synthetic import CATALOGUE, study, write_run, write_synthetic_study

SMALL = {"environments": ["frozenlake"], "methods": ["ppo", "iif_p50"], "seeds": [0, 10], "rounds": 4}


@pytest.fixture(scope="module")
def config():
    return study(SMALL)


@pytest.fixture
def run(tmp_path, config):
    """A run and its folder: test returns 0, 0.1, 0.2, 0.3, 0.4."""
    run = config.runs[0]
    write_run(tmp_path / "run", run, np.arange(5) / 10)
    return tmp_path / "run", run


def edit(folder, name, change, *, hash_too=False):
    """Changes a file's lines; with `hash_too`, as a writer that wrote nonsense would have."""
    lines = (folder / name).read_text().split("\n")
    (folder / name).write_text("\n".join(change(lines)))
    if hash_too:
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["files_sha256"][name] = sha256(folder / name)
        (folder / "manifest.json").write_text(json.dumps(manifest))


def cell(line, column, value):
    """Puts `value` in a column of curve.csv's line."""

    def change(lines):
        fields = lines[line].split(",")
        fields[CURVE_COLUMNS.index(column)] = value
        lines[line] = ",".join(fields)
        return lines

    return change


def test_a_run_is_read_as_written(run):
    folder, run = run
    frame = curves.load_run(folder, run.spec)
    assert list(frame.columns) == [*CURVE_COLUMNS, *TIMING_COLUMNS[1:]]
    assert frame["round"].tolist() == [0, 1, 2, 3, 4]
    assert frame["env_steps"].tolist() == [0, 2048, 4096, 6144, 8192]
    assert frame["test_return"].tolist() == [0, 0.1, 0.2, 0.3, 0.4]
    assert frame["records_kept"].tolist() == [0, 2048, 2048, 2048, 2048]
    assert frame["sampling_s"].tolist() == [0, 0.1, 0.1, 0.1, 0.1]


@pytest.mark.parametrize("name", ["curve.csv", "timing.csv", "manifest.json"])
def test_a_missing_file_is_named(run, name):
    folder, run = run
    (folder / name).unlink()
    with pytest.raises(ResultError, match=rf"{name}: missing"):
        curves.load_run(folder, run.spec)


DEFECTS = {
    "cut off inside a line": ("curve.csv", lambda lines: [*lines[:4], lines[4][:9]], "its last line has no end"),
    "cut off after a line": ("curve.csv", lambda lines: [*lines[:4], ""], "round 3 is missing; expected 0 to 4"),
    "empty file": ("curve.csv", lambda lines: [""], "columns are ''"),
    "header only": ("curve.csv", lambda lines: [lines[0], ""], "round 0 is missing"),
    "lacks a round": ("curve.csv", lambda lines: lines[:3] + lines[4:], "round 2 is missing"),
    "repeats a round": ("curve.csv", lambda lines: [*lines[:3], *lines[2:]], "repeated"),
    "too many rounds": ("curve.csv", cell(5, "round", "5"), "round 4 is missing"),
    "another column": ("curve.csv", lambda lines: [lines[0] + ",more", *lines[1:]], "columns are 'round,"),
    "a field too many": ("curve.csv", lambda lines: [*lines[:2], lines[2] + ",1", *lines[3:]], "line 3 has 7 fields"),
    "text": ("curve.csv", cell(2, "test_return", "high"), "line 3 is not made of numbers"),
    "a fraction of a step": ("curve.csv", cell(2, "env_steps", "2048.5"), "line 3 is not made of numbers"),
    "nan": ("curve.csv", cell(3, "test_return", "nan"), "round 2: test_return is nan, expected a finite number"),
    "inf": ("curve.csv", cell(3, "test_return", "inf"), "round 2: test_return is inf"),
    "no return": ("curve.csv", cell(3, "test_return", ""), "round 2: test_return is empty"),
    "negative se": ("curve.csv", cell(3, "test_return_se", "-1"), "round 2: test_return_se is -1.0, expected >= 0"),
    "too many records": ("curve.csv", cell(3, "records_kept", "2049"), "records_kept is 2049, expected 0 to 2048"),
    "records before training": ("curve.csv", cell(1, "records_kept", "1"), "round 0: records_kept is 1, expected 0"),
    "negative updates": ("curve.csv", cell(3, "updates", "-3"), "round 2: updates is -3"),
    "other steps": ("curve.csv", cell(3, "env_steps", "4095"), "env_steps is 4095, expected 4096"),
    "time runs backwards": (
        "timing.csv",
        lambda lines: [*lines[:2], "1,-0.1,0,0,0", *lines[3:]],
        "round 1: sampling_s is -0.1",
    ),
    "no time": ("timing.csv", lambda lines: [*lines[:2], "1,,0,0,0", *lines[3:]], "round 1: sampling_s is empty"),
}


@pytest.mark.parametrize("hash_too", [False, True])
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_damaged_file_is_refused_with_its_defect(run, defect, hash_too):
    folder, run = run
    name, change, message = DEFECTS[defect]
    edit(folder, name, change, hash_too=hash_too)
    with pytest.raises(ResultError, match=re.escape(message)) as error:
        curves.load_run(folder, run.spec)
    assert str(error.value).startswith(f"{folder / name}: ") and "\n" not in str(error.value)


def test_a_plausible_change_is_caught_by_the_checksum(run):
    folder, run = run
    edit(folder, "curve.csv", cell(3, "test_return", "0.21"))
    with pytest.raises(ResultError, match=r"curve\.csv: differs from the checksum"):
        curves.load_run(folder, run.spec)


def test_bytes_that_are_no_text(run):
    folder, run = run
    (folder / "curve.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ResultError, match=r"curve\.csv: cannot be read"):
        curves.load_run(folder, run.spec)


def test_another_configurations_result_is_refused(run):
    folder, run = run
    with pytest.raises(ResultError, match="another configuration"):
        curves.load_run(folder, run.spec.model_copy(update={"seed": 1}))
    with pytest.raises(ResultError, match="expected 0 to 3, found 5 rows"):
        curves.load_run(folder, run.spec.model_copy(update={"rounds": 3}))


def test_rounds_that_are_not_evaluated_are_empty(tmp_path):
    run = study(SMALL | {"evaluation_every": 3}).runs[0]
    write_run(tmp_path, run, np.arange(5) / 10)
    frame = curves.load_run(tmp_path, run.spec)
    np.testing.assert_array_equal(frame["test_return"], [0, np.nan, np.nan, 0.3, 0.4])
    edit(tmp_path, "curve.csv", cell(2, "test_return", "0.1"), hash_too=True)
    with pytest.raises(ResultError, match="round 1: test_return is 0.1, expected nothing"):
        curves.load_run(tmp_path, run.spec)
    edit(tmp_path, "curve.csv", lambda lines: cell(4, "test_return", "")(cell(2, "test_return", "")(lines)))
    with pytest.raises(ResultError, match="round 3: test_return is empty, expected a finite number"):
        curves.load_run(tmp_path, run.spec)


def test_a_study_holds_its_runs_in_its_order(tmp_path, config):
    write_synthetic_study(tmp_path, config, curve=lambda run: np.arange(5) + run.seed)
    loaded = curves.load_study(config, tmp_path)
    assert loaded.missing == () and len(loaded.curves) == 4 * 5
    runs = loaded.curves[["environment", "method", "seed"]].drop_duplicates().to_numpy().tolist()
    assert runs == [["frozenlake", method, seed] for method in ("ppo", "iif_p50") for seed in (0, 10)]
    assert loaded.curves["test_return"].tolist() == [*range(5), *range(10, 15)] * 2
    assert (loaded.runs["reason"] == "").all()
    assert loaded.runs["fingerprint"].tolist() == [fingerprint(run.spec) for run in config.runs]
    assert set(loaded.runs["numpy"]) == {np.__version__}


def test_what_is_missing_is_named_with_its_reason(tmp_path, config):
    folders = write_synthetic_study(tmp_path, config)
    shutil.rmtree(folders[0])
    leftover = folders[1].with_name("seed10-00000000")
    folders[1].rename(leftover)
    edit(folders[2], "curve.csv", lambda lines: lines[:-2])
    loaded = curves.load_study(config, tmp_path)
    reasons = {(run.method, run.seed): reason for run, reason in loaded.missing}
    assert reasons == {
        ("ppo", 0): f"no folder {folders[0].name}",
        ("ppo", 10): f"no folder {folders[1].name}; only another configuration or version: seed10-00000000",
        ("iif_p50", 0): f"{folders[2].name}/curve.csv: truncated, its last line has no end",
    }
    assert set(zip(loaded.curves["method"], loaded.curves["seed"], strict=True)) == {("iif_p50", 10)}
    assert (loaded.runs["reason"] != "").sum() == 3
    # the machine's own paths are no part of results
    assert not any(str(tmp_path) in reason for reason in loaded.runs["reason"])


def test_a_folder_that_the_study_does_not_expect_is_not_read(tmp_path, config):
    folders = write_synthetic_study(tmp_path, config)
    shutil.copytree(folders[0], folders[0].with_name("seed7-12345678"))
    loaded = curves.load_study(config, tmp_path)
    assert set(loaded.curves["seed"]) == {0, 10}


def test_an_empty_study(tmp_path, config):
    loaded = curves.load_study(config, tmp_path)
    assert len(loaded.curves) == 0 and len(loaded.missing) == 4
    assert list(loaded.curves.columns[:4]) == ["environment", "method", "seed", "round"]


def test_a_manifest_cannot_overwrite_the_table(tmp_path, config):
    folder = write_synthetic_study(tmp_path, config)[0]
    manifest = json.loads((folder / "manifest.json").read_text())
    for packages in ({"seed": "9", "reason": "x"}, ["numpy"], None):
        (folder / "manifest.json").write_text(json.dumps(manifest | {"packages": packages}))
        loaded = curves.load_study(config, tmp_path)
        assert loaded.runs["seed"].tolist() == [0, 10, 0, 10] and (loaded.runs["reason"] == "").all()


def test_run_directory_is_where_a_run_is_looked_for(tmp_path, config):
    folders = write_synthetic_study(tmp_path, config)
    assert folders == [tmp_path / run_directory("made_up", run) for run in config.runs]


@pytest.fixture
def catalogue(tmp_path):
    """The catalogue with an Adam variant of MiniGrid and a few more methods."""
    folder = shutil.copytree(CATALOGUE, tmp_path / "config")
    text = (folder / "environments" / "minigrid.yaml").read_text()
    text = text.replace("id: minigrid\n", "id: minigrid_adam\n").replace("label: MiniGrid", "label: MiniGrid (Adam)")
    text = re.sub(r"ppo:.*", "ppo: {optimizer: adam, learning_rate: 0.0003}", text)
    (folder / "environments" / "minigrid_adam.yaml").write_text(text)
    methods = (folder / "methods.yaml").read_text()
    for name in ("noclip_a", "noclip_b"):
        methods = re.sub(rf"^{name}:.*\n", "", methods, flags=re.M)
    (folder / "methods.yaml").write_text(
        "a_noclip: {label: A, selection: {kind: influence, drop_percent: 37}, ppo: {max_grad_norm: null}}\n" + methods
    )
    return folder


def test_roles_come_from_what_methods_do(catalogue):
    config = study(
        {"environments": ["frozenlake", "minigrid", "minigrid_adam"], "methods": ["ppo", "iif_p12_5"], "seeds": [0]},
        folder=catalogue,
    )
    assert curves.reference_method(config) == "ppo"
    sweep = curves.iif_sweep(config)
    assert list(sweep.items()) == [
        ("iif_p6_25", 6.25),
        ("iif_p12_5", 12.5),
        ("iif_p25", 25),
        ("iif_p50", 50),
        ("iif_p100", 100),
    ]
    assert [curves.chosen_iif(config, e) for e in ("frozenlake", "minigrid", "minigrid_adam")] == [
        "iif_p50",
        "iif_p12_5",
        "iif_p12_5",
    ]
    own = study({"environments": ["frozenlake"], "methods": ["ppo", "iif"], "seeds": [0]}, folder=catalogue)
    assert curves.chosen_iif(own, "frozenlake") == "iif" and curves.iif_sweep(own) == sweep
    assert curves.adam_variants(config) == ["minigrid_adam"]
    assert curves.environments_of(config) == ["frozenlake", "minigrid", "minigrid_adam"]
    assert curves.methods_of(config) == ["ppo", "iif_p12_5"]


def test_a_catalogue_without_standard_ppo(catalogue):
    text = (catalogue / "methods.yaml").read_text()
    (catalogue / "methods.yaml").write_text("\n".join(line for line in text.split("\n") if "{kind: all}" not in line))
    config = study({"environments": ["frozenlake"], "methods": ["iif_p50"], "seeds": [0]}, folder=catalogue)
    with pytest.raises(ConfigError, match="no standard PPO"):
        curves.reference_method(config)


def test_the_repositorys_studies_load_without_results(tmp_path):
    for name in ("config", "paper", "smoke"):
        config = Config(CATALOGUE / f"{name}.yaml")
        assert len(curves.load_study(config, tmp_path).missing) == len(config.runs)


@pytest.mark.parametrize(("seeds", "expected"), [([0], ["frozenlake"]), ([0, 1], ["frozenlake", "acrobot"])])
def test_an_environment_of_few_seeds_is_not_compared(seeds, expected):
    config = study(SMALL | {"seeds": [0, 1, 2]}, SMALL | {"environments": ["acrobot"], "seeds": seeds})
    assert curves.compared_environments(config) == expected
