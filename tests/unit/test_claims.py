"""Verdicts: from counts, from intervals, and from synthetic results that must give each of them."""

import itertools

import jsonschema
import numpy as np
import pandas as pd
import pytest

from rl_influence.analysis import claims
from rl_influence.analysis.claims import CheckConfig, ClaimConfig, Claims, evaluate, judge, load_claims, verdict
from rl_influence.analysis.curves import load_study
from rl_influence.analysis.reported import load_reported
from rl_influence.analysis.statistics import Interval
from rl_influence.analysis.tables import TABLES, make_tables
from rl_influence.config import Config, ConfigError, parse, read_yaml
from rl_influence.publish.schemas import schemas
from synthetic import CATALOGUE, study, write_synthetic_study

ROUNDS = 20
SEEDS = (0, 1, 2)
METHODS = ["ppo", "iif_p50", "iif_p12_5", "random"]


def check(**changes):
    keys = {"environments": ("frozenlake",), "table": "returns_per_seed", "where": {"method": "chosen"}}
    return CheckConfig(**keys | {"quantity": "auc"} | changes)


def claim(*checks, **changes):
    return ClaimConfig(**{"claim": 1, "statement": "x", "source": "y", "checks": checks, "replicated": 1} | changes)


def rising(start, noise=0.0):
    """A curve that reaches 1 in ten rounds after `start`."""

    def curve(run):
        jitter = np.random.default_rng([run.seed, len(run.method)]).normal(0, noise, ROUNDS + 1)
        middle = start.get((run.environment, run.method), start.get(run.method))
        return np.round(np.clip((np.arange(ROUNDS + 1) - middle + run.seed) / 10, 0, 1) + np.abs(jitter), 6)

    return curve


def result(tmp_path, curve, *checks, methods=METHODS, environments=("frozenlake",), skip=lambda run: False, **changes):
    """(claim's row, checks' rows) for made-up curves."""
    grid = {"environments": list(environments), "methods": methods, "seeds": list(SEEDS), "rounds": ROUNDS}
    config = study(grid)
    write_synthetic_study(tmp_path, config, curve=curve, skip=skip)
    reported = load_reported(CATALOGUE)
    tables = make_tables(load_study(config, tmp_path), reported=reported)
    verdicts, rows = evaluate(Claims(claims=(claim(*checks, **changes),)), config, tables, reported)
    return verdicts.iloc[0], rows


EARLIER = {"ppo": 8, "iif_p50": 4, "iif_p12_5": 6, "random": 9}
LATER = {"ppo": 4, "iif_p50": 8, "iif_p12_5": 6, "random": 9}
SAVES = check(table="efficiency_per_seed", quantity="se_ave", above=0)


def test_four_verdicts_from_results_and_a_flip_when_the_data_flip(tmp_path):
    found, rows = result(tmp_path / "a", rising(EARLIER), SAVES)
    assert (found["verdict"], rows["outcome"].tolist()) == ("replicated", ["holds"])
    # every level v = 0.1 .. 1 is reached 4 rounds earlier
    rounds = np.array([[8 - seed + 10 * v for v in np.arange(0.1, 1.05, 0.1)] for seed in SEEDS])
    assert rows["value"][0] == pytest.approx((4 / rounds).mean(), rel=1e-6)
    assert rows[["n", "expected"]].to_numpy().tolist() == [[3, 3]]

    found, rows = result(tmp_path / "b", rising(LATER), SAVES)
    assert (found["verdict"], rows["outcome"].tolist()) == ("not replicated", ["fails"])
    assert found["reason"] == "0 of 1 checks hold, 1 fail"

    both = {("frozenlake", m): s for m, s in EARLIER.items()} | {("acrobot", m): s for m, s in LATER.items()}
    everywhere = check(environments=("frozenlake", "acrobot"), table="efficiency_per_seed", quantity="se_ave", above=0)
    found, rows = result(
        tmp_path / "c", rising(both), everywhere, environments=("frozenlake", "acrobot"), replicated=2, partly=1
    )
    assert (found["verdict"], rows["outcome"].tolist()) == ("partly", ["holds", "fails"])

    same = EARLIER | {"iif_p50": 8}
    found, rows = result(tmp_path / "d", rising(same, noise=0.1), check(minus={"method": "ppo"}, above=0))
    assert (found["verdict"], rows["outcome"].tolist()) == ("cannot tell", ["undecided"])
    assert rows["low"][0] < 0 < rows["high"][0]


def test_a_missing_run_is_cannot_tell_and_is_named(tmp_path):
    lost = [("ppo", 1), ("random", 2)]
    found, rows = result(tmp_path, rising(EARLIER), SAVES, skip=lambda run: (run.method, run.seed) in lost)
    assert found["verdict"] == "cannot tell" and found["reason"] == "1 run is missing; 0 of 1 checks hold, 0 fail"
    assert found["missing"] == "frozenlake ppo seed 1"  # the random run plays no part in this claim
    assert rows[["outcome", "n", "expected"]].to_numpy().tolist() == [["missing", 2, 3]]


def test_missing_runs_of_a_method_are_named_together(tmp_path):
    both = check(environments=("frozenlake", "acrobot"), minus={"method": "random"}, above=0)
    found, _ = result(
        tmp_path, rising(EARLIER), both, environments=("frozenlake", "acrobot"), replicated=2, partly=1,
        skip=lambda run: run.environment == "acrobot" and run.seed > 0,
    )  # fmt: skip
    assert found["missing"] == "acrobot iif_p50 seeds 1, 2; acrobot random seeds 1, 2"
    assert found["verdict"] == "cannot tell"  # although one check holds already
    assert found["reason"] == "4 runs are missing; 1 of 2 checks hold, 0 fail"


def test_what_the_study_lacks_is_not_tested_and_named(tmp_path):
    checks = [
        check(environments=("frozenlake", "highway"), minus={"method": "ppo"}, above=0),
        check(where={"method": "td_error"}, above=0),
        check(environments=("frozenlake", "pong"), table="diagnosis", above=0),
        check(table="oops", above=0),
    ]
    found, rows = result(tmp_path, rising(EARLIER), *checks, replicated=4, partly=1)
    assert rows["outcome"].tolist() == ["holds", *["not tested"] * 5]
    absent = "highway, frozenlake td_error, diagnosis of frozenlake, pong, table oops"
    assert found["verdict"] == "partly" and found["absent"] == absent
    alone, _ = result(tmp_path, rising(EARLIER), checks[1])
    assert alone["verdict"] == "cannot tell"


def test_one_seed_has_no_interval_and_settles_nothing(tmp_path):
    config = study({"environments": ["frozenlake"], "methods": METHODS, "seeds": [0], "rounds": ROUNDS})
    write_synthetic_study(tmp_path, config, curve=rising(EARLIER))
    tables = make_tables(load_study(config, tmp_path), reported=load_reported(CATALOGUE))
    verdicts, rows = evaluate(Claims(claims=(claim(SAVES),)), config, tables)
    assert verdicts["verdict"][0] == "cannot tell" and rows["reason"][0] == "one seed has no interval"
    assert rows["value"][0] > 0 and np.isnan(rows["low"][0])


def test_returns_that_are_never_reached_count_against_the_method(tmp_path):
    """IIF is ahead up to 0.6 and stays there: 4 of PPO's 10 levels are never reached."""

    def curve(run):
        values = rising(EARLIER | {"ppo": 10, "iif_p50": 2})(run)
        return np.minimum(values, 0.6) if run.method == "iif_p50" else values

    found, rows = result(tmp_path, curve, SAVES)
    assert rows["unreached"][0] == pytest.approx(0.4) and rows["bound"][0] == "at most"
    assert 0 < rows["low"][0] < 0.4 and rows["outcome"][0] == "undecided"
    assert rows["reason"][0] == "40% of the returns are never reached, so the bound is too loose"
    assert claims.number_text(rows.iloc[0]).startswith("≤ ") and found["verdict"] == "cannot tell"
    # against the method the bound is no excuse
    _, rows = result(tmp_path, curve, check(table="efficiency_per_seed", quantity="se_ave", below=0.9))
    assert rows["outcome"][0] == "holds"


def test_unequal_numbers_of_rounds_are_not_compared(tmp_path):
    blocks = [{"environments": ["frozenlake"], "methods": [m], "seeds": [0, 1], "rounds": k} for m, k in
              (("ppo", 10), ("iif_p50", 20))]  # fmt: skip
    config = study(*blocks)
    write_synthetic_study(tmp_path, config)
    tables = make_tables(load_study(config, tmp_path), reported=load_reported(CATALOGUE))
    _, rows = evaluate(Claims(claims=(claim(check(minus={"method": "ppo"}, above=0)),)), config, tables)
    assert rows[["outcome", "reason"]].to_numpy().tolist() == [["undecided", "the runs have unequal numbers of rounds"]]


@pytest.mark.parametrize(
    "low, high, changes, scale, expected",
    [
        (0.1, 0.3, {"above": 0}, 1, "holds"),
        (-0.1, 0.3, {"above": 0}, 1, "undecided"),
        (-0.3, -0.1, {"above": 0}, 1, "fails"),
        (0.1, 0.3, {"above": 0.2}, 1, "undecided"),
        (0.1, 0.3, {"below": 0}, 1, "fails"),
        (-0.3, -0.1, {"below": 0}, 1, "holds"),
        (-0.3, 0.1, {"below": 0}, 1, "undecided"),
        (-0.02, 0.03, {"above": 0, "negligible": 0.05}, 1, "fails"),  # no effect that counts
        (0.01, 0.03, {"above": 0, "negligible": 0.05}, 1, "fails"),
        (0.01, 0.06, {"above": 0, "negligible": 0.05}, 1, "holds"),
        (-0.03, 0.02, {"below": 0, "negligible": 0.05}, 1, "fails"),
        (-4, 3, {"above": 0, "negligible": 0.01, "of": "ppo_range"}, 400, "fails"),
        (-4, 5, {"above": 0, "negligible": 0.01, "of": "ppo_range"}, 400, "undecided"),
        (np.nan, np.nan, {"above": 0}, 1, "undecided"),
    ],
)
def test_outcome_of_an_interval(low, high, changes, scale, expected):
    assert judge(Interval((low + high) / 2, low, high, 3), check(**changes), scale) == expected


def test_verdict_is_the_one_that_no_open_check_can_change():
    rule = claim(*[check(above=0)] * 4, replicated=3, partly=2)
    for outcomes in itertools.product(["holds", "fails", "undecided", "not tested"], repeat=4):
        open_ = [i for i, outcome in enumerate(outcomes) if outcome in ("undecided", "not tested")]
        possible = set()
        for closed in itertools.product(["holds", "fails"], repeat=len(open_)):
            final = list(outcomes)
            for i, outcome in zip(open_, closed, strict=True):
                final[i] = outcome
            number = final.count("holds")
            possible.add("replicated" if number >= 3 else "partly" if number >= 2 else "not replicated")
        certain = "partly" if "not replicated" not in possible else "cannot tell"
        assert verdict(rule, list(outcomes)) == (possible.pop() if len(possible) == 1 else certain)
        assert verdict(rule, [*outcomes[:3], "missing"]) == "cannot tell"
    assert verdict(claim(check(above=0), replicated=1), ["fails"]) == "not replicated"


def analysed(seeds):
    """A study of three seeds with interventions on some of them."""
    grid = [{"environments": ["frozenlake"], "methods": ["ppo"], "seeds": [0, 1, 2]}]
    block = {"analysis": "interventions", "environments": ["frozenlake"], "seeds": seeds, "rounds": [0]}
    return Config({"study": "made_up", "grid": grid, "analyses": [block]}, CATALOGUE)


def listed(*missing):
    """What is missing: no run, and these analyses."""
    columns = ["environment", "method", "seed", "reason"]
    rows = [(name, "frozenlake", "ppo", seed, "no folder") for name, seed in missing]
    analyses = pd.DataFrame(rows, columns=["analysis", *columns])
    return {"missing_runs": pd.DataFrame(columns=columns), "missing_analyses": analyses}


def test_missing_analyses_leave_a_claim_open():
    arms = [(seed, arm, delta) for seed in range(3) for arm, delta in (("negative", 0.1 + seed), ("all", 0.0))]
    table = pd.DataFrame(arms, columns=["seed", "arm", "delta"])
    table.insert(0, "environment", "frozenlake")
    table.insert(1, "method", "ppo")
    one = check(table="interventions", where={"arm": "negative"}, minus={"arm": "all"}, quantity="delta", above=-9)
    rule = Claims(claims=(claim(one),))
    reported = load_reported(CATALOGUE)

    def outcome(config, tables):
        verdicts, checks = evaluate(rule, config, tables, reported)
        row = checks.iloc[0]
        return verdicts["verdict"][0], row["outcome"], row["n"], row["expected"], row["missing"]

    whole = {"interventions": table} | listed()
    assert outcome(analysed([0, 1, 2]), whole) == ("replicated", "holds", 3, 3, "")
    part = {"interventions": table[table["seed"] < 2]} | listed(("interventions", 2), ("diagnosis", 0))
    assert outcome(analysed([0, 1, 2]), part) == ("cannot tell", "missing", 2, 3, "frozenlake ppo seed 2")
    assert outcome(analysed([0, 1]), part) == ("replicated", "holds", 2, 2, "")  # the third is not asked for
    none = {"interventions": table.iloc[:0, :3]} | listed(*(("interventions", seed) for seed in range(3)))
    assert outcome(analysed([0, 1, 2]), none) == ("cannot tell", "missing", 0, 3, "frozenlake ppo seeds 0, 1, 2")
    without = study({"environments": ["frozenlake"], "methods": ["ppo"], "seeds": [0, 1]})
    verdicts, checks = evaluate(rule, without, listed(), reported)
    assert checks["outcome"].tolist() == ["not tested"]
    assert verdicts["absent"].tolist() == ["interventions of frozenlake"]


def test_ratios_and_rows_without_a_method():
    config = analysed([0, 1])
    table = pd.DataFrame(
        {
            "environment": "frozenlake",
            "seed": [0, 0, 1, 1],
            "arm": ["negative", "random"] * 2,
            "delta": [0.3, 0.1, 0.5, 0.2],
            "cost": [1.0, 1.0, 2.0, 2.0],
        }
    )
    tables = {"interventions": table} | listed()
    base = {"table": "interventions", "where": {"arm": "negative"}, "quantity": "delta"}
    rule = claim(check(**base, minus={"arm": "random"}, above=0), check(**base, over="cost", below=1), replicated=2)
    _, rows = evaluate(Claims(claims=(rule,)), config, tables, load_reported(CATALOGUE))
    assert rows["value"].tolist() == pytest.approx([(0.2 + 0.3) / 2, (0.3 + 0.25) / 2])
    assert rows["check"][0] == "arm negative against arm random: difference in change of the return in a round > 0"
    with pytest.raises(ConfigError, match="table interventions has no column oops; columns: environment, seed, arm"):
        evaluate(Claims(claims=(claim(check(**base | {"quantity": "oops"}, above=0)),)), config, tables)


def test_claims_on_runtimes_have_a_table_of_their_own(tmp_path):
    grid = {"environments": ["frozenlake"], "methods": METHODS, "seeds": list(SEEDS), "rounds": ROUNDS}
    config, reported = study(grid), load_reported(CATALOGUE)
    write_synthetic_study(tmp_path, config, curve=rising(EARLIER))
    tables = make_tables(load_study(config, tmp_path), reported=reported)
    cheap = check(table="runtimes_per_seed", quantity="influence_s", over="optimise_s", below=0.2)
    both = Claims(claims=(claim(SAVES), claim(cheap, claim=2)))
    found = claims.ledgers(both, config, tables, reported)
    assert found["claims"][["claim", "verdict"]].to_numpy().tolist() == [[1, "replicated"], [2, "cannot tell"]]
    assert found["claims"]["reason"][1] == "rests on runtimes: see runtimes/runtime_claims.csv"
    assert found["runtime_claims"][["claim", "verdict"]].to_numpy().tolist() == [[2, "replicated"]]
    slower = tables | {"runtimes_per_seed": tables["runtimes_per_seed"].assign(influence_s=1.0)}
    again = claims.ledgers(both, config, slower, reported)
    for name in ("claims", "claims_checks"):  # other runtimes change nothing there
        pd.testing.assert_frame_equal(again[name], found[name])
    assert again["runtime_claims"]["verdict"].tolist() == ["not replicated"]
    verdicts, checks = claims.complete(again)
    assert verdicts[["claim", "verdict"]].to_numpy().tolist() == [[1, "replicated"], [2, "not replicated"]]
    assert checks["outcome"].tolist() == ["holds", "fails"]


# The file


def test_all_claims_are_there_once_and_their_references_exist():
    loaded, reported = load_claims(CATALOGUE), load_reported(CATALOGUE)
    assert [c.claim for c in loaded.claims] == list(range(1, 18))
    config = Config(CATALOGUE / "paper.yaml")
    for entry in loaded.claims:
        for one in entry.checks:
            for environment in set(one.environments) & set(config.environments):
                where = claims._where(one.where, environment, config)
                for path in one.reported:
                    assert claims.reference_text(reported, path.format(environment=environment, method=where["method"]))
        assert all(claims.reference_text(reported, path) for path in entry.reported)


def test_the_file_satisfies_the_schema_that_editors_see():
    data = read_yaml(CATALOGUE / "claims.yaml")
    jsonschema.validate(data, schemas()["claims"])
    with pytest.raises(jsonschema.ValidationError, match="Additional properties"):
        jsonschema.validate(data | {"claim": []}, schemas()["claims"])


def test_checks_name_columns_that_their_tables_have(tmp_path):
    config = study({"environments": ["frozenlake"], "methods": ["ppo", "iif_p50"], "seeds": [0], "rounds": 2})
    write_synthetic_study(tmp_path, config)
    tables = make_tables(load_study(config, tmp_path), reported=load_reported(CATALOGUE))
    for entry in load_claims(CATALOGUE).claims:
        for one in entry.checks:
            if one.table in TABLES:
                columns = {one.quantity, one.over, one.of, *one.where, *(one.minus or {}), "seed"} - {None}
                assert columns <= set(tables[one.table])


def test_paper_numbers_as_printed():
    reported = load_reported(CATALOGUE)
    assert claims.reference_text(reported, "figure_6b.frozenlake.iif_p50.se_ave") == "34 ± 2"
    assert claims.reference_text(reported, "table_4.minigrid.iif_p12_5") == "[0.04, 0.33]"
    for wrong in ("figure_6b.frozenlake", "figure_6b.frozenlake.iif_p50.se", "nothing", "table_6.total_ratio_percent"):
        with pytest.raises(ConfigError, match=f"reported '{wrong}' is no number of paper_reported.yaml"):
            claims.reference_text(reported, wrong)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"abov": 0}, r"unknown key 'claims.0.checks.0.abov', did you mean 'above'\?"),
        ({"below": 0, "above": 0}, "a check needs one of above and below"),
        ({}, "a check needs one of above and below"),
        ({"above": 0, "negligible": -1}, "negligible = -1"),
    ],
)
def test_wrong_checks_are_refused_in_one_line(changes, message):
    one = {"environments": ["frozenlake"], "table": "x", "where": {}, "quantity": "auc"} | changes
    data = {"claims": [{"claim": 1, "statement": "x", "source": "y", "checks": [one], "replicated": 1}]}
    with pytest.raises(ConfigError, match=message) as caught:
        parse(Claims, data, "claims.yaml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"replicated": 2}, "partly None and replicated 2 do not rise to at most 1"),
        ({"partly": 1}, "partly 1 and replicated 1 do not rise to at most 1"),
        ({"replicated": None}, "claim 1 needs replicated"),
        ({"not_run": "no GPU"}, "claim 1 needs either checks or not_run"),
        ({"checks": []}, "claim 1 needs either checks or not_run"),
    ],
)
def test_wrong_rules_are_refused(changes, message):
    one = {"environments": ["frozenlake"], "table": "x", "where": {}, "quantity": "auc", "above": 0}
    data = {"claim": 1, "statement": "x", "source": "y", "checks": [one], "replicated": 1} | changes
    with pytest.raises(ConfigError, match=message):
        parse(Claims, {"claims": [data]}, "claims.yaml")
    with pytest.raises(ConfigError, match="claim 1 is repeated"):
        parse(Claims, {"claims": [data | {"checks": [one], "not_run": None, "replicated": 1, "partly": None}] * 2}, "x")


def test_rule_in_words_and_lines_for_the_terminal(tmp_path):
    found, _ = result(tmp_path, rising(EARLIER), SAVES, check(above=0), replicated=2, partly=1)
    assert found["rule"] == (
        "replicated: at least 2 of 2 checks hold; partly: at least 1 do; not replicated: fewer than 1 still can"
    )
    (line,) = claims.texts(pd.DataFrame([found]))
    assert line == "claim  1  replicated      x (2 of 2 checks hold, 0 fail)"
