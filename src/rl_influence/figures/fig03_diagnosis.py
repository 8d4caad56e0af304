"""The 100 records of most negative influence in three rounds of a PPO run in FrozenLake (Figure 3 of the paper), on
the map: an arrow is an action in a state (S start, H hole, G goal), its width the number of records, filled by the
sign of most of their advantage estimates, outlined by the sign of the true advantage. Below, over all seeds and in
bins of equal size: the error of the estimate and the product of true and estimated advantage by rank of influence, on
root scales; shaded: 100 records at each end; bottom / top: the error in the last bin over that in the first. The true
advantage is exact; grey, as in the paper, it is estimated from the buffer's own visits. ρ is the Spearman correlation
of *influence* with the product: positive if helpful records have advantages of the right sign. The paper correlates
with the rank, which turns the sign.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrow, Patch

from rl_influence.config import Config

from . import diagnoses, style

READS = ("diagnosis_grid", "diagnosis_map", "diagnosis_by_rank_summary", "diagnosis_summary", "missing_analyses")
WAYS = ((-1, 0), (0, 1), (1, 0), (0, -1))  # of FrozenLake's actions: left, down, right, up


def draw(tables: dict, config: Config) -> Figure:
    handles = [Patch(facecolor=color, label=f"estimated {sign}") for color, sign in diagnoses.SIGNS.values()]
    truly = {"facecolor": "white", "linewidth": 1.0}
    handles += [Patch(edgecolor=color, label=f"truly {sign}", **truly) for color, sign in diagnoses.SIGNS.values()]
    heights = (4.2, 1.7, 1.1, 1.1)
    return diagnoses.draw_grid_world(tables, config, "FrozenLake", _draw_map, heights, handles)


def _draw_map(axes: list[Axes], tiles: pd.DataFrame, bottom: pd.DataFrame, k: int) -> None:
    (axis,) = axes
    diagnoses.draw_map(axis, tiles)
    letter = {"color": style.GREY, "fontsize": style.SMALL, "ha": "left", "va": "top"}
    for x, y, tile in tiles[["x", "y", "tile"]].itertuples(index=False):
        if tile != "floor":
            axis.text(x - 0.46, y - 0.46, tile[0].upper(), zorder=2, **letter)
    _draw_arrows(axis, bottom)
    axis.set_title(f"round {k}, bottom {bottom['records'].sum():g}")


def _draw_arrows(axis: Axes, bottom: pd.DataFrame) -> None:
    for row in bottom.to_dict("records"):
        dx, dy = WAYS[int(row["action"])]
        width = 0.05 + 0.13 * np.sqrt(row["records"] / bottom["records"].max())
        shape = {"width": width, "head_width": width + 0.13, "head_length": 0.15, "length_includes_head": True}
        fill, edge = (diagnoses.SIGNS[yes][0] for yes in (row["positive"] >= 0.5, row["true"] >= 0))
        start = row["column"] + 0.12 * dx, row["row"] + 0.12 * dy
        look = {"facecolor": fill, "edgecolor": edge, "linewidth": 1.0, "zorder": 3}
        axis.add_patch(FancyArrow(*start, 0.33 * dx, 0.33 * dy, **shape, **look))
