"""What the figures of the verdicts and of the controls show, read back from their artists."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from pictures import assert_legible
from rl_influence import figures
from rl_influence.analysis.claims import CLAIM_TABLES, judge_study, load_claims
from rl_influence.analysis.curves import load_study
from rl_influence.analysis.reported import load_reported
from rl_influence.analysis.tables import make_tables
from rl_influence.figures import fig_claims, fig_controls
from rl_influence.publish import ledger
from synthetic import CATALOGUE, study, write_synthetic_study

METHODS = ["ppo", "iif_p50", "random", "ppo_noclip", "iif_p50_noclip", "ppo_matched_updates", "iif_matched_updates"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Config and tables of a study with one missing run."""
    blocks = {"frozenlake": METHODS, "acrobot": METHODS}
    config = study(
        *({"environments": [e], "methods": methods, "seeds": [0, 1, 2], "rounds": 10} for e, methods in blocks.items())
    )
    root, lost = tmp_path_factory.mktemp("verdicts"), ("acrobot", "ppo", 1)
    write_synthetic_study(root, config, skip=lambda run: (run.environment, run.method, run.seed) == lost)
    tables = make_tables(load_study(config, root), reported=load_reported(CATALOGUE))
    return config, tables | judge_study(load_claims(CATALOGUE), config, tables, load_reported(CATALOGUE))


@pytest.fixture(scope="module")
def drawn(made):
    config, tables = made
    return {name: figures.make(name, tables, config) for name in ("fig_claims", "fig_controls")}


@pytest.mark.parametrize("name", ["fig_claims", "fig_controls"])
def test_nothing_is_cut_off_or_covered_or_too_small(drawn, name):
    assert_legible(drawn[name])


def test_every_claim_has_its_verdict_in_its_colour(made, drawn):
    claims = made[1]["claims"]
    bold = [text for text in drawn["fig_claims"].axes[0].texts if text.get_fontweight() == "bold"]
    shown = [(text.get_text(), to_hex(text.get_color())) for text in bold if not text.get_text().isdigit()]
    assert shown == [(verdict, fig_claims.VERDICTS.get(verdict, fig_claims.GREY)) for verdict in claims["verdict"]]
    assert [text.get_text() for text in bold if text.get_text().isdigit()] == [str(n) for n in claims["claim"]]
    assert len({*fig_claims.VERDICTS.values(), fig_claims.GREY}) == 4


def one_claim(outcomes: dict[str, list[tuple[str, str, str]]], **columns) -> dict[str, pd.DataFrame]:
    """The tables of one claim: environment -> (case, role, outcome) of its checks."""
    rows = [(e, *check) for e, checks in outcomes.items() for check in checks]
    checks = pd.DataFrame(rows, columns=["environment", "case", "role", "outcome"])
    values = {"claim": 1, "n": 3, "value": 0.1, "low": 0.0, "high": 0.2, "threshold": 0, "margin": 0.05}
    checks = checks.assign(**values | {"claimed": "above", "missing": ""} | columns)
    return {
        "claims": pd.DataFrame([{"claim": 1, "title": "It works", "verdict": "partly"}]),
        "claims_checks": checks,
    }


@pytest.mark.parametrize(
    ("checks", "marks"),
    [
        ([("", "decides", "holds"), ("", "completes", "holds")], [("✓", fig_claims.BLUE)]),
        ([("", "decides", "holds"), ("", "completes", "fails")], [("(✓)", fig_claims.AMBER)]),
        ([("", "decides", "holds"), ("", "vetoes", "fails")], [("✗", "#d55e00")]),
        ([("", "decides", "fails"), ("", "beside", "holds")], [("✗", "#d55e00")]),
        ([("", "decides", "undecided"), ("", "requires", "not run")], [("?", fig_claims.GREY)]),
        ([("", "decides", "incomplete")], [("…", fig_claims.GREY)]),
        ([("", "decides", "not applicable")], [("n/a", fig_claims.GREY)]),
        ([("", "decides", "not run")], [("–", fig_claims.GREY)]),
        ([("H1", "decides", "holds"), ("H2", "decides", "holds")], [("✓", fig_claims.BLUE)] * 2),
        ([("H2", "decides", "fails"), ("H1", "decides", "holds")], [("✗", "#d55e00"), ("✓", fig_claims.BLUE)]),
        ([("H1", "decides", "holds"), ("H2", "decides", "fails")], [("✓", fig_claims.BLUE), ("✗", "#d55e00")]),
    ],
)
def test_a_cell_says_how_an_environment_counts(made, checks, marks):
    figure = figures.make("fig_claims", one_claim({"frozenlake": checks}), made[0])
    texts = [text for text in figure.axes[0].texts if text.get_fontsize() == fig_claims.SIGN]
    assert [(text.get_text(), to_hex(text.get_color())) for text in texts] == marks
    places = [text.get_position() for text in texts]
    assert len({x for x, _ in places}) == 1 and sorted(places) == places  # below each other, the first case above


def test_the_signs_are_those_of_all_pages_and_are_explained(made, drawn):
    signs = {status: sign for status, (sign, _, _) in fig_claims.SIGNS.items()}
    assert signs | {"": ""} == ledger.MARKS | {"absent": "–"}
    (text,) = drawn["fig_claims"].texts
    words = text.get_text().replace("\n", " ")
    for sign, _, meaning in fig_claims.SIGNS.values():
        assert f"{sign} {meaning}" in words
    assert "Two signs are two cases (claims 5, 6: H1, then H2; claim 21: Adam, then no clipping)." in words
    assert "no effect" in drawn["fig_claims"].axes[1].get_xlabel()


def test_two_signs_are_named_in_the_order_of_the_claims_checks(made):
    """An environment that is another's task with Adam stands in the other's column."""
    adam, plain = ("Adam", "decides", "holds"), ("no clipping", "decides", "fails")
    figure = figures.make("fig_claims", one_claim({"minigrid_adam": [adam], "minigrid": [plain]}), made[0])
    signs = [text for text in figure.axes[0].texts if text.get_fontsize() == fig_claims.SIGN]
    assert [text.get_text() for text in signs] == ["✓", "✗"]
    assert "Two signs are two cases (claim 1: Adam, then no clipping)." in figure.texts[0].get_text().replace("\n", " ")
    assert_legible(figure)


def test_effects_are_in_margins_and_point_to_what_is_claimed(made):
    checks = {"frozenlake": [("", "decides", "holds")], "acrobot": [("", "decides", "fails")]}
    for claimed, sign in (("above", 1), ("below", -1)):
        figure = figures.make("fig_claims", one_claim(checks, claimed=claimed), made[0])
        points = [line for line in figure.axes[1].lines if line.get_marker() in ("o", "s")]
        assert [line.get_xdata()[0] for line in points] == pytest.approx([2 * sign, 2 * sign])
        assert [to_hex(line.get_color()) for line in points] == [
            fig_claims.OUTCOMES["holds"],
            fig_claims.OUTCOMES["fails"],
        ]
        bars = [line.get_xdata() for line in figure.axes[1].lines if line.get_linewidth() == 0.8]
        assert len(bars) == 2 and sorted(bars[0]) == pytest.approx(sorted([0, 4 * sign]))
    far = figures.make("fig_claims", one_claim(checks, value=9.0, low=-9.0, high=30.0), made[0]).axes[1]
    assert [line.get_marker() for line in far.lines if line.get_marker() in "<>"] == ["<", ">", ">"] * 2
    sized = figures.make("fig_claims", one_claim(checks, margin=0.0), made[0]).axes[1]
    assert not [line for line in sized.lines if line.get_marker() in ("o", "s")]


def test_one_run_alone_is_enough_for_the_claims(tmp_path):
    config = study({"environments": ["frozenlake"], "methods": ["ppo"], "seeds": [0], "rounds": 2})
    write_synthetic_study(tmp_path, config)
    tables = make_tables(load_study(config, tmp_path), reported=load_reported(CATALOGUE))
    found = judge_study(load_claims(CATALOGUE), config, tables, load_reported(CATALOGUE))
    assert set(found["claims"]["verdict"]) == {"not run"} and set(found) == set(CLAIM_TABLES)
    figures.make("fig_claims", found, config)
    (text,) = figures.make("fig_controls", tables, config).texts
    assert text.get_text().startswith("fig_controls: nothing to draw: no two methods that differ in one thing")


def test_points_and_bars_of_the_controls(made, drawn):
    _, tables = made
    figure = drawn["fig_controls"]
    places = [(e, q) for e in ("frozenlake", "acrobot") for q in ("rounds_saved", "mean_training_return")]
    for axis, (environment, quantity) in zip(figure.axes, places, strict=True):
        table = tables["controls"]
        rows = table[(table["environment"] == environment) & (table["quantity"] == quantity)].to_dict("records")
        scale = 100 if quantity == "rounds_saved" else 1
        points = {line.get_ydata()[0]: line for line in axis.lines if line.get_marker() not in ("None", None, "")}
        bars = {line.get_ydata()[0]: line for line in axis.lines if line.get_linewidth() == 1.1}
        assert len(points) == len(bars) == len(rows)
        for place, row in enumerate(rows):
            np.testing.assert_allclose(points[place].get_xdata(), [scale * row["value"]])
            assert to_hex(points[place].get_color()) == fig_controls.EFFECTS[row["effect"]][0]
            assert (to_hex(points[place].get_markerfacecolor()) == "#ffffff") == bool(row["unreached"])
            np.testing.assert_allclose(bars[place].get_xdata(), [scale * row["low"], scale * row["high"]])
        if quantity == "rounds_saved":
            labels = [label.get_text() for label in axis.get_yticklabels()]
            for label, row in zip(labels, rows, strict=True):
                count = "3" if row["n"] == 3 else "2 of 3"
                assert label == f"{row['contrast']}, n = {count}"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.texts] == [*fig_controls.EFFECTS, "a bound"]
    assert "Missing runs: 1 of Acrobot, PPO (missing_runs.csv)." in figure.notes
    assert_legible(figure)


def test_tables_come_back_from_files_as_they_were(made, tmp_path):
    """The figure of the written tables is the figure of the tables in memory."""
    config, tables = made
    for name in CLAIM_TABLES:
        tables[name].to_csv(tmp_path / f"{name}.csv", index=False)
    read = {name: pd.read_csv(tmp_path / f"{name}.csv", keep_default_na=False, na_values=[""]) for name in CLAIM_TABLES}
    again = figures.make("fig_claims", read, config)
    first = figures.make("fig_claims", tables, config)
    assert [text.get_text() for text in again.texts] == [text.get_text() for text in first.texts]
