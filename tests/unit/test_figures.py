"""What figures show, read back from their artists; what their files are; what cannot be drawn."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex

from rl_influence import figures
from rl_influence.analysis.curves import load_study
from rl_influence.analysis.registry import ANALYSIS_OF
from rl_influence.analysis.reported import load_reported
from rl_influence.analysis.tables import TABLES, make_tables, write_table
from rl_influence.config import Config, ConfigError
from rl_influence.figures import style
from synthetic import CATALOGUE, study, write_synthetic_study

CURVES = {  # FrozenLake, 4 rounds: (method, seed) -> test returns
    ("ppo", 0): [0.0, 0.2, 0.4, 0.6, 0.8],
    ("ppo", 1): [0.1, 0.1, 0.5, 0.3, 0.7],
    ("iif_p50", 0): [0.0, 0.4, 0.8, 0.9, 0.9],
    ("iif_p50", 1): [0.1, 0.2, 0.5, 0.6, 0.6],
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
PAPER = [  # of curves; those of single rounds have tests of their own
    name for name, (_, tables) in figures.FIGURES.items() if name[3:5].isdigit() and not {*tables} & {*ANALYSIS_OF}
]


def tables_of(config, root, **arguments):
    write_synthetic_study(root, config, **arguments)
    tables = make_tables(load_study(config, root), TABLES, load_reported(CATALOGUE))
    for name, table in tables.items():
        write_table(table, root / TABLES[name].folder / f"{name}.csv")
    return tables


def drawn(name, root, config):
    """The figure of the tables below `root`, as files have them."""
    paths = figures.table_files(name, root / "tables", root / "runtimes")
    tables = {table: pd.read_csv(path, keep_default_na=False, na_values=[""]) for table, path in paths.items()}
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


def legend_of(figure):
    (legend,) = figure.legends
    return {text.get_text(): to_hex(h.get_color()) for text, h in zip(legend.texts, legend.legend_handles, strict=True)}


def notes_of(figure):
    return " ".join(text.get_text() for text in figure.texts).replace("\n", " ")


def test_lines_are_means_bands_are_intervals_and_seeds_are_faint(small):
    config, root = small
    figure = drawn("fig06_returns", root, config)
    (axis,) = figure.axes
    ppo, iif = (style.STYLES[name][0] for name in ("ppo", "iif_p50"))
    np.testing.assert_allclose(line_of(axis, ppo).get_ydata(), [0.05, 0.15, 0.45, 0.45, 0.75])
    np.testing.assert_allclose(line_of(axis, iif).get_ydata(), [0.05, 0.3, 0.65, 0.75, 0.75])
    np.testing.assert_array_equal(line_of(axis, iif).get_xdata(), range(5))
    faint = [line for line in axis.lines if line.get_linewidth() == 0.5]
    assert len(faint) == 5 and all(line.get_alpha() <= 0.25 for line in faint)
    seeds = [line.get_ydata().tolist() for line in faint if to_hex(line.get_color()) == iif]
    assert seeds == [CURVES["iif_p50", 0], CURVES["iif_p50", 1]]
    assert not [c for c in axis.collections if isinstance(c, PolyCollection)]  # two seeds: no band


def test_bands_of_three_seeds(tmp_path):
    config = study(SMALL | {"seeds": [0, 1, 2]})
    tables_of(config, tmp_path, curve=lambda run: np.arange(5) / 10 + run.seed / 10)
    (axis,) = drawn("fig06_returns", tmp_path, config).axes
    bands = {to_hex(c.get_facecolor()[0]): c for c in axis.collections if isinstance(c, PolyCollection)}
    assert set(bands) == {style.STYLES[name][0] for name in ("ppo", "iif_p50", "random")}
    vertices = bands[style.STYLES["ppo"][0]].get_paths()[0].vertices
    at_2 = vertices[vertices[:, 0] == 2, 1]
    half = 4.302653 * 0.1 / np.sqrt(3)  # t(0.975, 2) * sd / sqrt(n)
    assert (at_2.min(), at_2.max()) == pytest.approx((0.3 - half, 0.3 + half), rel=1e-5)


def test_labels_say_what_how_many_and_in_which_unit(small):
    config, root = small
    figure = drawn("fig06_returns", root, config)
    (axis,) = figure.axes
    labels = {"PPO": "ppo", "IIF, p = 50 %": "iif_p50", "Random": "random"}
    assert legend_of(figure) == {label: style.STYLES[name][0] for label, name in labels.items()}
    assert axis.get_title() == "FrozenLake" and axis.get_ylabel() == "test return"
    assert [text.get_text() for text in axis.texts] == ["n = 2 seeds; Random: 1".replace("m: 1", "m:\u00a01")]
    notes = notes_of(figure)
    assert "round (2048 environment steps each)" in notes
    assert "95 % t interval" in notes and "Missing runs: FrozenLake Random seed 1." in notes


def test_wide_bands_do_not_squeeze_the_lines(small):
    config, root = small
    (axis,) = drawn("fig06_returns", root, config).axes
    assert axis.get_ylim() == pytest.approx((0 - 0.06 * 0.9, 0.9 + 0.06 * 0.9))


def test_efficiency_points_by_value(small):
    config, root = small
    figure = drawn("fig06_efficiency", root, config)
    assert [axis.get_title() for axis in figure.axes] == [
        r"SE$_\mathrm{ave}$",
        r"SE$_\mathrm{peak}$",
        r"RT$_\mathrm{peak}$",
    ]
    ave, peak, _ = figure.axes
    labels = [label.get_text() for label in ave.get_yticklabels()]
    assert labels == ["FrozenLake\nIIF, p = 50 %, n = 2", "Random, n = 1 of 2"]
    color = style.STYLES["iif_p50"][0]
    (mean,) = [line for line in ave.lines if line.get_marker() == "s"]
    # per seed (0 + 1/2 + 1/3 + 1/2) / 4 = 1/3 and 0
    assert mean.get_xdata() == pytest.approx([100 / 6], rel=1e-4) and to_hex(mean.get_color()) == color
    (dots,) = [line for line in ave.lines if line.get_marker() == "." and to_hex(line.get_color()) == color]
    assert dots.get_xdata().tolist() == pytest.approx([100 / 3, 0], rel=1e-4)
    paper = [line.get_xdata()[0] for axis in (ave, peak) for line in axis.lines if line.get_marker() == "D"]
    assert paper == pytest.approx([34.0, 19.2])
    # seed 1 of IIF never reaches the last level, nor does random reach most of its levels
    assert [text.get_text() for text in ave.texts] == ["\u2264", "\u2264"]
    assert "upper bound" in notes_of(figure)
    assert list(legend_of(figure)) == ["IIF, p = 50 %", "Random", "the paper"]


def test_a_value_far_below_is_drawn_at_the_edge_with_its_number(tmp_path):
    config = study(SMALL)
    fast = [0, 1.0, 1.0, 1.0, 1.0]
    slow = [0, 0.0, 0.0, 0.0, 1.0]  # 4 rounds instead of 1
    tables_of(config, tmp_path, curve=lambda run: fast if run.method == "ppo" else slow)
    ave, *_ = drawn("fig06_efficiency", tmp_path, config).axes
    (mean,) = [line for line in ave.lines if line.get_marker() == "s"]
    assert mean.get_xdata() == [-100] and [text.get_text() for text in ave.texts] == ["-300", "-300"]
    low, high = ave.get_xlim()
    assert low < -100 < 0 < high


def test_the_sweep_shows_every_p_with_the_papers_numbers(everything):
    config, root = everything
    figure = drawn("fig14_p_sweep", root, config)
    assert len(figure.axes) == 9
    assert list(legend_of(figure)) == [
        "PPO",
        *(f"IIF, p = {p} %" for p in ("6.25", "12.5", "25", "50", "100")),
        "the paper",
    ]
    table = pd.read_csv(root / "tables" / "table_2.csv")
    (axis,) = [axis for axis in figure.axes if axis.get_ylabel() == r"SE$_\mathrm{ave}$ (%)"]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["6.25", "12.5", "25", "50", "100"]
    ours = table[table["environment"] == "frozenlake"]["se_ave"].to_numpy() * 100
    markers = [style.STYLES[name][2] for name in ("iif_p6_25", "iif_p12_5", "iif_p25", "iif_p50", "iif_p100")]
    blue = [line for line in axis.lines if line.get_marker() in markers and line.get_color() != "#666666"]
    assert [line.get_ydata()[0] for line in blue] == pytest.approx(ours.tolist())
    assert [line.get_xdata()[0] for line in blue] == [0, 1, 2, 3, 4]
    paper = [line.get_ydata()[0] for line in axis.lines if line.get_color() == "#666666" and line.get_marker() == "D"]
    assert paper == pytest.approx([23.5, 30.5, 33.7, 32.7])


@pytest.mark.parametrize(
    ("name", "panels", "legend"),
    [
        ("fig12_heuristics", ["FrozenLake"], ["PPO", "IIF, p = 50 %", "Advantage H1", "Advantage H2"]),
        (
            "fig13_td_error",
            ["FrozenLake", "MiniGrid", "Acrobot"],
            ["PPO", "IIF, p = 12.5 %", "IIF, p = 50 %", "TD error"],
        ),
        (
            "fig06_returns",
            ["FrozenLake", "MiniGrid", "Acrobot"],
            ["PPO", "IIF, p = 12.5 %", "IIF, p = 50 %", "Random"],
        ),
    ],
)
def test_panels_and_legends(everything, name, panels, legend):
    config, root = everything
    figure = drawn(name, root, config)
    assert [axis.get_title() for axis in figure.axes] == panels
    assert list(legend_of(figure)) == legend


def test_missing_runs_are_named_only_where_they_matter(everything):
    config, root = everything
    assert "Missing runs: Acrobot PPO seed 0." in notes_of(drawn("fig06_returns", root, config))
    assert "MiniGrid IIF, p = 25 % seed 2" in notes_of(drawn("fig14_p_sweep", root, config))
    assert "Missing" not in notes_of(drawn("fig12_heuristics", root, config))


def test_many_missing_runs_are_cut_short():
    config = study(SMALL | {"seeds": list(range(10))})
    rows = [("frozenlake", "ppo", seed, "no folder") for seed in range(10)]
    missing = pd.DataFrame(rows, columns=["environment", "method", "seed", "reason"])
    (note,) = style.missing_note(missing, [("frozenlake", "ppo")], config)
    assert note.endswith("FrozenLake PPO seed 5; and 4 more (missing_runs.csv).")
    assert style.missing_note(missing, [("frozenlake", "random")], config) == []


@pytest.mark.parametrize("name", [name for name in PAPER if name != "fig15_adam"])
@pytest.mark.parametrize("which", ["small", "everything"])
def test_nothing_is_cut_off_or_covered(request, which, name):
    config, root = request.getfixturevalue(which)
    try:
        figure = drawn(name, root, config)
    except figures.FigureError:
        pytest.skip("the small study has no such runs")
    renderer, page = figure.canvas.get_renderer(), figure.bbox
    (legend,) = figure.legends
    below = [legend.get_window_extent(renderer), *(t.get_window_extent(renderer) for t in figure.texts if t.get_text())]
    panels = [axis.get_tightbbox(renderer) for axis in figure.axes]
    for box in [*below, *panels]:
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1, f"{box} is cut off"
    for i, box in enumerate(below):
        for other in [*below[i + 1 :], *panels]:
            overlap = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert overlap < 2, f"{i}: {box} and {other}"


def test_every_method_has_a_look_of_its_own():
    config = Config(CATALOGUE / "paper.yaml")
    looks = [style.method_style(config, name) for name in config.methods]
    assert len({(look["color"], str(look["linestyle"])) for look in looks}) == len(looks)
    assert len({(look["color"], look["marker"]) for look in looks}) == len(looks)
    assert [look["label"] for look in looks] == [method.label for method in config.methods.values()]
    assert len({str(look) for look in style.STYLES.values()}) == len(style.STYLES)


def test_counts_name_the_exceptions():
    assert style.counts({"PPO": 5, "IIF": 5}) == "n = 5 seeds"
    assert style.counts({"PPO": 1}) == "n = 1 seed"
    assert style.counts({"PPO": 5, "H1": 3, "H2": 3, "TD error": 2}).replace("\u00a0", " ") == (
        "n = 3 seeds; PPO: 5; TD error: 2"
    )


@pytest.mark.parametrize("name", ["fig06_returns", "fig06_efficiency"])
def test_the_same_tables_give_the_same_bytes(small, tmp_path, name):
    config, root = small
    for i in (1, 2):
        figures.draw(name, root / "tables", root / "runtimes", tmp_path / f"{i}.pdf", tmp_path / f"{i}.png", config)
    for kind in ("pdf", "png"):
        first = (tmp_path / f"1.{kind}").read_bytes()
        assert first == (tmp_path / f"2.{kind}").read_bytes()
        assert b"Date" not in first and b"matplotlib" not in first.lower()
    assert (tmp_path / "1.pdf").read_bytes().startswith(b"%PDF") and (tmp_path / "1.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.slow
def test_a_users_settings_change_no_byte(everything, tmp_path):
    config, root = everything
    name = "fig06_returns"
    figures.draw(name, root / "tables", root / "runtimes", tmp_path / "1.pdf", tmp_path / "1.png", config)
    (tmp_path / "matplotlibrc").write_text("font.size: 30\nlines.linewidth: 9\nsavefig.dpi: 50\npdf.fonttype: 3\n")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_figures import EVERYTHING, study, figures\n"
        "figures.draw(*sys.argv[2:7], study(*EVERYTHING))\n"
    )
    paths = [root / "tables", root / "runtimes", tmp_path / "2.pdf", tmp_path / "2.png"]
    here = os.path.dirname(__file__)
    environment = os.environ | {
        "PYTHONHASHSEED": "7",
        "MATPLOTLIBRC": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([os.path.dirname(here), here]),
        "TZ": "Asia/Tokyo",
    }
    subprocess.run([sys.executable, "-c", code, here, name, *map(str, paths)], check=True, env=environment, timeout=120)
    for kind in ("pdf", "png"):
        assert (tmp_path / f"1.{kind}").read_bytes() == (tmp_path / f"2.{kind}").read_bytes()


@pytest.mark.parametrize("name", PAPER)
def test_nothing_to_draw_is_one_clear_line(tmp_path, name):
    config = study(*EVERYTHING)
    tables_of(config, tmp_path, skip=lambda run: True)
    out = tmp_path / "figure.pdf"
    with pytest.raises(figures.FigureError, match=f"{name}: nothing to draw") as error:
        figures.draw(name, tmp_path / "tables", tmp_path / "runtimes", out, tmp_path / "figure.png", config)
    assert "\n" not in str(error.value) and not out.exists()


def test_bad_requests_are_named(small, tmp_path):
    config, root = small
    outputs = (tmp_path / "x.pdf", tmp_path / "x.png", config)
    with pytest.raises(ConfigError, match="unknown figure 'fig6'"):
        figures.draw("fig6", root / "tables", root / "runtimes", *outputs)
    with pytest.raises(figures.FigureError, match=r"\.csv: cannot be read \(FileNotFoundError\)"):
        figures.draw("fig06_returns", tmp_path, tmp_path, *outputs)
    for name in figures.FIGURES["fig06_returns"][1]:
        (tmp_path / f"{name}.csv").write_bytes(b"")
    with pytest.raises(figures.FigureError, match="cannot be read"):
        figures.draw("fig06_returns", tmp_path, tmp_path, *outputs)
    with pytest.raises(figures.FigureError, match="fig14_p_sweep: nothing to draw"):
        figures.draw("fig14_p_sweep", root / "tables", root / "runtimes", *outputs)


def test_figures_know_nothing_of_torch():
    code = "import sys, rl_influence.figures; sys.exit('torch' in sys.modules or 'matplotlib.pyplot' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
