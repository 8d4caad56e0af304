"""Tables of a study: the paper's Tables 2 to 5, what its figures are drawn from, and what is missing.

Sample efficiency, returns and probabilities are fractions or returns as they are (percent only in LaTeX and figures);
columns that end in _s are seconds. The same runs give the same bytes: order follows the configuration, floats have six
significant digits, or twelve where verdicts are computed from them. Times come from rounds that were timed in turn.

`n` counts the seeds behind a number and `expected` those that the study's grid asks for. Published numbers stand beside
ours in columns named paper_*, and nothing is computed from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rl_influence.config import choose
from rl_influence.runs.files import write_atomic

from . import efficiency, returns, runtimes
from .aggregate import aggregate_curves, improvement
from .claims import level_of
from .contrasts import CONTRASTS, HEURISTICS, direct
from .curves import KEY, StudyCurves, reference_method
from .first_passage import null_values, rounds_to
from .groups import returns_by_run
from .reported import Reported, load_reported
from .statistics import level
from .step_size import diagnostics_summary, step_size


def runs(study: StudyCurves) -> pd.DataFrame:
    """Every run that the study expects: fingerprint, code and packages that made it, or why it is missing."""
    return study.runs.astype({"environment": str, "method": str})


def missing_runs(study: StudyCurves) -> pd.DataFrame:
    """Runs that the study expects and no table contains, with the reason."""
    table = runs(study)
    return table.loc[table["reason"] != "", [*KEY, "reason"]].reset_index(drop=True)


@dataclass(frozen=True)
class Table:
    """How a table is made: `make(*needs)`, where a need is `study`, `config`, `reported` or another table's name."""

    make: Callable[..., pd.DataFrame]
    needs: tuple[str, ...]
    digits: int = 6  # significant ones in its file; more where verdicts are computed from it


TABLES: dict[str, Table] = {
    "curves_per_seed": Table(returns.curves_per_seed, ("study",)),
    "curves_summary": Table(returns.curves_summary, ("study",)),
    "returns_per_seed": Table(returns.returns_per_seed, ("study",), digits=12),
    "final_returns": Table(returns.final_returns, ("study",)),
    "final_gains": Table(returns.final_gains, ("study", "reported")),
    "efficiency_per_seed": Table(efficiency.efficiency_per_seed, ("study",), digits=12),
    "rounds_to": Table(lambda study: rounds_to(returns_by_run(study), reference_method(study.config)), ("study",)),
    "null_values": Table(lambda study: null_values(returns_by_run(study), reference_method(study.config)), ("study",)),
    "rounds_saved": Table(efficiency.rounds_saved, ("rounds_to", "study")),
    "efficiency": Table(efficiency.efficiency, ("efficiency_per_seed", "null_values", "study", "reported")),
    "episodic_efficiency": Table(efficiency.episodic_efficiency, ("study", "reported")),
    "table_2": Table(efficiency.table_2, ("efficiency", "config", "reported")),
    "table_3": Table(efficiency.table_3, ("efficiency", "config")),
    "table_4": Table(returns.table_4, ("final_gains", "config")),
    "aggregate_curves": Table(aggregate_curves, ("study",)),
    "improvement": Table(improvement, ("rounds_to", "study")),
    "diagnostics_summary": Table(diagnostics_summary, ("rounds_to", "study")),
    "step_size": Table(step_size, ("diagnostics_summary", "study")),
    "controls": Table(lambda study: direct(study, CONTRASTS), ("study",)),
    "heuristics": Table(lambda study: direct(study, HEURISTICS), ("study",)),
    "runs": Table(runs, ("study",)),
    "missing_runs": Table(missing_runs, ("study",)),
    "runtimes_per_seed": Table(runtimes.runtimes_per_seed, ("study",)),
    "runtimes": Table(runtimes.runtimes, ("runtimes_per_seed", "study", "reported")),
    "table_5": Table(runtimes.table_5, ("runtimes_per_seed", "study", "reported")),
}


def make_tables(
    study: StudyCurves, names: Iterable[str] = tuple(TABLES), reported: Reported | None = None
) -> dict[str, pd.DataFrame]:
    """The named tables (default: all) of a study; tables that others need are made once. `reported` is by default what
    the catalogue says. `ConfigError` for a name that is not in `TABLES`."""
    made: dict = {"study": study, "config": study.config, "reported": reported or load_reported(study.config.folder)}

    def make(name: str):
        if name not in made:
            table = TABLES[name]
            made[name] = table.make(*map(make, table.needs))
        return made[name]

    with level(level_of(study.config)):
        return {name: make(choose("table", name, TABLES)) for name in names}


def write_table(frame: pd.DataFrame, path: str | Path, digits: int = 6) -> None:
    """CSV with so many significant digits, empty where undefined; a reader never sees half a file."""
    numbers = frame.select_dtypes("floating").columns
    frame = frame.assign(**{name: frame[name] + 0.0 for name in numbers})  # -0.0 is 0
    write_atomic(path, frame.to_csv(index=False, float_format=f"%.{digits}g", lineterminator="\n").encode())
