"""What a result is: fingerprints, manifests, and the checks that a result passes before anything reads it.

A result is stale when its fingerprint differs: a hash of the resolved spec and of `RESULTS_VERSION`. The fingerprint is
part of the folder's name, so that results of different settings or semantics never overwrite or replace one another.
The code hash and package versions are recorded and reported, but a refactor does not invalidate hours of work: golden
runs in the tests tell whether the numbers changed.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rl_influence.config import Run, RunSpec

RESULTS_VERSION = 1  # raise by hand whenever training or scoring gives other numbers, and regenerate the golden runs

CURVE_COLUMNS = ("round", "env_steps", "test_return", "test_return_se", "records_kept", "updates")
TIMING_COLUMNS = ("round", "sampling_s", "influence_s", "optimise_s", "evaluate_s")
RUN_FILES = ("curve.csv", "timing.csv", "manifest.json")
PACKAGES = ("numpy", "torch", "gymnasium", "minigrid", "highway-env", "ale-py", "box2d", "envpool", "scipy")


class ResultError(RuntimeError):
    """A result file that cannot be used; the message is one line that names it."""


class StaleResultError(ResultError):
    """A result of another configuration or of other numerical semantics."""


def fingerprint(spec: RunSpec) -> str:
    """Hash (64 hex digits) of everything that decides a run's numbers."""
    key = {"results_version": RESULTS_VERSION, "spec": spec.result_key()}
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def run_directory(study: str, run: Run) -> Path:
    """A run's folder, relative to the folder that holds `results/`."""
    return Path("results", study, "runs", run.environment, run.method, f"seed{run.seed}-{fingerprint(run.spec)[:8]}")


def snapshot_directory(study: str, run: Run) -> Path:
    """Folder of a run's snapshots, relative to the folder that holds `results/`."""
    directory = run_directory(study, run)
    return Path("results", study, "snapshots", run.environment, run.method, directory.name)


@functools.cache
def code_fingerprint(start: str = "rl_influence.training") -> str:
    """Hash of the package's modules that training (or `start`) imports, whoever starts it: the command line, a
    workflow, a test."""
    digest = hashlib.sha256()
    for name, path in sorted(imported_modules(start).items()):
        digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def imported_modules(start: str) -> dict[str, Path]:
    """Modules of this package that `start` imports, directly or through others, also inside functions: name -> file."""
    root, found, waiting = Path(__file__).parent.parent, {}, [start]
    while waiting:
        name = waiting.pop()
        path = root / name.replace(".", "/")
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if name in found or not name.startswith("rl_influence") or not path.is_file():
            continue
        found[name] = path
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        waiting.append(package)
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                parents = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
                module = ".".join([*parents, *filter(None, [node.module])])
                waiting += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return found


def package_versions() -> dict[str, str]:
    """Versions of python and of the packages that decide numbers; missing ones are left out."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            pass
    return versions


def manifest(
    spec: RunSpec, *, started: str, weights_sha256: str, files: dict[str, str], resumed: int
) -> dict[str, Any]:
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
