"""A run's complete state between two rounds: written atomically, checksummed, the one before it kept.

Two files take turns (`a.npz`, `b.npz`); a damaged or half-written one falls back to the other. There is no pickle in
them: arrays and one JSON text. A lock keeps a second live process from writing where the first one does.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from rl_influence.runs.files import write_atomic
from rl_influence.runs.store import ResultError

VERSION = 2  # of what a state holds; one of another version is refused
State = dict[str, Any]  # str -> np.ndarray, or anything JSON can hold


def pack(state: State) -> bytes:
    """One state as bytes: 32 bytes of SHA-256, then an npz archive."""
    arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
    rest = {name: value for name, value in state.items() if name not in arrays}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, json=np.frombuffer(json.dumps(rest).encode(), dtype=np.uint8), **arrays)
    return hashlib.sha256(buffer.getvalue()).digest() + buffer.getvalue()


def unpack(data: bytes) -> State:
    """The inverse of `pack`.

    Raises:
        ValueError: if the bytes are damaged.
    """
    digest, archive = data[:32], data[32:]
    if hashlib.sha256(archive).digest() != digest:
        raise ValueError("checksum differs")
    try:
        with np.load(io.BytesIO(archive), allow_pickle=False) as arrays:
            state = {name: arrays[name] for name in arrays.files if name != "json"}
            return state | json.loads(arrays["json"].tobytes())
    except (zipfile.BadZipFile, KeyError, OSError) as error:
        raise ValueError(str(error)) from None


class Checkpoints:
    """The states of one run in one folder.

    Args:
        directory: made if missing.
        fingerprint: of the run; a state of another one is refused.

    Raises:
        ResultError: if another live process holds the folder.
    """

    def __init__(self, directory: str | Path, fingerprint: str):
        self.directory, self.fingerprint = Path(directory), fingerprint
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise ResultError(f"{self.directory}: another live process is training this run") from None
        for leftover in self.directory.glob(".*.tmp"):  # of a process that was killed while it wrote
            leftover.unlink(missing_ok=True)
        self._next = 0

    def close(self) -> None:
        """Lets go of the folder."""
        os.close(self._lock)

    def save(self, state: State) -> None:
        """Writes a state over the older of the two."""
        write_atomic(self._path(self._next), pack(state | {"fingerprint": self.fingerprint, "version": VERSION}))
        self._next = 1 - self._next

    def load(self, log=print) -> State | None:
        """The newest state that is whole, or None. Damaged ones are named in the log.

        Raises:
            ResultError: if a state belongs to another configuration or version.
        """
        best: State | None = None
        for number in (0, 1):
            path = self._path(number)
            if not path.exists():
                continue
            try:
                state = unpack(path.read_bytes())
            except ValueError as error:
                log(f"{path}: damaged ({error}), falling back to the state before it")
                continue
            if (state["fingerprint"], state.get("version")) != (self.fingerprint, VERSION):
                raise ResultError(
                    f"{path}: state of another configuration or version (fingerprint {state['fingerprint'][:8]}, "
                    f"expected {self.fingerprint[:8]}); remove it to train anew"
                )
            if best is None or state["round"] > best["round"]:
                best, self._next = state, 1 - number
        return best

    def _path(self, number: int) -> Path:
        return self.directory / f"{'ab'[number]}.npz"
