"""Folders of finished runs: what is in them, and the checks before anything reads it. Needs no torch."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from rl_influence.rlhf.settings import RunSpec
from rl_influence.runs.files import sha256
from rl_influence.runs.store import ResultError

ROUND_COLUMNS = (
    *("round", "sequences", "updates", "sequences_kept", "validation_sequences", "reward", "reward_se", "kl", "beta"),
    *("length", "distinct_2", "skipped", "loss", "ratio", "clip_fraction", "displacement"),
)
TIMING_COLUMNS = ("round", "sampling_s", "validation_s", "influence_s", "optimise_s", "evaluate_s")
RUN_FILES = ("curve.csv", "timing.csv", "manifest.json")


class Stopped(RuntimeError):
    """The run was asked to stop (SIGTERM); its state is saved and the same command continues it."""


def is_whole(output: Path, spec: RunSpec) -> bool:
    """Whether a folder holds this run's whole result.

    Raises:
        ResultError: if it holds another run's.
    """
    try:
        check_run(output, spec)
        return True
    except StaleError:
        raise
    except ResultError:
        return False


class StaleError(ResultError):
    """The result of other settings or another version."""


def check_run(output: str | Path, spec: RunSpec) -> dict[str, Any]:
    """A finished run's manifest, after checking its fingerprint and its files' checksums.

    Raises:
        ResultError: naming the file that is missing, damaged, or another run's.
    """
    path = Path(output) / "manifest.json"
    try:
        recorded = json.loads(path.read_text(encoding="utf-8"))
        found, files = recorded["fingerprint"], recorded["files_sha256"]
        same = {name: files[name] == sha256(path.with_name(name)) for name in ("curve.csv", "timing.csv")}
    except FileNotFoundError as error:
        raise ResultError(f"{error.filename}: missing") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultError(f"{path}: not a manifest ({type(error).__name__})") from None
    if found != spec.fingerprint():
        raise StaleError(f"{path}: belongs to other settings or another version; remove {output} to train anew")
    for name, whole in same.items():
        if not whole:
            raise ResultError(f"{path.with_name(name)}: differs from its checksum in manifest.json")
    return recorded


def read_csv(path: str | Path) -> list[dict[str, str]]:
    """Rows of a run's file by column."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
