"""Checks and verdicts from synthetic results that must give each of them, and the file of the rules."""

import jsonschema
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rl_influence.analysis.claims import CheckConfig, ClaimConfig, evaluate, load_claims, number_text, samples, texts
from rl_influence.analysis.claims.models import AGAINST_PPO, Claims
from rl_influence.analysis.claims.wording import paper_number, reported_pair
from rl_influence.analysis.curves import load_study
from rl_influence.analysis.reported import load_reported
from rl_influence.analysis.tables import TABLES, make_tables
from rl_influence.config import Config, ConfigError, parse, read_yaml
from rl_influence.publish.schemas import schemas
from synthetic import CATALOGUE, study, write_synthetic_study

ROUNDS = 20
SEEDS = (0, 1, 2)
METHODS = ["ppo", "iif_p50", "iif_p12_5", "random"]
RULES = read_yaml(CATALOGUE / "claims.yaml")
REPORTED = load_reported(CATALOGUE)


def check(**changes):
    keys = {"table": "rounds_to", "where": {"method": "chosen"}, "against": {"method": "ppo"}}
    return CheckConfig(**keys | {"quantity": "rounds_saved"} | changes)


def returns(**changes):
    return check(table="returns_per_seed", quantity="mean_training_return", range="ppo_rise", **changes)


def claim(*checks, **changes):
    keys = {"claim": 1, "title": "x", "statement": "x", "source": "y", "checks": checks, "replicated": 1, "partly": 1}
    return ClaimConfig(**keys | {"seeds": {"frozenlake": 3}} | changes)


def rules(*claims, **changes):
    return Claims(**RULES | {"claims": claims} | changes)


def rising(start, noise=0.0):
    """A curve that reaches 1 in ten rounds after `start`."""

    def curve(run):
        jitter = np.random.default_rng([run.seed, len(run.method)]).normal(0, noise, ROUNDS + 1)
        middle = start.get((run.environment, run.method), start.get(run.method))
        return np.round(np.clip((np.arange(ROUNDS + 1) - middle + run.seed) / 10, 0, 1) + np.abs(jitter), 6)

    return curve


def made(tmp_path, curve, *, methods=METHODS, environments=("frozenlake",), seeds=SEEDS, skip=lambda run: False):
    """(config, tables) of made-up curves."""
    grid = {"environments": list(environments), "methods": methods, "seeds": list(seeds), "rounds": ROUNDS}
    config = study(grid)
    write_synthetic_study(tmp_path, config, curve=curve, skip=skip)
    return config, make_tables(load_study(config, tmp_path), reported=REPORTED)


def result(tmp_path, curve, *checks, rule=None, **changes):
    """(claim's row, checks' rows) for made-up curves."""
    rule = rule or claim(*checks)
    config, tables = made(tmp_path, curve, **changes)
    found = evaluate(rules(rule), config, tables, REPORTED)
    return found["claims"].iloc[0], found["claims_checks"]


EARLIER = {"ppo": 8, "iif_p50": 4, "iif_p12_5": 6, "random": 9}
LATER = {"ppo": 4, "iif_p50": 8, "iif_p12_5": 6, "random": 9}
SAVES = check(above=0, percent=True)
SE_AVE = {"table": "efficiency_per_seed", "quantity": "se_ave", "against": None, "percent": True}


def test_rounds_saved_by_hand_and_a_flip_when_the_data_flip(tmp_path):
    found, rows = result(tmp_path / "a", rising(EARLIER), SAVES)
    assert (found["verdict"], found["settled"], rows["outcome"].tolist()) == ("replicated", True, ["holds"])
    # PPO's mean curve over three seeds rises from 0 to 1; a half, three quarters and nine tenths are reached in rounds
    # 8 - seed + 5, 8, 9 and by IIF four rounds sooner
    first = np.array([[8 - seed + k for k in (5, 8, 9)] for seed in SEEDS])
    assert rows["value"][0] == pytest.approx((4 / first).mean(), rel=1e-6)
    per_seed = (4 / first).mean(1)
    half = stats.t.ppf(0.975, 2) * per_seed.std(ddof=1) / np.sqrt(3)
    assert rows["low"][0] == pytest.approx(per_seed.mean() - half) and rows["confidence"][0] == 0.95
    assert rows[["n", "expected", "planned", "unreached"]].to_numpy().tolist() == [[3, 3, 3, 0]]
    assert (rows["surely_above"][0], rows["surely_below"][0]) == (rows["low"][0], rows["high"][0])

    found, rows = result(tmp_path / "b", rising(LATER), SAVES)
    assert (found["verdict"], rows["outcome"].tolist()) == ("not replicated", ["fails"])
    first, method = (np.array([[s - seed + k for k in (5, 8, 9)] for seed in SEEDS]) for s in (4, 8))
    assert rows["value"][0] == pytest.approx(((first - method) / method).mean())


def test_claims_count_environments_and_not_their_checks(tmp_path):
    curves = {("frozenlake", m): s for m, s in EARLIER.items()} | {("acrobot", m): s for m, s in LATER.items()}
    twice = [SAVES, check(**SE_AVE, role="vetoes", above=0), check(**SE_AVE, role="completes", above=0.9)]
    rule = claim(*twice, seeds={"frozenlake": 3, "acrobot": 3}, replicated=2, partly=1)
    found, rows = result(tmp_path, rising(curves), rule=rule, environments=("frozenlake", "acrobot"))
    assert found["verdict"] == "partly" and found[["cases", "full", "part", "fails"]].tolist() == [2, 0, 1, 1]
    assert rows["outcome"].tolist() == ["holds", "fails", "holds", "fails", "fails", "fails"]
    assert found["reason"] == "0 of 2 in full, 1 in part, 1 fail"


def test_an_undecided_claim_is_not_a_failed_one(tmp_path):
    same = EARLIER | {"iif_p50": 8}
    found, rows = result(tmp_path, rising(same, noise=0.5), returns(above=0))
    assert (found["verdict"], rows["outcome"].tolist()) == ("undecided", ["undecided"])
    assert rows["low"][0] < 0 < rows["high"][0] and rows["high"][0] > rows["margin"][0] > 0


@pytest.mark.slow
def test_missing_runs_leave_a_claim_open_only_while_they_could_change_it(tmp_path):
    lost = [("frozenlake", "ppo", 1), ("frozenlake", "random", 2)]

    def skip(run):
        return (run.environment, run.method, run.seed) in lost

    found, rows = result(tmp_path / "a", rising(EARLIER), SAVES, skip=skip)
    assert found["verdict"] == "incomplete" and found["missing"] == "frozenlake ppo seed 1"  # not the random one
    assert found["reason"] == "0 of 1 in full, 1 open; so far nothing is settled; 1 run is missing"
    assert rows[["outcome", "n", "expected"]].to_numpy().tolist() == [["incomplete", 2, 3]]
    both = {"environments": ("frozenlake", "acrobot"), "skip": skip}
    two = {"seeds": {"frozenlake": 3, "acrobot": 3}}
    found, _ = result(tmp_path / "b", rising(EARLIER), rule=claim(SAVES, **two, replicated=1), **both)
    assert (found["verdict"], found["settled"]) == ("replicated", True)
    assert found["reason"] == "1 of 2 in full, 1 open; nothing that is missing can change it; 1 run is missing"
    found, _ = result(tmp_path / "c", rising(EARLIER), rule=claim(SAVES, **two, replicated=2), **both)
    assert (found["verdict"], found["settled"]) == ("partly", False)
    assert "so far at least partly" in found["reason"]
    found, _ = result(tmp_path / "d", rising(LATER), rule=claim(SAVES, **two, replicated=2), **both)
    assert found["verdict"] == "incomplete" and "so far no longer replicated" in found["reason"]
    found, _ = result(tmp_path / "e", rising(LATER), rule=claim(SAVES, **two, replicated=2, partly=2), **both)
    assert (found["verdict"], found["settled"]) == ("not replicated", True)


def test_numbers_against_ppo_need_its_runs_and_others_do_not(tmp_path):
    own = check(table="returns_per_seed", quantity="mean_training_return", against=None, above=0)
    against_ppo = check(**SE_AVE, role="beside", below=0)
    _, rows = result(tmp_path, rising(EARLIER), own, against_ppo, skip=lambda run: (run.method, run.seed) == ("ppo", 1))
    assert rows[["outcome", "n", "expected"]].to_numpy().tolist() == [["holds", 3, 3], ["incomplete", 2, 3]]
    assert rows["reason"].tolist() == ["", "1 run is missing"] and rows["claimed"].tolist() == ["above", "below"]


def test_missing_runs_of_a_method_are_named_together(tmp_path):
    found, rows = result(
        tmp_path, rising(EARLIER), returns(against={"method": "random"}, above=0),
        skip=lambda run: run.method in ("iif_p50", "random") and run.seed > 0,
    )  # fmt: skip
    assert found["missing"] == "frozenlake iif_p50 seeds 1, 2; frozenlake random seeds 1, 2"
    assert rows["reason"][0] == "4 runs are missing"
    found, rows = result(tmp_path / "none", rising(EARLIER), SAVES, skip=lambda run: run.method == "iif_p50")
    assert (found["verdict"], rows["outcome"][0], rows["n"][0]) == ("not run", "not run", 0)


def test_what_the_study_lacks_is_not_run_and_named(tmp_path):
    checks = [
        returns(above=0),
        returns(where={"method": "td_error"}, above=0, case="TD"),
        check(table="diagnosis", where={"source": "exact"}, against=None, quantity="error", above=0, case="D"),
        check(table="oops", where={"method": "ppo"}, against=None, quantity="error", above=0, case="O"),
    ]
    rule = claim(*checks, seeds={"frozenlake": 3, "highway": 3}, replicated=4)
    found, rows = result(tmp_path, rising(EARLIER), rule=rule)
    assert rows["outcome"].tolist() == ["holds", *["not run"] * 7]
    absent = ["highway", "frozenlake td_error", "diagnosis of frozenlake", "table oops"]
    assert sorted(found["absent"].split(", ")) == sorted(absent) and found["verdict"] == "partly"
    alone, _ = result(tmp_path / "alone", rising(EARLIER), checks[1])
    assert alone["verdict"] == "not run"


def test_fewer_than_three_seeds_decide_nothing(tmp_path):
    found, rows = result(tmp_path, rising(EARLIER), SAVES, seeds=(0, 1))
    assert (found["verdict"], rows["outcome"][0]) == ("not run", "not run")
    assert rows["reason"][0] == "the study asks for 2 seeds, the rule for 3 or more"


@pytest.mark.slow
def test_a_censored_number_never_decides_in_the_direction_that_flatters_it(tmp_path):
    """IIF is ahead up to 0.8 of the rise, and stays there: nine tenths are never reached."""

    def curve(run):
        values = rising(EARLIER | {"ppo": 10, "iif_p50": 2})(run)
        return np.minimum(values, 0.8) if run.method == "iif_p50" else values

    found, rows = result(tmp_path / "a", curve, SAVES)
    assert rows["value"][0] > 0 and rows["low"][0] > 0  # PPO needs 15, 18, 19 rounds and fewer, IIF 7, 10 and (20)
    assert rows["unreached"][0] == pytest.approx(1 / 3) and rows["bound"][0] == "at most"
    first = np.array([[[a - seed + k for k in (5, 8)] for a in (2, 10)] for seed in SEEDS])
    least = ((1 - first[:, 0] / first[:, 1]).sum(1) - 1) / 3  # the third: -1
    half = stats.t.ppf(0.975, 2) * least.std(ddof=1) / np.sqrt(3)
    assert rows["surely_above"][0] == pytest.approx(least.mean() - half)
    assert least.mean() < half and (rows["outcome"][0], found["verdict"]) == ("undecided", "undecided")
    assert rows["reason"][0] == "33% of the returns are never reached: the number is a bound"
    # seen from PPO, the same number is a lower bound, and must not fail PPO for its sake
    _, rows = result(tmp_path / "b", curve, check(where={"method": "ppo"}, against={"method": "chosen"}, above=0))
    assert rows["bound"][0] == "at least" and rows["value"][0] < 0
    assert rows["surely_below"][0] == pytest.approx(-(least.mean() - half))
    assert number_text(rows.iloc[0]).startswith("≥ ")
    # against the method the bound is no excuse
    _, rows = result(tmp_path / "c", curve, check(below=0.9))
    assert rows["outcome"][0] == "holds"


@pytest.mark.parametrize("flip", [False, True])
def test_bounds_on_either_side_never_help_it(tmp_path, flip):
    """One of both never reaches anything: the estimate says nothing, the worst and the best case say all there is."""
    stuck, other = ("ppo", "iif_p50") if flip else ("iif_p50", "ppo")
    start = {stuck: 19, other: 1} | {"iif_p12_5": 1, "random": 1}

    def curve(run):
        values = rising(start | {"ppo": 10})(run)
        return np.minimum(values, 0.3) if run.method == stuck and stuck != "ppo" else values

    _, rows = result(tmp_path, curve, SAVES)
    assert rows["outcome"][0] == ("holds" if flip else "fails")


def test_unreached_levels_of_se_ave_count_as_minus_one_before_it_holds(tmp_path):
    def curve(run):
        values = rising(EARLIER | {"ppo": 10, "iif_p50": 2})(run)
        return np.minimum(values, 0.6) if run.method == "iif_p50" else values

    beside = check(**SE_AVE, role="vetoes", above=0)
    peak = check(**SE_AVE | {"quantity": "se_peak"}, role="beside", above=0)
    _, rows = result(tmp_path, curve, SAVES, beside, peak)
    assert rows["unreached"].tolist()[1:] == pytest.approx([0.4, 1])  # the peak in none of the seeds
    row = rows.iloc[1]
    assert row["unreached"] == pytest.approx(0.4) and row["low"] > 0 and row["bound"] == "at most"
    reached = [np.mean([1 - (2 - s + k) / (10 - s + k) for k in range(1, 7)]) for s in SEEDS]
    least = [0.6 * value - 0.4 for value in reached]
    half = stats.t.ppf(0.975, 2) * np.std(least, ddof=1) / np.sqrt(3)
    assert row["surely_above"] == pytest.approx(np.mean(least) - half)
    assert (
        row["outcome"] == "undecided" and row["reason"] == "40% of the returns are never reached: the number is a bound"
    )


def test_one_of_several_may_hold_at_an_adjusted_level(tmp_path):
    alternatives = [{"method": "iif_p12_5"}, {"method": "iif_p50"}]
    best = check(where={}, any_of=alternatives, against={"method": "random"}, above=0, percent=True)
    found, rows = result(tmp_path / "a", rising(EARLIER), best)
    assert (found["verdict"], rows["confidence"][0]) == ("replicated", 0.975)
    assert rows["check"][0] == "best of 2: IIF, p = 50 % against Random: rounds saved > 0 %"
    found, rows = result(tmp_path / "b", rising(EARLIER | {"iif_p50": 12, "iif_p12_5": 12}), best)
    assert (found["verdict"], rows["outcome"][0]) == ("not replicated", "fails")


def test_alternatives_are_compared_on_the_same_seeds(tmp_path):
    """p = 12.5 % has two more seeds than p = 50 %, in which it would look best."""
    best = check(
        where={}, any_of=[{"method": "iif_p12_5"}, {"method": "iif_p50"}], against={"method": "random"}, above=0
    )
    grid = [{"environments": ["frozenlake"], "methods": METHODS, "seeds": [0, 1, 2], "rounds": ROUNDS}]
    grid += [
        {"environments": ["frozenlake"], "methods": ["ppo", "random", "iif_p12_5"], "seeds": [3, 4], "rounds": ROUNDS}
    ]
    config = study(*grid)

    def curve(run):
        return rising(EARLIER | {"iif_p12_5": -9 if run.seed > 2 else 6})(run)

    write_synthetic_study(tmp_path, config, curve=curve)
    tables = make_tables(load_study(config, tmp_path), reported=REPORTED)
    row = evaluate(rules(claim(best)), config, tables, REPORTED)["claims_checks"].iloc[0]
    assert row["check"].startswith("best of 2: IIF, p = 50 %") and row["n"] == row["expected"] == 3
    wrong = samples.sample(
        best, best.sides[0], "frozenlake", samples.Context(rules(claim(best)), config, tables), range(5)
    )
    assert len(wrong.value) == 5 and wrong.value.mean() > row["value"]


def test_the_gain_of_one_pair_minus_that_of_another(tmp_path):
    curves = {"ppo": 8, "iif_p50": 4, "ppo_noclip": 8, "iif_p50_noclip": 7}
    shrinks = check(
        where={"method": "chosen_unclipped"}, against={"method": "ppo_noclip"}, below=0,
        than={"method": "chosen", "against": "ppo"},
    )  # fmt: skip
    found, rows = result(tmp_path, rising(curves), shrinks, methods=list(curves))
    first = np.array([[8 - seed + k for k in (5, 8, 9)] for seed in SEEDS])
    assert rows["value"][0] == pytest.approx((1 / first - 4 / first).mean()) and found["verdict"] == "replicated"
    assert "minus IIF, p = 50 % against PPO: rounds saved < 0" in rows["check"][0]


def test_a_tuned_method_is_chosen_on_the_other_seeds(tmp_path):
    """Seed 0 is best with `random`, and is judged with what is best on seeds 1 and 2."""
    best = {0: "random", 1: "iif_p12_5", 2: "iif_p12_5"}

    def curve(run):
        return rising({"ppo": 9, "iif_p50": 4, "random": 8 - 6 * (best[run.seed] == "random"), "iif_p12_5": 6})(run)

    config, tables = made(tmp_path, curve)
    tuned = rules(claim(returns(against={"method": "any"}, above=0)), tuned={"any": ("ppo", "random", "iif_p12_5")})
    context = samples.Context(tuned, config, tables)
    table = (
        tables["returns_per_seed"]
        .astype({"method": str})
        .pivot(index="seed", columns="method", values="mean_training_return")[["ppo", "random", "iif_p12_5"]]
    )
    expected = {seed: table.drop(index=seed).mean().idxmax() for seed in SEEDS}
    assert samples.tuned_choice("any", "frozenlake", context) == expected
    assert expected[0] == "iif_p12_5" and table.loc[0].idxmax() == "random"
    row = evaluate(tuned, config, tables, REPORTED)["claims_checks"].iloc[0]
    own = tables["returns_per_seed"].query("method == 'iif_p50'").set_index("seed")["mean_training_return"]
    other = pd.Series({seed: table.loc[seed, method] for seed, method in expected.items()})
    assert row["value"] == pytest.approx((own - other).mean()) and row["n"] == 3

    # two seeds and two methods are enough to choose, one of either is not
    def choice(names, seeds):
        few = tables | {"returns_per_seed": tables["returns_per_seed"].query(f"seed in {seeds}")}
        one = rules(claim(returns(against={"method": "any"}, above=0)), tuned={"any": names})
        return samples.tuned_choice("any", "frozenlake", samples.Context(one, config, few))

    better = {seed: "random" if table["random"][seed] > table["ppo"][seed] else "ppo" for seed in (0, 1)}
    assert choice(("ppo", "random"), [0, 1]) == {0: better[1], 1: better[0]}
    assert choice(("ppo", "random"), [0]) == choice(("ppo", "td_error"), [0, 1]) == {}
    # every member's runs are needed
    lost = {
        "missing_runs": pd.DataFrame([("frozenlake", "random", 2, "no folder")], columns=tables["missing_runs"].columns)
    }
    again = evaluate(tuned, config, tables | lost, REPORTED)["claims_checks"].iloc[0]
    assert (again["outcome"], again["missing"]) == ("incomplete", "frozenlake random seed 2")


def test_unequal_numbers_of_rounds_are_not_compared(tmp_path):
    blocks = [{"environments": ["frozenlake"], "methods": [m], "seeds": [0, 1, 2], "rounds": k} for m, k in
              (("ppo", 10), ("iif_p50", 20))]  # fmt: skip
    config = study(*blocks)
    write_synthetic_study(tmp_path, config)
    tables = make_tables(load_study(config, tmp_path), ["returns_per_seed", "missing_runs"], REPORTED)
    rows = evaluate(rules(claim(returns(above=0))), config, tables, REPORTED)["claims_checks"]
    assert rows[["outcome", "reason"]].to_numpy().tolist() == [["not run", "equal numbers of rounds of frozenlake"]]


# Analyses and tables of their own


def analysed(seeds):
    """A study of three seeds with interventions on some of them."""
    grid = [{"environments": ["frozenlake"], "methods": ["ppo"], "seeds": [0, 1, 2, 3]}]
    block = {"analysis": "interventions", "environments": ["frozenlake"], "seeds": seeds, "rounds": [0]}
    return Config({"study": "made_up", "grid": grid, "analyses": [block]}, CATALOGUE)


def listed(*missing):
    """What is missing: no run, and these analyses; and PPO's rise, 2 in 10 rounds."""
    columns = ["environment", "method", "seed", "reason"]
    rows = [(name, "frozenlake", "ppo", seed, "no folder") for name, seed in missing]
    analyses = pd.DataFrame(rows, columns=["analysis", *columns])
    rise = pd.DataFrame({"environment": ["frozenlake"], "rounds": [10], "ppo_rise": [2.0]})
    return {"missing_runs": pd.DataFrame(columns=columns), "missing_analyses": analyses, "returns_per_seed": rise}


ARMS = {"where": {"arm": "negative_p"}, "against": {"arm": "all"}, "table": "interventions", "quantity": "delta"}


def test_missing_analyses_leave_a_claim_open():
    arms = [(s, arm, delta) for s in range(4) for arm, delta in (("negative_p", 0.1 + s), ("all", 0.0))]
    table = pd.DataFrame(arms, columns=["seed", "arm", "delta"])
    table.insert(0, "environment", "frozenlake")
    table.insert(1, "method", "ppo")
    rule = rules(claim(check(**ARMS, above=-9, range="ppo_rise_per_round")))

    def outcome(config, tables):
        found = evaluate(rule, config, tables, REPORTED)
        row = found["claims_checks"].iloc[0]
        return found["claims"]["verdict"][0], row["outcome"], row["n"], row["expected"], row["missing"]

    whole = {"interventions": table} | listed()
    assert outcome(analysed([0, 1, 2, 3]), whole) == ("replicated", "holds", 4, 4, "")
    part = {"interventions": table[table["seed"] < 3]} | listed(("interventions", 3), ("diagnosis", 0))
    assert outcome(analysed([0, 1, 2, 3]), part) == ("incomplete", "incomplete", 3, 4, "frozenlake ppo seed 3")
    assert outcome(analysed([0, 1, 2]), part) == ("replicated", "holds", 3, 3, "")  # the fourth is not asked for
    none = {"interventions": table.iloc[:0, :3]} | listed(*(("interventions", seed) for seed in range(4)))
    assert outcome(analysed([0, 1, 2, 3]), none) == ("not run", "not run", 0, 4, "frozenlake ppo seeds 0, 1, 2, 3")
    without = study({"environments": ["frozenlake"], "methods": ["ppo"], "seeds": [0, 1]})
    found = evaluate(rule, without, listed(), REPORTED)
    assert found["claims_checks"]["outcome"].tolist() == ["not run"]
    assert found["claims"]["absent"].tolist() == ["interventions of frozenlake"]


def test_the_margin_of_a_round_is_a_share_of_ppos_rise_per_round():
    table = pd.DataFrame({"environment": "frozenlake", "seed": [0, 1, 2] * 2, "arm": ["negative_p"] * 3 + ["all"] * 3})
    table["delta"] = [0.004, 0.005, 0.006, 0, 0, 0]
    rule = rules(claim(check(**ARMS, above=0, range="ppo_rise_per_round")))
    row = evaluate(rule, analysed([0, 1, 2]), {"interventions": table} | listed(), REPORTED)["claims_checks"].iloc[0]
    assert row["margin"] == pytest.approx(0.05 * 2 / 10)
    assert (
        row["low"] > 0 and row["high"] < row["margin"] and row["outcome"] == "fails"
    )  # an effect, and none that counts


def test_a_claim_does_not_apply_where_its_requirement_is_not_met():
    table = pd.DataFrame({"environment": "frozenlake", "seed": [0, 1, 2] * 2, "arm": ["negative_p"] * 3 + ["all"] * 3})
    table["delta"] = [1.0, 1.1, 1.2, 0, 0, 0]

    def verdict(needed, tables):
        rule = claim(check(**ARMS, above=0), requires=[check(**ARMS, above=needed)])
        found = evaluate(rules(rule), analysed([0, 1, 2]), tables, REPORTED)
        return found["claims"]["verdict"][0], found["claims_checks"]["outcome"].tolist()[1]

    assert verdict(1.09, {"interventions": table} | listed()) == ("replicated", "holds")
    assert verdict(1.11, {"interventions": table} | listed()) == ("not applicable", "not applicable")
    lost = {"interventions": table} | listed(("interventions", 1))
    assert verdict(1.11, lost) == ("incomplete", "incomplete")


def test_timings_are_a_table_of_their_own():
    config = study({"environments": ["frozenlake"], "methods": ["ppo"], "seeds": [0, 1, 2]})
    rows = [("frozenlake", m, k, 0.1 * (1 + k), s) for k in range(3) for m, s in (("ppo", 2.0), ("iif_p50", 1.0))]
    table = pd.DataFrame(rows, columns=["environment", "method", "repeat", "influence_s", "round_s"])
    cheap = check(table="timings", quantity="influence_s", over="round_s", against=None, below=0.5)
    cheaper = check(table="timings", quantity="round_s", compare="ratio", below=1)
    rule = rules(claim(cheap, cheaper))
    found = evaluate(rule, config, listed(), REPORTED)
    assert found["claims"]["verdict"][0] == "not run" and found["claims"]["absent"][0] == "table timings"
    found = evaluate(rule, config, listed() | {"timings": table}, REPORTED)
    assert found["claims_checks"]["value"].tolist() == pytest.approx([0.2, 0.5])
    assert found["claims_checks"]["n"].tolist() == [3, 3] and not found["claims"]["reproducible"][0]
    # a ratio to 0 is undefined, and said so
    table.loc[(table["repeat"] == 1) & (table["method"] == "iif_p50"), "round_s"] = 0.0
    row = evaluate(rule, config, listed() | {"timings": table}, REPORTED)["claims_checks"].iloc[0]
    assert (row["outcome"], row["n"]) == ("undecided", 2)
    assert row["reason"] == "defined for 2 of 3 seeds; undefined for repeat 1"
    with pytest.raises(ConfigError, match="table timings has no column round_s; columns: environment, method, repeat"):
        evaluate(rule, config, listed() | {"timings": table.drop(columns="round_s")}, REPORTED)


def test_time_to_a_reward_that_is_never_reached_is_endless():
    config = study({"environments": ["frozenlake"], "methods": ["ppo"], "seeds": [0, 1, 2]})
    rows = [
        ("rlhf_fast", m, k, 5 + 5 * (m == "ppo"), int(m == "ppo" or k > 0)) for k in range(3) for m in ("ppo", "iif")
    ]
    table = pd.DataFrame(rows, columns=["environment", "method", "seed", "rounds_to_best", "best_reached"])
    sides = {"where": {"method": "iif"}, "against": {"method": "ppo"}, "table": "rlhf_per_seed", "compare": "ratio"}
    rule = rules(claim(check(**sides, quantity="rounds_to_best", below=0.6), seeds={"rlhf_fast": 3}))
    row = evaluate(rule, config, listed() | {"rlhf_per_seed": table}, REPORTED)["claims_checks"].iloc[0]
    assert row["value"] == 0.5 and row["bound"] == "at least" and row["outcome"] == "undecided"
    table["best_reached"] = 1
    planned = rules(claim(check(**sides, quantity="rounds_to_best", below=0.6), seeds={"rlhf_fast": 5}))
    row = evaluate(planned, config, listed() | {"rlhf_per_seed": table}, REPORTED)["claims_checks"].iloc[0]
    assert (row["outcome"], row["n"], row["reason"]) == ("incomplete", 3, "2 of 5 seeds are missing")
    row = evaluate(rule, config, listed() | {"rlhf_per_seed": table}, REPORTED)["claims_checks"].iloc[0]
    assert row["outcome"] == "holds"


def test_language_models_are_found_where_their_studies_are(tmp_path):
    for name in ("study", "fast"):
        folder = tmp_path / f"results/rlhf_{name}/tables"
        folder.mkdir(parents=True)
        (folder / "rlhf_per_seed.csv").write_text("environment,seed\nrlhf,5\n")
    table = samples.language_models(samples.language_model_files(tmp_path))["rlhf_per_seed"]
    assert table.to_dict("list") == {"environment": ["rlhf_fast", "rlhf_study"], "seed": [5, 5]}
    assert samples.language_models(samples.language_model_files(tmp_path / "results")) == {}


# The file


def test_all_claims_are_there_once_and_their_references_exist():
    loaded = load_claims(CATALOGUE)
    assert [c.claim for c in loaded.claims] == list(range(1, 23))
    assert {c.claim for c in loaded.claims if c.control_of == 1} == set(range(18, 23))
    config = Config(CATALOGUE / "paper.yaml")
    found = 0
    for entry in loaded.claims:
        for one in entry.checks:
            for environment in entry.seeds_of(one):
                where = samples.located(one.sides[0], environment, config)
                text, value, seeds = paper_number(one, environment, where.get("method"), REPORTED)
                found += bool(text)
                assert not text or (np.isfinite(value) and seeds in (3, 5))
    assert found == 12 + 3 + 3 + 12 + 2 + 6  # claims 1, 2, 10 to 12, 15, 16, 17


def test_one_rule_says_how_many_environments_are_enough():
    for entry in load_claims(CATALOGUE).claims:
        n = len(entry.cases)
        assert entry.partly == (n + 1) // 2 if entry.claim != 9 else 1
        assert entry.replicated == (n - 1 if n >= 4 else n) if entry.claim != 9 else 2  # `often`: half of them


def test_every_check_can_hold_and_can_fail():
    """Fails needs a margin where the threshold says `no effect`; elsewhere the threshold is a size."""
    loaded = load_claims(CATALOGUE)
    for entry in loaded.claims:
        for one in entry.checks:
            assert min(entry.seeds_of(one).values()) >= 3
            assert one.has_margin == (one.threshold in (0, 1)) and loaded.margin > 0
            assert one.role != "decides" or one.quantity not in AGAINST_PPO
            assert one.range == "one" or one.quantity in (
                "mean_training_return",
                "final_return",
                "delta",
                "reward_at_equal_kl",
            )


@pytest.mark.parametrize("name", [p.stem for p in sorted(CATALOGUE.glob("confirm*.yaml"))])
def test_a_confirmatory_study_has_the_seeds_that_the_rules_plan(name):
    """Every check of runs and analyses has at least three seeds there, and the planned ones at the first look."""
    config, loaded = Config(CATALOGUE / f"{name}.yaml"), load_claims(CATALOGUE)
    every = {one.table: pd.DataFrame() for entry in loaded.claims for one in (*entry.requires, *entry.checks)}
    empty = pd.DataFrame(columns=["analysis", "environment", "method", "seed"])
    context = samples.Context(loaded, config, every | {"missing_runs": empty, "missing_analyses": empty})
    for entry in loaded.claims:
        for one in (*entry.requires, *entry.checks):
            for environment, planned in entry.seeds_of(one).items() if one.table not in samples.APART else ():
                found = samples.needs(one, environment, context)
                assert not found.lacks and len(found.seeds) >= max(3, planned), (entry.claim, environment, one.where)


def test_the_file_satisfies_the_schema_that_editors_see():
    data = read_yaml(CATALOGUE / "claims.yaml")
    jsonschema.validate(data, schemas()["claims"])
    with pytest.raises(jsonschema.ValidationError, match="Additional properties"):
        jsonschema.validate(data | {"claim": []}, schemas()["claims"])


def test_checks_name_columns_that_their_tables_have(tmp_path):
    config = study({"environments": ["frozenlake"], "methods": ["ppo", "iif_p50"], "seeds": [0], "rounds": 2})
    write_synthetic_study(tmp_path, config)
    tables = make_tables(load_study(config, tmp_path), reported=REPORTED)
    for entry in load_claims(CATALOGUE).claims:
        for one in entry.checks:
            if one.table in TABLES and one.table != "rounds_to":
                columns = {one.quantity, one.over, *one.sides[0], *(one.against or {}), "seed"} - {None}
                assert columns <= set(tables[one.table])


def test_paper_numbers_as_printed_and_as_values():
    se = check(**SE_AVE, role="beside", above=0, reported=("figure_6b.{environment}.{method}.se_ave",))
    assert paper_number(se, "frozenlake", "iif_p50", REPORTED) == ("34 ± 2", 0.34, 5)
    assert paper_number(se, "pong", "iif_p50", REPORTED)[0] == ""  # the paper prints none
    places = tuple(f"figure_6b.{{environment}}.{{method}}.{name}" for name in ("se_ave", "se_peak"))
    text, value, _ = paper_number(
        check(**SE_AVE, role="beside", above=0, reported=places), "frozenlake", "iif_p50", REPORTED
    )
    first, second = (float(part.split(" ± ")[0]) for part in text.split(" against "))
    assert first == 34 and value == pytest.approx(0.01 * (first - second))
    gain = returns(above=0, reported=("table_4.{environment}.{method}",))
    assert paper_number(gain, "minigrid", "iif_p12_5", REPORTED) == ("[0.04, 0.33]", pytest.approx(0.185), 5)
    places = ("table_5.{environment}.influence_s", "table_5.{environment}.optimise_iif_s")
    ratio = check(table="timings", quantity="influence_s", over="optimise_s", against=None, below=0.2, reported=places)
    text, value, _ = paper_number(ratio, "acrobot", "iif_p50", REPORTED)
    assert text == "0.25 ± 0.01 against 1.42 ± 0.02" and value == pytest.approx(0.25 / 1.42)
    for wrong in ("figure_6b.frozenlake", "figure_6b.frozenlake.iif_p50.se", "nothing", "table_6.total_ratio_percent"):
        with pytest.raises(ConfigError, match=f"reported '{wrong}' is no number of paper_reported.yaml"):
            reported_pair(REPORTED, wrong)


def test_the_papers_number_is_compared_with_our_prediction_interval(tmp_path):
    se = check(**SE_AVE, role="beside", above=0, reported=("figure_6b.{environment}.{method}.se_ave",))
    _, rows = result(tmp_path, rising(EARLIER), SAVES, se)
    row = rows.iloc[1]
    values = [np.mean([4 / (8 - seed + k) for k in range(1, 11)]) for seed in SEEDS]
    half = stats.t.ppf(0.975, 2) * np.std(values, ddof=1) * np.sqrt(1 / 3 + 1 / 5)  # five seeds in the paper
    assert (row["predicted_low"], row["predicted_high"]) == pytest.approx(
        (np.mean(values) - half, np.mean(values) + half)
    )
    assert row["paper_inside"] == ("yes" if abs(np.mean(values) - 0.34) < half else "no")
    assert rows["paper_inside"][0] == ""


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"abov": 0}, r"unknown key 'claims.0.checks.0.abov', did you mean 'above'\?"),
        ({"below": 0, "above": 0}, "a check needs one of above and below"),
        ({}, "a check needs one of above and below"),
        ({"above": 0, "seeds": {"frozenlake": 2}}, "2 planned seeds of frozenlake decide nothing; at least 3"),
        ({"above": 0, "quantity": "se_ave"}, "se_ave is not 0 between equal methods and cannot decide"),
        ({"above": 0, "table": "rounds_to"}, "rounds_saved is the quantity of table rounds_to"),
        ({"above": 0, "table": "rounds_to", "quantity": "rounds_saved"}, "rounds_saved needs against"),
        ({"above": 0, "where": {}}, "a check needs one of where and any_of"),
        ({"above": 0, "than": {"method": "a", "against": "b"}}, "than needs against"),
        ({"above": 0, "seeds": {"acrobot": 3}}, "a check is made in acrobot, which its seeds do not list"),
        ({"above": 0, "role": "beside"}, "claim 1"),
    ],
)
def test_wrong_checks_are_refused_in_one_line(changes, message):
    one = {"table": "x", "where": {"method": "ppo"}, "quantity": "y"} | changes
    entry = {"claim": 1, "title": "x", "statement": "x", "source": "y", "checks": [one], "replicated": 1, "partly": 1}
    with pytest.raises(ConfigError, match=message) as caught:
        parse(Claims, RULES | {"claims": [entry | {"seeds": {"frozenlake": 3}}]}, "claims.yaml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"replicated": 2}, "partly 1 and replicated 2 do not rise to at most 1"),
        ({"partly": 2, "replicated": 1}, "partly 2 and replicated 1 do not rise to at most 1"),
        ({"seeds": {"frozenlake": 1}}, "1 planned seeds of frozenlake decide nothing"),
        ({"control_of": 5}, "claim 5 has a control and is not there"),
    ],
)
def test_wrong_rules_are_refused(changes, message):
    one = {"table": "x", "where": {"method": "ppo"}, "quantity": "y", "above": 0}
    entry = {"claim": 1, "title": "x", "statement": "x", "source": "y", "checks": [one], "replicated": 1, "partly": 1}
    entry |= {"seeds": {"frozenlake": 3}} | changes
    with pytest.raises(ConfigError, match=message):
        parse(Claims, RULES | {"claims": [entry]}, "claims.yaml")
    if "control_of" not in changes:
        return
    with pytest.raises(ConfigError, match=r"companion \[0.5\]: the table rounds_to has "):
        parse(Claims, RULES | {"companion": [0.5], "claims": [entry | {"control_of": None}]}, "claims.yaml")
    with pytest.raises(ConfigError, match="claim 1 is repeated"):
        parse(Claims, RULES | {"claims": [entry | {"control_of": None}] * 2}, "x")


def test_rule_in_words_and_lines_for_the_terminal(tmp_path):
    found, _ = result(tmp_path, rising(EARLIER), SAVES)
    assert found["rule"] == (
        "replicated: everything holds in at least 1 of 1 environments; partly: what decides holds in at least 1 and "
        "nothing vetoes; not replicated: fewer than 1 still can"
    )
    (line,) = texts(pd.DataFrame([found]))
    assert line == "claim  1  replicated      x (1 of 1 in full)"
