"""Outcomes of intervals, and verdicts against every way in which what is missing could turn out."""

import itertools

import numpy as np
import pytest

import oracles
from rl_influence.analysis.claims.models import CheckConfig, ClaimConfig
from rl_influence.analysis.claims.verdicts import conclude, judge
from rl_influence.analysis.statistics import Interval


def check(**changes):
    keys = {"table": "x", "where": {"method": "a"}, "against": {"method": "b"}, "quantity": "y"}
    return CheckConfig(**keys | changes)


def interval(low, high):
    return Interval((low + high) / 2, low, high, 3)


@pytest.mark.parametrize(
    "low, high, changes, margin, expected",
    [
        (0.1, 0.3, {"above": 0}, 0, "holds"),
        (-0.1, 0.3, {"above": 0}, 0, "undecided"),
        (-0.3, -0.1, {"above": 0}, 0, "fails"),
        (0.1, 0.3, {"above": 0.2}, 0, "undecided"),
        (0.1, 0.3, {"below": 0}, 0, "fails"),
        (-0.3, -0.1, {"below": 0}, 0, "holds"),
        (-0.3, 0.1, {"below": 0}, 0, "undecided"),
        (-0.02, 0.03, {"above": 0}, 0.05, "fails"),  # no effect that counts
        (0.01, 0.03, {"above": 0}, 0.05, "fails"),
        (0.01, 0.06, {"above": 0}, 0.05, "holds"),
        (-0.03, 0.02, {"below": 0}, 0.05, "fails"),
        (0.96, 1.2, {"below": 1, "compare": "ratio"}, 0.05, "fails"),
        (0.9, 0.99, {"below": 1, "compare": "ratio"}, 0.05, "holds"),
        (0.94, 1.2, {"below": 1, "compare": "ratio"}, 0.05, "undecided"),
        (-4, 3, {"above": 0}, 4, "fails"),
        (-4, 5, {"above": 0}, 4, "undecided"),
        (np.nan, np.nan, {"above": 0}, 0, "undecided"),
    ],
)
def test_outcome_of_an_interval(low, high, changes, margin, expected):
    assert judge(interval(low, high), interval(low, high), check(**changes), margin) == expected


@pytest.mark.parametrize("sign", [1, -1])
def test_bounds_decide_by_their_worse_end(sign):
    """Over a grid of intervals: holding needs the worst that could be, failing the best."""
    one = check(**{"above" if sign > 0 else "below": 0})
    ends = (-0.2, -0.04, 0.02, 0.1, 0.3)
    for a, b, c, d in itertools.product(ends, repeat=4):
        if not (a < b and c < d and a <= c and b <= d):
            continue
        least, most = (interval(a, b), interval(c, d)) if sign > 0 else (interval(-d, -c), interval(-b, -a))
        outcome = judge(least, most, one, 0.05)
        assert outcome == ("fails" if d < 0.05 else "holds" if a > 0 else "undecided")
    endless = Interval(-np.inf, -np.inf, np.nan, 3)
    assert judge(endless, interval(0.1, 0.3), check(above=0)) == "undecided"
    assert judge(endless, interval(-0.3, -0.1), check(above=0)) == "fails"
    assert judge(endless, interval(-0.3, -0.1), check(below=0)) == "holds"
    assert judge(endless, interval(0.1, 0.3), check(below=0)) == "undecided"
    assert judge(interval(-1, 0), interval(-1, 0), check(above=0)) == "undecided"  # what is possible is the threshold


ROLES = ("decides", "vetoes", "completes")
FINAL = ("holds", "fails", "undecided")


def claim(environments, replicated, partly):
    checks = [check(above=0, role=role) for role in ROLES]
    seeds = {f"e{i}": 3 for i in range(environments)}
    keys = {"claim": 1, "title": "x", "statement": "x", "source": "y", "seeds": seeds, "checks": checks}
    return ClaimConfig(**keys, replicated=replicated, partly=partly)


@pytest.mark.parametrize("replicated, partly", [(2, 1), (2, 2), (1, 1)])
def test_floor_and_ceiling_are_what_the_missing_runs_could_make_of_it(replicated, partly):
    rule = claim(2, replicated, partly)
    outcomes = ("holds", "fails", "undecided", "incomplete", "not run")
    singles = list(itertools.product(outcomes, repeat=3))
    rng, worst_to_best = np.random.default_rng(0), ("not replicated", "undecided", "partly", "replicated")
    for i, j in rng.integers(len(singles), size=(400, 2)):
        cases = [singles[i], singles[j]]
        choices = [[o] if o in FINAL else FINAL for case in cases for o in case]
        possible = {oracles.verdict(rule, [c[:3], c[3:]]) for c in itertools.product(*choices)}
        found = conclude(rule, [{role: [o] for role, o in zip(ROLES, case, strict=True)} for case in cases])
        order = sorted(possible, key=worst_to_best.index)
        assert (found.floor, found.ceiling) == (order[0], order[-1])
        assert found.settled == (len(possible) == 1)
        if found.settled or order[0] == "partly":
            assert found.verdict == order[0]
        else:
            assert found.verdict == ("not run" if {*cases[0], *cases[1]} == {"not run"} else "incomplete")
        assert sum(found.cases.values()) == 2


def test_cases_that_do_not_apply_are_not_asked_for():
    rule = claim(2, 2, 1)
    none = {role: ["not applicable"] for role in ROLES}
    full = {role: ["holds"] for role in ROLES}
    assert conclude(rule, [none, full]).verdict == "replicated"
    assert conclude(rule, [none, {"decides": ["fails"]}]).verdict == "not replicated"
    assert conclude(rule, [none, none]).verdict == "not applicable"
    assert conclude(rule, [full, {"decides": ["holds"], "beside": ["fails"]}]).verdict == "replicated"
