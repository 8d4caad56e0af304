"""Run folders: where they lie, what is in them, and the checks that a result passes before anything reads it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from rl_influence.config import Run, RunSpec
from rl_influence.runs.files import sha256
from rl_influence.runs.provenance import fingerprint

CURVE_COLUMNS = ("round", "env_steps", "test_return", "test_return_se", "records_kept", "updates")
TIMING_COLUMNS = ("round", "sampling_s", "influence_s", "optimise_s", "evaluate_s")
DIAGNOSTICS_COLUMNS = (
    *("round", "episodes", "train_return", "train_length", "approx_kl", "clip_fraction", "entropy"),
    *("explained_variance", "policy_loss", "value_loss", "grad_norm", "grad_clipped_share", "displacement"),
    *("value_displacement", "negative_share", *(f"influence_q{percent}" for percent in ("05", "25", "50", "75", "95"))),
    *("step_scale", "displacement_target"),
)
RUN_FILES = ("curve.csv", "timing.csv", "manifest.json")  # of every run
DIAGNOSTICS = "diagnostics.csv"  # of every run but the oldest


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


def files_of(manifest: dict[str, Any]) -> tuple[str, ...]:
    """Names of a whole run's files, the manifest last: without it a run is not there."""
    return (*({DIAGNOSTICS} & {*manifest["files_sha256"]}), *RUN_FILES)


def read_manifest(directory: str | Path) -> dict[str, Any]:
    """A run's manifest, unchecked but for what identifies the run.

    Raises:
        ResultError: for a missing or unreadable one.
    """
    path = Path(directory) / "manifest.json"
    try:
        recorded = json.loads(path.read_text(encoding="utf-8"))
        return recorded | {"files_sha256": dict(recorded["files_sha256"]), "fingerprint": recorded["fingerprint"]}
    except FileNotFoundError:
        raise ResultError(f"{path}: missing") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ResultError(f"{path}: not a manifest ({type(error).__name__})") from None


def diagnostics(directory: str | Path) -> dict[str, np.ndarray] | None:
    """Columns of a run's diagnostics.csv, nan where a field is empty or an older run lacks the column; None for the
    oldest runs, which have none.

    Raises:
        ResultError: for one that does not look like it.
    """
    path = Path(directory) / DIAGNOSTICS
    try:
        with open(path, newline="", encoding="ascii") as file:
            header, *rows = csv.reader(file)
        table = np.array([[float(field or "nan") for field in row] for row in rows]).reshape(-1, len(header))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, csv.Error) as error:
        raise ResultError(f"{path}: cannot be read ({type(error).__name__})") from None
    if not {"round", "episodes"} <= {*header} <= {*DIAGNOSTICS_COLUMNS}:
        raise ResultError(f"{path}: columns are {','.join(header)[:100]!r}, expected {','.join(DIAGNOSTICS_COLUMNS)!r}")
    there = dict(zip(header, table.T, strict=True))
    return {name: there.get(name, np.full(len(table), np.nan)) for name in DIAGNOSTICS_COLUMNS}


def check_run(directory: str | Path, spec: RunSpec) -> dict[str, Any]:
    """A finished run's manifest, after checking that the folder holds this spec's result and nobody changed it.

    Raises:
        ResultError: for a missing, unreadable or altered file.
        StaleResultError: for the result of another configuration or version.
    """
    path, recorded = Path(directory) / "manifest.json", read_manifest(directory)
    files, found = recorded["files_sha256"], recorded["fingerprint"]
    if found != fingerprint(spec):
        raise StaleResultError(
            f"{path}: belongs to another configuration or version (fingerprint {str(found)[:8]}, "
            f"expected {fingerprint(spec)[:8]})"
        )
    for name in ("curve.csv", "timing.csv", *({DIAGNOSTICS} & {*files})):
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
