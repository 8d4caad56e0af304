"""A check's number for every seed, from a study's tables, and which of its runs are missing.

Two tables belong to no study's grid: they are measured apart, and their unit takes the place of the seed.

timings: PPO and IIF timed interleaved in one process of one version of the code; a row for every environment, method
    and timed round with `repeat` (the unit: one alternation of the methods), sampling_s, influence_s, optimise_s (CPU
    seconds of the round), round_s (influence + optimisation, as the paper counts), round_with_sampling_s, code (its
    fingerprint, the same in all rows).
rlhf_per_seed: environment (the language-model study that a row is of), method (`ppo`, `iif`), seed, dropped_share (of
    a round's sequences, mean over rounds), optimise_s (mean per round), rounds_to_best and time_to_best_s (until the
    best mean reward of the PPO run of the same seed is reached, its whole budget if never; time is influence +
    optimisation + generation), best_reached, reward_at_equal_kl (mean reward where the KL from the reference model
    first equals the smaller of both runs' final ones), ppo_rise (of PPO's reward).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from rl_influence.analysis.contrasts import IIF_UNCLIPPED, method_of, per_seed, rows_where
from rl_influence.analysis.curves import chosen_iif, reference_method
from rl_influence.analysis.first_passage import saving
from rl_influence.analysis.registry import ANALYSIS_OF
from rl_influence.config import Config, ConfigError

from .models import AGAINST_PPO, CheckConfig, Claims, Filter

APART = {"timings": "repeat", "rlhf_per_seed": "seed"}  # table -> its unit
REACHED = {"rounds_to_best": "best_reached", "time_to_best_s": "best_reached"}  # quantity -> whether it is one


def language_model_files(root: str | Path = ".") -> list[Path]:
    """The files `rlhf_per_seed.csv` of the language-model studies that are there."""
    return sorted(Path(root).glob("results/rlhf_*/tables/rlhf_per_seed.csv"))


def language_models(paths: Iterable[str | Path]) -> dict[str, pd.DataFrame]:
    """The table `rlhf_per_seed` of these files, by its name; its rows have their study's name as their environment."""
    parts = [pd.read_csv(path).assign(environment=Path(path).parts[-3]) for path in paths]
    return {"rlhf_per_seed": pd.concat(parts, ignore_index=True)} if parts else {}


@dataclass(frozen=True)
class Context:
    """The rules, the study, and its tables by name."""

    claims: Claims
    config: Config
    tables: Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Sample:
    """A number for each seed, and the least and most that it can be given what was never reached."""

    value: pd.Series
    least: pd.Series
    most: pd.Series
    unreached: float = 0.0  # share of the returns that were never reached by either side
    notes: tuple[str, ...] = ()

    def minus(self, other: Sample) -> Sample:
        """Differences by seed."""
        return self._with(other, self.value - other.value, self.least - other.most, self.most - other.least)

    def over(self, other: Sample) -> Sample:
        """Ratios by seed, of numbers that are not negative."""
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = self.value / other.value, self.least / other.most, self.most / other.least
        undefined = other.value.index[other.value == 0].intersection(self.value.index)
        notes = (f"undefined for seed {', '.join(map(str, undefined))}: divided by 0",) if len(undefined) else ()
        return self._with(other, *(part.drop(undefined) for part in parts), notes=notes)

    def _with(self, other: Sample, value, least, most, notes=()) -> Sample:
        common = self.value.index.intersection(other.value.index).intersection(value.index).sort_values()
        series = (part.reindex(common) for part in (value, least, most))
        unreached = max(self.unreached, other.unreached)
        return Sample(*series, unreached, (*self.notes, *other.notes, *notes))


@dataclass(frozen=True)
class Needs:
    """What a check rests on: the seeds that the study's grid has of all its runs, and the runs that are not there."""

    seeds: frozenset[int] = frozenset()
    missing: tuple[tuple[str, str, int], ...] = ()  # environment, method, seed
    lacks: str = ""  # what the study does not have at all
    short: int = 0  # seeds that a table apart from the grid does not have yet


def sample(check: CheckConfig, side: Filter, environment: str, context: Context, seeds: Iterable[int]) -> Sample:
    """A check's number for each of these seeds; `side` is its `where`, or one of its alternatives, all of which are
    compared on the same seeds. `ConfigError` for a column that its table does not have."""
    only = {} if check.table in APART else {"seed": sorted(seeds)}
    own = located(side, environment, context.config) | only
    if not check.against:
        return _plain(check, own, context)
    other = located(_with_method(check.against, side), environment, context.config) | only
    if check.table != "rounds_to":
        first, second = (_plain(check, where, context) for where in (own, other))
        return first.minus(second) if check.compare == "difference" else first.over(second)
    found = _saved(own, other, context)
    if check.than:
        place = check.than.environment or environment
        pair = [located({"method": m}, place, context.config) | only for m in (check.than.method, check.than.against)]
        found = found.minus(_saved(*pair, context))
    return found


def needs(check: CheckConfig, environment: str, context: Context) -> Needs:
    """The runs (or analyses of runs) that a check needs."""
    config, tables = context.config, context.tables
    if check.table in APART:
        if check.table not in tables:
            return Needs(lacks=f"table {check.table}")
        there = rows_where(tables[check.table], {"environment": environment})
        lacks = "" if len(there) else f"{check.table} of {environment}"
        return Needs(frozenset(there[APART[check.table]]), lacks=lacks)
    analysis = ANALYSIS_OF.get(check.table)
    grid = defaultdict(set)
    for run in config.runs if not analysis else [a.run for a in config.analyses if a.name == analysis]:
        grid[run.environment, run.method].add(run.seed)
    needed = _methods(check, environment, context, grid)
    for place in dict.fromkeys((environment, *(place for place, _ in needed))):
        if place not in {run.environment for run in config.runs}:
            return Needs(lacks=place)
        if place not in {place for place, _ in grid}:
            return Needs(lacks=f"{analysis} of {place}")
    if check.table not in tables:
        return Needs(lacks=f"table {check.table}")
    rounds = {(run.environment, run.spec.rounds) for run in config.runs if (run.environment, run.method) in needed}
    if len(rounds) > len({place for place, _ in rounds}):
        return Needs(lacks=f"equal numbers of rounds of {environment}")
    if absent := [key for key in needed if key not in grid]:
        return Needs(lacks=", ".join(" ".join(key) for key in absent))
    needed = needed or [key for key in grid if key[0] == environment]
    seeds = frozenset.intersection(*(frozenset(grid[key]) for key in needed))
    if not seeds:
        return Needs(lacks=f"a common seed of {', '.join(' '.join(key) for key in needed)}")
    rows = tables["missing_analyses" if analysis else "missing_runs"]
    rows = rows_where(rows, {"analysis": analysis}) if analysis else rows
    keys = zip(rows["environment"].astype(str), rows["method"].astype(str), rows["seed"].astype(int), strict=True)
    return Needs(seeds, tuple(key for key in keys if key[:2] in needed and key[2] in seeds))


def located(side: Filter, environment: str, config: Config) -> dict:
    """A filter with `chosen` resolved and the environment added."""
    method = {"method": resolved(side["method"], environment, config)} if "method" in side else {}
    return {"environment": environment} | side | method


def resolved(method: str, environment: str, config: Config) -> str:
    """`chosen` and `chosen_unclipped` as the methods that they are in an environment; others as they are."""
    if environment not in config.environments:
        return method
    roles = {"chosen": chosen_iif, "chosen_unclipped": lambda config, e: method_of(config, e, IIF_UNCLIPPED)}
    return (roles[method](config, environment) or method) if method in roles else method


def members(name: str, environment: str, context: Context, there: Container = ()) -> list[str]:
    """The methods behind a name: itself, or those of `tuned` of which (environment, method) is `there`."""
    names = [resolved(m, environment, context.config) for m in context.claims.tuned.get(name, ())]
    return [m for m in names if (environment, m) in there] if names else [name]


def tuned_choice(name: str, environment: str, context: Context) -> dict[int, str]:
    """Seed -> that method of `tuned` with the highest mean training return over the other seeds: no seed helps to
    choose what it is then judged by."""
    table = rows_where(context.tables["returns_per_seed"], {"environment": environment}).astype({"method": str})
    names = members(name, environment, context, {(environment, method) for method in table["method"]})
    wide = table.pivot(index="seed", columns="method", values="mean_training_return")
    wide = wide.reindex(columns=names).astype(float).dropna()
    if len(wide) < 2 or len(names) < 2:
        return {}
    others = (wide.sum() - wide) / (len(wide) - 1)
    return {int(seed): str(method) for seed, method in others.idxmax(axis=1).items()}


def _with_method(against: Filter, own: Mapping) -> Filter:
    return {"method": own["method"]} | against if "method" in own else against


def _methods(check: CheckConfig, environment: str, context: Context, grid: Container) -> list[tuple[str, str]]:
    """(environment, method) of the runs that a check rests on; none: all runs of the analysis."""
    config = context.config
    sides = [located(side, environment, config) for side in check.sides]
    sides += [located(_with_method(check.against, sides[0]), environment, config)] if check.against else []
    found = [(environment, side["method"]) for side in sides if "method" in side]
    if check.quantity in AGAINST_PPO:
        found.append((environment, reference_method(config)))
    if check.than:
        place = check.than.environment or environment
        found += [(place, resolved(m, place, config)) for m in (check.than.method, check.than.against)]
    names = []
    for place, name in found:
        behind = members(name, place, context, grid)
        names += [(place, m) for m in (behind if len(behind) > (name in context.claims.tuned) else [name])]
    return list(dict.fromkeys(names))


def _plain(check: CheckConfig, where: Mapping, context: Context) -> Sample:
    """Means of a column (or of its ratio to another one) over each seed's rows."""
    table, unit = context.tables[check.table], APART.get(check.table, "seed")
    for name in {check.quantity, check.over, *where, unit} - {None}:
        if name not in table:
            raise ConfigError(f"claims.yaml: table {check.table} has no column {name}; columns: {', '.join(table)}")
    rows = _rows(table, where, context)
    value = per_seed(rows, check.quantity, check.over, unit)
    undefined = sorted({*rows[unit].astype(int)} - {*value.index})
    notes = (f"undefined for {unit} {', '.join(map(str, undefined))}",) if undefined else ()
    found = Sample(value, value, value, notes=notes)
    rows = rows.set_index(rows[unit].astype(int))
    # Reductions with levels that were never reached are at most what they show; the least counts these as -1, what a
    # saving tends to when the method's rounds grow without end, or as their bound if that is lower.
    if check.quantity == "se_ave":
        rows = rows.reindex(value.index)
        share = float(rows["unreached"].sum() / max(1, rows["levels"].sum()))
        return replace(found, least=rows["se_ave_least"].astype(float), unreached=share)
    reached = "peak_reached" if check.quantity in AGAINST_PPO else REACHED.get(check.quantity)
    if not reached:
        return found
    never = ~rows[reached].reindex(value.index).astype(bool)
    unreached = float(never.mean()) if len(never) else 0.0
    if check.quantity in REACHED:  # at least the whole budget
        return replace(found, most=value.where(~never, np.inf), unreached=unreached)
    return replace(found, least=value.where(~never, value.clip(upper=-1)), unreached=unreached)


def _saved(own: Mapping, other: Mapping, context: Context) -> Sample:
    """`saving` of the first against the second, mean over the parts of PPO's rise."""
    sides = [_rows(context.tables["rounds_to"], where, context) for where in (own, other)]
    keys = ["seed", "fraction"]
    both = sides[0].merge(sides[1], on=keys, suffixes=("", "_other")).sort_values(keys)
    arrays = [both[name].to_numpy() for name in ("rounds", "rounds_other")]
    arrays += [both[name].astype(bool).to_numpy() for name in ("reached", "reached_other")]
    seeds = both["seed"].astype(int).to_numpy()
    parts = [pd.Series(part, index=seeds, dtype=float).groupby(level=0).mean() for part in saving(*arrays)]
    never = ~(arrays[2] & arrays[3])
    return Sample(*parts, unreached=float(never.mean()) if len(never) else 0.0)


def _rows(table: pd.DataFrame, where: Mapping, context: Context) -> pd.DataFrame:
    """The rows of a filter; for a tuned method each seed's are those of the best method on the other seeds."""
    if where.get("method") not in context.claims.tuned:
        return rows_where(table, where)
    best = tuned_choice(where["method"], where["environment"], context)
    parts = [rows_where(table, dict(where) | {"method": name, "seed": float(seed)}) for seed, name in best.items()]
    return pd.concat(parts) if parts else table.iloc[:0]
