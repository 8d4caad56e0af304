"""The analyses of single rounds that a study can ask for (`analyses` in its file), their tables and their files.

An analysis is a module here with

    analyse     (spec, directory, rounds) -> table name -> rows of that run; `directory` holds the snapshots of these
                rounds and the final policy
    SUMMARIES   table name -> function of all its tables, each of all runs with environment, method and seed in front;
                optional

and an entry below. What is said there needs no import of the module, and so no torch, while a study is planned.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from rl_influence.config import Analysis, Config, ConfigError, choose
from rl_influence.runs.files import sha256
from rl_influence.runs.provenance import fingerprint as run_fingerprint
from rl_influence.runs.store import ResultError, check_run, run_directory

LISTS = ("analyses", "missing_analyses")  # tables of what the study expects, and of what is not there
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Entry:
    """What there is to know of an analysis before it runs.

    Attributes:
        version: raised by hand whenever the analysis gives other numbers or columns; older results are stale then.
        gym_ids: of the environments that it can be made of; none: all.
    """

    tables: tuple[str, ...]
    summaries: tuple[str, ...] = ()
    version: int = 1
    gym_ids: tuple[str, ...] = ()


ANALYSES: dict[str, Entry] = {
    "diagnosis": Entry(
        ("diagnosis", "diagnosis_by_rank", "diagnosis_grid", "diagnosis_map", "diagnosis_records"),
        ("diagnosis_summary", "diagnosis_by_rank_summary"),
    ),
    "agreement": Entry(("agreement",), ("agreement_summary",)),
    "behaviour": Entry(
        ("behaviour", "behaviour_phases", "behaviour_records", "behaviour_targets"),
        gym_ids=("highway-v0", "Acrobot-v1"),
    ),
    "interventions": Entry(("interventions",), ("interventions_summary",)),
    "faithfulness": Entry(("faithfulness",), ("faithfulness_summary",)),
}
ANALYSIS_OF = {table: name for name, entry in ANALYSES.items() for table in (*entry.tables, *entry.summaries)}


def module_name(name: str) -> str:
    """Where an analysis is implemented."""
    return f"rl_influence.analysis.{name}"


def load(name: str) -> ModuleType:
    """An analysis' module; this imports torch."""
    return importlib.import_module(module_name(name))


def fingerprint(analysis: Analysis) -> str:
    """Hash (64 hex digits) of everything that decides an analysis' numbers."""
    key = {
        "analysis": analysis.name,
        "version": ANALYSES[analysis.name].version,
        "rounds": analysis.rounds,
        "run": run_fingerprint(analysis.run.spec),
    }
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def analysis_directory(study: str, analysis: Analysis) -> Path:
    """Folder of an analysis' files, relative to the folder that holds `results/`."""
    run = analysis.run
    folder = f"seed{run.seed}-{fingerprint(analysis)[:8]}"
    return Path("results", study, "analyses", analysis.name, run.environment, run.method, folder)


def analysis_files(name: str) -> list[str]:
    """Names of the files that an analysis leaves in its folder."""
    return [*(f"{table}.csv" for table in ANALYSES[name].tables), MANIFEST]


def check_analysis(folder: Path, analysis: Analysis) -> dict:
    """An analysis' manifest, after checking that the folder holds this analysis' result and nobody changed it.

    Raises:
        ResultError: one line naming the file and what is wrong with it.
    """
    if not (folder / MANIFEST).exists():
        raise ResultError(f"no folder {folder.name}")
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        files, found = dict(manifest["files_sha256"]), manifest["fingerprint"]
        manifest["code_fingerprint"], manifest["packages"].get
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ResultError(f"{path}: missing, or not a manifest ({type(error).__name__})") from None
    if found != fingerprint(analysis):
        raise ResultError(f"{path}: belongs to another configuration or version (fingerprint {str(found)[:8]})")
    for name in ANALYSES[analysis.name].tables:
        path = folder / f"{name}.csv"
        try:
            if files.get(path.name) != sha256(path):
                raise ResultError(f"{path}: differs from the checksum in manifest.json (one of the two was altered)")
        except OSError as error:
            raise ResultError(f"{path}: cannot be read ({type(error).__name__})") from None
    return manifest


def check_results(config: Config) -> None:
    """Refuses damaged results below the current folder; what has no manifest is not there, or not yet.

    Raises:
        ResultError: one line with the files, and what to do.
    """
    damaged = [*_damaged_runs(config), *_damaged_analyses(config)]
    if damaged:
        raise ResultError(damage(damaged))


def damage(reasons: list[str]) -> str:
    """What is said of damaged results, in one line."""
    more = f" (and {len(reasons) - 5} more)" if len(reasons) > 5 else ""
    return f"{len(reasons)} damaged result(s): {'; '.join(reasons[:5])}{more}; remove their folders to make them anew"


def _damaged_runs(config: Config) -> Iterator[str]:
    for run in config.runs:
        folder = run_directory(config.study, run)
        if not (folder / MANIFEST).exists():
            continue
        try:
            check_run(folder, run.spec)
        except ResultError as error:
            reason = str(error)
            from .curves import load_run  # says more about a damaged curve, and is slower to import

            try:
                load_run(folder, run.spec)
            except ResultError as better:
                reason = str(better)
            yield reason


def _damaged_analyses(config: Config) -> Iterator[str]:
    for analysis in config.analyses:
        folder = analysis_directory(config.study, analysis)
        if (folder / MANIFEST).exists():
            try:
                check_analysis(folder, analysis)
            except ResultError as error:
                yield str(error)


def check_analyses(config: Config) -> None:
    """Refuses analyses that there are not, and those of environments that they cannot be made of.

    Raises:
        ConfigError: for the first one.
    """
    for analysis in config.analyses:
        choose("analysis", analysis.name, ANALYSES, f"{config.name}: ")
        possible, environment = ANALYSES[analysis.name].gym_ids, config.environment(analysis.run.environment)
        if possible and environment.gym_id not in possible:
            raise ConfigError(
                f"{config.name}: analysis {analysis.name} of environment {environment.id}: nothing is defined for "
                f"{environment.gym_id}; choices: {', '.join(possible)}"
            )


def study_tables(config: Config) -> list[str]:
    """Names of the tables that a study's analyses make, over all runs."""
    names = dict.fromkeys(analysis.name for analysis in config.analyses)
    return [*(table for table, name in ANALYSIS_OF.items() if name in names), *(LISTS if names else ())]


def check_tables(config: Config, wanted: dict[str, tuple[str, ...]]) -> None:
    """Refuses figures or printed tables of analyses that a study does not ask for.

    Args:
        wanted: what the study draws or prints -> tables that it reads.

    Raises:
        ConfigError: for the first one.
    """
    there = study_tables(config)
    for what, tables in wanted.items():
        for table in tables:
            if table in ANALYSIS_OF and table not in there:
                raise ConfigError(f"{config.name}: {what} needs the analysis {ANALYSIS_OF[table]}; add it to analyses")
