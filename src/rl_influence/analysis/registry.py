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
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from rl_influence.config import Analysis, Config, ConfigError, choose
from rl_influence.runs.provenance import fingerprint as run_fingerprint
from rl_influence.runs.store import MANIFEST, Found, ResultError, Results, Status, check_files

LISTS = ("analyses", "missing_analyses")  # tables of what the study expects, and of what is not there


@dataclass(frozen=True)
class Entry:
    """What there is to know of an analysis before it runs."""

    tables: tuple[str, ...]
    summaries: tuple[str, ...] = ()
    version: int = 1  # raised by hand whenever it gives other numbers or columns; older results are stale then
    gym_ids: tuple[str, ...] = ()  # of the environments that it can be made of; none: all


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


def load(name: str) -> ModuleType:
    """An analysis' module; this imports torch."""
    return importlib.import_module(f"rl_influence.analysis.{name}")


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


def find_analysis(study: str, analysis: Analysis, root: str | Path = ".") -> Found:
    """What there is of an analysis; its files are compared with their checksums. The result is its manifest."""
    folder = analysis_directory(study, analysis)
    path = Path(root) / folder
    if not (path / MANIFEST).exists():  # it is written last
        return Found(analysis, folder, Status.MISSING, f"no folder {folder.name}")
    names = tuple(f"{table}.csv" for table in ANALYSES[analysis.name].tables)
    try:
        return Found(analysis, folder, Status.WHOLE, result=check_files(path, fingerprint(analysis), names))
    except ResultError as error:
        damaged = error.status is Status.INCOMPLETE  # the manifest was there
        reason = str(error).replace(f"{path}", folder.name)
        return Found(analysis, folder, Status.DAMAGED if damaged else error.status, reason)


def check_results(config: Config) -> None:
    """Refuses damaged results below the current folder (`ResultError`); what has no manifest is not there yet."""
    results = Results()
    runs = (results.find(config.study, run, read=False) for run in config.runs)
    refuse_damaged([*runs, *(find_analysis(config.study, analysis) for analysis in config.analyses)])


def refuse_damaged(found: Iterable[Found]) -> None:
    """Refuses results that are damaged, or another configuration's in their folder (`ResultError`)."""
    reasons = [f"{one.folder.parent.as_posix()}/{one.reason}" for one in found if one.is_damaged]
    if reasons:
        more = f" (and {len(reasons) - 5} more)" if len(reasons) > 5 else ""
        said = f"{len(reasons)} damaged result(s): {'; '.join(reasons[:5])}{more}"
        raise ResultError(f"{said}; remove their folders to make them anew")


def check_analyses(config: Config) -> None:
    """Refuses analyses that there are not, and those of environments that they cannot be made of (`ConfigError`)."""
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
    """Refuses figures or printed tables of analyses that a study does not ask for (`ConfigError`); `wanted`: what it
    draws or prints -> tables that are read for it."""
    there = study_tables(config)
    for what, tables in wanted.items():
        for table in tables:
            if table in ANALYSIS_OF and table not in there:
                raise ConfigError(f"{config.name}: {what} needs the analysis {ANALYSIS_OF[table]}; add it to analyses")
