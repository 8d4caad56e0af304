"""Tables against values worked out by hand from made-up runs."""

import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

from rl_influence.analysis.curves import load_study
from rl_influence.analysis.reported import Reported, load_reported
from rl_influence.analysis.sample_efficiency import sample_efficiency
from rl_influence.analysis.statistics import minimum_detectable_effect
from rl_influence.analysis.tables import TABLES, make_tables, write_table
from rl_influence.config import ConfigError
from rl_influence.publish.latex import LATEX, escape, latex
from synthetic import CATALOGUE, logistic, study, write_synthetic_study

nan = np.nan
T2 = np.tan(0.475 * np.pi)  # 97.5 % quantile of t with one degree of freedom
CURVES = {  # FrozenLake, 4 rounds: (method, seed) -> test returns
    ("ppo", 0): [0.0, 0.2, 0.4, 0.6, 0.8],
    ("ppo", 1): [0.1, 0.1, 0.5, 0.3, 0.7],
    ("iif_p50", 0): [0.0, 0.4, 0.8, 0.9, 0.9],
    ("iif_p50", 1): [0.1, 0.2, 0.5, 0.6, 0.6],
    ("random", 0): [0.0, 0.1, 0.2, 0.3, 0.4],
    ("random", 1): [0.1, 0.1, 0.1, 0.1, 0.2],
}
SMALL = {"environments": ["frozenlake"], "methods": ["ppo", "iif_p50", "random"], "seeds": [0, 1], "rounds": 4}


@pytest.fixture(scope="module")
def reported():
    return load_reported(CATALOGUE)


@pytest.fixture(scope="module")
def small(tmp_path_factory, reported):
    """All tables of the six runs above."""
    config, root = study(SMALL), tmp_path_factory.mktemp("small")
    write_synthetic_study(root, config, curve=lambda run: CURVES[run.method, run.seed])
    return make_tables(load_study(config, root), TABLES, reported)


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory):
    """The catalogue and MiniGrid with Adam."""
    folder = shutil.copytree(CATALOGUE, tmp_path_factory.mktemp("catalogue") / "config")
    text = (folder / "environments" / "minigrid.yaml").read_text()
    text = text.replace("id: minigrid\n", "id: minigrid_adam\n").replace("label: MiniGrid", "label: MiniGrid (Adam)")
    text = re.sub(r"ppo:.*", "ppo: {optimizer: adam, learning_rate: 0.0003}", text)
    (folder / "environments" / "minigrid_adam.yaml").write_text(text)
    return folder


@pytest.fixture(scope="module")
def large(tmp_path_factory, catalogue, reported):
    """A study with several environments and all kinds of methods, two of whose runs are missing."""
    config = study(
        {
            "environments": ["acrobot", "frozenlake"],
            "methods": ["ppo", "iif_p100", "iif_p12_5", "iif_p50", "random"],
            "seeds": [2, 0, 1],
            "rounds": 12,
        },
        {"environments": ["minigrid_adam"], "methods": ["ppo", "iif_p12_5"], "seeds": [0, 1], "rounds": 12},
        folder=catalogue,
    )
    root = tmp_path_factory.mktemp("large")
    lost = [("acrobot", "random", 1), ("frozenlake", "ppo", 2)]
    write_synthetic_study(root, config, skip=lambda run: (run.environment, run.method, run.seed) in lost)
    return config, root, make_tables(load_study(config, root), TABLES, reported)


def row(table, **where):
    for name, value in where.items():
        table = table[table[name] == value]
    assert len(table) == 1
    return table.iloc[0]


def test_curves_summary_by_hand(small):
    third = row(small["curves_summary"], method="ppo", round=3)
    half = T2 * 0.15  # sd of 0.6 and 0.3 is 0.3 / sqrt(2), over sqrt(2)
    assert third["env_steps"] == 3 * 2048 and (third["n"], third["expected"]) == (2, 2)
    assert third[["mean", "low", "high"]].tolist() == pytest.approx([0.45, 0.45 - half, 0.45 + half])
    assert small["curves_summary"]["method"].unique().tolist() == ["ppo", "iif_p50", "random"]
    single = small["curves_per_seed"].query("method == 'random' and seed == 1")
    assert single["test_return"].tolist() == [0.1, 0.1, 0.1, 0.1, 0.2] and single["round"].tolist() == [0, 1, 2, 3, 4]


def test_efficiency_by_hand(small):
    # iif_p50, seed 0: levels .2 .4 .6 .8 at rounds 1 2 3 4, reached at rounds 1 1 2 2
    # seed 1: levels .5 .7 at rounds 2 4, reached at round 2 and never (round 4 as a bound)
    per_seed = small["efficiency_per_seed"]
    first, second = row(per_seed, method="iif_p50", seed=0), row(per_seed, method="iif_p50", seed=1)
    assert (first["se_ave"], first["se_peak"]) == pytest.approx(((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4, 1 / 2))
    assert (second["se_ave"], second["se_peak"]) == (0, 0)
    assert per_seed.query("method == 'iif_p50'")[["levels", "unreached"]].to_numpy().tolist() == [[4, 0], [2, 1]]
    assert per_seed.query("method == 'iif_p50'")["peak_reached"].tolist() == [True, False]
    summary = row(small["efficiency"], method="iif_p50")
    a, b = first["se_ave"], 0.0
    assert summary["se_ave"] == pytest.approx(a / 2)
    assert summary["se_ave_sd"] == pytest.approx(abs(a - b) / np.sqrt(2))
    assert summary["se_ave_high"] == pytest.approx(a / 2 + T2 * abs(a - b) / 2)
    assert summary[["n", "expected", "levels", "unreached", "peak_unreached"]].tolist() == [2, 2, 6, 1, 1]
    # the standard run is compared with nothing
    assert small["efficiency"]["method"].tolist() == ["iif_p50", "random"]


def test_the_papers_numbers_stand_beside_ours_as_fractions(small):
    summary = row(small["efficiency"], method="iif_p50")
    paper = ["paper_se_ave", "paper_se_ave_spread", "paper_se_peak", "paper_se_peak_spread"]
    assert summary[paper].tolist() == pytest.approx([0.34, 0.02, 0.192, 0.059])
    assert summary["paper_source"] == "figure_6b"
    assert row(small["efficiency"], method="random")[paper].isna().all()
    # Table 2 has other numbers for the same setting
    assert row(small["table_2"], method="iif_p50")[paper].tolist() == pytest.approx([0.337, 0.034, 0.196, 0.084])
    assert row(small["runtimes"], method="iif_p50")["paper_rt_peak"] == pytest.approx(0.295)


def test_iif_has_the_papers_numbers_under_either_of_its_ids(small, tmp_path, reported):
    """FrozenLake's own p is 50: the same runs as `iif`."""
    config = study(SMALL | {"methods": ["ppo", "iif", "random"]})
    write_synthetic_study(tmp_path, config, curve=lambda run: CURVES[run.method.replace("iif", "iif_p50"), run.seed])
    made = make_tables(load_study(config, tmp_path), TABLES, reported)
    for name in ("efficiency", "final_gains", "runtimes"):
        found = made[name].assign(method=made[name]["method"].replace("iif", "iif_p50"))
        pd.testing.assert_frame_equal(*(table.set_index("method").sort_index() for table in (found, small[name])))
    assert made["efficiency"].set_index("method").loc["iif", "paper_se_ave"] == 0.34


def test_rounds_saved_by_hand(small):
    # PPO's mean curve: .05 .15 .45 .45 .75, so half of the rise is .4, three quarters .575, nine tenths .68
    # rounds of ppo: 2 3 4 and 2 4 4; of iif_p50: 1 2 2 and 2 3 never
    table = small["rounds_saved"]
    found = {at: row(table, method="iif_p50", at=at) for at in ("0.5", "0.75", "0.9", "mean")}
    saved = {"0.5": [1 / 2, 0], "0.75": [1 / 3, 1 / 4], "0.9": [1 / 2, 0], "mean": [4 / 9, 1 / 12]}
    for at, values in saved.items():
        assert found[at]["rounds_saved"] == pytest.approx(np.mean(values))
        half = T2 * abs(np.diff(values)[0]) / 2
        bounds = max(np.mean(values) - half, -1), min(np.mean(values) + half, 1)  # a share of rounds cannot leave them
        assert found[at][["rounds_saved_low", "rounds_saved_high"]].tolist() == pytest.approx(bounds)
        assert found[at][["n", "expected", "unreached"]].tolist() == [2, 2, at in ("0.9", "mean")]


def test_efficiency_of_sampled_episodes_is_that_of_drawn_curves(tmp_path, reported):
    """By another way: binomial draws with another generator, over many more draws."""
    config = study(SMALL | {"rounds": 12})
    write_synthetic_study(tmp_path, config)
    loaded = load_study(config, tmp_path)
    table = make_tables(loaded, ("episodic_efficiency", "curves_per_seed", "efficiency_per_seed"), reported)
    found = row(table["episodic_efficiency"], method="iif_p50")
    assert len(table["episodic_efficiency"]) == 1  # the paper prints nothing of random removal
    curves = {key: part["test_return"].to_numpy() for key, part in table["curves_per_seed"].groupby(["method", "seed"])}
    rng = np.random.default_rng(5)

    def drawn(seed):
        pair = [np.clip(curves[method, seed], 0, 1) for method in ("ppo", "iif_p50")]
        for _ in range(300):
            yield [(rng.random((1000, 13)) < chance).mean(0) for chance in pair]

    assert found["episodes"] == 1000 and found[["n", "expected"]].tolist() == [2, 2]
    slow = [np.mean([sample_efficiency(b, a).se_ave for b, a in drawn(seed)]) for seed in (0, 1)]
    assert found["se_ave"] == pytest.approx(np.mean(slow), abs=0.02)
    exact = table["efficiency_per_seed"].query("method == 'iif_p50'")["se_ave"].mean()
    assert found["exact_se_ave"] == pytest.approx(exact)
    again = make_tables(loaded, ("episodic_efficiency",), reported)["episodic_efficiency"]
    pd.testing.assert_frame_equal(again, table["episodic_efficiency"])


def test_a_peak_that_most_seeds_never_reach_has_no_mean(small):
    summary = row(small["efficiency"], method="random")  # never reaches .8, nor .7
    assert summary["peak_unreached"] == 2 and np.isnan(summary["se_peak"])
    assert row(small["efficiency"], method="iif_p50")["se_peak"] == pytest.approx(1 / 4)  # one of two reaches it


def test_a_reference_that_never_rises_leaves_efficiency_undefined(tmp_path, reported):
    config = study(SMALL)
    flat = {("ppo", 0): [0.3] * 5, ("ppo", 1): [0.5, 0.4, 0.3, 0.2, 0.1]}
    write_synthetic_study(tmp_path, config, curve=lambda run: flat.get((run.method, run.seed), CURVES["ppo", 0]))
    tables = make_tables(load_study(config, tmp_path), TABLES, reported)
    assert tables["efficiency_per_seed"]["se_ave"].isna().all() and len(tables["efficiency_per_seed"]) == 4
    summary = row(tables["efficiency"], method="iif_p50")
    assert np.isnan(summary["se_ave"]) and (summary["n"], summary["expected"]) == (0, 2)
    assert row(tables["rounds_saved"], method="random", at="mean")["n"] == 0
    assert "--" in latex("efficiency", tables["efficiency"], config)
    assert row(tables["final_gains"], method="iif_p50")["n"] == 2


def test_final_returns_and_gains_by_hand(small):
    final = row(small["final_returns"], method="iif_p50")
    assert final["final_return"] == pytest.approx(0.75) and final["iqm"] == pytest.approx(0.75) and final["round"] == 4
    assert final["mean_training_return"] == pytest.approx(
        ((0.4 + 0.8 + 0.9 + 0.45) / 4 + (0.05 + 0.2 + 0.5 + 0.6 + 0.3) / 4) / 2
    )
    gains = row(small["final_gains"], method="iif_p50")
    # 0.9 - 0.8 and 0.6 - 0.7
    assert gains["gain"] == pytest.approx(0, abs=1e-12)
    assert (gains["gain_low"], gains["gain_high"]) == pytest.approx((-T2 * 0.1, T2 * 0.1))
    # of (.9, .6) against (.8, .7): two of four pairs
    assert gains["probability_of_improvement"] == pytest.approx(0.5)
    assert gains["detectable_gain"] == pytest.approx(minimum_detectable_effect(2, sd=0.1 * np.sqrt(2)))
    assert small["table_4"]["method"].tolist() == ["iif_p50"]


def test_a_gain_compares_the_same_seeds(large):
    _, _, tables = large
    rounds = tables["curves_per_seed"].query("environment == 'frozenlake' and round > 10")  # the last tenth of 12: 2
    own = rounds.groupby(["method", "seed"])["test_return"].mean()
    expected = [own["iif_p50", seed] - own["ppo", seed] for seed in (0, 1)]
    gain = row(tables["final_gains"], environment="frozenlake", method="iif_p50")
    assert gain["gain"] == pytest.approx(np.mean(expected)) and (gain["n"], gain["expected"]) == (2, 3)


def test_table_5_by_hand(small):
    # made-up runs: ppo 0.1 s sampling and 0.3 s optimisation; iif keeps 1536 of 2048: 0.2625 s, and 0.01 s influence
    table = small["table_5"].set_index("quantity")
    expected = {
        "influence_s": 0.01,
        "optimise_iif_s": 0.2625,
        "optimise_ppo_s": 0.3,
        "influence_share": 0.01 / 0.2725,
        "total_iif_s": 4 * 0.2725,
        "total_ppo_s": 4 * 0.3,
        "matching_peak_s": (2 + 4) / 2 * 0.2725,
        "rt_peak": ((1 - 2 * 0.2725 / (4 * 0.3)) + (1 - 4 * 0.2725 / (4 * 0.3))) / 2,
        "sampling_iif_s": 0.1,
        "sampling_ppo_s": 0.1,
        "total_iif_with_sampling_s": 4 * 0.3725,
        "total_ppo_with_sampling_s": 4 * 0.4,
        "matching_peak_with_sampling_s": (2 + 4) / 2 * 0.3725,
        "rt_peak_with_sampling": ((1 - 2 * 0.3725 / (4 * 0.4)) + (1 - 4 * 0.3725 / (4 * 0.4))) / 2,
    }
    assert table["value"].to_dict() == pytest.approx(expected)
    assert table.loc["rt_peak", ["paper_value", "paper_value_spread"]].tolist() == pytest.approx([0.3127, 0.0328])
    assert table.loc["total_ppo_s", "paper_value"] == 93.85
    assert table["peak_unreached"].to_dict() == {name: int("peak" in name) for name in expected}


def test_runtimes_are_those_of_timed_rounds_not_of_runs(tmp_path, reported):
    config = study(SMALL)
    write_synthetic_study(tmp_path, config, curve=lambda run: CURVES[run.method, run.seed])
    path = tmp_path / "results" / "made_up" / "timings" / "timings.csv"
    timed = pd.read_csv(path)
    timed["optimise_s"] = timed["optimise_s"].where(timed["repeat"] == 0, 10.0)  # seed 1 has the rounds of repeat 1
    timed.to_csv(path, index=False)
    table = make_tables(load_study(config, tmp_path), TABLES, reported)["runtimes_per_seed"]
    assert set(table["method"]) == {"ppo", "iif_p50"}  # random was not timed
    own = table.set_index(["method", "seed"])
    assert own["total_s"].to_dict() == pytest.approx(
        {("ppo", 0): 4 * 0.3, ("ppo", 1): 40, ("iif_p50", 0): 4 * 0.2725, ("iif_p50", 1): 4 * 10.01}
    )
    assert own.loc[("iif_p50", 1), "rt_peak"] == pytest.approx(1 - 4 * 10.01 / (4 * 10))

    path.unlink()
    made = make_tables(load_study(config, tmp_path), TABLES, reported)
    assert made["runtimes"].empty and made["table_5"].empty and made["runtimes_per_seed"].empty


def test_order_follows_the_study_and_p(large):
    config, _, tables = large
    swept = tables["table_2"][["environment", "method", "drop_percent"]].to_numpy().tolist()
    p = [["iif_p12_5", 12.5], ["iif_p50", 50.0], ["iif_p100", 100.0]]
    assert swept == [[environment, *pair] for environment in ("acrobot", "frozenlake") for pair in p]
    assert tables["efficiency_per_seed"]["environment"].unique().tolist() == ["acrobot", "frozenlake", "minigrid_adam"]
    assert tables["table_5"]["environment"].unique().tolist() == ["acrobot", "frozenlake", "minigrid_adam"]


def test_table_3_has_the_adam_runs(large):
    _, _, tables = large
    adam = row(tables["table_3"])
    assert (adam["environment"], adam["method"]) == ("minigrid_adam", "iif_p12_5")
    assert (adam["paper_se_ave"], adam["paper_se_peak"]) == pytest.approx((0.241, 0.133))
    runtimes = row(tables["runtimes"], environment="minigrid_adam", method="iif_p12_5")
    assert runtimes["paper_rt_peak"] == pytest.approx(0.185)


def test_missing_runs_are_listed_and_counted(large):
    _, _, tables = large
    missing = tables["missing_runs"][["environment", "method", "seed"]].to_numpy().tolist()
    assert missing == [["acrobot", "random", 1], ["frozenlake", "ppo", 2]]
    assert tables["missing_runs"]["reason"].str.match(r"no folder seed\d-[0-9a-f]{8}$").all()
    first = row(tables["curves_summary"], environment="acrobot", method="random", round=0)
    assert (first["n"], first["expected"]) == (2, 3)
    # without the standard run of its seed a run is compared with nothing
    counts = tables["efficiency"].set_index(["environment", "method"])[["n", "expected"]]
    assert counts.loc[("frozenlake", "iif_p50")].tolist() == [2, 3]
    assert counts.loc[("acrobot", "random")].tolist() == [2, 3]
    assert counts.loc[("acrobot", "iif_p50")].tolist() == [3, 3]
    assert len(tables["runs"]) == 2 * 5 * 3 + 2 * 2 and (tables["runs"]["reason"] != "").sum() == 2


def test_one_seed_has_no_interval(tmp_path, reported):
    config = study(SMALL | {"seeds": [0]})
    write_synthetic_study(tmp_path, config, curve=lambda run: CURVES[run.method, run.seed])
    tables = make_tables(load_study(config, tmp_path), TABLES, reported)
    curves, summary = tables["curves_summary"], row(tables["efficiency"], method="iif_p50")
    assert curves[["low", "high"]].isna().all(axis=None) and (curves["n"] == 1).all()
    assert summary["se_ave"] == pytest.approx(1 / 3)
    assert summary[["se_ave_sd", "se_ave_low", "se_ave_high"]].isna().all()
    gain = row(tables["final_gains"], method="iif_p50")
    assert np.isnan([gain["gain_low"], gain["detectable_gain"]]).all()


def test_a_study_without_results_gives_every_table(tmp_path, reported):
    config = study(SMALL)
    tables = make_tables(load_study(config, tmp_path), TABLES, reported)
    assert set(tables) == set(TABLES)
    for name, table in tables.items():
        write_table(table, tmp_path / f"{name}.csv")
        assert (tmp_path / f"{name}.csv").read_text().startswith("environment,")
    assert tables["efficiency"][["n", "expected"]].to_numpy().tolist() == [[0, 2], [0, 2]]
    assert len(tables["missing_runs"]) == 6


def test_rounds_that_were_not_evaluated_are_left_out(tmp_path, reported):
    config = study(SMALL | {"evaluation_every": 2})
    write_synthetic_study(tmp_path, config, curve=lambda run: CURVES[run.method, run.seed])
    tables = make_tables(load_study(config, tmp_path), TABLES, reported)
    assert tables["curves_summary"].query("method == 'ppo'")["round"].tolist() == [0, 2, 4]
    # levels .4 .8 at rounds 2 4, both reached at round 2
    assert row(tables["efficiency_per_seed"], method="iif_p50", seed=0)["se_ave"] == pytest.approx((0 + 1 / 2) / 2)


def test_the_same_runs_give_the_same_bytes(large, tmp_path, reported):
    config, root, tables = large
    again = make_tables(load_study(config, root), reversed(TABLES), reported)
    for name in TABLES:
        write_table(tables[name], tmp_path / f"{name}_1.csv")
        write_table(again[name], tmp_path / f"{name}_2.csv")
        assert (tmp_path / f"{name}_1.csv").read_bytes() == (tmp_path / f"{name}_2.csv").read_bytes()
        if name in LATEX:
            read = pd.read_csv(tmp_path / f"{name}_1.csv")
            assert latex(name, read, config).count("\n") == latex(name, tables[name], config).count("\n")


def test_published_numbers_feed_nothing(large, reported):
    config, root, tables = large
    data = reported.model_dump(mode="json")
    data["figure_6b"]["frozenlake"]["iif_p50"]["se_ave"] = [99.0, 1.0]
    data["table_2"]["acrobot"]["iif_p50"]["se_peak"] = [99.0, 1.0]
    other = make_tables(load_study(config, root), TABLES, Reported.model_validate(data))
    changed = {}
    for name, table in tables.items():
        different = [c for c in table if not table[c].equals(other[name][c])]
        if different:
            changed[name] = different
    assert changed == {
        "efficiency": ["paper_se_ave", "paper_se_ave_spread"],
        "table_2": ["paper_se_peak", "paper_se_peak_spread"],
    }


def test_write_table_fixes_how_numbers_look(tmp_path):
    frame = pd.DataFrame({"a": [-0.0, 1 / 3, 1e-12, nan], "b": [1, 2, 3, 4], "c": ["x", "", "y,z", "%"]})
    write_table(frame, tmp_path / "deep" / "table.csv")
    assert (tmp_path / "deep" / "table.csv").read_bytes() == b'a,b,c\n0,1,x\n0.333333,2,\n1e-12,3,"y,z"\n,4,%\n'
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["table.csv"]


def test_unknown_names_are_refused(large):
    config, root, tables = large
    with pytest.raises(ConfigError, match="unknown table 'table_9'"):
        make_tables(load_study(config, root), ["table_9"])
    with pytest.raises(ConfigError, match="unknown printed table 'runs'"):
        latex("runs", tables["runs"], config)


def test_reported_numbers_are_the_papers(reported):
    assert reported.table_2["minigrid"]["iif_p100"].se_ave == (75.4, 3.6)
    assert reported.table_2["lunarlander"]["iif_p12_5"].se_ave == (28.2, 1.3)
    assert reported.table_4["bipedalwalker"]["iif_p6_25"] == (24.40, 75.99)
    assert reported.table_5["minigrid"].rt_peak == (71.59, 1.05)
    assert reported.rlhf["to_match_ppo"]["runtime"] == (16.82, 1.32)


def test_a_misspelt_key_of_reported_numbers_is_named(tmp_path):
    text = (CATALOGUE / "paper_reported.yaml").read_text()
    (tmp_path / "paper_reported.yaml").write_text(text.replace("table_4:", "table_four:"))
    with pytest.raises(ConfigError, match="table_4"):
        load_reported(tmp_path)


def test_latex_rows_by_value(small):
    lines = latex("efficiency", small["efficiency"], study(SMALL)).split("\n")
    assert lines[0] == r"\begin{tabular}{llrrrrrrr}" and lines[-2] == r"\end{tabular}"
    assert lines[4] == (
        r"FrozenLake & IIF, p = 50 \% & 2 & $\le 16.7 \pm 23.6$ & $[-195.1, 228.4]$ & $34.0 \pm 2.0$"
        r" & $\le 25.0 \pm 35.4$ & $[-292.7, 342.7]$ & $19.2 \pm 5.9$ \\"
    )
    table_5 = latex("table_5", small["table_5"], study(SMALL))
    assert r"Influence, per round (s) & 2 & $0.010 \pm 0.000$ & $0.11 \pm 0.01$ \\" in table_5
    assert r"IIF until PPO's peak (s) & 2 & $\ge 0.818 \pm" in table_5
    assert r"RT$_\mathrm{peak}$ (\%) & 2 & $\le 31.9 \pm" in table_5


@pytest.mark.parametrize("name", [name for name in LATEX if name in TABLES])
def test_latex_is_well_formed(large, name):
    config, _, tables = large
    text = latex(name, tables[name], config)
    columns = len(re.match(r"\\begin\{tabular\}\{([lr]+)\}", text)[1])
    rows = [line for line in text.split("\n") if line.endswith(r"\\")]
    assert len(rows) == 1 + len(tables[name])
    for line in rows:
        assert len(re.findall(r"(?<!\\)&", line)) == columns - 1
        assert line.count("$") % 2 == 0 and line.count("{") == line.count("}")
        assert not re.search(r"(?<!\\)[%#_](?!\\mathrm)", line)
    assert "nan" not in text and "-0.0$" not in text


def test_latex_escapes_labels():
    assert escape("a_b & 50 % $x$ #1 {y} ~^\\") == (
        r"a\_b \& 50 \% \$x\$ \#1 \{y\} \textasciitilde{}\textasciicircum{}\textbackslash{}"
    )


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles_on_its_own(large, tmp_path):
    config, _, tables = large
    names = [name for name in LATEX if name in TABLES]
    body = "\n\n".join(rf"\resizebox{{\textwidth}}{{!}}{{{latex(name, tables[name], config)}}}" for name in names)
    document = rf"\documentclass{{article}}\usepackage{{booktabs,graphicx}}\begin{{document}}{body}\end{{document}}"
    (tmp_path / "tables.tex").write_text(document)
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "tables.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]


def test_default_curves_rise_sooner_for_iif(large):
    """The made-up data is what its users take it for."""
    config, _, _ = large
    runs = {(run.environment, run.method, run.seed): run for run in config.runs}
    ppo, iif = (logistic(runs["frozenlake", method, 0]) for method in ("ppo", "iif_p50"))
    assert ppo[0] == iif[0] == 0 and ppo[4] < iif[4] and min(ppo[-1], iif[-1]) > 0.8


def test_a_study_of_standard_ppo_alone_has_empty_comparisons_with_all_their_columns(tmp_path):
    config = study({"environments": ["frozenlake"], "methods": ["ppo"], "seeds": [0], "rounds": 2})
    write_synthetic_study(tmp_path, config)
    tables = make_tables(load_study(config, tmp_path))
    for name in ("efficiency", "table_2", "table_3", "table_4", "controls"):
        assert len(tables[name]) == 0 and {"environment", "method"} <= set(tables[name].columns), name
