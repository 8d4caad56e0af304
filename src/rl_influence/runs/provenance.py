"""What a result is: fingerprints, manifests, and the checks that a result passes before anything reads it.

A result is stale when its fingerprint differs: a hash of the resolved spec, of `RESULTS_VERSION`, and of the versions
of its engine and its network where these are above 1. The fingerprint is part of the folder's name, so that results of
different settings or semantics never overwrite or replace one another. The code hash and package versions are recorded
and reported, but a refactor does not invalidate hours of work: golden runs in the tests tell whether the numbers
changed.
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
def code_fingerprint(start: str = "rl_influence.runs.training") -> str:
    """Hash of the package's modules that training (or `start`) imports, whoever starts it: the command line, a
    workflow, a test."""
    digest = hashlib.sha256()
    for name, path in sorted(imported_modules(start).items()):
        digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def imported_modules(start: str) -> dict[str, Path]:
    """Modules of this package that `start` imports, directly or through others, also inside functions: name -> file."""
    root, found, waiting = Path(__file__).parents[2], {}, [start]
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
