"""Run folders: where they lie, what is in them, and the checks that a result passes before anything reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rl_influence.config import Run, RunSpec
from rl_influence.runs.files import sha256
from rl_influence.runs.provenance import fingerprint

CURVE_COLUMNS = ("round", "env_steps", "test_return", "test_return_se", "records_kept", "updates")
TIMING_COLUMNS = ("round", "sampling_s", "influence_s", "optimise_s", "evaluate_s")
RUN_FILES = ("curve.csv", "timing.csv", "manifest.json")


class ResultError(RuntimeError):
    """A result file that cannot be used; the message is one line that names it."""


class StaleResultError(ResultError):
    """A result of another configuration or of other numerical semantics."""


def run_directory(study: str, run: Run) -> Path:
    """A run's folder, relative to the folder that holds `results/`."""
    return Path("results", study, "runs", run.environment, run.method, f"seed{run.seed}-{fingerprint(run.spec)[:8]}")


def snapshot_directory(study: str, run: Run) -> Path:
    """Folder of a run's snapshots, relative to the folder that holds `results/`."""
    directory = run_directory(study, run)
    return Path("results", study, "snapshots", run.environment, run.method, directory.name)


def check_run(directory: str | Path, spec: RunSpec) -> dict[str, Any]:
    """A finished run's manifest, after checking that the folder holds this spec's result and nobody changed it.

    Raises:
        ResultError: for a missing, unreadable or altered file.
        StaleResultError: for the result of another configuration or version.
    """
    path = Path(directory) / "manifest.json"
    try:
        recorded = json.loads(path.read_text(encoding="utf-8"))
        files, found = dict(recorded["files_sha256"]), recorded["fingerprint"]
    except FileNotFoundError:
        raise ResultError(f"{path}: missing") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ResultError(f"{path}: not a manifest ({type(error).__name__})") from None
    if found != fingerprint(spec):
        raise StaleResultError(
            f"{path}: belongs to another configuration or version (fingerprint {str(found)[:8]}, "
            f"expected {fingerprint(spec)[:8]})"
        )
    for name in ("curve.csv", "timing.csv"):
        path = path.with_name(name)
        try:
            same = files.get(name) == sha256(path)
        except FileNotFoundError:
            raise ResultError(f"{path}: missing") from None
        except OSError as error:
            raise ResultError(f"{path}: cannot be read ({error.strerror})") from None
        if not same:
            raise ResultError(f"{path}: differs from the checksum in manifest.json (one of the two was altered)")
    return recorded
