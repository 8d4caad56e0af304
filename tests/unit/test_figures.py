"""What figures of curves and reductions show, read back from their artists; their files; how they are found."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex, to_rgba

from pictures import assert_legible, legend_of
from rl_influence import figures
from rl_influence.analysis.claims import level_of
from rl_influence.analysis.curves import load_study
from rl_influence.analysis.registry import ANALYSIS_OF
from rl_influence.analysis.reported import load_reported
from rl_influence.analysis.tables import TABLES, make_tables, write_table
from rl_influence.config import Config, ConfigError
from rl_influence.figures import panels, reductions, style
from rl_influence.figures.panels import settled
from synthetic import CATALOGUE, study, write_synthetic_study

CURVES = {  # FrozenLake, 4 rounds: (method, seed) -> test returns
    ("ppo", 0): [0.0, 0.2, 0.4, 0.6, 0.8],
    ("ppo", 1): [0.1, 0.1, 0.5, 0.3, 0.7],
    ("iif_p50", 0): [0.0, 0.4, 0.8, 0.9, 0.9],
    ("iif_p50", 1): [0.1, 0.2, 0.5, 0.6, 0.8],
    ("random", 0): [0.0, 0.1, 0.2, 0.3, 0.4],
    ("random", 1): [0.1, 0.1, 0.1, 0.1, 0.2],
}
SMALL = {"environments": ["frozenlake"], "methods": ["ppo", "iif_p50", "random"], "seeds": [0, 1], "rounds": 4}
EVERYTHING = (
    {
        "environments": ["frozenlake", "minigrid", "acrobot"],
        "methods": ["ppo", "iif_p6_25", "iif_p12_5", "iif_p25", "iif_p50", "iif_p100", "random", "td_error"],
        "seeds": [0, 1, 2],
        "rounds": 6,
    },
    {"environments": ["frozenlake"], "methods": ["advantage_h1", "advantage_h2"], "seeds": [0], "rounds": 6},
)
# figures of curves; those of single rounds and of verdicts have tests of their own
OF_CURVES = [
    name
    for name, figure in figures.FIGURES.items()
    if {"curves_summary", "efficiency"} & {*figure.reads} and not {*figure.reads} & {*ANALYSIS_OF}
]
IIF, PPO, RANDOM = (style.STYLES[name][0] for name in ("iif", "ppo", "random"))

ROOT = Path(__file__).parents[2]
COMMITTED = {name: Config(ROOT / f"config/{name}.yaml") for name in ("paper", "confirm")}


def files_of(name, root):
    """The tables that a figure reads, and the list of runs: name -> file."""
    return {t: root / "tables" / f"{t}.csv" for t in (*figures.FIGURES[name].reads, "runs")}


def tables_of(config, root, **arguments):
    write_synthetic_study(root, config, **arguments)
    tables = make_tables(load_study(config, root), TABLES, load_reported(CATALOGUE))
    for name, table in tables.items():
        write_table(table, root / "tables" / f"{name}.csv")
    return tables


def drawn(name, root, config):
    """The figure of the tables below `root`, as files have them."""
    tables = {t: pd.read_csv(f, keep_default_na=False, na_values=[""]) for t, f in files_of(name, root).items()}
    return figures.make(name, tables, config)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """FrozenLake; the random run of seed 1 is missing."""
    config, root = study(SMALL), tmp_path_factory.mktemp("small")
    lost = ("random", 1)
    tables_of(config, root, curve=lambda r: CURVES[r.method, r.seed], skip=lambda r: (r.method, r.seed) == lost)
    return config, root


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    config, root = study(*EVERYTHING), tmp_path_factory.mktemp("everything")
    lost = [("acrobot", "ppo", 0), ("minigrid", "iif_p25", 2)]
    tables_of(config, root, skip=lambda r: (r.environment, r.method, r.seed) in lost)
    return config, root


def line_of(axis, color, width=1.3):
    (line,) = [x for x in axis.lines if to_hex(x.get_color()) == color and x.get_linewidth() == width]
    return line


def markers_of(figure):
    """Label -> marker of the legend."""
    (legend,) = figure.legends
    return {t.get_text(): h.get_marker() for t, h in zip(legend.texts, legend.legend_handles, strict=True)}


def said(figure):
    """The text below a figure."""
    return figure.texts[-1].get_text().replace("\n", " ")


def marked(axis, marker, hollow=False):
    """x (or y) of all points with a marker, filled or hollow."""
    lines = [x for x in axis.lines if x.get_marker() == marker]
    return [x for x in lines if (to_hex(x.get_markerfacecolor()) == "#ffffff") == hollow]


# Finding them


def test_a_figure_is_a_module_and_nothing_else(tmp_path):
    (tmp_path / "mine.py").write_text('"""My caption."""\n\nREADS = ("runs", "efficiency")\n')
    (tmp_path / "helper.py").write_text('"""No figure."""\n\nPARTS = ("runs",)\n')
    assert figures.discover(tmp_path) == {"mine": figures.Entry(("runs", "efficiency"), "My caption.")}


def test_every_figure_has_a_caption_and_a_function():
    for name, figure in figures.FIGURES.items():
        module = __import__(f"rl_influence.figures.{name}", fromlist=["draw"])
        assert callable(module.draw) and module.READS == figure.reads
        assert len(figure.caption) > 60 and figure.caption[0].isupper() and figure.caption.endswith("."), name


def test_an_unknown_figure_or_one_without_its_analysis_is_refused():
    config = Config({"study": "made_up", "grid": [SMALL], "figures": ["fig06_return"]}, CATALOGUE, name="my.yaml")
    with pytest.raises(ConfigError, match="my.yaml: unknown figure 'fig06_return', did you mean 'fig06_returns'"):
        figures.check(config)
    config = Config({"study": "made_up", "grid": [SMALL], "figures": ["fig03_diagnosis"]}, CATALOGUE)
    with pytest.raises(ConfigError, match="figure fig03_diagnosis needs the analysis diagnosis"):
        figures.check(config)


# Curves


def test_lines_are_means_and_few_seeds_are_faint(small):
    config, root = small
    (axis,) = (figure := drawn("fig06_returns", root, config)).axes
    assert said(figure) == panels.SMALL["faint"]
    np.testing.assert_allclose(line_of(axis, PPO).get_ydata(), [0.05, 0.15, 0.45, 0.45, 0.75])
    np.testing.assert_allclose(line_of(axis, IIF).get_ydata(), [0.05, 0.3, 0.65, 0.75, 0.85])
    np.testing.assert_array_equal(line_of(axis, IIF).get_xdata(), range(5))
    faint = [line for line in axis.lines if line.get_linewidth() == 0.6]
    assert len(faint) == 4 and all(line.get_alpha() < 0.5 for line in faint)  # random has one seed, which is its mean
    seeds = [line.get_ydata().tolist() for line in faint if to_hex(line.get_color()) == IIF]
    assert seeds == [CURVES["iif_p50", 0], CURVES["iif_p50", 1]]
    assert not [c for c in axis.collections if isinstance(c, PolyCollection)]


def test_five_seeds_have_a_band_that_lies_in_the_panel(tmp_path):
    config = study(SMALL | {"seeds": [0, 1, 2, 3, 4]})
    tables_of(config, tmp_path, curve=lambda run: np.arange(5) / 10 + run.seed / 10)
    (axis,) = (figure := drawn("fig06_returns", tmp_path, config)).axes
    assert said(figure) == panels.SMALL["band"]
    bands = {to_hex(c.get_facecolor()[0]): c for c in axis.collections if isinstance(c, PolyCollection)}
    assert set(bands) == {IIF, PPO, RANDOM} and not [x for x in axis.lines if x.get_linewidth() == 0.6]
    vertices = bands[PPO].get_paths()[0].vertices
    at_2 = vertices[vertices[:, 0] == 2, 1]
    half = 2.776445 * np.sqrt(0.025) / np.sqrt(5)  # t(0.975, 4) * sd / sqrt(n)
    assert (at_2.min(), at_2.max()) == pytest.approx((0.4 - half, 0.4 + half), rel=1e-5)
    assert axis.get_ylim()[0] < vertices[:, 1].min() and vertices[:, 1].max() < axis.get_ylim()[1]


def test_labels_say_what_how_many_and_in_which_unit(small):
    config, root = small
    figure = drawn("fig06_returns", root, config)
    (axis,) = figure.axes
    assert legend_of(figure) == {"PPO": PPO, "IIF": IIF, "Random": RANDOM}
    assert axis.get_title() == "FrozenLake" and axis.get_ylabel() == "test return"
    assert [text.get_text() for text in axis.texts] == ["p = 50 %, n = 2; Random:\u00a01"]
    assert "round (2048 environment steps each)" in [text.get_text() for text in figure.texts]
    assert (
        figure.notes.startswith("Intervals are 95 % ones. Lines: mean over seeds.")
        and "Missing runs: 1 of FrozenLake, Random (missing_runs.csv)." in figure.notes
    )


def test_iif_is_one_method_whatever_its_p(everything):
    config, root = everything
    figure = drawn("fig06_returns", root, config)
    assert [axis.get_title() for axis in figure.axes] == ["FrozenLake", "MiniGrid", "Acrobot"]
    assert list(legend_of(figure)) == ["PPO", "IIF", "Random"]
    assert [axis.texts[0].get_text()[:8].rstrip(" %,") for axis in figure.axes] == ["p = 50", "p = 12.5", "p = 50"]
    assert all(line_of(axis, IIF) for axis in figure.axes)


def test_a_panel_of_few_seeds_beside_others_is_grey(tmp_path):
    few = {"environments": ["minigrid"], "methods": ["ppo", "iif_p12_5"], "seeds": [0, 1], "rounds": 4}
    config = study(SMALL | {"seeds": [0, 1, 2]}, few)
    tables_of(config, tmp_path)
    grey, white = to_rgba(style.THIN), to_rgba("white")
    panels = {axis.get_title(): axis for axis in drawn("fig06_returns", tmp_path, config).axes}
    assert panels["FrozenLake"].get_facecolor() == white and panels["MiniGrid"].get_facecolor() == grey
    tables_of(alone := study(few), tmp_path / "alone")
    (axis,) = drawn("fig06_returns", tmp_path / "alone", alone).axes
    assert axis.get_facecolor() == white


def test_rounds_after_all_have_settled_are_not_shown(tmp_path):
    config = study(SMALL | {"rounds": 40})
    rise = np.clip(np.arange(41) / 10, 0, 1)
    tables_of(config, tmp_path, curve=lambda run: rise * (1.0 if run.method != "random" else 0.9))
    (axis,) = drawn("fig06_returns", tmp_path, config).axes
    last = int(line_of(axis, PPO).get_xdata()[-1])
    assert 10 < last < 16
    (small,) = [text.get_text().replace("\n", " ").replace("\u00a0", " ") for text in axis.texts]
    assert small == f"p = 50 %, n = 2; rounds {last + 1} to 40 not shown"
    means = pd.DataFrame({"method": "ppo", "round": range(41), "mean": np.arange(41.0)})
    assert settled(means) == 40  # still rising


def test_adam_is_shown_seed_by_seed(tmp_path):
    blocks = ({"environments": [e], "methods": ["ppo", "iif_p12_5"], "seeds": [0, 1, 2], "rounds": 6} for e in ADAM)
    config = study(*blocks)
    tables_of(config, tmp_path, curve=lambda run: [0, 0.5, 1, 1, 1, 1, run.seed % 2])
    figure = drawn("fig15_adam", tmp_path, config)
    (axis,) = figure.axes
    assert sorted(line.get_ydata()[-1] for line in axis.lines) == [0, 0, 0, 0, 1, 1] and not axis.collections
    assert legend_of(figure) == {"PPO": PPO, "IIF": IIF} and said(figure) == panels.SMALL["seeds"]


@pytest.mark.parametrize("ends", [(0.65, 1.2), (0.75, 4.6), (0.9, 11), (0.5, 2e4), (1, 1.5)])
def test_a_logarithmic_axis_has_three_numbers_and_not_many(ends):
    axis = style.new_figure(2, 2).subplots()
    style.log_scale(axis, "x")
    axis.set_xlim(*ends)
    style.log_ticks(axis.xaxis)
    assert 3 <= sum(ends[0] <= tick <= ends[1] for tick in axis.get_xticks()) <= 6


ADAM = ("minigrid", "minigrid_adam")


@pytest.mark.parametrize(
    ("name", "panels", "legend"),
    [
        ("fig12_heuristics", ["FrozenLake"], ["PPO", "IIF", "Advantage H1", "Advantage H2"]),
        ("fig13_td_error", ["FrozenLake", "MiniGrid", "Acrobot"], ["PPO", "IIF", "TD error"]),
    ],
)
def test_panels_and_legends(everything, name, panels, legend):
    config, root = everything
    figure = drawn(name, root, config)
    assert [axis.get_title() for axis in figure.axes] == panels
    assert list(legend_of(figure)) == legend


@pytest.mark.slow
def test_a_panel_needs_its_subject(tmp_path):
    config = study(EVERYTHING[0])
    tables_of(config, tmp_path, skip=lambda run: run.method == "td_error" and run.environment != "acrobot")
    assert [axis.get_title() for axis in drawn("fig13_td_error", tmp_path, config).axes] == ["Acrobot"]


def test_every_method_of_any_study_is_drawn(everything):
    config, root = everything
    grid = {(run.environment, run.method) for run in config.runs}
    figure = drawn("returns", root, config)
    assert len(figure.axes) == 3
    assert {*legend_of(figure)} == {config.methods[method].label for _, method in grid}
    labels = [label.get_text() for label in drawn("efficiency", root, config).axes[0].get_yticklabels()]
    for environment, method in grid:
        if method != "ppo":
            n = len({r.seed for r in config.runs if (r.environment, r.method) == (environment, method)})
            assert any(
                label.startswith(f"{config.methods[method].label}, n = ") and str(n) in label for label in labels
            )
    assert [label for label in labels if ", n = " not in label] == ["FrozenLake", "MiniGrid", "Acrobot"]


def notes_of(name, root, config, folder):
    figures.draw(name, files_of(name, root), folder / "f.pdf", folder / "f.png", config)
    return figures.notes(folder / "f.png")


def test_an_environment_in_which_ppo_never_rises_is_named(tmp_path):
    """And is not left out without a word, or said to have no finished run."""
    config = study(SMALL | {"environments": ["frozenlake", "acrobot"]})
    tables_of(config, tmp_path, curve=lambda r: CURVES[r.method, r.seed] if r.environment == "frozenlake" else [0] * 5)
    says = "In Acrobot PPO never rises above round 0: there is no level to be reached."
    for name in ("efficiency", "fig06_efficiency"):
        notes = notes_of(name, tmp_path, config, tmp_path)
        assert says in notes and "FrozenLake PPO never rises" not in notes
    only = study(SMALL | {"environments": ["acrobot"]})
    tables_of(only, tmp_path / "only", curve=lambda r: [0] * 5)
    figure = drawn("efficiency", tmp_path / "only", only)
    assert says in " ".join(" ".join(text.get_text().split()) for text in figure.texts)


# Reductions


def test_reductions_by_value(small):
    config, root = small
    figure = drawn("fig06_efficiency", root, config)
    assert [axis.get_title() for axis in figure.axes] == ["SE_ave", "SE_peak", "RT_peak"]
    ave, peak, _ = figure.axes
    labels = [label.get_text() for label in ave.get_yticklabels()]
    assert labels == ["FrozenLake", "IIF, p = 50 %, n = 2", "Random, n = 1 of 2"]
    (mean,) = marked(ave, "s")
    # per seed (0 + 1/2 + 1/3 + 1/2) / 4 = 1/3, and 0, 0
    assert mean.get_xdata() == pytest.approx([100 / 6], rel=1e-4) and to_hex(mean.get_color()) == IIF
    dots = [x.get_xdata()[0] for x in ave.lines if x.get_marker() == "." and to_hex(x.get_color()) == IIF]
    assert dots == pytest.approx([100 / 3, 0], abs=1e-3)
    paper = [line.get_xdata()[0] for axis in (ave, peak) for line in axis.lines if line.get_marker() == "D"]
    assert paper == pytest.approx([34.0, 19.2])
    assert list(legend_of(figure)) == [
        "mean over seeds",
        "mean, at most",
        "a seed",
        "the paper",
    ]  # two have no interval
    assert len({axis.get_xlim() for axis in figure.axes}) == 1


def test_an_interval_beyond_the_axis_has_an_arrow_there(tmp_path):
    """SE_ave of 0, 0 and -4 / 3."""
    config = study(SMALL | {"seeds": [0, 1, 2], "rounds": 8})
    late = {seed: [0, 0.25, 0.5, 0.75, 1.0, 1, 1, 1, 1] for seed in (0, 1)} | {2: [0] * 7 + [1.0, 1]}
    tables_of(config, tmp_path, curve=lambda r: late[r.seed if r.method == "iif_p50" else 0])
    assert "beyond the axis" in legend_of(drawn("fig06_efficiency", tmp_path, config))


def test_what_is_never_reached_is_a_hollow_arrow_or_counted(small):
    """Random never reaches PPO's best, nor most of its levels; counts stand outside of the panel, in its row."""
    config, root = small
    figure = drawn("fig06_efficiency", root, config)
    ave, peak, _ = figure.axes
    (bound,) = marked(ave, "<", hollow=True)
    assert to_hex(bound.get_color()) == RANDOM
    assert [text.get_text() for text in peak.texts] == ["reached by", "0/1"] and not ave.texts
    assert not [x for x in peak.lines if to_hex(x.get_color()) == RANDOM]
    box, panel = peak.texts[1].get_window_extent(), peak.get_window_extent()
    row = panel.y0 + panel.height * peak.transAxes.inverted().transform(peak.transData.transform((0, 2)))[1]
    assert box.x0 > panel.x1 and box.y0 < row < box.y1
    assert said(figure).endswith(reductions.COUNTED) and "SE_ave: rounds saved, averaged over" in said(figure)


def test_a_peak_that_some_seeds_never_reach_has_no_interval(tmp_path):
    config = study(SMALL | {"seeds": [0, 1, 2]})
    rise = [0, 0.25, 0.5, 0.75, 1.0]
    tables_of(
        config, tmp_path, curve=lambda r: [0, 0.5, 0.6, 0.7, 0.8 + 0.2 * (r.seed > 0)] if r.method != "ppo" else rise
    )
    peak = drawn("fig06_efficiency", tmp_path, config).axes[1]
    (seed, mean) = sorted(marked(peak, "<", hollow=True), key=lambda x: x.get_markersize())[1::2]
    assert mean.get_xdata() == pytest.approx([0.0]) and seed.get_xdata() == pytest.approx([0.0])
    assert not [x for x in peak.lines if x.get_linewidth() == 1.1]
    figure = drawn("fig06_efficiency", tmp_path, config)
    assert {"mean, at most", "a seed, at most"} <= {*legend_of(figure)}
    assert reductions.COUNTED not in [text.get_text() for text in figure.texts]  # nothing is counted


def test_what_lies_below_the_panel_is_an_arrow_with_its_number(tmp_path):
    config = study(SMALL)
    fast, slow = [0, 1.0, 1.0, 1.0, 1.0], [0, 0.0, 0.0, 0.0, 1.0]  # 4 rounds instead of 1
    tables_of(config, tmp_path, curve=lambda run: fast if run.method == "ppo" else slow)
    figure = drawn("fig06_efficiency", tmp_path, config)
    ave, *_ = figure.axes
    assert markers_of(figure)["beyond the axis"] == "<"
    arrows = [x for x in ave.lines if x.get_marker() == "<"]
    assert len(arrows) == 2 * 3 and {x.get_xdata()[0] for x in arrows} == {-100}  # two seeds and a mean, of two methods
    assert [text.get_text() for text in ave.texts] == ["\u2212300", "\u2212300"]
    assert ave.get_xlim()[0] < -100


def test_the_sweep_shows_every_p_with_the_papers_numbers(everything):
    config, root = everything
    figure = drawn("fig14_p_sweep", root, config)
    assert len(figure.axes) == 9
    ps = ["6.25", "12.5", "25", "50", "100"]
    points = ["mean, at most", "a seed", "a seed, at most", "the paper"]
    assert [x for x in legend_of(figure) if x != "beyond the axis"] == [
        "PPO",
        *(f"IIF, p = {p} %" for p in ps),
        *points,
    ]
    legend = markers_of(figure)  # as they are drawn: on vertical axes bounds point down
    assert legend["mean, at most"] == legend["a seed, at most"] == "v"
    table = pd.read_csv(root / "tables" / "table_2.csv")
    (axis,) = [axis for axis in figure.axes if axis.get_ylabel() == "SE_ave (%)"]
    assert [label.get_text() for label in axis.get_xticklabels()] == ps
    ours = table[table["environment"] == "frozenlake"]["se_ave"].to_numpy() * 100
    blue = [x for x in axis.lines if x.get_markersize() >= 4 and x.get_marker() != "." and x.get_color() != "#666666"]
    assert [line.get_ydata()[0] for line in blue] == pytest.approx(ours.tolist())
    assert [line.get_xdata()[0] for line in blue] == [0, 1, 2, 3, 4]
    paper = [line.get_ydata()[0] for line in axis.lines if line.get_color() == "#666666" and line.get_marker() == "D"]
    assert paper == pytest.approx([23.5, 30.5, 33.7, 32.7])


@pytest.mark.slow
def test_an_environment_with_one_p_has_no_panel_in_the_sweep(tmp_path):
    config = study(EVERYTHING[0])
    lost = ("iif_p6_25", "iif_p12_5", "iif_p25", "iif_p100")
    tables_of(config, tmp_path, skip=lambda run: run.environment == "acrobot" and run.method in lost)
    figure = drawn("fig14_p_sweep", tmp_path, config)
    assert [axis.get_title() for axis in figure.axes if axis.get_title()] == ["FrozenLake", "MiniGrid"]


# Looks


@pytest.mark.parametrize("name", [name for name in OF_CURVES if name != "fig15_adam"])
@pytest.mark.parametrize("which", ["small", "everything"])
def test_nothing_is_cut_off_or_covered_or_too_small(request, which, name):
    config, root = request.getfixturevalue(which)
    assert_legible(drawn(name, root, config))


def catalogue_with(folder: Path, methods: dict[str, str]) -> Path:
    """The catalogue with these methods (id -> label) of random dropping beside its own."""
    folder.mkdir()
    for name in ("environments", "claims.yaml"):
        (folder / name).symlink_to(CATALOGUE / name)
    text = (CATALOGUE / "methods.yaml").read_text()
    for place, (name, label) in enumerate(methods.items()):
        selection = f"{{kind: random, drop_percent: {place + 1.5}}}"
        text += f"{name}: {{label: {json.dumps(label)}, selection: {selection}}}\n"
    (folder / "methods.yaml").write_text(text)
    return folder


def test_ten_methods_of_ones_own_look_different(tmp_path):
    names = {f"mine{i}": f"mine {i}" for i in range(30)}
    config = study(SMALL | {"methods": ["ppo", *names]}, folder=catalogue_with(tmp_path / "config", names))
    looks = [style.look(config, name) for name in config.methods]
    seen = {(look["color"], str(look["linestyle"]), look["marker"]) for look in looks}
    assert len(seen) == len(looks)
    assert len({look["color"] for look in looks[-8:]}) == 8
    assert [look["label"] for look in looks] == [method.label for method in config.methods.values()]


@pytest.mark.parametrize("label", ["IIF, save $5 to $10", "x $_$ y", "_quiet", "50 % \\alpha {x}"])
def test_labels_are_text(tmp_path, label):
    config = study(SMALL | {"methods": ["ppo", "mine"]}, folder=catalogue_with(tmp_path / "config", {"mine": label}))
    tables_of(config, tmp_path / "made")
    for name in ("returns", "efficiency"):
        figure = drawn(name, tmp_path / "made", config)
        assert_legible(figure)
        written = [*legend_of(figure), *(text.get_text() for text in figure.axes[0].get_yticklabels())]
        assert any(text.startswith(label) for text in written)
        assert not figure.legends[0].texts[0].get_parse_math()


def test_counts_name_the_exceptions():
    assert style.counts({"PPO": 5, "IIF": 5}) == "n = 5" and style.counts({}) == "n = 0"
    assert style.counts({"PPO": 5, "H1": 3, "H2": 3, "TD error": 2}).replace("\u00a0", " ") == (
        "n = 3; PPO: 5; TD error: 2"
    )


# Files


@pytest.mark.parametrize("name", ["fig06_returns", "fig06_efficiency"])
def test_the_same_tables_give_the_same_bytes(small, tmp_path, name):
    config, root = small
    for i in (1, 2):
        figures.draw(name, files_of(name, root), tmp_path / f"{i}.pdf", tmp_path / f"{i}.png", config)
    for kind in ("pdf", "png"):
        first = (tmp_path / f"1.{kind}").read_bytes()
        assert first == (tmp_path / f"2.{kind}").read_bytes()
        assert b"Date" not in first and b"matplotlib" not in first.lower()
    assert (tmp_path / "1.pdf").read_bytes().startswith(b"%PDF") and (tmp_path / "1.png").read_bytes()[1:4] == b"PNG"
    assert "Missing runs: 1 of FrozenLake, Random" in figures.notes(tmp_path / "1.png")


@pytest.mark.slow
def test_a_users_settings_change_no_byte(everything, tmp_path):
    config, root = everything
    name = "fig06_returns"
    figures.draw(name, files_of(name, root), tmp_path / "1.pdf", tmp_path / "1.png", config)
    (tmp_path / "matplotlibrc").write_text("font.size: 30\nlines.linewidth: 9\nsavefig.dpi: 50\npdf.fonttype: 3\n")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_figures import EVERYTHING, Path, figures, files_of, study\n"
        "figures.draw(sys.argv[2], files_of(sys.argv[2], Path(sys.argv[3])), *sys.argv[4:6], study(*EVERYTHING))\n"
    )
    here = os.path.dirname(__file__)
    environment = os.environ | {
        "PYTHONHASHSEED": "7",
        "MATPLOTLIBRC": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([os.path.dirname(here), here, os.environ.get("PYTHONPATH", "")]),
        "TZ": "Asia/Tokyo",
    }
    arguments = [here, name, str(root), str(tmp_path / "2.pdf"), str(tmp_path / "2.png")]
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, env=environment, timeout=120)
    for kind in ("pdf", "png"):
        assert (tmp_path / f"1.{kind}").read_bytes() == (tmp_path / f"2.{kind}").read_bytes()


@pytest.mark.parametrize("name", OF_CURVES)
def test_nothing_to_draw_is_a_placeholder_that_says_why(tmp_path, name):
    config = study(*EVERYTHING)
    tables_of(config, tmp_path, skip=lambda run: True)
    figures.draw(name, files_of(name, tmp_path), tmp_path / "figure.pdf", tmp_path / "figure.png", config)
    assert (tmp_path / "figure.pdf").exists() and (tmp_path / "figure.png").exists()
    (text,) = drawn(name, tmp_path, config).texts
    assert text.get_text().startswith(f"{name}: nothing to draw: ")
    assert not re.search(r"frozenlake|minigrid|iif|ppo|_h1", text.get_text().removeprefix(name))  # labels, no ids


def test_bad_requests_are_named(small, tmp_path):
    config, root = small
    outputs = (tmp_path / "x.pdf", tmp_path / "x.png", config)
    with pytest.raises(ConfigError, match="unknown figure 'fig6'"):
        figures.draw("fig6", {}, *outputs)
    files = files_of("fig06_returns", root)
    with pytest.raises(figures.FigureError, match=r"lost\.csv: cannot be read \(FileNotFoundError\)"):
        figures.draw("fig06_returns", files | {"missing_runs": tmp_path / "lost.csv"}, *outputs)
    (tmp_path / "empty.csv").write_bytes(b"")
    with pytest.raises(figures.FigureError, match=r"empty\.csv: cannot be read"):
        figures.draw("fig06_returns", files | {"curves_summary": tmp_path / "empty.csv"}, *outputs)
    assert not (tmp_path / "x.pdf").exists()


def test_figures_know_nothing_of_torch(small):
    modules = "; ".join(f"import rl_influence.figures.{name}" for name in figures.FIGURES)
    code = f"import sys; {modules}; sys.exit('torch' in sys.modules or 'matplotlib.pyplot' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_the_level_of_a_study_that_is_looked_at_twice_is_said():
    grid = [SMALL | {"seeds": [5, 6]}]
    levels = {name: level_of(Config({"study": name, "grid": grid}, CATALOGUE)) for name in ("paper", "confirm")}
    assert levels["paper"] == 0.95 < levels["confirm"]
    tables = {
        "curves_summary": pd.DataFrame(
            {"environment": "frozenlake", "method": "ppo", "round": [0, 1], "mean": [0, 1], "low": 0, "high": 1, "n": 5}
        ),
        "curves_per_seed": pd.DataFrame(columns=["environment", "method", "seed", "round", "test_return"]),
        "missing_runs": pd.DataFrame(columns=["environment", "method", "seed", "reason"]),
    }
    figure = figures.make("returns", tables, Config({"study": "confirm", "grid": grid}, CATALOGUE))
    assert figure.notes.startswith(f"Intervals are {100 * levels['confirm']:.3g} % ones.")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("study", "name"), [(s, name) for s, c in COMMITTED.items() for name in c.study_config.figures]
)
def test_committed_figures_are_legible(study, name):
    paths = {table: ROOT / f"results/{study}/tables/{table}.csv" for table in figures.FIGURES[name].reads}
    tables = {table: pd.read_csv(path, keep_default_na=False, na_values=[""]) for table, path in paths.items()}
    figure = figures.make(name, tables, COMMITTED[study])
    assert_legible(figure)
