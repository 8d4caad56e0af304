"""The paper's claims, each with a verdict computed from tables by rules that `config/claims.yaml` fixes beforehand.

A claim is a list of checks. A check compares one number, with its 95 % t interval over seeds, with a threshold; the
verdict follows from how many checks hold, how many still could, and whether runs are missing. The paper's own numbers
are shown beside ours and enter no verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd
from pydantic import Field, model_validator

from rl_influence.config import CATALOGUE, Closed, Config, ConfigError, Identifier, Text, parse, read_yaml

from .contrasts import contrast, per_seed, rows_where
from .curves import chosen_iif, reference_method
from .registry import ANALYSIS_OF
from .reported import Reported, load_reported
from .statistics import Interval
from .tables import TABLES

LEDGERS = {  # table -> its folder
    "claims": "tables",
    "claims_checks": "tables",
    "runtime_claims": "runtimes",
    "runtime_claims_checks": "runtimes",
}
VERDICTS = ("replicated", "partly", "not replicated", "cannot tell")
AGAINST_REFERENCE = ("se_ave", "se_peak", "rt_peak")  # compared with standard PPO of the same seed
QUANTITIES = {  # as readers know them
    "se_ave": "SE_ave",
    "se_peak": "SE_peak",
    "rt_peak": "RT_peak",
    "auc": "mean return",
    "final_return": "final return",
    "influence_s": "influence",
    "optimise_s": "optimisation",
    "total_s": "influence + optimisation",
    "spearman_product": "Spearman of influence with true × estimated advantage",
    "error_bottom": "advantage error of the bottom records",
    "error": "of all",
    "sign_agreement_bottom": "sign agreement of the bottom records",
    "sign_agreement": "of all",
    "delta": "change of the return in a round",
}
CLAIM_COLUMNS = ["claim", "statement", "source", "verdict", "reason", "rule"]
CLAIM_COLUMNS += ["checks", "holds", "fails", "undecided", "not_tested", "paper", "ours", "missing", "absent"]
CHECK_COLUMNS = ["claim", "environment", "check", "paper", "value", "low", "high", "n", "expected"]
CHECK_COLUMNS += ["unreached", "bound", "unit", "outcome", "reason", "missing"]
Scalar = str | float


class CheckConfig(Closed):
    """One number, a mean over seeds with its 95 % t interval, against a threshold; made in each of its environments."""

    environments: tuple[Identifier, ...] = Field(min_length=1, description="a check is made in each of them")
    table: Identifier = Field(description="a table of the study with a row or more per seed")
    where: dict[Identifier, Scalar] = Field(
        description="column -> value of the rows that count; `method: chosen` is IIF at the environment's own p"
    )
    minus: dict[Identifier, Scalar] | None = Field(
        None, description="take the difference, by seed, to the rows with these values instead"
    )
    quantity: Identifier = Field(description="column that is averaged within each seed")
    over: Identifier | None = Field(None, description="column that `quantity` is divided by, row by row")
    above: float | None = Field(None, description="the claim says that the number is above this")
    below: float | None = Field(None, description="the claim says that the number is below this")
    negligible: float = Field(0, ge=0, description="an effect that is surely smaller than this fails")
    of: Identifier | None = Field(None, description="column whose mean `negligible` is a share of")
    percent: bool = Field(False, description="print the number in percent")
    reported: tuple[Text, ...] = Field(
        (), description="the paper's numbers: places in paper_reported.yaml; {environment} and {method} are filled in"
    )

    @model_validator(mode="after")
    def _one_direction(self) -> CheckConfig:
        if (self.above is None) == (self.below is None):
            raise ValueError("a check needs one of above and below")
        return self


class ClaimConfig(Closed):
    """A claim, its checks, and how many of them make it replicated or partly replicated."""

    claim: int = Field(ge=1, description="number")
    statement: Text = Field(description="what the paper says, in our own words")
    source: Text = Field(description="where in the paper")
    checks: tuple[CheckConfig, ...] = Field((), description="what is measured")
    replicated: int | None = Field(None, ge=1, description="so many checks must hold")
    partly: int | None = Field(None, ge=1, description="so many for `partly`")
    not_run: Text | None = Field(None, description="instead of checks: why the claim is not tested at all")
    reported: tuple[Text, ...] = Field((), description="the paper's numbers of a claim without checks")

    @model_validator(mode="after")
    def _rule_fits(self) -> ClaimConfig:
        if bool(self.checks) == bool(self.not_run):
            raise ValueError(f"claim {self.claim} needs either checks or not_run")
        if bool(self.checks) != bool(self.replicated):
            raise ValueError(f"claim {self.claim} needs replicated, the number of checks that must hold")
        if not (self.partly or 0) < (self.replicated or 1) <= max(1, self.number_of_checks):
            raise ValueError(
                f"claim {self.claim}: partly {self.partly} and replicated {self.replicated} do not rise to at most "
                f"{self.number_of_checks}, its number of checks"
            )
        return self

    @property
    def number_of_checks(self) -> int:
        return sum(len(check.environments) for check in self.checks)

    @property
    def rule(self) -> str:
        """The rule in words."""
        if self.not_run:
            return "not run"
        n, partly = self.number_of_checks, self.partly
        words = [f"replicated: at least {self.replicated} of {n} checks hold"]
        words += [f"partly: at least {partly} do"] if partly else []
        return "; ".join([*words, f"not replicated: fewer than {partly or self.replicated} still can"])


class Claims(Closed):
    """What the paper claims, and when our results confirm it; the file's head says how a verdict comes about."""

    claims: tuple[ClaimConfig, ...] = Field(min_length=1, description="each number once")

    @model_validator(mode="after")
    def _no_repeats(self) -> Claims:
        numbers = [claim.claim for claim in self.claims]
        if repeated := {number for number in numbers if numbers.count(number) > 1}:
            raise ValueError(f"claim {min(repeated)} is repeated")
        return self

    @property
    def tables(self) -> list[str]:
        """Tables that the checks read."""
        return list(dict.fromkeys(check.table for claim in self.claims for check in claim.checks))


@dataclass(frozen=True)
class Outcome:
    """A check in one environment."""

    check: CheckConfig
    environment: str
    outcome: Literal["holds", "fails", "undecided", "not tested", "missing"]
    interval: Interval = Interval(float("nan"), float("nan"), float("nan"), 0)
    expected: int = 0
    unreached: float = 0.0
    bound: str = ""
    reason: str = ""
    missing: tuple[tuple[str, str, int], ...] = ()  # environment, method, seed


def load_claims(folder: str | Path = CATALOGUE) -> Claims:
    """The claims; `folder` is the catalogue's.

    Raises:
        ConfigError: for anything wrong in the file.
    """
    path = Path(folder) / "claims.yaml"
    return parse(Claims, read_yaml(path), path)


def evaluate(
    claims: Claims, config: Config, tables: Mapping[str, pd.DataFrame], reported: Reported | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Verdicts, one row per claim, and checks, one row per check and environment.

    Args:
        tables: by name; `missing_runs` (and `missing_analyses`) and those that the checks read. A check whose table is
            not there is not tested.
        reported: default what the catalogue in the current folder says.

    Raises:
        ConfigError: for a reference to a number that the paper does not have, or a column that its table does not.
    """
    reported = reported or load_reported(config.folder)
    verdicts, rows = [], []
    for claim in claims.claims:
        outcomes = [
            _test(check, environment, config, tables) for check in claim.checks for environment in check.environments
        ]
        checks = [_check_row(claim.claim, outcome, config, reported) for outcome in outcomes]
        rows += checks
        verdicts.append(_claim_row(claim, outcomes, checks, reported))
    return pd.DataFrame(verdicts, columns=CLAIM_COLUMNS), pd.DataFrame(rows, columns=CHECK_COLUMNS)


def ledgers(
    claims: Claims, config: Config, tables: Mapping[str, pd.DataFrame], reported: Reported | None = None
) -> dict[str, pd.DataFrame]:
    """The tables `claims` and `claims_checks`, and the same of the claims that rest on runtimes, as `runtime_*`.

    No two runs take the same time, so a claim on runtimes cannot be settled in a table that is the same for every
    machine: there it is `cannot tell` and points to the other one. `complete` puts both together.
    """
    timed = {name for name, table in TABLES.items() if table.folder == "runtimes"}
    numbers = [claim.claim for claim in claims.claims if timed & {check.table for check in claim.checks}]
    steady = {name: table for name, table in tables.items() if name not in timed}
    verdicts, checks = evaluate(claims, config, steady, reported)
    verdicts.loc[verdicts["claim"].isin(numbers), "reason"] = "rests on runtimes: see runtimes/runtime_claims.csv"
    both = evaluate(claims, config, tables, reported)
    timed_verdicts, timed_checks = (table[table["claim"].isin(numbers)].reset_index(drop=True) for table in both)
    return {
        "claims": verdicts,
        "claims_checks": checks,
        "runtime_claims": timed_verdicts,
        "runtime_claims_checks": timed_checks,
    }


def complete(tables: Mapping[str, pd.DataFrame]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Verdicts and checks of all claims, from the four tables of `ledgers`."""
    numbers = tables["runtime_claims"]["claim"]
    whole = []
    for name in ("claims", "claims_checks"):
        steady, timed = tables[name], tables[f"runtime_{name}"]
        rows = [steady[~steady["claim"].isin(numbers)], timed]
        whole.append(pd.concat([part for part in rows if len(part)]).sort_values("claim", kind="stable"))
    return tuple(table.reset_index(drop=True) for table in whole)


def verdict(claim: ClaimConfig, outcomes: list[str]) -> str:
    """The verdict for these outcomes of a claim's checks."""
    holds = outcomes.count("holds")
    possible = holds + outcomes.count("undecided") + outcomes.count("not tested")
    if not outcomes or "missing" in outcomes:
        return "cannot tell"
    if holds >= claim.replicated:
        return "replicated"
    if possible < (claim.partly or claim.replicated):
        return "not replicated"
    return "partly" if claim.partly and holds >= claim.partly else "cannot tell"


def judge(interval: Interval, check: CheckConfig, scale: float = 1.0, unreached: float = 0.0) -> str:
    """holds, fails or undecided.

    Args:
        scale: what `negligible` is a share of.
        unreached: share of never reached returns, taken off a number before it holds.
    """
    sign, threshold = (1, check.above) if check.above is not None else (-1, check.below)
    nearest, farthest = sorted((sign * (interval.low - threshold), sign * (interval.high - threshold)))
    if farthest < 0 or farthest < check.negligible * scale:
        return "fails"
    return "holds" if nearest > unreached else "undecided"


def reference_text(reported: Reported, path: str) -> str:
    """A number of the paper by its place in paper_reported.yaml, as printed: mean ± spread, or an interval.

    Raises:
        ConfigError: if there is no such number.
    """
    value: object = reported
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
    if not (isinstance(value, tuple) and len(value) == 2):
        raise ConfigError(f"claims.yaml: reported {path!r} is no number of paper_reported.yaml")
    return f"[{value[0]:g}, {value[1]:g}]" if path.startswith("table_4.") else f"{value[0]:g} ± {value[1]:g}"


def _test(check: CheckConfig, environment: str, config: Config, tables: Mapping[str, pd.DataFrame]) -> Outcome:
    own = _where(check.where, environment, config)
    minus = None if check.minus is None else own | _where(check.minus, environment, config)
    expected, why = _expected(check, environment, own, minus, config, tables)
    if why:
        return Outcome(check, environment, "not tested", reason=why)
    missing = _missing(check, environment, _methods(check, own, minus, config), expected, tables)
    table = tables[check.table]
    if missing and table.empty:
        found = {"expected": len(expected), "missing": missing, "reason": _runs_missing(missing)}
        return Outcome(check, environment, "missing", **found)
    for name in {check.quantity, check.over, check.of, *own, *(minus or {}), "seed"} - {None}:
        if name not in table:
            raise ConfigError(f"claims.yaml: table {check.table} has no column {name}; columns: {', '.join(table)}")
    rows = [rows_where(table, where) for where in (own, minus) if where is not None]
    series = [per_seed(part, check.quantity, check.over) for part in rows]
    interval = contrast(*series)
    shares = [_unreached(part, check.quantity) for part in rows]  # each side's own number is at most what it shows
    bound = {(True, False): "at most", (False, True): "at least", (True, True): "either way"}
    unreached = shares[0] if check.above is not None else shares[1] if minus else 0.0  # what flatters the claim
    result = {"interval": interval, "expected": len(expected), "unreached": unreached, "missing": missing}
    result["bound"] = bound.get((shares[0] > 0, shares[-1] > 0 if minus else False), "")
    scale = rows[0][check.of].astype(float).mean() if check.of else 1.0
    if missing:
        outcome, why = "missing", _runs_missing(missing)
    elif "rounds" in table and len({*rows[0]["rounds"], *rows[-1]["rounds"]}) > 1:
        outcome, why = "undecided", "the runs have unequal numbers of rounds"
    elif interval.n < 2:
        outcome = "undecided"
        why = "one seed has no interval" if len(expected) == 1 else f"defined for {interval.n} of {len(expected)} seeds"
    else:
        outcome, why = judge(interval, check, scale, unreached), ""
        if outcome == "undecided" and judge(interval, check, scale) == "holds":
            why = f"{unreached:.0%} of the returns are never reached, so the bound is too loose"
    return Outcome(check, environment, outcome, reason=why, **result)


def _where(where: Mapping[str, Scalar], environment: str, config: Config) -> dict[str, Scalar]:
    """A filter with `chosen` resolved and the environment added."""
    where = dict(where)
    if where.get("method") == "chosen" and environment in config.environments:
        where["method"] = chosen_iif(config, environment) or "chosen"
    return {"environment": environment} | where


def _methods(check: CheckConfig, own: dict, minus: dict | None, config: Config) -> list[str]:
    """Methods whose runs a check rests on."""
    methods = [where["method"] for where in (own, minus or {}) if "method" in where]
    return methods + ([reference_method(config)] if check.quantity in AGAINST_REFERENCE else [])


def _expected(
    check: CheckConfig, environment: str, own: dict, minus: dict | None, config: Config, tables: Mapping
) -> tuple[set[int], str]:
    """Seeds that the study's grid has for a check, or what the study lacks for it."""
    analysis = ANALYSIS_OF.get(check.table)
    grid: dict[str, set[int]] = {}
    for run in config.runs if not analysis else [a.run for a in config.analyses if a.name == analysis]:
        if run.environment == environment:
            grid.setdefault(run.method, set()).add(run.seed)
    if environment not in {run.environment for run in config.runs}:
        return set(), environment
    if not grid:
        return set(), f"{analysis} of {environment}"
    if check.table not in tables:
        return set(), f"table {check.table}"
    methods = _methods(check, own, minus, config)
    for method in methods:
        if method not in grid:
            return set(), f"{environment} {method}"
    seeds = set.intersection(*(grid[method] for method in methods)) if methods else set.union(*grid.values())
    return seeds, "" if seeds else f"a common seed of {environment} {', '.join(methods)}"


def _missing(check: CheckConfig, environment: str, methods: list[str], seeds: set[int], tables: Mapping) -> tuple:
    """Runs (or analyses of runs) that a check needs and that are not there: environment, method, seed."""
    if analysis := ANALYSIS_OF.get(check.table):
        rows = rows_where(tables["missing_analyses"], {"analysis": analysis})
    else:
        rows = tables["missing_runs"]
    rows = rows[rows["environment"].astype(str) == environment]
    return tuple(
        (environment, method, seed)
        for method, seed in zip(rows["method"].astype(str), rows["seed"], strict=True)
        if seed in seeds and (method in methods or (analysis and not methods))
    )


def _runs_missing(missing: Sequence) -> str:
    return f"{len(missing)} run{'s are' if len(missing) > 1 else ' is'} missing"


def _named(missing: Sequence[tuple[str, str, int]]) -> str:
    """`highway ppo seeds 1, 2; highway random seed 1`."""
    seeds: dict[str, list[str]] = {}
    for environment, method, seed in missing:
        seeds.setdefault(f"{environment} {method}", []).append(str(seed))
    return "; ".join(f"{run} seed{'s' if len(x) > 1 else ''} {', '.join(x)}" for run, x in seeds.items())


def _unreached(rows: pd.DataFrame, quantity: str) -> float:
    """Share of the reference's returns that were never reached, in a number that this makes an upper bound."""
    if rows.empty or quantity not in AGAINST_REFERENCE:
        return 0.0
    if quantity == "se_ave":
        return float(rows["unreached"].sum() / max(1, rows["levels"].sum()))
    return float((rows["peak_reached"].astype(str) == "False").mean())


def _check_row(number: int, outcome: Outcome, config: Config, reported: Reported) -> dict:
    check, environment = outcome.check, outcome.environment
    own = _where(check.where, environment, config)
    known = environment in config.environments
    names = {"environment": environment, "method": own.get("method")}
    paths = [path.format(**names) for path in check.reported] if known else []
    return {
        "claim": number,
        "environment": environment,
        "check": _words(check, environment, config),
        "paper": " against ".join(reference_text(reported, path) for path in paths),
        "value": outcome.interval.mean,
        "low": outcome.interval.low,
        "high": outcome.interval.high,
        "n": outcome.interval.n,
        "expected": outcome.expected,
        "unreached": outcome.unreached,
        "bound": outcome.bound,
        "unit": "fraction" if check.percent else "s" if check.quantity.endswith("_s") else "",
        "outcome": outcome.outcome,
        "reason": outcome.reason,
        "missing": _named(outcome.missing),
    }


def _words(check: CheckConfig, environment: str, config: Config) -> str:
    """A check in words: `IIF, p = 50 % against PPO: difference in final return > 0`."""

    def who(where: Mapping[str, Scalar]) -> str:
        parts = []
        for name, value in list(_where(where, environment, config).items())[1:]:
            method = config.methods.get(str(value)) if name == "method" else None
            parts.append(method.label if method else "IIF" if value == "chosen" else f"{name} {value}")
        return ", ".join(parts)

    threshold = check.above if check.above is not None else check.below
    shown = f"{'>' if check.above is not None else '<'} {100 * threshold if check.percent else threshold:g}"
    over = f" / {QUANTITIES.get(check.over, check.over)}" if check.over else ""
    what = f"{QUANTITIES.get(check.quantity, check.quantity)}{over}"
    compared = f" against {who(check.minus)}: difference in" if check.minus else ":"
    return f"{who(check.where)}{compared} {what} {shown}{' %' if check.percent else ''}"


def _claim_row(claim: ClaimConfig, outcomes: list[Outcome], checks: list[dict], reported: Reported) -> dict:
    found = [outcome.outcome for outcome in outcomes]
    result = verdict(claim, found)
    missing = list(dict.fromkeys(run for outcome in outcomes for run in outcome.missing))
    absent = ", ".join(dict.fromkeys(o.reason for o in outcomes if o.outcome == "not tested"))
    counts = {name: found.count(name) for name in ("holds", "fails", "undecided", "not tested")}
    if claim.not_run:
        reason = claim.not_run
    else:
        reason = f"{_runs_missing(missing)}; " if missing else ""
        reason += f"{counts['holds']} of {len(found)} checks hold, {counts['fails']} fail"
        reason += f", {counts['undecided']} undecided" if counts["undecided"] else ""
        reason += f", {counts['not tested']} not tested" if counts["not tested"] else ""
    papers = [f"{row['environment']} {row['paper']}" for row in checks if row["paper"]]
    papers += [f"{path} {reference_text(reported, path)}" for path in claim.reported]
    ours = [f"{row['environment']} {number_text(row)}" for row in checks if row["n"]]
    return {
        "claim": claim.claim,
        "statement": claim.statement,
        "source": claim.source,
        "verdict": result,
        "reason": reason,
        "rule": claim.rule,
        "checks": len(found),
        **{name.replace(" ", "_"): count for name, count in counts.items()},
        "paper": "; ".join(dict.fromkeys(papers)),
        "ours": "; ".join(dict.fromkeys(ours)),
        "missing": _named(missing),
        "absent": absent,
    }


def number_text(row: Mapping) -> str:
    """A check's number as people read it: value [low, high], n; ≤, ≥ or ≈ where returns were never reached."""
    scale, unit = (100, " %") if row["unit"] == "fraction" else (1, " s" if row["unit"] == "s" else "")
    value, low, high = (f"{scale * row[name]:.3g}" for name in ("value", "low", "high"))
    interval = "" if pd.isna(row["low"]) else f" [{low}, {high}]"
    count = f"{row['n']:g}" if row["n"] == row["expected"] else f"{row['n']:g} of {row['expected']:g}"
    bound = {"at most": "≤ ", "at least": "≥ ", "either way": "≈ "}.get(row["bound"], "")
    return f"{bound}{value}{unit}{interval}, n = {count}"


def texts(verdicts: pd.DataFrame) -> Iterator[str]:
    """One line per claim, for the terminal."""
    for row in verdicts.to_dict("records"):
        yield f"claim {row['claim']:>2}  {row['verdict']:<15} {row['statement']} ({row['reason']})"
