"""Figure 8: the records of most negative influence in MiniGrid, drawn, and how wrong their advantages are."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Polygon, Rectangle

from rl_influence.config import Config

from . import diagnoses, panels, style

TABLES = ("diagnosis_grid", "diagnosis_map", *diagnoses.RANK_TABLES, "missing_analyses")
ACTIONS = ("turn left", "turn right", "forward", "pick up", "drop", "toggle", "done")
DIRECTIONS = ((1, 0), (0, 1), (-1, 0), (0, -1))  # right, down, left, up
VIEW = 7  # cells that the agent sees in front of it, its own included, and across
SHOWN = 6  # pictures of a round


def draw(tables: dict, config: Config) -> Figure:
    runs = diagnoses.runs_of(tables["diagnosis_grid"], config, ("MiniGrid",))
    if not runs:
        return style.nothing("fig08_minigrid: no run of MiniGrid has been diagnosed.")
    run = runs[0]
    environment, method, seed = run
    grid, tiles = (panels.rows_of(tables[name], run) for name in TABLES[:2])
    rounds = diagnoses.rounds_of(panels.rows_of(tables["diagnosis_summary"], run[:2]))
    pictures, ranks = 1.2 * len(rounds), 2.5
    figure = style.new_figure(style.WIDTH, pictures + ranks)
    above, below = figure.add_gridspec(2, 1, height_ratios=(pictures, ranks))
    for axes, k in zip(above.subgridspec(len(rounds), SHOWN).subplots(squeeze=False), rounds, strict=True):
        bottom = grid[grid["round"] == k].sort_values("influence", kind="stable")
        for axis in axes:
            axis.set_axis_off()
        for axis, record in zip(axes, bottom.head(SHOWN).to_dict("records"), strict=False):
            _draw_record(axis, tiles, record)
        axes[0].text(
            -0.04, 0.5, f"round {k}", rotation=90, ha="right", va="center", transform=axes[0].transAxes, fontsize=7.5
        )
    below = below.subgridspec(2, len(rounds)).subplots(squeeze=False)
    for (errors, products), k in zip(below.T, rounds, strict=True):
        diagnoses.draw_ranks(errors, products, tables, run[:2], k)
        errors.set_title(f"round {k}")
        errors.set_xticklabels([])
    below[0, 0].set_ylabel("|true \u2212 estimated|")
    below[1, 0].set_ylabel("true \u00d7 estimated")
    figure.align_ylabels(below[:, 0])
    handles = [
        *(
            Line2D([], [], color=color, marker=">", linestyle="none", label=f"{sign} estimate")
            for color, sign in diagnoses.SIGNS.values()
        ),
        Patch(facecolor=diagnoses.TILES["goal"], edgecolor="#cccccc", label="goal"),
        Patch(facecolor="#f5d76e", alpha=0.5, label="what the agent sees"),
        *diagnoses.rank_handles(),
    ]
    seeds = style.of(panels.rows_of(tables["diagnosis_summary"], run[:2]).iloc[0])
    notes = [
        f"{config.environments[environment].label}, {config.methods[method].label}. Pictures: seed {seed}; the poses "
        f"and actions of most negative summed influence among the bottom {diagnoses.BOTTOM} records, how many they "
        "are, and the means of their estimated and true advantages, est. and true.",
        diagnoses.RANK_NOTE + f" n = {seeds} seeds.",
        *panels.missing_analyses(tables, "diagnosis", config, [environment]),
    ]
    return style.finish(figure, handles, notes, "rank of influence, 1 = most positive")


def _draw_record(axis: Axes, tiles: pd.DataFrame, record: dict) -> None:
    diagnoses.draw_map(axis, tiles)
    x, y = record["x"], record["y"]
    dx, dy = DIRECTIONS[int(record["direction"])]
    half = VIEW // 2
    ahead = np.array([[x, y], [x + dx * (VIEW - 1), y + dy * (VIEW - 1)]])
    across = half * np.abs([dy, dx])
    low, high = ahead.min(0) - across - 0.5, ahead.max(0) + across + 0.5
    axis.add_patch(Rectangle(low, *(high - low), color="#f5d76e", alpha=0.5, lw=0, zorder=2))
    tip, side = np.array([dx, dy]), np.array([-dy, dx])
    corners = [0.38 * tip, -0.32 * tip + 0.32 * side, -0.32 * tip - 0.32 * side]
    color, _ = diagnoses.SIGNS[record["positive"] >= 0.5]
    axis.add_patch(Polygon([(x, y) + corner for corner in corners], color=color, lw=0, zorder=3))
    axis.set_title(f"{ACTIONS[int(record['action'])]}, {record['records']:g}\u00d7", fontsize=6, pad=2, color=color)
    axis.text(
        0.5, -0.03, f"est. {record['estimated']:+.2g}\ntrue {record['true']:+.2g}", transform=axis.transAxes,
        fontsize=5, ha="center", va="top", linespacing=1.1,
    )  # fmt: skip
