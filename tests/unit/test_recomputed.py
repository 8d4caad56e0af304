"""The committed studies' numbers and verdicts once more, by other code: this file imports nothing of the project.

It reads curve files, analyses' files and the configuration, and computes what the tables must say to the printed digit:
SE_ave, SE_peak, rounds saved, final and mean training returns, paired differences, what PPO shows against PPO of
another seed, and every check and verdict of `config/claims.yaml`, whose rules are read here a second time.
"""

from __future__ import annotations

import csv
import itertools
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy import integrate, optimize, stats

ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((ROOT / "config/claims.yaml").read_text())
METHODS = yaml.safe_load((ROOT / "config/methods.yaml").read_text())
ENVIRONMENTS = {p.stem: yaml.safe_load(p.read_text()) for p in (ROOT / "config/environments").glob("*.yaml")}
STUDIES = sorted(p.parents[1].name for p in ROOT.glob("results/*/tables/claims_checks.csv"))
PARTS = (0.5, 0.75, 0.9)
ANALYSES = {"diagnosis": "diagnosis", "diagnosis_by_rank": "diagnosis", "interventions": "interventions"}
ANALYSES |= {"behaviour": "behaviour"}
APART = {"timings": "repeat", "rlhf_per_seed": "seed"}
ORDER = ["not replicated", "undecided", "partly", "replicated"]


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def same(text: str, value: float | None) -> bool:
    """Whether a printed number is this one, to its last digit."""
    if text == "" or value is None or math.isnan(value):
        return text == "" and (value is None or math.isnan(value))
    if math.isinf(value):
        return float(text) == value
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 5) if value else 1e-9
    return abs(float(text) - value) <= 0.501 * unit + 1e-12


class Study:
    """A study's grid, and what its result folders hold of it."""

    def __init__(self, name: str):
        self.name, self.config = name, yaml.safe_load((ROOT / f"config/{name}.yaml").read_text())
        self.tables = ROOT / "results" / name / "tables"
        self.grid: dict[tuple[str, str], set[int]] = {}
        for block in self.config["grid"]:
            for environment, method in itertools.product(block["environments"], block["methods"]):
                self.grid.setdefault((environment, method), set()).update(listed(block["seeds"]))
        self.curves = {}  # (environment, method, seed) -> test return by round, nan where not evaluated
        for row in read(self.tables / "runs.csv"):
            if not row["reason"]:
                key = row["environment"], row["method"], int(row["seed"])
                self.curves[key] = curve(self.folder("runs", *key, row["fingerprint"]) / "curve.csv")
        self.levels = {e: levels(self.curves, e) for e in {e for e, _ in self.grid}}
        self.confidence = confidence() if name in RULES["sequential"]["studies"] else 0.95

    def folder(self, *parts) -> Path:
        """A result's folder: the study's own, or another one's that has the same result."""
        *path, seed, fingerprint = parts
        studies = (self.name, *(other for other in STUDIES if other != self.name))
        folders = [ROOT.joinpath("results", name, *path, f"seed{seed}-{fingerprint[:8]}") for name in studies]
        return next(folder for folder in folders if folder.exists())

    def analysis(self, table: str) -> tuple[dict[str, dict[str, set[int]]], set[tuple[str, int]], list[dict]]:
        """environment -> method -> seeds that are asked for, (environment, seed) that is not there, and all rows."""
        name = ANALYSES[table]
        asked: dict[str, dict[str, set[int]]] = {}
        for block in self.config.get("analyses", ()):
            if block["analysis"] == name:
                for environment in block["environments"]:
                    for method in block.get("methods", ["ppo"]):
                        asked.setdefault(environment, {}).setdefault(method, set()).update(listed(block["seeds"]))
        missing, rows = set(), []
        for row in read(self.tables / "analyses.csv") if asked else ():
            if row["analysis"] == name:
                key = row["environment"], row["method"], row["seed"]
                if row["reason"]:
                    missing.add((row["environment"], int(row["seed"])))
                else:
                    path = self.folder("analyses", name, *key, row["fingerprint"]) / f"{table}.csv"
                    rows += [dict(zip(("environment", "method", "seed"), key, strict=True)) | r for r in read(path)]
        return asked, missing, rows


def listed(written: list[int] | str) -> list[int]:
    """[0, 1], or 0..1 as a range with both ends."""
    if isinstance(written, list):
        return written
    first, last = map(int, written.split(".."))
    return list(range(first, last + 1))


def curve(path: Path) -> np.ndarray:
    return np.array([float(row["test_return"] or "nan") for row in read(path)])


def levels(curves: dict, environment: str) -> list[float]:
    """Half, three quarters and nine tenths of the rise of PPO's mean curve; none if it does not rise."""
    ppo = [c for (e, m, _), c in curves.items() if (e, m) == (environment, "ppo")]
    if not ppo:
        return []
    mean = sum(ppo) / len(ppo)
    top = max(x for x in mean if not math.isnan(x))
    return [mean[0] + part * (top - mean[0]) for part in PARTS] if top > mean[0] else []


def confidence() -> float:
    """Level at which two looks, at n and 2n seeds, leave a true null out of either interval in 5 % of all cases."""
    assert RULES["sequential"]["looks"] == [1, 2]
    rho = math.sqrt(1 / 2)
    rest = math.sqrt(1 - rho**2)

    def inside(c):
        def density(z):
            return stats.norm.pdf(z) * (stats.norm.cdf((c - rho * z) / rest) - stats.norm.cdf((-c - rho * z) / rest))

        return integrate.quad(density, -c, c)[0]

    c = optimize.brentq(lambda c: 1 - inside(c) - RULES["sequential"]["alpha"], 1.9, 2.5)
    return round(2 * stats.norm.cdf(c) - 1, 4)


# Numbers of one run, or of two


def first_round(values: np.ndarray, level: float) -> int | None:
    return next((k for k, value in enumerate(values) if value >= level), None)


def last_evaluated(values: np.ndarray) -> int:
    return max(k for k, value in enumerate(values) if not math.isnan(value))


def efficiency(ppo: np.ndarray, own: np.ndarray) -> dict[str, float]:
    """SE_ave, its least, SE_peak and the numbers of levels and of those that are never reached."""
    best, reductions, reached = -math.inf, [], []
    for k, value in enumerate(ppo):
        if value > best:
            if k > 0:
                m = first_round(own, value)
                reductions.append(1 - (last_evaluated(own) if m is None else m) / k)
                reached.append(m is not None)
            best = value
    if not reductions:
        return {"se_ave": math.nan, "se_ave_least": math.nan, "se_peak": math.nan, "levels": 0, "unreached": 0}
    least = [r if hit else min(r, -1) for r, hit in zip(reductions, reached, strict=True)]
    numbers = {"se_ave": statistics.fmean(reductions), "se_ave_least": statistics.fmean(least)}
    return numbers | {"se_peak": reductions[-1], "levels": len(reductions), "unreached": reached.count(False)}


def saved(own: np.ndarray, other: np.ndarray, at: list[float]) -> list[tuple[float, float, float]]:
    """Rounds saved at each level: as seen, at least, at most."""
    found = []
    for level in at:
        a, b = first_round(own, level), first_round(other, level)
        x, y = (last_evaluated(c) if m is None else m for c, m in ((own, a), (other, b)))
        value = (y - x) / max(x, y) if max(x, y) else 0.0
        found.append((value, -1.0 if a is None else value, 1.0 if b is None else value))
    return found


def final_return(values: np.ndarray) -> float:
    last = len(values) - 1
    tail = values[last - max(1, math.ceil(last / 10)) + 1 :] if last else values
    return statistics.fmean(x for x in tail if not math.isnan(x))


def training_return(values: np.ndarray) -> float:
    points = [(k, x) for k, x in enumerate(values) if not math.isnan(x)]
    area = sum((k1 - k0) * (x0 + x1) / 2 for (k0, x0), (k1, x1) in itertools.pairwise(points))
    return area / points[-1][0] if len(points) > 1 else points[0][1]


RETURNS = {"final_return": final_return, "mean_training_return": training_return}


def interval(values: list[float], level: float) -> tuple[float, float, float]:
    if not values:
        return math.nan, math.nan, math.nan
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, math.nan, math.nan
    if any(map(math.isinf, values)):
        return (mean, -math.inf, math.nan) if -math.inf in values else (mean, math.nan, math.inf)
    half = stats.t.ppf((1 + level) / 2, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def within(numbers: tuple[float, float, float], most: float) -> tuple[float, float, float]:
    """An interval of what cannot leave [-most, most]."""
    mean, low, high = numbers
    return (mean, low, high) if math.isnan(low) else (mean, max(low, -most), min(high, most))


# Checks


def chosen(environment: str, unclipped: bool = False) -> str:
    p = ENVIRONMENTS[environment]["drop_percent"]
    changes = {"max_grad_norm": None} if unclipped else {}
    for percent in (p, "chosen"):
        for name, method in METHODS.items():
            if (
                method["selection"] == {"kind": "influence", "drop_percent": percent}
                and method.get("ppo", {}) == changes
            ):
                return name
    raise LookupError(environment)


def method(name: str, environment: str) -> str:
    if environment not in ENVIRONMENTS or name not in ("chosen", "chosen_unclipped"):
        return name
    return chosen(environment, name == "chosen_unclipped")


def behind(name: str, environment: str, study: Study) -> list[str]:
    if name not in RULES["tuned"]:
        return [name]
    found = [method(m, environment) for m in RULES["tuned"][name]]
    there = [m for m in found if (environment, m) in study.grid]
    return there if len(there) > 1 else [name]


def run_of(name: str, environment: str, seed: int, study: Study) -> np.ndarray | None:
    """The curve of a method's seed; of a tuned one, that of its best method on the other seeds."""
    if name not in RULES["tuned"]:
        return study.curves.get((environment, name, seed))
    names = behind(name, environment, study)
    seeds = [s for s in study.grid[environment, names[0]] if all((environment, m, s) in study.curves for m in names)]
    if seed not in seeds or len(seeds) < 2:
        return None
    scores = {
        m: statistics.fmean(training_return(study.curves[environment, m, s]) for s in seeds if s != seed) for m in names
    }
    return study.curves[environment, max(names, key=scores.get), seed]


def matches(row: dict[str, str], where: dict) -> bool:
    for name, wanted in where.items():
        options = wanted if isinstance(wanted, list) else [wanted]
        found = row[name] if isinstance(options[0], str) else float(row[name] or "nan")
        if found not in options:
            return False
    return True


def by_unit(rows: list[dict], where: dict, check: dict, unit: str) -> dict[int, float]:
    found: dict[int, list[float]] = {}
    for row in rows:
        if matches(row, where) and row[check["quantity"]] != "":
            value = float(row[check["quantity"]])
            if over := check.get("over"):
                if float(row[over]) == 0:
                    continue
                value /= float(row[over])
            found.setdefault(int(row[unit]), []).append(value)
    return {seed: statistics.fmean(values) for seed, values in found.items()}


def numbers(check: dict, side: dict, environment: str, study: Study, asked: set[int], rows: list[dict]):
    """seed -> (value, least, most)."""
    ratio = check.get("compare") == "ratio"
    against = check.get("against")
    if check["table"] in (*ANALYSES, *APART):
        unit = APART.get(check["table"], "seed")
        own = {"environment": environment} | side
        if "method" in own:
            own["method"] = method(own["method"], environment)
        other = None
        if against is not None:
            other = {"environment": environment} | ({"method": own["method"]} if "method" in own else {}) | against
            if "method" in other:
                other["method"] = method(other["method"], environment)
        a = by_unit(rows, own, check, unit)
        b = by_unit(rows, other, check, unit) if other else None
        if b is None:
            return {seed: (x, x, x) for seed, x in a.items()}
        values = {s: a[s] / b[s] if ratio else a[s] - b[s] for s in a if s in b and not (ratio and b[s] == 0)}
        found = {seed: (x, x, x) for seed, x in values.items()}
        if check["quantity"] in ("rounds_to_best", "time_to_best_s"):
            for row in rows:
                if matches(row, own) and row["best_reached"] in ("0", "False") and int(row[unit]) in found:
                    found[int(row[unit])] = (*found[int(row[unit])][:2], math.inf)
        return found
    found = {}
    for seed in sorted(asked):
        own = run_of(method(side["method"], environment), environment, seed, study)
        if check["quantity"] == "se_ave":
            ppo = study.curves.get((environment, "ppo", seed))
            if own is None or ppo is None:
                continue
            x = efficiency(ppo, own)
            triple = (x["se_ave"], x["se_ave_least"], x["se_ave"])
            if against:
                other = study.curves.get((environment, method(against["method"], environment), seed))
                if other is None:
                    continue
                y = efficiency(ppo, other)
                triple = (triple[0] - y["se_ave"], triple[1] - y["se_ave"], triple[2] - y["se_ave_least"])
            if not math.isnan(triple[0]):
                found[seed] = triple
            continue
        other = run_of(method(against["method"], environment), environment, seed, study)
        if own is None or other is None:
            continue
        if check["quantity"] in RETURNS:
            measure = RETURNS[check["quantity"]]
            found[seed] = (measure(own) - measure(other),) * 3
            continue
        triple = [statistics.fmean(x) for x in zip(*saved(own, other, study.levels[environment]), strict=True)]
        if than := check.get("than"):
            place = than.get("environment", environment)
            pair = [study.curves.get((place, method(than[k], place), seed)) for k in ("method", "against")]
            if any(c is None for c in pair):
                continue
            a, b, c = (statistics.fmean(x) for x in zip(*saved(*pair, study.levels[place]), strict=True))
            triple = [triple[0] - a, triple[1] - c, triple[2] - b]
        found[seed] = tuple(triple)
    return found


def design(check: dict, environment: str, study: Study):
    """(seeds that the study has for a check, runs that are missing, rows of its table), or None if it lacks it."""
    table = check["table"]
    if table in APART:
        folder = f"{study.name}/timings" if table == "timings" else f"{environment}/tables"
        path = ROOT / "results" / folder / f"{table}.csv"
        rows = read(path) if path.exists() else []
        rows = [r | ({"environment": environment} if table != "timings" else {}) for r in rows]
        rows = [r for r in rows if r["environment"] == environment]
        return ({int(row[APART[table]]) for row in rows}, 0, rows) if rows else None
    if table in ANALYSES:
        asked, missing, rows = study.analysis(table)
        if environment not in asked:
            return None
        seeds = set().union(*asked[environment].values())
        return seeds, len([1 for e, s in missing if e == environment and s in seeds]), rows
    sides = check.get("any_of") or [check["where"]]
    names = [(environment, method(side["method"], environment)) for side in sides]
    if check.get("against"):
        names.append((environment, method(check["against"]["method"], environment)))
    if check["quantity"] == "se_ave":
        names.append((environment, "ppo"))
    if than := check.get("than"):
        place = than.get("environment", environment)
        names += [(place, method(than[k], place)) for k in ("method", "against")]
    needed = {(e, m) for e, name in names for m in behind(name, e, study)}
    if not needed <= study.grid.keys():
        return None
    seeds = set.intersection(*(study.grid[key] for key in needed))
    missing = sum((*key, seed) not in study.curves for key in needed for seed in seeds)
    return (seeds, missing, []) if seeds else None


def margin_of(check: dict, environment: str, study: Study, rows: list[dict]) -> float:
    threshold = check.get("above", check.get("below"))
    null = 1 if check.get("compare") == "ratio" else 0
    if threshold != null:
        return 0.0
    kind = check.get("range", "one")
    if kind == "one":
        return RULES["margin"]
    if check["table"] in APART:
        return RULES["margin"] * statistics.fmean(float(row[kind]) for row in rows)
    own = [c for (e, m, _), c in study.curves.items() if (e, m) == (environment, "ppo")]
    if not own:
        return math.nan
    mean = sum(own) / len(own)
    rise = max(x for x in mean if not math.isnan(x)) - mean[0]
    rounds = max(len(c) - 1 for (e, _, _), c in study.curves.items() if e == environment)
    return RULES["margin"] * (rise / rounds if kind == "ppo_rise_per_round" else rise)


def assess(check: dict, environment: str, study: Study, planned: int) -> dict:
    """What claims_checks must say of a check."""
    found = design(check, environment, study)
    short = found is not None and check["table"] in APART and len(found[0]) < planned
    if found is None or (len(found[0]) < 3 and not short):
        return {"outcome": "not run", "n": 0, "mean": math.nan}
    seeds, missing, rows = found
    missing = missing or short
    sides = check.get("any_of") or [check["where"]]
    sign = 1 if "above" in check else -1
    threshold = check.get("above", check.get("below"))
    margin = margin_of(check, environment, study, rows)
    level = 1 - (1 - study.confidence) / len(sides)
    results = []
    for side in sides:
        triples = list(numbers(check, side, environment, study, seeds, rows).values())
        (mean, low, high), least, most = (interval([t[i] for t in triples], level) for i in range(3))
        if check["quantity"] == "rounds_saved":
            mean, low, high = within((mean, low, high), 2 if check.get("than") else 1)
        worst, best = (least[1], most[2]) if sign > 0 else (-most[2], -least[1])
        worst, best = worst - sign * threshold, best - sign * threshold
        if missing:
            outcome = "incomplete" if triples else "not run"
        elif len(triples) < 3 or math.isnan(margin):
            outcome = "undecided"
        else:
            outcome = "fails" if best < max(margin, 0) else "holds" if worst > 0 else "undecided"
        numbers_ = {"mean": mean, "low": low, "high": high, "least": least[1], "most": most[2], "margin": margin}
        results.append(numbers_ | {"outcome": outcome, "n": len(triples), "expected": len(seeds)})
    best = max(results, key=lambda r: -math.inf if math.isnan(r["mean"]) else sign * r["mean"])
    if len(results) > 1 and not missing:
        held = [r for r in results if r["outcome"] == "holds"]
        if held and best["outcome"] != "holds":
            best = held[0]
        elif not held:
            best["outcome"] = "fails" if all(r["outcome"] == "fails" for r in results) else "undecided"
    return best


def counts(case: dict[str, list[str]], part: bool) -> bool | None:
    """Whether a case counts: yes, no, or nobody knows (None)."""
    must = case.get("decides", []) + ([] if part else case.get("vetoes", []) + case.get("completes", []))
    if "fails" in must or "fails" in case.get("vetoes", []):
        return False
    return True if all(outcome == "holds" for outcome in must) else None


def conclude(claim: dict, cases: list[dict[str, list[str]]]) -> str:
    """The verdict, with everything that is missing turned against the claim and for it."""
    counted = [{role: x for role, x in case.items() if role != "beside"} for case in cases]
    applicable = [case for case in counted if not any("not applicable" in x for x in case.values())]
    if not applicable:
        return "not applicable"
    ends = []
    for as_if in ("fails", "holds"):
        turned = [
            {role: [as_if if o in ("incomplete", "not run") else o for o in x] for role, x in case.items()}
            for case in applicable
        ]
        full, part = ([counts(case, p) for case in turned] for p in (False, True))
        replicated, partly = (min(claim[k], len(turned)) for k in ("replicated", "partly"))
        if full.count(True) >= replicated:
            ends.append("replicated")
        elif len(part) - part.count(False) < partly:
            ends.append("not replicated")
        else:
            ends.append("partly" if part.count(True) >= partly else "undecided")
    if ends[0] == ends[1] or ends[0] == "partly":
        return ends[0]
    outcomes = {o for case in applicable for x in case.values() for o in x}
    return "not run" if outcomes == {"not run"} else "incomplete"


# Tests


@pytest.fixture(scope="module", params=STUDIES)
def study(request):
    return Study(request.param)


def test_efficiency_of_every_run(study):
    rows = read(study.tables / "efficiency_per_seed.csv")
    keys = [(e, m, s) for (e, m, s) in study.curves if m != "ppo" and (e, "ppo", s) in study.curves]
    assert sorted((r["environment"], r["method"], int(r["seed"])) for r in rows) == sorted(keys)
    for row in rows:
        e, m, s = row["environment"], row["method"], int(row["seed"])
        found = efficiency(study.curves[e, "ppo", s], study.curves[e, m, s])
        for name, value in found.items():
            assert same(row[name], value), (row, name, value)


def test_returns_and_rounds_of_every_run(study):
    rows = read(study.tables / "returns_per_seed.csv")
    assert len(rows) == len(study.curves)
    for row in rows:
        values = study.curves[row["environment"], row["method"], int(row["seed"])]
        for name, measure in RETURNS.items():
            assert same(row[name], measure(values)), (row, name)
    for row in read(study.tables / "rounds_to.csv"):
        values = study.curves[row["environment"], row["method"], int(row["seed"])]
        level = study.levels[row["environment"]][PARTS.index(float(row["fraction"]))]
        found = first_round(values, level)
        assert same(row["level"], level) and row["reached"] == str(found is not None), row
        assert int(row["rounds"]) == (last_evaluated(values) if found is None else found), row


def test_paired_differences(study):
    for row in read(study.tables / "final_gains.csv"):
        e, m = row["environment"], row["method"]
        seeds = [s for s in study.grid[e, m] if (e, m, s) in study.curves and (e, "ppo", s) in study.curves]
        gains = [final_return(study.curves[e, m, s]) - final_return(study.curves[e, "ppo", s]) for s in seeds]
        found = dict(zip(("gain", "gain_low", "gain_high"), interval(gains, study.confidence), strict=True))
        assert int(row["n"]) == len(gains) and all(same(row[name], value) for name, value in found.items()), row
    for row in read(study.tables / "rounds_saved.csv"):
        e, m = row["environment"], row["method"]
        seeds = [s for s in study.grid[e, m] if (e, m, s) in study.curves and (e, "ppo", s) in study.curves]
        values = []
        for s in seeds if study.levels[e] else ():
            parts = [x[0] for x in saved(study.curves[e, m, s], study.curves[e, "ppo", s], study.levels[e])]
            values.append(statistics.fmean(parts) if row["at"] == "mean" else parts[PARTS.index(float(row["at"]))])
        names = ("rounds_saved", "rounds_saved_low", "rounds_saved_high")
        found = dict(zip(names, within(interval(values, study.confidence), 1), strict=True))
        assert int(row["n"]) == len(values) and all(same(row[name], value) for name, value in found.items()), row


def test_direct_comparisons(study):
    for name in ("controls", "heuristics"):
        for row in read(study.tables / f"{name}.csv"):
            e, pair = row["environment"], (row["method"], row["minus"])
            seeds = sorted(study.grid[e, pair[0]] & study.grid[e, pair[1]])
            sides = [[study.curves.get((e, m, s)) for m in pair] for s in seeds]
            sides = [(a, b) for a, b in sides if a is not None and b is not None]
            measures = {q: lambda a, b, f=f: f(a) - f(b) for q, f in RETURNS.items()}
            measures["se_ave"] = lambda a, b: efficiency(b, a)["se_ave"]
            measures["rounds_saved"] = lambda a, b, e=e: statistics.fmean(
                [x[0] for x in saved(a, b, study.levels[e])] or [math.nan]
            )
            values = [measures[row["quantity"]](a, b) for a, b in sides]
            values = [value for value in values if not math.isnan(value)]  # where PPO never rises, nothing is saved
            found = within(interval(values, study.confidence), 1 if row["quantity"] == "rounds_saved" else math.inf)
            assert int(row["n"]) == len(values) and int(row["expected"]) == len(seeds), row
            assert all(same(row[k], x) for k, x in zip(("value", "low", "high"), found, strict=True)), (row, found)


def test_ppo_against_ppo_of_another_seed(study):
    for row in read(study.tables / "null_values.csv"):
        e = row["environment"]
        own = [c for (f, m, _), c in sorted(study.curves.items()) if (f, m) == (e, "ppo")]
        pairs = list(itertools.permutations(own, 2))
        if row["metric"] in RETURNS:
            values = [RETURNS[row["metric"]](a) - RETURNS[row["metric"]](b) for a, b in pairs]
        elif row["metric"] == "rounds_saved":
            values = [statistics.fmean(x[0] for x in saved(a, b, study.levels[e])) for a, b in pairs]
        else:
            values = [efficiency(b, a)[row["metric"]] for a, b in pairs]
        values = [x for x in values if not math.isnan(x)]
        assert int(row["pairs"]) == len(values) and same(row["sd"], statistics.stdev(values)), row
        assert abs(float(row["mean"]) - statistics.fmean(values)) < 1e-5 * max(1, max(map(abs, values))), row


def test_every_check_and_every_verdict(study):
    rows = read(study.tables / "claims_checks.csv")
    verdicts = {int(row["claim"]): row for row in read(study.tables / "claims.csv")}
    used = 0
    for claim in RULES["claims"]:
        requirements = {}
        for environment in claim["seeds"]:
            for check in claim.get("requires", ()):
                requirements.setdefault(environment, []).append(
                    (check, assess(check, environment, study, claim["seeds"][environment]))
                )
        cases: dict[tuple[str, str], dict[str, list[str]]] = {}
        mine = [row for row in rows if int(row["claim"]) == claim["claim"]]
        expected = [("requires", *pair, e) for e, pairs in requirements.items() for pair in pairs]
        for check in claim["checks"]:
            for environment, planned in check.get("seeds", claim["seeds"]).items():
                found = assess(check, environment, study, planned)
                for needed, known in requirements.get(environment, ()):
                    if known["outcome"] in ("incomplete", "not run"):
                        found = found | {"outcome": known["outcome"]}
                    elif not known["mean"] >= needed["above"]:
                        found = found | {"outcome": "not applicable"}
                role = check.get("role", "decides")
                expected.append((role, check, found, environment))
                if role != "beside":
                    cases.setdefault((environment, check.get("case", "")), {})
        for role, check, found, environment in expected:
            if role in ("decides", "vetoes", "completes"):
                cases[environment, check.get("case", "")].setdefault(role, []).append(found["outcome"])
        assert len(mine) == len(expected), claim["claim"]
        for row, (role, check, found, environment) in zip(mine, expected, strict=True):
            assert (row["environment"], row["role"], row["quantity"]) == (environment, role, check["quantity"]), row
            assert (row["outcome"], int(row["n"])) == (found["outcome"], found["n"]), (row, found)
            names = {"value": "mean", "low": "low", "high": "high", "surely_above": "least", "surely_below": "most"}
            names |= {"margin": "margin"} if found["n"] else {}
            for column, name in names.items():
                assert same(row[column], found.get(name, math.nan)), (row, column, found)
            used += found["n"] > 0
        assert verdicts[claim["claim"]]["verdict"] == conclude(claim, list(cases.values())), claim["claim"]
    assert used and len(verdicts) == len(RULES["claims"])


def test_the_two_looks_level_is_the_one_in_the_documents():
    assert confidence() == 0.9706 and "97.06 %" in (ROOT / "docs/claims.md").read_text()
