"""What a result is: fingerprints, manifests, and the checks that a result passes before anything reads it.

A result is stale when its fingerprint differs: a hash of the resolved spec, of `RESULTS_VERSION`, and of the versions
of its engine and its network where these are above 1. The fingerprint is part of the folder's name, so that results of
different settings or semantics never overwrite or replace one another. The versions of the code and of packages are
recorded and reported, but a refactor does not invalidate hours of work: golden runs in the tests tell whether the
numbers changed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

from rl_influence.config import RunSpec

RESULTS_VERSION = 1  # raise by hand whenever training or scoring gives other numbers, and regenerate the golden runs
# Of what only some runs use; one that is above 1 enters their fingerprints, and no others.
ENGINE_VERSIONS = {"envpool": 2}  # 2: terminations on the step of the time limit are seen
NETWORK_VERSIONS: dict[str, int] = {}

PACKAGES = ("numpy", "torch", "gymnasium", "minigrid", "highway-env", "ale-py", "box2d", "envpool", "scipy")


def fingerprint(spec: RunSpec) -> str:
    """Hash (64 hex digits) of everything that decides a run's numbers."""
    key = {"results_version": RESULTS_VERSION, "spec": spec.result_key()}
    used = {
        "engine": ENGINE_VERSIONS.get(spec.environment.engine, 1),
        "network": NETWORK_VERSIONS.get(spec.environment.network, 1),
    }
    versions = {name: version for name, version in used.items() if version > 1}
    if versions:
        key["versions"] = versions
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


@functools.cache
def code_fingerprint() -> str:
    """The commit that last changed the package (11 digits), with + if it was changed since; outside of a repository a
    hash of its files (12 digits)."""
    package = Path(__file__).parents[1]

    def git(*command: str) -> str:
        run = subprocess.run(["git", "-C", package, *command, "--", "."], capture_output=True, text=True, check=True)
        return run.stdout.strip()

    try:
        commit, changes = git("log", "-1", "--format=%H"), git("status", "--porcelain")
    except (OSError, subprocess.CalledProcessError):
        commit = changes = ""
    if commit:
        return commit[:11] + ("+" if changes else "")
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def threads() -> int:
    """The largest number of threads that torch and the libraries behind numpy may use now."""
    import torch  # those who only read results do without

    return max(torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info()))


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
        "threads": threads(),
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
