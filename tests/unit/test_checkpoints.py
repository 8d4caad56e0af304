"""Saved states: whole or refused, the one before a damaged one, one owner at a time."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rl_influence.runs.checkpoints import VERSION, Checkpoints, pack, unpack
from rl_influence.runs.store import ResultError

STATE = {
    "round": 3,
    "parameters": np.arange(6, dtype=np.float32) / 7,
    "optimizer/steps": np.array(320),
    "sampler/observation": np.zeros((7, 7, 3), dtype=np.uint8),
    "sampler/actions": np.zeros(0, dtype=np.uint8),
    "sampler/generator": {"bit_generator": "PCG64", "state": {"state": 2**127 + 1, "inc": 5}},
    "curve": [[0, 0, 0.1 + 0.2, 0.0, 0, 0], [1, 2048, "", "", 2048, 320]],
    "text": "π",
}


def same(one, two) -> bool:
    if one.keys() != two.keys():
        return False
    for name, value in one.items():
        other = two[name]
        if isinstance(value, np.ndarray):
            if value.dtype != other.dtype or value.shape != other.shape or value.tobytes() != other.tobytes():
                return False
        elif type(value) is not type(other) or value != other:
            return False
    return True


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


def saved(folder: Path, *rounds: int, fingerprint: str = "f" * 64) -> None:
    states = Checkpoints(folder, fingerprint)
    for k in rounds:
        states.save(STATE | {"round": k})
    states.close()


def loaded(folder: Path, fingerprint: str = "f" * 64) -> tuple[dict | None, list[str]]:
    said: list[str] = []
    states = Checkpoints(folder, fingerprint)
    try:
        return states.load(said.append), said
    finally:
        states.close()


def test_a_state_comes_back_bit_by_bit():
    assert same(unpack(pack(STATE)), STATE)
    special = {"x": np.array([np.nan, np.inf, -0.0, 5e-324]), "round": 0}
    assert same(unpack(pack(special)), special)


def test_every_flipped_bit_and_every_truncation_is_noticed():
    whole = pack(STATE)
    rng = np.random.default_rng(0)
    for position in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << rng.integers(8)
        with pytest.raises(ValueError, match="checksum"):
            unpack(bytes(damaged))
    for length in range(0, len(whole), 11):
        with pytest.raises(ValueError, match="checksum"):
            unpack(whole[:length])


def test_objects_that_would_need_pickle_are_not_packed():
    with pytest.raises((TypeError, ValueError)):
        pack({"x": object()})
    assert b"pickle" not in pack(STATE) and b"numpy.core" not in pack(STATE)


def test_nothing_saved_yet(folder):
    assert loaded(folder) == (None, [])


@pytest.mark.parametrize("rounds", [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)])
def test_the_newest_state_is_loaded_and_two_are_kept(rounds, folder):
    saved(folder, *rounds)
    state, said = loaded(folder)
    assert same(state, STATE | {"round": rounds[-1], "fingerprint": "f" * 64, "version": VERSION}) and said == []
    assert sorted(path.name for path in folder.glob("*.npz")) == ["a.npz", "b.npz"][: len(rounds)]


@pytest.mark.parametrize("rounds, newest", [((1, 2), "b.npz"), ((1, 2, 3), "a.npz")])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_newest_state_falls_back_to_the_one_before_it(rounds, newest, damage, folder):
    saved(folder, *rounds)
    path = folder / newest
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes({"flip": bytes(content), "cut": bytes(content[:-1]), "empty": b""}[damage])
    state, [line] = loaded(folder)
    assert state["round"] == rounds[-2]
    assert str(path) in line and "damaged" in line


def test_after_falling_back_the_damaged_file_is_the_one_written_over(folder):
    saved(folder, 1, 2)
    (folder / "b.npz").write_bytes(b"damaged")
    states = Checkpoints(folder, "f" * 64)
    assert states.load(lambda line: None)["round"] == 1
    states.save(STATE | {"round": 2})
    states.close()
    assert unpack((folder / "a.npz").read_bytes())["round"] == 1
    assert unpack((folder / "b.npz").read_bytes())["round"] == 2


def test_after_loading_the_older_state_is_the_one_written_over(folder):
    saved(folder, 1, 2, 3)  # a: 3, b: 2
    states = Checkpoints(folder, "f" * 64)
    states.load()
    states.save(STATE | {"round": 4})
    states.close()
    assert [unpack((folder / name).read_bytes())["round"] for name in ("a.npz", "b.npz")] == [3, 4]


def test_both_damaged_starts_anew_and_says_so(folder):
    saved(folder, 1, 2)
    for name in ("a.npz", "b.npz"):
        (folder / name).write_bytes(b"x" * 100)
    state, said = loaded(folder)
    assert state is None and len(said) == 2


def test_another_configurations_state_is_refused_by_name_and_left_alone(folder):
    saved(folder, 1, 2)
    before = (folder / "b.npz").read_bytes()
    with pytest.raises(ResultError, match=r"npz: state of another configuration .*ffffffff.*expected 00000000.*remove"):
        loaded(folder, "0" * 64)
    assert (folder / "b.npz").read_bytes() == before


def test_a_second_owner_is_refused_until_the_first_lets_go(folder):
    first = Checkpoints(folder, "f" * 64)
    with pytest.raises(ResultError, match="another live process"):
        Checkpoints(folder, "f" * 64)
    first.close()
    Checkpoints(folder, "f" * 64).close()


def test_a_killed_owner_leaves_no_lock_behind(folder):
    code = f"""
import os, signal
from rl_influence.runs.checkpoints import Checkpoints
states = Checkpoints({str(folder)!r}, "f" * 64)
print("locked", flush=True)
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout.readline() == "locked\n"
        with pytest.raises(ResultError, match="another live process"):
            Checkpoints(folder, "f" * 64)
        owner.kill()
    Checkpoints(folder, "f" * 64).close()


def test_leftovers_of_a_killed_writer_are_removed(folder):
    saved(folder, 1)
    (folder / ".b.npz.123.tmp").write_bytes(b"half")
    assert loaded(folder)[0]["round"] == 1
    assert not (folder / ".b.npz.123.tmp").exists()


def test_a_full_disk_keeps_both_states(folder, monkeypatch):
    saved(folder, 1, 2)
    states = Checkpoints(folder, "f" * 64)
    states.load()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device: .*a.npz"):
        states.save(STATE)
    states.close()
    monkeypatch.undo()
    assert loaded(folder)[0]["round"] == 2 and unpack((folder / "a.npz").read_bytes())["round"] == 1


def test_a_state_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        Checkpoints(tmp_path / "file" / "state", "f")
