"""What figures 3, 8 and 9 share: which rounds are shown, and how far off the advantages are, by rank of influence."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from rl_influence.config import Config

from . import panels, style

RANK_TABLES = ("diagnosis_by_rank_summary", "diagnosis_summary")
ROUNDS = (2, 5, 10)  # the paper's
BOTTOM = 100  # records, the paper's number
SIGNS = {True: ("#0b55a5", "positive"), False: ("#d55e00", "negative")}  # the paper: green, red
AGREEMENT = LinearSegmentedColormap.from_list("agreement", [SIGNS[False][0], "#dddddd", SIGNS[True][0]])
TILES = {"start": "#ffffff", "floor": "#ffffff", "hole": "#9ecae1", "goal": "#a6d96a"}
WALL = "#777777"
RANK_NOTE = (
    "Lower rows: bins of equal size along the rank, mean over seeds, band: 95 % t interval (none for one seed; cut "
    "where it leaves the panel); grey: "
    "the true advantage estimated from the buffer's own visits, as in the paper, instead of the exact one; shaded: the "
    f"bottom {BOTTOM}. \u03c1: Spearman of influence with true \u00d7 estimated advantage. The paper correlates with "
    "the rank, 1 for the most positive influence: its \u03c1 is ours with the opposite sign."
)


def runs_of(table: pd.DataFrame, config: Config, gym_ids: tuple[str, ...]) -> list[tuple]:
    """(environment, method, seed) of the runs in a table whose environment's gym_id begins with one of these."""
    keys = table[panels.KEY].drop_duplicates().itertuples(index=False, name=None)
    return [key for key in keys if config.environments[key[0]].gym_id.startswith(gym_ids)]


def rounds_of(table: pd.DataFrame) -> list[int]:
    """The paper's rounds, or else the first ones that there are; three at most."""
    there = sorted(int(k) for k in table["round"].unique())
    return [k for k in ROUNDS if k in there] or there[:3]


def draw_ranks(errors: Axes, products: Axes, tables: dict, condition: tuple[str, str], round: int) -> None:
    """|true - estimated| coloured by sign agreement, and true * estimated, by rank of influence."""
    table = panels.rows_of(tables["diagnosis_by_rank_summary"], condition)
    table = table[table["round"] == round]
    for source, color in (("buffer", "#999999"), ("exact", "#000000")):
        line = table[table["source"] == source]
        rank = (line["first_rank"] + line["last_rank"]) / 2
        for axis, measure in ((errors, "error"), (products, "product")):
            axis.plot(rank, line[measure], color=color, lw=0.7, zorder=3)
            if source == "exact" and line[f"{measure}_low"].notna().any():
                axis.fill_between(rank, line[f"{measure}_low"], line[f"{measure}_high"], color=color, alpha=0.12, lw=0)
        if source == "exact":
            agreement = line["sign_agreement"]
            dots = {"s": 9, "lw": 0.3, "edgecolors": "#444444", "zorder": 4, "vmin": 0, "vmax": 1, "cmap": AGREEMENT}
            errors.scatter(rank, line["error"], c=agreement, plotnonfinite=False, **dots)
    last = table["last_rank"].max()
    for axis in (errors, products):
        axis.axvspan(last - BOTTOM + 0.5, last + 0.5, color="#f0e0d0", lw=0, zorder=0)
        axis.set_xlim(0, last + 1)
    for axis in (errors, products):  # the wide interval of two seeds must not squeeze the lines
        values = np.concatenate([line.get_ydata() for line in axis.lines])
        axis.set_ylim(style.limits([0.0, *values], 0.25))
    errors.set_ylim(bottom=0)
    products.axhline(0, color="#999999", lw=0.6, zorder=1)
    summary = panels.rows_of(tables["diagnosis_summary"], condition)
    row = summary[(summary["round"] == round) & (summary["source"] == "exact")].iloc[0]
    products.set_title(f"\u03c1 = {interval_text(row, 'spearman_product')}", fontsize=6, pad=3)


def interval_text(row: pd.Series, name: str) -> str:
    """`0.31 [0.25, 0.37]`; undefined is said to be."""
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    text = "undefined" if np.isnan(value) else f"{value:.2f}"
    return text if np.isnan(low) else f"{text} [{low:.2f}, {high:.2f}]"


def rank_handles() -> list[Line2D]:
    """Legend of `draw_ranks`."""
    dot = {"marker": "o", "linestyle": "none", "markeredgecolor": "#444444", "markeredgewidth": 0.3}
    return [
        Line2D([], [], color=AGREEMENT(share), label=f"signs agree in {share:.0%}", **dot) for share in (0.0, 0.5, 1.0)
    ]


def draw_map(axis: Axes, tiles: pd.DataFrame) -> None:
    """The floor of a grid world, with what is not floor as wall around it; y grows downwards."""
    x0, x1, y0, y1 = tiles["x"].min(), tiles["x"].max(), tiles["y"].min(), tiles["y"].max()
    axis.add_patch(Rectangle((x0 - 0.62, y0 - 0.62), x1 - x0 + 1.24, y1 - y0 + 1.24, color=WALL, lw=0, zorder=0))
    for x, y, tile in tiles[["x", "y", "tile"]].itertuples(index=False):
        axis.add_patch(
            Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=TILES[tile], edgecolor="#cccccc", lw=0.4, zorder=1)
        )
    axis.set_xlim(x0 - 0.62, x1 + 0.62)
    axis.set_ylim(y1 + 0.62, y0 - 0.62)
    axis.set_aspect("equal")
    axis.set_axis_off()
