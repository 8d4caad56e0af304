"""Results of several machines: what of a study is there, and one tree out of many.

A run's folder is named by its fingerprint, so trees overlap only in runs of the very same settings. Such runs have to
agree to the byte; where they do not (another processor, other package versions) both are named, and neither is touched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rl_influence.config import Config
from rl_influence.runs.store import ResultError, Results, RunResult, Status, copy, load, run_directory


@dataclass(frozen=True)
class Check:
    """What a results tree holds of a study; lines say which run and why.

    Attributes:
        whole: number of runs that passed every check.
        missing: runs of the grid that are not there, or not yet.
        damaged: runs that are there and cannot be used.
        leftover: folders of runs that the grid does not have (other settings or versions); nothing reads them.
    """

    whole: int
    missing: list[str]
    damaged: list[str]
    leftover: list[str]


def check(config: Config, root: str | Path = ".") -> Check:
    """Checks schema, checksums and fingerprint of every run of a study; `root` is the folder that holds `results/`."""
    results = Results(root)
    whole, missing, damaged = 0, [], []
    for run in config.runs:
        found = results.find(config.study, run)
        whole += found.status is Status.WHOLE
        if found.is_absent or found.is_damaged:
            (missing if found.is_absent else damaged).append(f"{run.name}: {found.reason}")
    return Check(whole, missing, damaged, results.leftover(config))


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

    A run counts whichever study of `source` has it, see `store.Results`.

    Raises:
        ResultError: if `source` holds no results.
    """
    if not (Path(source) / "results").is_dir():
        raise ResultError(f"{source}: holds no folder results", Status.MISSING)
    theirs, merged = Results(source), Merge()
    for run in config.runs:
        found = theirs.find(config.study, run)
        if found.status is Status.MISSING:
            continue
        if found.result is None:
            merged.damaged.append(f"{run.name}: {found.reason}")
            continue
        folder = Path(root) / run_directory(config.study, run)
        try:
            ours = load(folder, run.spec)
        except ResultError:
            copy(found.result, folder)
            merged.added.append(run.name)
            continue
        if ours.outcome() == found.result.outcome():
            merged.same += 1
        else:
            machines = f"{_machine(ours)} here, {_machine(found.result)} there"
            merged.conflicts.append(f"{run.name}: curves or weights differ ({machines})")
    return merged


def _machine(run: RunResult) -> str:
    host, packages = (x if isinstance(x := run.manifest.get(key), dict) else {} for key in ("host", "packages"))
    return f"{host.get('processor', 'unknown processor')} with torch {packages.get('torch', 'unknown')}"
