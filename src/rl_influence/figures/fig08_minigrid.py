"""The records of most negative influence in MiniGrid (Figure 8 of the paper), drawn: the poses and actions of most
negative summed influence among the bottom 100 records, how many records they are, and the means of their estimated
and true advantages. Below, as in FrozenLake, over all seeds and in bins of equal size: the error of the estimate and
the product of true and estimated advantage by rank of influence, on root scales; shaded: 100 records at each end;
bottom / top: the error in the last bin over that in the first. ρ is the Spearman correlation of *influence* with the
product; the paper's, with the rank, has the opposite sign. A ρ in orange has the wrong sign with its whole interval.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Polygon, Rectangle

from rl_influence.config import Config

from . import diagnoses, style

READS = ("diagnosis_grid", "diagnosis_map", "diagnosis_by_rank_summary", "diagnosis_summary", "missing_analyses")
ACTIONS = ("turn left", "turn right", "forward", "pick up", "drop", "toggle", "done")
FACING = ((1, 0), (0, 1), (-1, 0), (0, -1))  # right, down, left, up
SEEN, SEEN_COLOR = 7, "#f5d76e"  # cells that the agent sees in front of it, its own included, and across
PICTURES = 2  # of a round


def draw(tables: dict, config: Config) -> Figure:
    arrows = {f"estimated {sign}": (color, ">") for color, sign in diagnoses.SIGNS.values()}
    handles = [
        *style.points(arrows),
        Patch(facecolor=diagnoses.TILES["goal"], edgecolor="#cccccc", label="goal"),
        Patch(facecolor=SEEN_COLOR, alpha=0.5, label="what the agent sees"),
    ]
    heights = (1.55 * PICTURES + 2.4, *[1.55] * PICTURES, 1.2, 1.2)
    return diagnoses.draw_grid_world(tables, config, "MiniGrid", _draw_records, heights, handles)


def _draw_records(axes: list[Axes], tiles: pd.DataFrame, bottom: pd.DataFrame, k: int) -> None:
    for axis in axes:
        axis.set_axis_off()
    worst = bottom.sort_values("influence", kind="stable").head(PICTURES)
    for axis, record in zip(axes, worst.to_dict("records"), strict=False):
        _draw_record(axis, tiles, record)
    heading = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "center", "fontsize": 8}
    axes[0].annotate(f"round {k}", (0.5, 1), (0, 15), **heading)


def _draw_record(axis: Axes, tiles: pd.DataFrame, record: dict) -> None:
    diagnoses.draw_map(axis, tiles)
    x, y = record["x"], record["y"]
    dx, dy = FACING[int(record["direction"])]
    ahead = np.array([[x, y], [x + dx * (SEEN - 1), y + dy * (SEEN - 1)]])
    across = SEEN // 2 * np.abs([dy, dx])
    low, high = ahead.min(0) - across - 0.5, ahead.max(0) + across + 0.5
    axis.add_patch(Rectangle(low, *(high - low), color=SEEN_COLOR, alpha=0.5, lw=0, zorder=2))
    tip, side = np.array([dx, dy]), np.array([-dy, dx])
    corners = [0.38 * tip, -0.32 * tip + 0.32 * side, -0.32 * tip - 0.32 * side]
    color, _ = diagnoses.SIGNS[record["positive"] >= 0.5]
    axis.add_patch(Polygon([(x, y) + corner for corner in corners], color=color, lw=0, zorder=3))
    action = f"{ACTIONS[int(record['action'])]}, {record['records']:g}\u00d7"
    axis.set_title(action, fontsize=style.SMALL, pad=3, color=color)
    text = f"est. {record['estimated']:+.2g}, true {record['true']:+.2g}".replace("-", "\u2212")
    axis.text(0.5, -0.03, text, transform=axis.transAxes, fontsize=style.SMALL, ha="center", va="top")
