"""What a result is: fingerprints, manifests, and the checks that a result passes before anything reads it.

A result is stale when its fingerprint differs: a hash of the resolved spec and of `RESULTS_VERSION`. The fingerprint is part
of the folder's name, so that results of different settings or semantics never overwrite or replace one another. The code
hash and package versions are recorded and reported, but a refactor does not invalidate hours of work: golden runs in the
tests tell whether the numbers changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rl_influence.config import Run, RunSpec

RESULTS_VERSION = 1  # raise by hand whenever training or scoring gives other numbers (the golden runs then need new values)

CURVE_COLUMNS = ("round", "env_steps", "test_return", "test_return_se", "records_kept", "updates")
TIMING_COLUMNS = ("round", "sampling_s", "influence_s", "optimise_s", "evaluate_s")
RUN_FILES = ("curve.csv", "timing.csv", "manifest.json")
PACKAGES = ("numpy", "torch", "gymnasium", "minigrid", "highway-env", "ale-py", "box2d", "envpool", "scipy")


class ResultError(RuntimeError):
    """A result file that cannot be used; the message is one line that names it."""


def fingerprint(spec: RunSpec) -> str:
    """Hash (64 hex digits) of everything that decides a run's numbers."""
    key = {"results_version": RESULTS_VERSION, "spec": spec.result_key()}
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def run_directory(study: str, run: Run) -> Path:
    """A run's folder, relative to the folder that holds `results/`."""
    return Path("results", study, "runs", run.environment, run.method, f"seed{run.seed}-{fingerprint(run.spec)[:8]}")


def code_fingerprint() -> str:
    """Hash of the package's modules that this process has imported."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for name in sorted(name for name in sys.modules if name.startswith("rl_influence.")):
        source = getattr(sys.modules[name], "__file__", None)
        if source and Path(source).is_relative_to(root):
            digest.update(name.encode() + b"\0" + Path(source).read_bytes())
    return digest.hexdigest()


def package_versions() -> dict[str, str]:
    """Versions of python and of the packages that decide numbers; missing ones are left out."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            pass
    return versions


def manifest(spec: RunSpec, *, started: str, weights_sha256: str, files: dict[str, str], resumed: int) -> dict[str, Any]:
    """What is recorded beside a curve."""
    return {
        "fingerprint": fingerprint(spec),
        "results_version": RESULTS_VERSION,
        "spec": spec.model_dump(mode="json"),
        "weights_sha256": weights_sha256,
        "files_sha256": files,
        "code_fingerprint": code_fingerprint(),
        "packages": package_versions(),
        "threads": 1,
        "host": {"system": platform.platform(), "processor": processor(), "cores": os.cpu_count()},
        "started": started,
        "ended": now(),
        "resumed": resumed,
    }


def now() -> str:
    """UTC time for people; nothing depends on it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def processor() -> str:
    """The processor's model name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def sha256(path: str | Path) -> str:
    """Hash of a file's bytes."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def write_atomic(path: str | Path, data: bytes) -> None:
    """Writes a file so that a reader sees the old one or the whole new one, also after a power cut."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def check_run(directory: str | Path, spec: RunSpec) -> dict[str, Any]:
    """A finished run's manifest, after checking that the folder holds this spec's result and nobody changed it.

    Raises:
        ResultError: for a missing, unreadable or altered file, or the result of another configuration.
    """
    directory = Path(directory)
    for name in RUN_FILES:
        if not (directory / name).is_file():
            raise ResultError(f"{directory / name}: missing")
    path = directory / "manifest.json"
    try:
        recorded = json.loads(path.read_text(encoding="utf-8"))
        files, found = dict(recorded["files_sha256"]), recorded["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ResultError(f"{path}: not a manifest ({type(error).__name__})") from None
    if found != fingerprint(spec):
        raise ResultError(
            f"{path}: belongs to another configuration or version (fingerprint {str(found)[:8]}, "
            f"expected {fingerprint(spec)[:8]})"
        )
    for name in ("curve.csv", "timing.csv"):
        if files.get(name) != sha256(directory / name):
            raise ResultError(f"{directory / name}: differs from the checksum in its manifest (truncated or altered)")
    return recorded
