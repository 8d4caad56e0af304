"""Files that are whole or not there, and their checksums."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def sha256(path: str | Path) -> str:
    """Hash of a file's bytes."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def write_atomic(path: str | Path, data: bytes) -> None:
    """Writes a file so that a reader sees the old one or the whole new one, also after a power cut.

    Raises:
        OSError: naming the file, if it cannot be written; the old one is still there then.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:  # a full disk says so without saying where
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)
