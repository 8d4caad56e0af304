"""What makes a result another result, what is recorded beside it, and files that are whole or not there."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import create_model

from rl_influence.config import RunSpec, load_run_spec, parse
from rl_influence.config.models import added
from rl_influence.runs import provenance
from rl_influence.runs.files import write_atomic
from rl_influence.runs.provenance import code_fingerprint, fingerprint

ROOT = Path(__file__).parents[2]
SPEC = load_run_spec(environment="acrobot", method="td_error", seed=0, config=ROOT / "config/paper.yaml")


def changed(*place, value) -> RunSpec:
    data = SPEC.model_dump()
    node = data
    for part in place[:-1]:
        node = node[part]
    node[place[-1]] = value
    return parse(RunSpec, data, "changed")


# Fingerprints


@pytest.mark.parametrize(
    "place, value",
    [
        (("seed",), 1),
        (("rounds",), 49),
        (("ppo", "n_steps"), 1024),
        (("ppo", "batch_size"), 32),
        (("ppo", "n_epochs"), 9),
        (("ppo", "gamma"), 0.98),
        (("ppo", "gae_lambda"), 0.9),
        (("ppo", "clip_range"), 0.1),
        (("ppo", "entropy_coef"), 0.01),
        (("ppo", "value_coef"), 1),
        (("ppo", "max_grad_norm"), None),
        (("ppo", "normalize_advantage"), False),
        (("ppo", "optimizer"), "adam"),
        (("ppo", "learning_rate"), 0.004),
        (("ppo", "drop_short_minibatch"), False),
        (("evaluation", "kind"), "episodes"),
        (("evaluation", "episodes"), 999),
        (("evaluation", "every"), 2),
        (("evaluation", "max_steps"), 99),
        (("ppo", "objective"), "policy_gradient"),
        (("selection", "priority_exponent"), 0.7),
        (("selection", "displacement"), "as_all"),
        (("environment", "id"), "other"),
        (("environment", "gym_id"), "CartPole-v1"),
        (("environment", "kwargs"), {"max_episode_steps": 9}),
        (("environment", "package"), "other"),
        (("environment", "wrappers"), ["flatten"]),
        (("environment", "network"), "minigrid_cnn"),
        (("environment", "engine"), "envpool"),
        (("environment", "evaluation_engine"), "gymnasium"),
    ],
)
def test_everything_that_decides_numbers_is_in_the_fingerprint(place, value):
    assert fingerprint(changed(*place, value=value)) != fingerprint(SPEC)


@pytest.mark.parametrize(
    "place, value",
    [
        (("environment", "label"), "Another name in figures"),
        (("environment", "drop_percent"), 7),  # used through `chosen` only, which is resolved by then
        (("environment", "rounds"), 7),
        (("environment", "ppo"), {"gamma": 0.5}),
        (("environment", "evaluation"), {"kind": "exact"}),
        (("ppo", "gamma"), "0.99"),
        (("ppo", "n_steps"), 2048.0),
    ],
)
def test_nothing_else_is(place, value):
    assert fingerprint(changed(*place, value=value)) == fingerprint(SPEC)


def test_the_order_of_an_environments_arguments_does_not_matter():
    one, two = (changed("environment", "kwargs", value=value) for value in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))
    assert fingerprint(one) == fingerprint(two)


def test_every_field_of_the_specification_was_thought_of():
    """A new field must be in one of the lists above."""
    assert set(SPEC.model_dump()) == {"environment", "selection", "ppo", "rounds", "evaluation", "seed"}
    assert len(type(SPEC.ppo).model_fields) == 14 and len(type(SPEC.evaluation).model_fields) == 4
    assert len(type(SPEC.environment).model_fields) == 13 and len(type(SPEC.selection).model_fields) == 6


def test_a_key_that_is_added_later_changes_no_fingerprint_where_it_is_at_its_default():
    later = create_model("Later", __base__=type(SPEC.ppo), key=(float, added(1.0, ge=0)))
    spec = create_model("LaterSpec", __base__=RunSpec, ppo=(later, ...))

    def with_key(**ppo) -> RunSpec:
        data = SPEC.model_dump()
        return spec(**data | {"ppo": data["ppo"] | ppo})

    assert fingerprint(with_key()) == fingerprint(with_key(key=1)) == fingerprint(SPEC)
    assert fingerprint(with_key(key=2)) != fingerprint(SPEC)
    assert with_key(key=2).result_key()["ppo"]["key"] == 2


COMMITTED = sorted((ROOT / "results").glob("*/runs/*/*/*/manifest.json"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: "/".join(path.parts[-5:-1]))
def test_committed_results_keep_their_fingerprints(path):
    """If one fails, the change would make hours of results stale: only what those runs met may raise a version."""
    record = json.loads(path.read_text())
    assert fingerprint(RunSpec(**record["spec"])) == record["fingerprint"]
    assert path.parent.name == f"seed{record['spec']['seed']}-{record['fingerprint'][:8]}"


def test_there_are_committed_results_to_keep():
    assert len(COMMITTED) > 100


def test_another_results_version_is_another_result(monkeypatch):
    before = fingerprint(SPEC)
    monkeypatch.setattr(provenance, "RESULTS_VERSION", provenance.RESULTS_VERSION + 1)
    assert fingerprint(SPEC) != before


@pytest.mark.parametrize("versions, name", [("ENGINE_VERSIONS", "gymnasium"), ("NETWORK_VERSIONS", "mlp")])
def test_the_version_of_an_engine_or_network_counts_where_it_is_used_and_above_1(versions, name, monkeypatch):
    before = fingerprint(SPEC)
    monkeypatch.setitem(getattr(provenance, versions), "another", 2)
    monkeypatch.setitem(getattr(provenance, versions), name, 1)
    assert fingerprint(SPEC) == before
    monkeypatch.setitem(getattr(provenance, versions), name, 2)
    second = fingerprint(SPEC)
    monkeypatch.setitem(getattr(provenance, versions), name, 3)
    assert len({before, second, fingerprint(SPEC)}) == 3


def test_an_engine_and_a_network_of_the_same_version_are_not_taken_for_one_another(monkeypatch):
    monkeypatch.setitem(provenance.ENGINE_VERSIONS, "gymnasium", 2)
    engine = fingerprint(SPEC)
    monkeypatch.delitem(provenance.ENGINE_VERSIONS, "gymnasium")
    monkeypatch.setitem(provenance.NETWORK_VERSIONS, "mlp", 2)
    assert fingerprint(SPEC) != engine


def test_fingerprints_do_not_depend_on_the_process():
    code = (
        "from rl_influence.config import load_run_spec; from rl_influence.runs.provenance import *;"
        f"print(fingerprint(load_run_spec(environment='acrobot', method='td_error', seed=0,"
        f" config={str(ROOT / 'config/paper.yaml')!r})), code_fingerprint())"
    )
    environment = os.environ | {"PYTHONHASHSEED": "77"}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert said.stdout.split() == [fingerprint(SPEC), code_fingerprint()]


# The code's version


def committed(package: Path) -> None:
    """A repository with the package in it."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=b", "-C", package]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)


def version_of(package: Path, monkeypatch) -> str:
    monkeypatch.setattr(provenance, "__file__", str(package / "runs/provenance.py"))
    code_fingerprint.cache_clear()
    try:
        return code_fingerprint()
    finally:
        code_fingerprint.cache_clear()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "rl_influence"
    (folder / "runs").mkdir(parents=True)
    (folder / "runs/provenance.py").write_text("one = 1\n")
    return folder


def test_in_a_repository_the_code_is_its_commit_marked_if_it_was_changed_since(package, monkeypatch):
    committed(package)
    commit = subprocess.run(["git", "-C", package, "rev-parse", "HEAD"], capture_output=True, text=True).stdout
    assert version_of(package, monkeypatch) == commit[:11]
    (package / "another.py").write_text("two = 2\n")
    assert version_of(package, monkeypatch) == commit[:11] + "+"
    (package / "another.py").unlink()
    (package / "runs/provenance.py").write_text("one = 3\n")
    assert version_of(package, monkeypatch) == commit[:11] + "+"


def test_commits_that_leave_the_package_alone_are_not_its_version(package, monkeypatch):
    (package.parent / "README.md").write_text("first\n")
    committed(package.parent)
    before = version_of(package, monkeypatch)
    (package.parent / "README.md").write_text("second\n")
    assert version_of(package, monkeypatch) == before
    committed(package.parent)
    assert version_of(package, monkeypatch) == before


@pytest.mark.parametrize("where", ["nowhere", "ignored", "no git"])
def test_elsewhere_the_code_is_a_hash_of_its_files(where, package, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(package.parent))
    if where == "ignored":  # an environment inside somebody else's repository
        (package.parent / ".gitignore").write_text("rl_influence\n")
        committed(package.parent)
    if where == "no git":
        monkeypatch.setenv("PATH", "")
    version = version_of(package, monkeypatch)
    assert re.fullmatch("[0-9a-f]{12}", version) and version_of(package, monkeypatch) == version
    (package / "runs/provenance.py").write_text("one = 3\n")
    changed = version_of(package, monkeypatch)
    (package / "runs/provenance.py").rename(package / "runs/renamed.py")
    assert len({version, changed, version_of(package, monkeypatch)}) == 3


# Writing


def test_written_whole_with_folders_and_nothing_beside_it(tmp_path):
    path = tmp_path / "a/b/file"
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two" and list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_beside_it(failing, tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as write() says it: without a name

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=str(tmp_path / "file")):
        write_atomic(tmp_path / "file" / "inside", b"x")
