"""Run folders: where they lie, what is in them, and the checks that a result passes before anything reads it.

Nothing else knows a run's folder from inside. It lies in `results/<study>/runs/<environment>/<method>/` and is named
after the run's seed and its fingerprint, so that results of other settings or semantics are simply other folders, and
a run of one study serves every other one that has it too.

    curve.csv        test return and counts by round
    timing.csv       CPU seconds of each phase by round
    diagnostics.csv  what a round did to the policy, see `diagnostics`; the oldest runs have none
    manifest.json    written last: specification, fingerprint, checksums, versions
"""

from __future__ import annotations

import enum
import functools
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rl_influence.config import Config, ConfigError, Run, RunSpec, parse
from rl_influence.runs import columns
from rl_influence.runs.files import sha256, write_atomic
from rl_influence.runs.provenance import fingerprint

RUN_FILES = ("curve.csv", "timing.csv", "manifest.json")  # of every run
DIAGNOSTICS = "diagnostics.csv"  # of every run but the oldest
MANIFEST = "manifest.json"


class Status(enum.Enum):
    """What a folder holds of a result."""

    WHOLE = "whole"
    MISSING = "missing"  # nothing
    INCOMPLETE = "incomplete"  # some of its files: a run that goes on, or was copied in part
    DAMAGED = "damaged"  # its files, which cannot be read or were altered
    STALE = "stale"  # the result of another configuration or of other numerical semantics


class ResultError(RuntimeError):
    """A result that cannot be used; the message is one line that names a file."""

    def __init__(self, message: str, status: Status = Status.DAMAGED):
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class RunResult:
    """A whole run.

    Attributes:
        columns: of its curve and its timings, by round.
    """

    folder: Path
    manifest: dict[str, Any]
    columns: dict[str, list]

    def outcome(self) -> tuple[bytes, Any]:
        """All of the run that has to be the same bytes on every machine."""
        return (self.folder / "curve.csv").read_bytes(), self.manifest.get("weights_sha256")

    def diagnostics(self) -> dict[str, np.ndarray] | None:
        """Columns of `diagnostics.csv` by round from 1 on; None for the oldest runs."""
        return diagnostics(self.folder)


@dataclass(frozen=True)
class Found:
    """What there is of a result that is expected.

    Attributes:
        expected: the run (or the analysis of one).
        folder: where it lies or would lie, relative to the root.
        reason: one line that begins with the folder's name and has no path of the machine's own; empty if it is whole.
        result: what was read, if it is whole.
    """

    expected: Any
    folder: Path
    status: Status
    reason: str = ""
    result: Any = None

    @property
    def is_absent(self) -> bool:
        """Whether it is not there, or not yet; training makes it."""
        return self.status in (Status.MISSING, Status.INCOMPLETE)

    @property
    def is_damaged(self) -> bool:
        """Whether something is there that cannot be used and that somebody has to look at."""
        return self.status in (Status.DAMAGED, Status.STALE)


# Layout


def run_directory(study: str, run: Run) -> Path:
    """A run's folder, relative to the folder that holds `results/`."""
    return Path("results", study, "runs", run.environment, run.method, f"seed{run.seed}-{fingerprint(run.spec)[:8]}")


def snapshot_directory(study: str, run: Run) -> Path:
    """Folder of a run's snapshots, relative to the folder that holds `results/`."""
    directory = run_directory(study, run)
    return Path("results", study, "snapshots", run.environment, run.method, directory.name)


# One folder


def load(directory: str | Path, spec: RunSpec) -> RunResult:
    """A run, after every check: its files' columns and values, fingerprint, checksums.

    Raises:
        ResultError: one line naming the file and what is wrong with it.
    """
    directory = Path(directory)
    # the schema first: it says more about a damaged file than the checksum
    curve = _parsed(directory / "curve.csv", lambda text: columns.read_curve(text, spec))
    timing = _parsed(directory / "timing.csv", lambda text: columns.read_timing(text, spec))
    del timing["round"]
    return RunResult(directory, check_run(directory, spec), curve | timing)


def check_run(directory: str | Path, spec: RunSpec) -> dict[str, Any]:
    """A finished run's manifest, after checking that the folder holds this spec's result and nobody changed it.

    Raises:
        ResultError: for a missing, unreadable or altered file, and for the result of another configuration.
    """
    return check_files(directory, fingerprint(spec), ("curve.csv", "timing.csv"), optional=(DIAGNOSTICS,))


def check_files(
    directory: str | Path, expected: str, names: tuple[str, ...], *, optional: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The manifest in a folder, after comparing its fingerprint with `expected` and files with their checksums.

    Args:
        names: files that have to be there.
        optional: files that have to be there if the manifest lists them.

    Raises:
        ResultError: as `check_run`.
    """
    directory = Path(directory)
    recorded = read_manifest(directory)
    if recorded["fingerprint"] != expected:
        raise ResultError(
            f"{directory / MANIFEST}: belongs to another configuration or version "
            f"(fingerprint {str(recorded['fingerprint'])[:8]}, expected {expected[:8]})",
            Status.STALE,
        )
    listed = recorded["files_sha256"]
    for name in (*names, *(name for name in optional if name in listed)):
        path = directory / name
        try:
            same = listed.get(name) == sha256(path)
        except FileNotFoundError:
            raise ResultError(f"{path}: missing", Status.INCOMPLETE) from None
        except OSError as error:
            raise ResultError(f"{path}: cannot be read ({error.strerror})") from None
        if not same:
            raise ResultError(f"{path}: differs from the checksum in {MANIFEST} (one of the two was altered)")
    return recorded


def load_any(directory: str | Path) -> tuple[RunSpec, RunResult]:
    """A run of whatever specification its manifest names; checked and refused as by `load`."""
    path = Path(directory) / MANIFEST
    try:
        spec = parse(RunSpec, read_manifest(directory)["spec"], path)
    except (ConfigError, KeyError) as error:
        raise ResultError(f"{path}: not a manifest ({error})") from None
    return spec, load(directory, spec)


def read_manifest(directory: str | Path) -> dict[str, Any]:
    """A run's manifest, unchecked but for what identifies the run.

    Raises:
        ResultError: for a missing or unreadable one.
    """
    path = Path(directory) / MANIFEST
    try:
        recorded = json.loads(path.read_text(encoding="utf-8"))
        return recorded | {"files_sha256": dict(recorded["files_sha256"]), "fingerprint": recorded["fingerprint"]}
    except FileNotFoundError:
        raise ResultError(f"{path}: missing", Status.INCOMPLETE) from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ResultError(f"{path}: not a manifest ({type(error).__name__})") from None


def files_of(manifest: dict[str, Any]) -> tuple[str, ...]:
    """Names of a whole run's files, the manifest last: without it a run is not there."""
    return (*({DIAGNOSTICS} & {*manifest["files_sha256"]}), *RUN_FILES)


def diagnostics(directory: str | Path) -> dict[str, np.ndarray] | None:
    """Columns of a run's diagnostics.csv, nan where a field is empty; None for the oldest runs, which have none.

    Raises:
        ResultError: for one that does not look like it.
    """
    path = Path(directory) / DIAGNOSTICS
    return _parsed(path, columns.read_diagnostics) if path.exists() else None


def write(directory: str | Path, tables: dict[str, bytes], manifest: dict[str, Any]) -> None:
    """Writes a run's files, each whole or not at all, the manifest last.

    Raises:
        OSError: naming the file that cannot be written.
    """
    directory = Path(directory)
    for name, data in tables.items():
        write_atomic(directory / name, data)
    write_atomic(directory / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())


def copy(result: RunResult, directory: str | Path) -> None:
    """Copies a whole run's files into another folder."""
    for name in files_of(result.manifest):
        write_atomic(Path(directory) / name, (result.folder / name).read_bytes())


def _parsed(path: Path, parse_text) -> dict:
    try:
        return parse_text(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        raise ResultError(f"{path}: missing", Status.INCOMPLETE) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ResultError(f"{path}: cannot be read ({type(error).__name__})") from None
    except ValueError as error:
        raise ResultError(f"{path}: {error}") from None


# Studies


class Results:
    """The runs of studies below a folder that holds `results/`.

    A run is looked for in its own study first, then in every other one that has a run of the same environment, seed and
    fingerprint: what another study has trained is used, and not trained again. The other studies' folders are listed
    once, when the first run is not in its own.
    """

    def __init__(self, root: str | Path = "."):
        self.root = Path(root)

    def locate(self, study: str, run: Run) -> Path:
        """The folder of a run, relative to the root: its own, unless only another study has its files.

        A workflow plans a run for training where this is its own folder and the files are not there; a run of another
        study is an input that is there already. The files' content is not read, but for the other's fingerprint.
        """
        own = run_directory(study, run)
        if not self._is_there(own):
            for folder in self._elsewhere.get((run.environment, own.name), ()):
                if folder != own and self._is_there(folder) and self._is_of(folder, run.spec):
                    return folder
        return own

    def find(self, study: str, run: Run, *, read: bool = True) -> Found:
        """What there is of a run, checked.

        Args:
            read: also read its columns; else only checksums are compared, which is quicker and as strict.
        """
        folder = self.locate(study, run)
        try:
            if not read:
                check_run(self.root / folder, run.spec)
                return Found(run, folder, Status.WHOLE)
            return Found(run, folder, Status.WHOLE, result=load(self.root / folder, run.spec))
        except ResultError as error:
            if not any((self.root / folder / name).exists() for name in RUN_FILES):
                return Found(run, folder, Status.MISSING, self._instead(folder))
            if not read:
                return self.find(study, run)  # says more about what is wrong
            reason = str(error).replace(f"{self.root / folder}/", f"{folder.name}/")
            return Found(run, folder, error.status, reason)

    def leftover(self, config: Config) -> list[str]:
        """Run folders of a study that its grid does not have (other settings or versions); no table reads them."""
        expected = {run_directory(config.study, run) for run in config.runs}
        folders = (path.relative_to(self.root) for path in self.root.glob(f"results/{config.study}/runs/*/*/seed*"))
        return sorted(path.as_posix() for path in folders if path not in expected)

    @functools.cached_property
    def _elsewhere(self) -> dict[tuple[str, str], list[Path]]:
        """(environment, name of a run's folder) -> folders of that name, in order."""
        found = defaultdict(list)
        for path in sorted(self.root.glob("results/*/runs/*/*/seed*")):
            found[path.parts[-3], path.name].append(path.relative_to(self.root))
        return found

    def _is_there(self, folder: Path) -> bool:
        return all((self.root / folder / name).exists() for name in RUN_FILES)

    def _is_of(self, folder: Path, spec: RunSpec) -> bool:
        try:
            return read_manifest(self.root / folder)["fingerprint"] == fingerprint(spec)
        except ResultError:
            return False

    def _instead(self, folder: Path) -> str:
        """Why there is nothing in a run's folder; names what lies there in its stead."""
        others = (self.root / folder.parent).glob(f"{folder.name.split('-')[0]}-*")
        names = sorted(path.name for path in others if path.is_dir() and path.name != folder.name)
        found = f"; only another configuration or version: {', '.join(names)}" if names else ""
        return f"no folder {folder.name}{found}"
