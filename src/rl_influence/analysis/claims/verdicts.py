"""From intervals to outcomes of checks, to environments, to a claim's verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rl_influence.analysis.statistics import Interval

from .models import CheckConfig, ClaimConfig

VERDICTS = ("replicated", "partly", "not replicated", "undecided", "incomplete", "not run", "not applicable")
OPEN = ("incomplete", "not run")  # runs that are missing could change them


@dataclass(frozen=True)
class Verdict:
    """What is known of a claim."""

    verdict: str  # one of `VERDICTS`
    floor: str  # what it is if everything that is missing goes against the claim
    ceiling: str  # and if it goes for it; equal: settled
    cases: dict[str, int]  # how many count in full, in part, fail, are undecided, open or not applicable

    @property
    def settled(self) -> bool:
        return self.floor == self.ceiling


def judge(least: Interval, most: Interval, check: CheckConfig, margin: float = 0.0) -> str:
    """holds, fails or undecided, by the intervals of the least and the most that the numbers can be; an effect of less
    than `margin` is none (0 for a threshold that is a size)."""
    worst, best = (least, most) if check.sign > 0 else (most, least)
    sure = check.sign * ((worst.low if check.sign > 0 else worst.high) - check.threshold)
    possible = check.sign * ((best.high if check.sign > 0 else best.low) - check.threshold)
    if possible < margin or possible < 0:
        return "fails"
    return "holds" if sure > 0 else "undecided"


def counts(check_outcomes: Mapping[str, list[str]], part: bool) -> Literal["yes", "undecided", "no"]:
    """Whether a case counts, in full or in part, given the outcomes of its checks by role."""
    needed = list(check_outcomes.get("decides", ()))
    vetoes = list(check_outcomes.get("vetoes", ()))
    if not part:
        needed += [*vetoes, *check_outcomes.get("completes", ())]
    if "fails" in needed or "fails" in vetoes:
        return "no"
    return "yes" if all(outcome == "holds" for outcome in needed) else "undecided"


def conclude(claim: ClaimConfig, cases: list[Mapping[str, list[str]]]) -> Verdict:
    """The verdict for these outcomes, by role, of a claim's cases; not applicable ones have `not applicable` alone."""
    applicable = [case for case in cases if "not applicable" not in _all(case)]
    kinds = dict.fromkeys(("full", "part", "fails", "undecided", "open", "not applicable"), 0)
    for case in cases:
        kinds[case_status(case)] += 1
    if not applicable:
        return Verdict(*["not applicable"] * 3, kinds)
    floor, ceiling = (_final(claim, [_closed(case, as_if) for case in applicable]) for as_if in ("fails", "holds"))
    if floor == ceiling or floor == "partly":
        return Verdict(floor, floor, ceiling, kinds)
    outcomes = [outcome for case in applicable for outcome in _all(case)]
    return Verdict("not run" if set(outcomes) == {"not run"} else "incomplete", floor, ceiling, kinds)


def _final(claim: ClaimConfig, cases: list[Mapping[str, list[str]]]) -> str:
    """The verdict when nothing is missing."""
    full, part = ([counts(case, part) for case in cases] for part in (False, True))
    replicated, partly = (min(number, len(cases)) for number in (claim.replicated, claim.partly))
    if full.count("yes") >= replicated:
        return "replicated"
    if len(part) - part.count("no") < partly:
        return "not replicated"
    return "partly" if part.count("yes") >= partly else "undecided"


def case_status(case: Mapping[str, list[str]]) -> str:
    """What is sure of a case, given the outcomes of its checks by role: full, part, fails, undecided, open (runs are
    missing that could change it) or not applicable."""
    if "not applicable" in _all(case):
        return "not applicable"
    worst, best = (_closed(case, as_if) for as_if in ("fails", "holds"))
    if counts(best, True) == "no":
        return "fails"
    if counts(worst, True) == "yes":
        return "full" if counts(worst, False) == "yes" else "part"
    return "open" if set(OPEN) & {*_all(case)} else "undecided"


def _closed(case: Mapping[str, list[str]], as_if: str) -> dict[str, list[str]]:
    return {role: [as_if if outcome in OPEN else outcome for outcome in found] for role, found in case.items()}


def _all(case: Mapping[str, list[str]]) -> list[str]:
    return [outcome for role, outcomes in case.items() if role != "beside" for outcome in outcomes]
