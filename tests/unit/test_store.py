"""Run folders: what is read, what is refused and how it is named, and in which study a run is found."""

import json
import re
import shutil
import sys

import numpy as np
import pytest

from rl_influence.config import Config, RunSpec
from rl_influence.runs import provenance, store
from rl_influence.runs.columns import CURVE_COLUMNS, TIMING_COLUMNS
from rl_influence.runs.files import sha256
from rl_influence.runs.provenance import fingerprint
from rl_influence.runs.store import ResultError, Results, Status, run_directory
from synthetic import CATALOGUE, study, write_run, write_synthetic_study

SMALL = {"environments": ["frozenlake"], "methods": ["ppo", "iif_p50"], "seeds": [0, 10], "rounds": 4}


@pytest.fixture(scope="module")
def config():
    return study(SMALL)


def test_a_runs_folder(tmp_path, config):
    run = config.runs[0]
    name = f"results/s/runs/frozenlake/ppo/seed0-{fingerprint(run.spec)[:8]}"
    assert run_directory("s", run).as_posix() == name
    folders = write_synthetic_study(tmp_path, config)
    assert folders == [tmp_path / run_directory("made_up", run) for run in config.runs]


# One folder


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
    columns = store.load(folder, run.spec).columns
    assert list(columns) == [*CURVE_COLUMNS, *TIMING_COLUMNS[1:]]
    assert columns["round"] == [0, 1, 2, 3, 4]
    assert columns["env_steps"] == [0, 2048, 4096, 6144, 8192]
    assert columns["test_return"] == [0, 0.1, 0.2, 0.3, 0.4]
    assert columns["records_kept"] == [0, 2048, 2048, 2048, 2048]
    assert columns["sampling_s"] == [0, 0.1, 0.1, 0.1, 0.1]


@pytest.mark.parametrize("name", ["curve.csv", "timing.csv", "manifest.json"])
def test_a_missing_file_is_named(run, name):
    folder, run = run
    (folder / name).unlink()
    for read in (store.load, store.check_run):
        with pytest.raises(ResultError, match=rf"{name}: missing") as error:
            read(folder, run.spec)
        assert error.value.status is Status.INCOMPLETE


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
        store.load(folder, run.spec)
    assert str(error.value).startswith(f"{folder / name}: ") and "\n" not in str(error.value)
    assert error.value.status is Status.DAMAGED


def test_a_plausible_change_is_caught_by_the_checksum(run):
    folder, run = run
    edit(folder, "curve.csv", cell(3, "test_return", "0.21"))
    with pytest.raises(ResultError, match=r"curve\.csv: differs from the checksum"):
        store.load(folder, run.spec)


def test_bytes_that_are_no_text(run):
    folder, run = run
    (folder / "curve.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ResultError, match=r"curve\.csv: cannot be read"):
        store.load(folder, run.spec)


def test_another_configurations_result_is_refused(run):
    folder, run = run
    with pytest.raises(ResultError, match="another configuration") as error:
        store.load(folder, run.spec.model_copy(update={"seed": 1}))
    assert error.value.status is Status.STALE
    with pytest.raises(ResultError, match="expected 0 to 3, found 5 rows"):
        store.load(folder, run.spec.model_copy(update={"rounds": 3}))


def test_rounds_that_are_not_evaluated_are_empty(tmp_path):
    run = study(SMALL | {"evaluation_every": 3}).runs[0]
    write_run(tmp_path, run, np.arange(5) / 10)
    found = store.load(tmp_path, run.spec).columns["test_return"]
    np.testing.assert_array_equal(found, [0, np.nan, np.nan, 0.3, 0.4])
    edit(tmp_path, "curve.csv", cell(2, "test_return", "0.1"), hash_too=True)
    with pytest.raises(ResultError, match="round 1: test_return is 0.1, expected nothing"):
        store.load(tmp_path, run.spec)
    edit(tmp_path, "curve.csv", lambda lines: cell(4, "test_return", "")(cell(2, "test_return", "")(lines)))
    with pytest.raises(ResultError, match="round 3: test_return is empty, expected a finite number"):
        store.load(tmp_path, run.spec)


def test_a_manifest_says_what_the_result_is(run):
    folder, spec = run[0], run[1].spec
    record = store.check_run(folder, spec)
    assert RunSpec(**record["spec"]) == spec
    assert record["fingerprint"] == fingerprint(spec) and record["results_version"] == provenance.RESULTS_VERSION
    assert record["code_fingerprint"] == provenance.code_fingerprint() and record["threads"] == provenance.threads()
    assert record["packages"]["torch"].startswith("2.") and record["packages"]["envpool"]
    assert record["packages"]["python"] == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.parametrize("name", ["curve.csv", "timing.csv"])
def test_every_altered_byte_is_noticed(name, run):
    folder, spec = run[0], run[1].spec
    path, whole = folder / name, (folder / name).read_bytes()
    flipped = [whole[:i] + bytes([whole[i] ^ 1 << bit]) + whole[i + 1 :] for i in range(len(whole)) for bit in range(8)]
    for content in (whole[:-1], b"", whole + b"\n", *flipped):
        path.write_bytes(content)
        with pytest.raises(ResultError, match=f"{name}: differs from the checksum"):
            store.check_run(folder, spec)
    path.write_bytes(whole)
    store.check_run(folder, spec)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"3", b"null", b'"text"', b"{}", b"\xff\xfe", b"[" * 10**5, b"9" * 5000]
    + [b'{"files_sha256": {}}', b'{"files_sha256": 3, "fingerprint": ""}', b'{"files_sha256": [1], "fingerprint": ""}'],
)
def test_what_is_no_manifest_is_refused_in_one_line(content, run):
    folder, spec = run[0], run[1].spec
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(ResultError, match="manifest.json: not a manifest") as error:
        store.check_run(folder, spec)
    assert "\n" not in str(error.value)


def test_a_truncated_manifest_is_refused(run):
    folder, spec = run[0], run[1].spec
    whole = (folder / "manifest.json").read_bytes()
    for length in range(0, len(whole) - 1, 7):
        (folder / "manifest.json").write_bytes(whole[:length])
        with pytest.raises(ResultError, match="not a manifest"):
            store.check_run(folder, spec)


def test_another_configurations_result_is_stale_even_if_it_is_not_whole(run):
    folder, spec = run[0], run[1].spec
    other = spec.model_copy(update={"seed": 1})
    for missing in (None, "curve.csv"):
        if missing:
            (folder / missing).unlink()
        with pytest.raises(ResultError, match=f"another configuration or version .*{fingerprint(other)[:8]}"):
            store.check_run(folder, other)


def test_a_folder_in_place_of_a_file(run):
    folder, spec = run[0], run[1].spec
    (folder / "curve.csv").unlink()
    (folder / "curve.csv").mkdir()
    with pytest.raises(ResultError, match="curve.csv: cannot be read"):
        store.check_run(folder, spec)


def test_a_run_is_written_with_the_manifest_last(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(store, "write_atomic", lambda path, data: written.append(path.name))
    store.write(tmp_path, {"curve.csv": b"", "timing.csv": b"", "diagnostics.csv": b""}, {"fingerprint": "f"})
    assert written == ["curve.csv", "timing.csv", "diagnostics.csv", "manifest.json"]


def test_a_run_whose_specification_only_its_manifest_knows(run):
    folder, run = run
    spec, result = store.load_any(folder)
    assert spec == run.spec and result.columns["test_return"] == [0, 0.1, 0.2, 0.3, 0.4]
    record = json.loads((folder / "manifest.json").read_text())
    for spec in ({}, 3, record["spec"] | {"rounds": 0}):
        (folder / "manifest.json").write_text(json.dumps(record | {"spec": spec}))
        with pytest.raises(ResultError, match="manifest.json: not a manifest") as error:
            store.load_any(folder)
        assert "\n" not in str(error.value)


# Studies


def statuses(config: Config, root, **options) -> list[Status]:
    results = Results(root)
    return [results.find(config.study, run, **options).status for run in config.runs]


@pytest.mark.parametrize("read", [True, False])
def test_every_status(read, tmp_path, config):
    whole, incomplete, damaged, stale = write_synthetic_study(tmp_path, config)
    (incomplete / "manifest.json").unlink()
    (damaged / "timing.csv").write_text("round\n")
    record = json.loads((stale / "manifest.json").read_text())
    (stale / "manifest.json").write_text(json.dumps(record | {"fingerprint": "0" * 64}))
    assert statuses(config, tmp_path, read=read) == [Status.WHOLE, Status.INCOMPLETE, Status.DAMAGED, Status.STALE]
    found = [Results(tmp_path).find(config.study, run, read=read) for run in config.runs]
    assert [one.is_absent for one in found] == [False, True, False, False]
    assert [one.is_damaged for one in found] == [False, False, True, True]
    assert found[0].reason == "" and found[1].reason == f"{incomplete.name}/manifest.json: missing"
    assert found[2].reason == f"{damaged.name}/timing.csv: columns are 'round', expected {','.join(TIMING_COLUMNS)!r}"
    assert "belongs to another configuration" in found[3].reason
    assert (found[0].result is not None) is read and not any(one.result for one in found[1:])
    shutil.rmtree(whole)
    whole.mkdir()  # as Snakemake makes it before the run
    assert statuses(config, tmp_path, read=read)[0] is Status.MISSING


def test_what_is_missing_names_what_lies_in_its_stead(tmp_path, config):
    folder, *_ = write_synthetic_study(tmp_path, config)
    folder.rename(folder.with_name("seed0-00000000"))
    found = Results(tmp_path).find(config.study, config.runs[0])
    assert found.status is Status.MISSING
    assert found.reason == f"no folder {folder.name}; only another configuration or version: seed0-00000000"
    assert Results(tmp_path).leftover(config) == ["results/made_up/runs/frozenlake/ppo/seed0-00000000"]


def named(name: str, *blocks: dict) -> Config:
    return Config({"study": name, "grid": list(blocks)}, CATALOGUE)


def test_a_run_of_another_study_with_the_same_fingerprint_is_this_studys_run(tmp_path):
    """FrozenLake's own p is 50: `iif` there and `iif_p50` here are one run."""
    theirs = named("theirs", SMALL | {"methods": ["ppo", "iif"]})
    ours = named("ours", SMALL, {"environments": ["frozenlake"], "methods": ["random"], "seeds": [0]})
    there = write_synthetic_study(tmp_path, theirs)
    located = [Results(tmp_path).locate(ours.study, run) for run in ours.runs]
    assert located == [*(path.relative_to(tmp_path) for path in there), run_directory("ours", ours.runs[-1])]
    found = Results(tmp_path).find(ours.study, ours.runs[2])
    assert found.status is Status.WHOLE and found.folder.parent.name == "iif"
    assert found.result.manifest["fingerprint"] == fingerprint(ours.runs[2].spec)
    assert statuses(ours, tmp_path)[-1] is Status.MISSING


def test_a_studys_own_run_comes_first_unless_it_is_not_there(tmp_path):
    ours, theirs = named("ours", SMALL), named("another", SMALL)
    own, there = write_synthetic_study(tmp_path, ours)[0], write_synthetic_study(tmp_path, theirs)[0]
    run = ours.runs[0]
    assert Results(tmp_path).locate("ours", run) == own.relative_to(tmp_path)
    (own / "curve.csv").write_text("damaged")  # is said, and not passed over
    assert Results(tmp_path).find("ours", run).status is Status.DAMAGED
    (own / "manifest.json").unlink()
    assert Results(tmp_path).locate("ours", run) == there.relative_to(tmp_path)
    (there / "timing.csv").unlink()
    assert Results(tmp_path).locate("ours", run) == own.relative_to(tmp_path)


def test_a_name_alone_does_not_make_it_the_same_run(tmp_path):
    """Eight digits of a fingerprint are in a folder's name; all of them are in the manifest."""
    ours, theirs = named("ours", SMALL), named("theirs", SMALL)
    there = write_synthetic_study(tmp_path, theirs)[0]
    record = json.loads((there / "manifest.json").read_text())
    for changed in (record | {"fingerprint": record["fingerprint"][:8] + "0" * 56}, {}):
        (there / "manifest.json").write_text(json.dumps(changed))
        assert Results(tmp_path).locate("ours", ours.runs[0]) == run_directory("ours", ours.runs[0])
