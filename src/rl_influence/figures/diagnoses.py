"""What figures 3, 8 and 9 share: which rounds are shown, and how far off the advantages are, by rank of influence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from rl_influence.config import Config

from . import panels, style

ROUNDS = (2, 5, 10)  # the paper's
END = 100  # records of most negative influence, the paper's number
SIGNS = {True: (style.POSITIVE, "positive"), False: (style.NEGATIVE, "negative")}  # the paper: green, red
AGREEMENT = LinearSegmentedColormap.from_list("agreement", [style.NEGATIVE, "#dddddd", style.POSITIVE])
TILES = {"start": "#ffffff", "floor": "#ffffff", "hole": "#9ecae1", "goal": "#a6d96a"}
WALL = "#777777"
SMALL = (
    "bottom / top: the error in the last bin of ranks over that in the first. \u03c1: Spearman correlation of "
    f"influence with true \u00d7 estimated. Shaded: the {END} records at either end."
)
SOURCES = {"buffer": (style.SOFT, "truth from the buffer"), "exact": ("#000000", "exact truth")}


def draw_grid_world(
    tables: dict,
    config: Config,
    world: str,
    draw_pictures: Callable[[list[Axes], pd.DataFrame, pd.DataFrame, int], None],
    heights: Sequence[float],
    handles: Iterable[Artist],
) -> Figure:
    """Pictures of the bottom records of one run's rounds in a grid world, above what `draw_ranks` draws.

    `draw_pictures`: axes, tiles of the map, bottom records, round -> draws a round's pictures. `heights`: of the
    figure, and of its rows, in inches; the last two are those of `draw_ranks`.
    """
    runs = panels.runs_of(tables["diagnosis_grid"], config, (world,))
    if not runs:
        raise style.Nothing(f"no run of {world} has been diagnosed")
    run = runs[0]
    grid, tiles = (panels.rows_of(tables[name], run) for name in ("diagnosis_grid", "diagnosis_map"))
    rounds = rounds_of(panels.rows_of(tables["diagnosis_summary"], run[:2]))
    figure = style.new_figure(style.WIDTH, heights[0])
    axes = figure.subplots(len(heights) - 1, len(rounds), squeeze=False, height_ratios=heights[1:])
    for (*pictures, errors, products), k in zip(axes.T, rounds, strict=True):
        draw_pictures(pictures, tiles, grid[grid["round"] == k], k)
        draw_ranks(errors, products, tables, run[:2], k)
        errors.set_xticklabels([])
    axes[-2, 0].set_ylabel("|true \u2212 estimated|\n(root scale)")
    axes[-1, 0].set_ylabel("true \u00d7 estimated\n(root scale)")
    figure.align_ylabels(axes[-2:, 0])
    dot = {"marker": "o", "linestyle": "none", "markeredgecolor": style.GREY, "markeredgewidth": 0.3}
    handles = [
        *handles,
        *(style.handle(color=AGREEMENT(x), label=f"signs agree in {100 * x:g} %", **dot) for x in (0.0, 1.0)),
        *(style.handle(color=color, lw=0.8, label=label) for color, label in SOURCES.values()),
    ]
    environment, method, seed = run
    seeds = style.of(panels.rows_of(tables["diagnosis_summary"], run[:2]).iloc[0])
    notes = [
        f"{config.environments[environment].label}, {config.methods[method].label}. Pictures: seed {seed}; lines: "
        f"means over n = {seeds} seeds with t intervals (none for one seed).",
        *panels.missing_analyses(tables, "diagnosis", config, [environment]),
    ]
    return style.finish(figure, handles, notes, "rank of influence, 1 = most positive", SMALL)


def rounds_of(table: pd.DataFrame) -> list[int]:
    """The paper's rounds, or else the first ones that there are; three at most."""
    there = sorted(int(k) for k in table["round"].unique())
    return [k for k in ROUNDS if k in there] or there[:3]


def draw_ranks(errors: Axes, products: Axes, tables: dict, condition: tuple[str, str], k: int) -> None:
    """|true - estimated| coloured by sign agreement, and true * estimated, by rank of influence; on root scales."""
    table = panels.rows_of(tables["diagnosis_by_rank_summary"], condition)
    table = table[table["round"] == k]
    for axis, measure in ((errors, "error"), (products, "product")):
        values = [0.0]
        for source, (color, _) in SOURCES.items():
            line = table[table["source"] == source]
            rank = (line["first_rank"] + line["last_rank"]) / 2
            axis.plot(rank, line[measure], color=color, lw=0.8, zorder=3)
            values += [*line[measure]]
            low, high = line[f"{measure}_low"], line[f"{measure}_high"]
            if source == "exact" and low.notna().any():
                bottom = low if measure == "product" else low.clip(0)
                axis.fill_between(rank, bottom, high, color=color, alpha=0.12, lw=0)
                values += [*(low.dropna() if measure == "product" else ()), *high.dropna()]
        last = table["last_rank"].max()
        for start in (0.5, last - END + 0.5):
            axis.axvspan(start, start + END, color="#f0e0d0", lw=0, zorder=0)
        axis.set_xlim(-0.01 * last, 1.01 * last)
        axis.set_yscale("function", functions=(lambda x: np.sign(x) * np.sqrt(np.abs(x)), lambda x: np.sign(x) * x**2))
        axis.set_ylim(style.limits(values, 0.1))
        axis.yaxis.set_major_locator(MaxNLocator(4))
    errors.set_ylim(bottom=0)
    products.axhline(0, color=style.SOFT, lw=0.6, zorder=1)
    exact = table[table["source"] == "exact"]
    dots = {"s": 9, "lw": 0.3, "edgecolors": style.GREY, "zorder": 4, "vmin": 0, "vmax": 1, "cmap": AGREEMENT}
    middle = (exact["first_rank"] + exact["last_rank"]) / 2
    errors.scatter(middle, exact["error"], c=exact["sign_agreement"], plotnonfinite=False, **dots)
    first, *_, worst = exact.sort_values("first_rank")["error"]
    errors.set_title(f"bottom / top = {worst / first:.2f}" if first else "", fontsize=style.SMALL, pad=3)
    summary = panels.rows_of(tables["diagnosis_summary"], condition)
    row = summary[(summary["round"] == k) & (summary["source"] == "exact")].iloc[0]
    wrong = {"color": style.NEGATIVE} if row["spearman_product_high"] < 0 else {}
    products.set_title(f"\u03c1 = {interval_text(row, 'spearman_product')}", fontsize=style.SMALL, pad=3, **wrong)


def interval_text(row: pd.Series, name: str) -> str:
    """`0.31 [0.25, 0.37]`; undefined is said to be."""
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    text = "undefined" if np.isnan(value) else f"{value:.2f}"
    return (text if np.isnan(low) else f"{text} [{low:.2f}, {high:.2f}]").replace("-", "\u2212")


def draw_map(axis: Axes, tiles: pd.DataFrame) -> None:
    """The floor of a grid world, with what is not floor as wall around it; y grows downwards."""
    x0, x1, y0, y1 = tiles["x"].min(), tiles["x"].max(), tiles["y"].min(), tiles["y"].max()
    axis.add_patch(Rectangle((x0 - 0.62, y0 - 0.62), x1 - x0 + 1.24, y1 - y0 + 1.24, color=WALL, lw=0, zorder=0))
    for x, y, tile in tiles[["x", "y", "tile"]].itertuples(index=False):
        look = {"facecolor": TILES[tile], "edgecolor": "#cccccc", "lw": 0.4, "zorder": 1}
        axis.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **look))
    axis.set_xlim(x0 - 0.62, x1 + 0.62)
    axis.set_ylim(y1 + 0.62, y0 - 0.62)
    axis.set_aspect("equal")
    axis.set_axis_off()
