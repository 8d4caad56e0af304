"""What the rules can show at all: simulated power of every check, and what counting many checks does to a claim.

Seeds are drawn from a normal distribution with the standard deviation that the study's own seeds have, independently;
every draw is judged by the rule itself. Draws are seeded: the same tables give the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy import stats

from rl_influence.analysis.statistics import pocock_confidence

from .models import AGAINST_PPO, CheckConfig, Claims

DRAWS = 4000
KNOWN = ["claim", "environment", "case", "role", "check", "planned", "sd", "sd_from", "margin"]  # of claims_checks
POWER = [*KNOWN, "confidence", "paper_effect", "holds_if_paper", "fails_if_none", "holds_if_none"]
POWER += ["detectable", "seeds_to_hold", "seeds_to_fail"]
MULTIPLICITY = ["claim", "cases", "replicated", "partly", "checks", "false_holds", "false_partly", "false_replicated"]
MULTIPLICITY += ["replicated_if_true", "all_if_true"]
MOST_SEEDS = 500


def outcome_shares(
    check: CheckConfig, effect: float, sd: float, n: int, margin: float, confidence: float, seed: int = 0
) -> tuple[float, float]:
    """Shares of `DRAWS` samples of n seeds, with this true effect and standard deviation, that hold and that fail."""
    draws = np.random.default_rng([seed, n]).standard_normal((DRAWS, n)) * sd + effect
    half = stats.t.ppf((1 + confidence) / 2, n - 1) * draws.std(axis=1, ddof=1) / np.sqrt(n)
    distance = check.sign * (draws.mean(axis=1) - check.threshold)
    fails = (distance + half < margin) | (distance + half < 0)
    holds = (distance - half > 0) & ~fails
    return float(holds.mean()), float(fails.mean())


def power(claims: Claims, checks: pd.DataFrame) -> pd.DataFrame:
    """Power of every check at its planned seeds, at the level of a study's first look.

    The standard deviation is that of the seeds behind `claims_checks`; where there are none, the median of the same
    quantity's in the other environments, in shares of the outcome's range. No rows for checks of which nothing is
    known.

    Returns:
        Rows with `KNOWN`, confidence, paper_effect (the paper's number), holds_if_paper (chance to hold if that is
        true); fails_if_none and holds_if_none (if the truth lies at the threshold); detectable (smallest distance from
        the threshold that holds with 80 %); seeds_to_hold and seeds_to_fail (for 80 %, if the truth lies at the double
        of the margin and at the threshold; empty above `MOST_SEEDS`).
    """
    confidence = pocock_confidence(claims.sequential.looks, claims.sequential.alpha)
    rows = []
    for row in _with_sd(checks[checks["role"] != "requires"], claims).to_dict("records"):
        check, sd, n = row["model"], row["sd"], int(row["planned"])
        level = 1 - (1 - confidence) / len(check.sides)
        arguments = {"sd": sd, "margin": row["margin"], "confidence": level}
        paper = row["paper_value"] if check.quantity in (*AGAINST_PPO, "final_return") else np.nan
        holds, fails = outcome_shares(check, check.threshold, n=n, **arguments)
        step = check.sign * (2 * row["margin"] or abs(check.threshold) / 2)
        numbers = (
            paper,
            outcome_shares(check, paper, n=n, **arguments)[0] if np.isfinite(paper) else np.nan,
            fails,
            holds,
            _detectable(sd, n, level),
            _seeds(check, check.threshold + step, 0, arguments),
            _seeds(check, check.threshold - (0 if row["margin"] else step), 1, arguments),
        )
        rows.append((*(row[name] for name in KNOWN), level, *numbers))
    return pd.DataFrame(rows, columns=POWER)


def _with_sd(checks: pd.DataFrame, claims: Claims) -> pd.DataFrame:
    """The rows with a standard deviation, their own or the others', the margin that they will have, and their check."""
    checks = checks.assign(case=checks["case"].fillna(""))
    numbered = {claim.claim: claim for claim in claims.claims}
    models = [_check_of(numbered[row["claim"]].checks, row) for row in checks.to_dict("records")]
    checks["model"], checks["range"] = models, [model.range for model in models]
    scale = checks["margin"].where(checks["margin"] > 0) / claims.margin
    scale = scale.groupby([checks["environment"], checks["range"]]).transform("median")  # nan: no run is there yet
    scale = scale.where(checks["range"] != "one", 1.0)
    checks["margin"] = np.where([model.has_margin for model in models], claims.margin * scale, 0.0)
    own = checks["sd"].where(checks["sd"] > 0)
    kind = [checks["quantity"], [model.compare for model in models], [bool(model.than) for model in models]]
    others = (own / scale).groupby(kind).transform("median") * scale
    checks = checks.assign(sd=own.fillna(others), sd_from=np.where(own.notna(), "seeds", "others"))
    return checks[checks["sd"].notna() & checks["margin"].notna()]


def multiplicity(claims: Claims) -> pd.DataFrame:
    """What counting does, for independent cases that rest on one check each.

    Returns:
        Rows with claim, cases, replicated and partly (how many must count), checks (that count); if there is no effect
        anywhere: false_holds (expected number of them that hold), false_partly and false_replicated (chance of these
        verdicts); if every case has a power of 80 %: replicated_if_true, and all_if_true (if all cases had to hold).
    """
    rows = []
    confidence = pocock_confidence(claims.sequential.looks, claims.sequential.alpha)
    for claim in claims.claims:
        n = len(claim.cases)
        counting = [(check, e) for check in claim.checks if check.role != "beside" for e in claim.seeds_of(check)]
        by_chance = (1 - confidence) / 2
        enough = [stats.binom.sf(number - 1, n, by_chance) for number in (claim.partly, claim.replicated)]
        true = [stats.binom.sf(number - 1, n, 0.8) for number in (claim.replicated, n)]
        shown = (n, claim.replicated, claim.partly, len(counting), by_chance * len(counting))
        rows.append((claim.claim, *shown, *enough, *true))
    return pd.DataFrame(rows, columns=MULTIPLICITY)


def _check_of(checks: tuple[CheckConfig, ...], row: Mapping) -> CheckConfig:
    """The check that a row of claims_checks is of."""
    shape = row["quantity"], row["case"] or "", row["role"], row["threshold"]
    return next(c for c in checks if (c.quantity, c.case, c.role, c.threshold) == shape)


def _detectable(sd: float, n: int, confidence: float) -> float:
    """Distance from the threshold that a two-sided t test at this level finds with a power of 80 %."""
    critical = stats.t.ppf((1 + confidence) / 2, n - 1)
    low, high = 0.0, 2 * critical + 20
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if stats.nct.sf(critical, n - 1, middle) >= 0.8 else (middle, high)
    return float(high * sd / np.sqrt(n))


def _seeds(check: CheckConfig, truth: float, which: int, arguments: Mapping) -> float:
    """Fewest seeds (from 3, in steps of a tenth) with which a check holds (0) or fails (1) in 80 % of the draws."""
    n = 3
    while n <= MOST_SEEDS:
        if outcome_shares(check, truth, n=n, **arguments)[which] >= 0.8:
            return float(n)
        n += max(1, n // 10)
    return np.nan
