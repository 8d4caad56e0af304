"""The analyses of single rounds that a study can ask for (`analyses` in its file), their tables and their files.

An analysis is a module here with

    TABLES      names of the tables that it makes of one run
    analyse     (spec, directory, rounds) -> table name -> rows of that run; `directory` holds the snapshots of these
                rounds and the final policy
    SUMMARIES   table name -> function of all its tables, each of all runs with environment, method and seed in front;
                optional

and an entry below, whose name `config.AnalysisName` repeats. What analyses are is said here a second time, so that
planning a study imports no torch; a test compares both.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from rl_influence.config import Analysis, Config, ConfigError
from rl_influence.provenance import fingerprint as run_fingerprint

LISTS = ("analyses", "missing_analyses")  # tables of what the study expects, and of what is not there
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Entry:
    """What there is to know of an analysis before it runs.

    Attributes:
        version: raised by hand whenever the analysis gives other numbers or columns; older results are stale then.
    """

    tables: tuple[str, ...]
    summaries: tuple[str, ...] = ()
    version: int = 1


ANALYSES: dict[str, Entry] = {
    "diagnosis": Entry(
        ("diagnosis", "diagnosis_by_rank", "diagnosis_grid", "diagnosis_map", "diagnosis_records"),
        ("diagnosis_summary", "diagnosis_by_rank_summary"),
    ),
    "agreement": Entry(("agreement",), ("agreement_summary",)),
    "behaviour": Entry(("behaviour", "behaviour_phases", "behaviour_records", "behaviour_targets")),
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
