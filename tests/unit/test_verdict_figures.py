"""What the figures of the verdicts and of the controls show, read back from their artists."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from rl_influence import figures
from rl_influence.analysis.claims import CLAIM_TABLES, judge_study, load_claims, number_text
from rl_influence.analysis.curves import load_study
from rl_influence.analysis.reported import load_reported
from rl_influence.analysis.tables import make_tables
from rl_influence.figures import FigureError, fig_claims, fig_controls
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


def test_nothing_is_cut_off(drawn):
    for figure in drawn.values():
        renderer, page = figure.canvas.get_renderer(), figure.bbox
        boxes = [text.get_window_extent(renderer) for text in figure.texts if text.get_text()]
        boxes += [axis.get_tightbbox(renderer) for axis in figure.axes]
        for box in boxes:
            assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1, box


def test_lines_of_the_claims_do_not_touch(drawn):
    figure = drawn["fig_claims"]
    renderer = figure.canvas.get_renderer()
    boxes = [text.get_window_extent(renderer) for text in figure.texts if text.get_text()]
    for i, box in enumerate(boxes):
        for other in boxes[i + 1 :]:
            width = min(box.x1, other.x1) - max(box.x0, other.x0)
            height = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert width < 2 or height < 4, f"{box} and {other}"  # ascenders may meet descenders


def test_every_claim_has_its_verdict_in_its_colour(made, drawn):
    _, tables = made
    texts = drawn["fig_claims"].texts
    shown = [(text.get_text().strip(), to_hex(text.get_color())) for text in texts if text.get_fontweight() == "bold"]
    assert shown == [(verdict, fig_claims.COLORS[verdict]) for verdict in tables["claims"]["verdict"]]
    assert len({*fig_claims.COLORS.values()}) == 4


def test_checks_show_their_number_the_papers_and_what_is_absent(made, drawn):
    _, tables = made
    words = " ".join(text.get_text() for text in drawn["fig_claims"].texts).replace("\u00a0", " ")
    words = " ".join(words.split())
    checks = tables["claims_checks"]
    tested = checks[(checks["n"] > 0) & checks["role"].isin(["decides", "vetoes", "completes"])]
    assert len(tested)
    for row in tested.to_dict("records"):
        assert number_text(row) in words
    assert "34 ± 2" in words
    assert "not in this study: minigrid, highway, lunarlander, bipedalwalker" in words
    assert "missing runs: acrobot ppo seed 1" in words


def test_one_run_alone_is_enough_for_the_claims(tmp_path):
    config = study({"environments": ["frozenlake"], "methods": ["ppo"], "seeds": [0], "rounds": 2})
    write_synthetic_study(tmp_path, config)
    tables = make_tables(load_study(config, tmp_path), reported=load_reported(CATALOGUE))
    found = judge_study(load_claims(CATALOGUE), config, tables, load_reported(CATALOGUE))
    assert set(found["claims"]["verdict"]) == {"not run"} and set(found) == set(CLAIM_TABLES)
    figures.make("fig_claims", found, config)
    with pytest.raises(FigureError, match="fig_controls: nothing to draw"):
        figures.make("fig_controls", tables, config)


def test_points_and_bars_of_the_controls(made, drawn):
    _, tables = made
    figure = drawn["fig_controls"]
    places = [(e, q) for e in ("frozenlake", "acrobot") for q in ("se_ave", "mean_training_return")]
    for axis, (environment, quantity) in zip(figure.axes, places, strict=True):
        table = tables["controls"]
        rows = table[(table["environment"] == environment) & (table["quantity"] == quantity)].to_dict("records")
        scale = 100 if quantity == "se_ave" else 1
        points = {line.get_ydata()[0]: line for line in axis.lines if line.get_marker() not in ("None", None, "")}
        bars = {line.get_ydata()[0]: line for line in axis.lines if line.get_linewidth() == 1.1}
        assert len(points) == len(bars) == len(rows)
        for place, row in enumerate(rows):
            np.testing.assert_allclose(points[place].get_xdata(), [scale * row["value"]])
            assert to_hex(points[place].get_color()) == fig_controls.COLORS[row["effect"]][0]
            np.testing.assert_allclose(bars[place].get_xdata(), [scale * row["low"], scale * row["high"]])
        if quantity == "se_ave":
            labels = [label.get_text() for label in axis.get_yticklabels()]
            for label, row in zip(labels, rows, strict=True):
                count = "3" if row["n"] == 3 else "2 of 3"
                assert label == f"{row['contrast']}{'*' if row['unreached'] else ''}, n = {count}"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.texts] == list(fig_controls.COLORS)
    notes = " ".join(text.get_text() for text in figure.texts).replace("\n", " ")
    assert "Missing runs: Acrobot PPO seed 1." in notes


def test_tables_come_back_from_files_as_they_were(made, tmp_path):
    """The figure of the written tables is the figure of the tables in memory."""
    config, tables = made
    for name in CLAIM_TABLES:
        tables[name].to_csv(tmp_path / f"{name}.csv", index=False)
    read = {name: pd.read_csv(tmp_path / f"{name}.csv", keep_default_na=False, na_values=[""]) for name in CLAIM_TABLES}
    again = figures.make("fig_claims", read, config)
    first = figures.make("fig_claims", tables, config)
    assert [text.get_text() for text in again.texts] == [text.get_text() for text in first.texts]
