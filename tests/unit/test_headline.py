"""What the headline shows, read back from its artists."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from pictures import assert_legible, legend_of
from rl_influence import figures
from rl_influence.analysis.curves import load_study
from rl_influence.analysis.reported import load_reported
from rl_influence.analysis.tables import make_tables
from rl_influence.figures import headline, style
from synthetic import CATALOGUE, study, write_synthetic_study

MANY = {"environments": ["frozenlake", "acrobot"], "methods": ["ppo", "iif_p50", "random"], "seeds": [0, 1, 2, 3]}
FEW = {"environments": ["minigrid"], "methods": ["ppo", "iif_p12_5", "random"], "seeds": [0, 1]}


def drawn(root, *blocks, **arguments):
    config = study(*(block | {"rounds": 12} for block in blocks))
    write_synthetic_study(root, config, **arguments)
    tables = make_tables(load_study(config, root), reported=load_reported(CATALOGUE))
    return figures.make("headline", tables, config), tables


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return drawn(tmp_path_factory.mktemp("headline"), MANY, FEW)


def test_nothing_is_cut_off_or_covered_or_too_small(made):
    assert_legible(made[0])


def test_curves_of_all_environments_together(made):
    figure, tables = made
    axis, table = figure.axes[0], tables["aggregate_curves"]
    for role, color in (("ppo", "#000000"), ("chosen", style.STYLES["iif"][0]), ("random", style.STYLES["random"][0])):
        (line,) = [x for x in axis.lines if to_hex(x.get_color()) == color]
        own = table[table["method"] == role]
        np.testing.assert_allclose(line.get_xdata(), 100 * own["share"])
        np.testing.assert_allclose(line.get_ydata(), own["iqm"])
    assert axis.get_title() == "2 environments \u00d7 4 seeds"  # the third has too few
    assert list(legend_of(figure))[:3] == ["PPO", "IIF", "Random"]


def test_a_row_for_each_environment_and_one_for_all(made):
    figure, tables = made
    _, saved, chances = figure.axes
    table = tables["improvement"].query("method == 'chosen'").reset_index(drop=True)
    labels = [label.get_text() for label in saved.get_yticklabels()]
    assert labels == ["FrozenLake, n = 4", "Acrobot, n = 4", "MiniGrid, n = 2", "all"]
    circles = [x for x in saved.lines if x.get_marker() == "o"]
    np.testing.assert_allclose([x.get_xdata()[0] for x in circles], 100 * table["rounds_saved"])
    diamonds = [x for x in chances.lines if x.get_marker() == "D"]
    np.testing.assert_allclose([x.get_xdata()[0] for x in diamonds], table["probability"])
    efficiency = tables["efficiency"].set_index(["environment", "method"])
    ours = [
        efficiency.loc[key] for key in (("frozenlake", "iif_p50"), ("acrobot", "iif_p50"), ("minigrid", "iif_p12_5"))
    ]
    points = [x for x in saved.lines if x.get_marker() in ("s", "<")]
    np.testing.assert_allclose([x.get_xdata()[0] for x in points], [100 * row["se_ave"] for row in ours])
    for point, row in zip(points, ours, strict=True):
        assert (to_hex(point.get_markerfacecolor()) == "#ffffff") == (row["unreached"] > 0)
    paper = [x.get_xdata()[0] for x in saved.lines if x.get_color() == style.PAPER["color"] and x.get_marker() == "D"]
    assert paper == pytest.approx([100 * row["paper_se_ave"] for row in ours])
    grey = [
        patch.get_y() + 0.5
        for patch in saved.patches
        if patch.get_facecolor()[:3] == pytest.approx((0.953,) * 3, abs=0.01)
    ]
    assert grey == [2]


def test_unequal_numbers_of_seeds_are_said_one_by_one(tmp_path):
    more = {"environments": ["minigrid"], "methods": ["ppo", "iif_p12_5", "random"], "seeds": [0, 1, 2]}
    figure, _ = drawn(tmp_path / "more", MANY, more)
    assert figure.axes[0].get_title() == "3 environments,\n4 + 4 + 3 seeds"
    assert_legible(figure)
    figure, _ = drawn(tmp_path / "less", MANY, skip=lambda run: (run.method, run.seed) == ("random", 3))
    assert figure.axes[0].get_title() == "2 environments \u00d7 4 seeds"  # of IIF and PPO


def test_no_marker_is_cut_in_half_and_all_are_in_the_legend(made):
    figure, tables = made
    left, right = figure.axes[2].get_xlim()
    half = 0.75 * style.SETTINGS["lines.markersize"] / 72 * figure.dpi / figure.axes[2].get_window_extent().width
    assert left + half * (right - left) < 0 and 1 < right - half * (right - left)
    assert (tables["efficiency"]["unreached"] > 0).any() and "SE_ave, at most" in legend_of(figure)
    assert figure.axes[2].get_xlabel().replace("\n", " ") == "P(IIF's mean training return > PPO's)"


def test_without_seeds_enough_there_is_no_curve_and_without_runs_nothing(tmp_path):
    figure, _ = drawn(tmp_path / "few", FEW)
    assert not figure.axes[0].lines and figure.axes[0].texts[0].get_text() == "too few seeds"
    assert_legible(figure)
    figure, _ = drawn(tmp_path / "none", MANY, skip=lambda run: True)
    assert figure.texts[0].get_text().startswith("headline: nothing to draw: IIF has no finished run")


def test_its_tables_are_read_from_files(made, tmp_path):
    tables = made[1]
    for name in headline.READS:
        tables[name].to_csv(tmp_path / f"{name}.csv", index=False)
    read = {n: pd.read_csv(tmp_path / f"{n}.csv", keep_default_na=False, na_values=[""]) for n in headline.READS}
    again = figures.make("headline", read, study(MANY | {"rounds": 12}, FEW | {"rounds": 12}))
    for first, second in zip(made[0].axes, again.axes, strict=True):
        for a, b in zip(first.lines, second.lines, strict=True):
            np.testing.assert_allclose(a.get_xydata(), b.get_xydata())
