"""Results of several machines: what of a study is there, and one tree out of many.

A run's folder is named by its fingerprint, so trees overlap only in runs of the very same settings. Such runs have to
agree to the byte; where they do not (another processor, other package versions) both are named, and neither is touched.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from rl_influence.analysis.curves import leftover_runs, load_run, load_study
from rl_influence.config import Config
from rl_influence.runs.files import write_atomic
from rl_influence.runs.store import RUN_FILES, ResultError, files_of, run_directory


@dataclass(frozen=True)
class Check:
    """What a results tree holds of a study; lines say which run and why.

    Attributes:
        whole: number of runs that passed every check.
        missing: runs of the grid that are not there.
        damaged: runs that are there and cannot be used.
        leftover: folders of runs that the grid does not have (other settings or versions); nothing reads them.
    """

    whole: int
    missing: list[str]
    damaged: list[str]
    leftover: list[str]


def check(config: Config, root: str | Path = ".") -> Check:
    """Checks schema, checksums and fingerprint of every run of a study; `root` is the folder that holds `results/`."""
    study = load_study(config, root)
    missing, damaged = [], []
    for run, reason in study.missing:
        lines = missing if reason.startswith("no folder") else damaged
        lines.append(f"{run.environment} {run.method} seed {run.seed}: {reason}")
    return Check(len(config.runs) - len(study.missing), missing, damaged, leftover_runs(config, root))


@dataclass
class Merge:
    """What came of bringing in another tree; lines say which run and why.

    Attributes:
        added: runs that were not here, or only damaged.
        same: number of runs that are in both trees, to the byte.
        conflicts: runs that are in both and differ; ours is kept.
        damaged: runs of the other tree that cannot be used.
    """

    added: list[str] = field(default_factory=list)
    same: int = 0
    conflicts: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


def merge(config: Config, source: str | Path, root: str | Path = ".") -> Merge:
    """Copies a study's whole runs from `source` to `root`, both folders that hold `results/`.

    Raises:
        ResultError: if `source` holds no results of the study.
    """
    source, root, merged = Path(source), Path(root), Merge()
    if not (source / "results" / config.study).is_dir():
        raise ResultError(f"{source}: holds no folder results/{config.study}")
    for run in config.runs:
        folder = run_directory(config.study, run)
        theirs, ours = source / folder, root / folder
        if not any((theirs / name).exists() for name in RUN_FILES):
            continue
        name = f"{run.environment} {run.method} seed {run.seed}"
        try:
            load_run(theirs, run.spec)
        except ResultError as error:
            merged.damaged.append(f"{name}: {error}")
            continue
        try:
            load_run(ours, run.spec)
        except ResultError:
            for file in files_of(_manifest(theirs)):
                write_atomic(ours / file, (theirs / file).read_bytes())
            merged.added.append(name)
            continue
        if _outcome(ours) == _outcome(theirs):
            merged.same += 1
        else:
            machines = f"{_machine(ours)} here, {_machine(theirs)} there"
            merged.conflicts.append(f"{name}: curves or weights differ ({machines})")
    return merged


def _outcome(folder: Path) -> tuple[bytes, object]:
    """All of a run that has to be the same bytes on every machine."""
    return (folder / "curve.csv").read_bytes(), _manifest(folder).get("weights_sha256")


def _machine(folder: Path) -> str:
    host, packages = (x if isinstance(x := _manifest(folder).get(key), dict) else {} for key in ("host", "packages"))
    return f"{host.get('processor', 'unknown processor')} with torch {packages.get('torch', 'unknown')}"


def _manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_bytes())
