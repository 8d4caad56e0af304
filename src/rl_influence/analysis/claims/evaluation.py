"""A study's tables -> the tables `claims` (a verdict for each claim) and `claims_checks` (a row for each check).

The paper's own numbers are shown beside ours and enter no verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from rl_influence.analysis.contrasts import rows_where
from rl_influence.analysis.curves import paper_id
from rl_influence.analysis.reported import Reported, load_reported
from rl_influence.analysis.statistics import Interval, pocock_confidence, prediction_interval, t_interval
from rl_influence.config import Config

from . import wording
from .models import FEWEST_SEEDS, CheckConfig, ClaimConfig, Claims
from .samples import APART, Context, Needs, Sample, located, needs, sample
from .verdicts import conclude, judge

NOTHING = Interval(np.nan, np.nan, np.nan, 0)
NO_SAMPLE = Sample(*[pd.Series(dtype=float)] * 3)


@dataclass(frozen=True)
class Outcome:
    """A check in one environment."""

    check: CheckConfig
    environment: str
    outcome: str
    needs: Needs
    reason: str = ""
    interval: Interval = NOTHING  # of the numbers, and of the least and the most that they can be
    least: Interval = NOTHING
    most: Interval = NOTHING
    sample: Sample = NO_SAMPLE
    confidence: float = np.nan
    margin: float = 0.0
    side: Mapping | None = None  # which of several alternatives all this is of


def evaluate(
    claims: Claims, config: Config, tables: Mapping[str, pd.DataFrame], reported: Reported | None = None
) -> dict[str, pd.DataFrame]:
    """Verdicts (`claims`), and checks by environment (`claims_checks`).

    `tables`: by name, `missing_runs` (and `missing_analyses`) and those that the checks read; a check whose table is
    not there is not run. `reported`: default what the catalogue says. `ConfigError` for a reference to a number that
    the paper does not have, or a column that its table does not.
    """
    reported = reported or load_reported(config.folder)
    context = Context(claims, config, tables)
    verdicts, rows = [], []
    for claim in claims.claims:
        required = {e: [assess(c, e, context, n) for c in claim.requires] for e, n in claim.seeds.items()}
        outcomes = [
            _if_it_applies(assess(check, e, context, planned), required[e])
            for check in claim.checks
            for e, planned in claim.seeds_of(check).items()
        ]
        listed = [("requires", outcome) for found in required.values() for outcome in found]
        listed += [(outcome.check.role, outcome) for outcome in outcomes]
        rows += [_check_row(claim, role, outcome, context, reported) for role, outcome in listed]
        verdicts.append(_claim_row(claim, outcomes, [outcome for role, outcome in listed if role != "beside"]))
    return {"claims": pd.DataFrame(verdicts), "claims_checks": pd.DataFrame(rows)}


def confidence_of(claims: Claims, study: str) -> float:
    """The level of a study's intervals: 95 %, adjusted where the study is looked at more than once."""
    rule = claims.sequential
    return pocock_confidence(rule.looks, rule.alpha) if study in rule.studies else 1 - rule.alpha


def assess(check: CheckConfig, environment: str, context: Context, planned: int) -> Outcome:
    """A check in an environment; `planned` seeds make a table complete that belongs to no study's grid."""
    found = needs(check, environment, context)
    if check.table in APART:
        found = replace(found, short=max(0, planned - len(found.seeds)))
    blank = Outcome(check, environment, "not run", found, found.lacks)
    if found.lacks:
        return blank
    if len(found.seeds) < FEWEST_SEEDS and not found.short:
        number = f"{len(found.seeds)} seed{'s' * (len(found.seeds) != 1)}"
        return replace(blank, reason=f"the study asks for {number}, the rule for {FEWEST_SEEDS} or more")
    margin = context.claims.margin * margin_scale(check, environment, context) if check.has_margin else 0.0
    confidence = confidence_of(context.claims, context.config.study)
    confidence = 1 - (1 - confidence) / len(check.sides)  # Bonferroni, where one of several may hold
    outcomes = []
    for side in check.sides:
        there = len(context.tables[check.table])
        numbers = sample(check, side, environment, context, found.seeds) if there else NO_SAMPLE
        outcomes.append(_judged(replace(blank, side=side, margin=margin, confidence=confidence), numbers))
    kinds = [outcome.outcome for outcome in outcomes]
    order = [check.sign * outcome.interval.mean for outcome in outcomes]
    best = outcomes[int(np.nanargmax(order))] if not np.isnan(order).all() else outcomes[0]
    if len(outcomes) == 1 or "incomplete" in kinds or "not run" in kinds:
        return best
    if "holds" in kinds:
        return outcomes[kinds.index("holds")] if best.outcome != "holds" else best
    return replace(best, outcome="fails" if set(kinds) == {"fails"} else "undecided")


def _judged(blank: Outcome, numbers: Sample) -> Outcome:
    """The outcome of these numbers."""
    check, found = blank.check, blank.needs
    least, most = (_interval(part, blank.confidence) for part in (numbers.least, numbers.most))
    most_possible = np.inf if check.quantity != "rounds_saved" else 2.0 if check.than else 1.0
    interval = t_interval(numbers.value, blank.confidence, most_possible)
    notes = list(numbers.notes)
    if found.missing or found.short:
        outcome = "incomplete" if interval.n else "not run"
        short = f"{found.short} of {found.short + len(found.seeds)} seeds are missing"
        notes.insert(0, wording.runs_missing(found.missing) if found.missing else short)
    elif np.isnan(interval.low) or interval.n < FEWEST_SEEDS:
        outcome = "undecided"
        notes.insert(0, f"defined for {interval.n} of {len(found.seeds)} seeds")
    elif np.isnan(blank.margin):
        outcome = "undecided"
        notes.insert(0, "PPO's rise is not defined")
    else:
        outcome = judge(least, most, check, blank.margin)
        if outcome == "undecided" and judge(interval, interval, check, blank.margin) != "undecided":
            notes.append(f"{numbers.unreached:.0%} of the returns are never reached: the number is a bound")
    reason = "; ".join(notes)
    return replace(blank, sample=numbers, interval=interval, least=least, most=most, outcome=outcome, reason=reason)


def _interval(values: pd.Series, confidence: float) -> Interval:
    """The t interval, endless on the side where a value is."""
    if np.isfinite(values.to_numpy(dtype=float)).all():
        return t_interval(values, confidence)
    low, high = (-np.inf, np.nan) if (values == -np.inf).any() else (np.nan, np.inf)
    return Interval(low if np.isinf(low) else high, low, high, len(values))


def margin_scale(check: CheckConfig, environment: str, context: Context) -> float:
    """The range of a check's outcome, of which its margin is a share."""
    if check.range == "one":
        return 1.0
    table = check.table if check.table in APART else "returns_per_seed"
    rows = rows_where(context.tables[table], {"environment": environment})
    if check.table in APART:
        return float(rows[check.range].astype(float).mean())
    rise = float(rows["ppo_rise"].astype(float).mean())
    return rise / float(rows["rounds"].astype(float).max()) if check.range == "ppo_rise_per_round" else rise


def _if_it_applies(outcome: Outcome, requirements: list[Outcome]) -> Outcome:
    """Not applicable where the mean of a requirement is not reached; open where it is not known yet."""
    for required in requirements:
        if required.outcome in ("incomplete", "not run"):
            return replace(outcome, outcome=required.outcome, reason=required.reason)
        if not required.check.sign * (required.interval.mean - required.check.threshold) >= 0:
            return replace(outcome, outcome="not applicable", reason="what the claim requires is not there")
    return outcome


# Rows


def _check_row(claim: ClaimConfig, role: str, outcome: Outcome, context: Context, reported: Reported) -> dict:
    check, environment, interval = outcome.check, outcome.environment, outcome.interval
    method = located(outcome.side or check.sides[0], environment, context.config).get("method")
    named = method and paper_id(context.config, environment, method)
    paper, paper_value, seeds = wording.paper_number(check, environment, named, reported)
    values = outcome.sample.value
    predicted = NOTHING if np.isnan(paper_value) else prediction_interval(values, seeds)
    inside = predicted.low <= paper_value <= predicted.high
    return {
        "claim": claim.claim,
        "environment": environment,
        "case": check.case,
        "role": role,
        "check": wording.check_text(check, environment, outcome.side, context),
        "quantity": check.quantity,
        "value": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "confidence": outcome.confidence,
        "surely_above": outcome.least.low,
        "surely_below": outcome.most.high,
        "sd": values.std(ddof=1) if len(values) > 1 else np.nan,
        "n": interval.n,
        "expected": len(outcome.needs.seeds),
        "planned": claim.seeds_of(check)[environment],
        "unreached": outcome.sample.unreached,
        "bound": _bound(outcome.sample),
        "unit": "fraction" if check.percent else "",
        "claimed": "above" if check.sign > 0 else "below",
        "threshold": check.threshold,
        "margin": outcome.margin,
        "null": _null(check, environment, context),
        "outcome": outcome.outcome,
        "reason": outcome.reason,
        "missing": wording.named(outcome.needs.missing),
        "paper": paper,
        "paper_value": paper_value,
        "predicted_low": predicted.low,
        "predicted_high": predicted.high,
        "paper_inside": "" if np.isnan(predicted.low) else "yes" if inside else "no",
        "reproducible": check.table != "timings",
    }


def _bound(numbers: Sample) -> str:
    below, above = ((part != numbers.value).any() for part in (numbers.least, numbers.most))
    return {(True, False): "at most", (False, True): "at least", (True, True): "either way"}.get((below, above), "")


def _null(check: CheckConfig, environment: str, context: Context) -> float:
    """The metric's mean between PPO and PPO of another seed."""
    table = context.tables.get("null_values")
    if table is None or check.than or check.compare == "ratio" or (check.quantity == "se_ave" and check.against):
        return np.nan
    rows = rows_where(table, {"environment": environment, "metric": check.quantity})
    return float(rows["mean"].iloc[0]) if len(rows) else np.nan


def _claim_row(claim: ClaimConfig, outcomes: list[Outcome], used: list[Outcome]) -> dict:
    """A claim's row; `used` are the outcomes that its verdict rests on."""
    cases: dict[tuple[str, str], dict[str, list[str]]] = {case: {} for case in claim.cases}
    for outcome in outcomes:
        case = outcome.environment, outcome.check.case
        if case in cases:
            cases[case].setdefault(outcome.check.role, []).append(outcome.outcome)
    verdict = conclude(claim, list(cases.values()))
    missing = list(dict.fromkeys(run for outcome in used for run in outcome.needs.missing))
    absent = ", ".join(dict.fromkeys(o.reason for o in used if o.outcome == "not run" and not o.needs.missing))
    return {
        "claim": claim.claim,
        "control_of": claim.control_of or "",
        "title": claim.title,
        "statement": claim.statement,
        "source": claim.source,
        "verdict": verdict.verdict,
        "settled": verdict.settled,
        "floor": verdict.floor,
        "ceiling": verdict.ceiling,
        "reason": wording.reason(claim, verdict, missing),
        "rule": claim.rule,
        "cases": len(cases),
        **{name.replace(" ", "_"): number for name, number in verdict.cases.items()},
        "missing": wording.named(missing),
        "absent": absent,
        "reproducible": all(check.table != "timings" for check in claim.checks),
    }
