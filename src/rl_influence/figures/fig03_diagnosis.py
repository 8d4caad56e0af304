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

from . import diagnoses, panels, style

READS = ("diagnosis_grid", "diagnosis_map", "diagnosis_by_rank_summary", "diagnosis_summary", "missing_analyses")
WAYS = ((-1, 0), (0, 1), (1, 0), (0, -1))  # of FrozenLake's actions: left, down, right, up


def draw(tables: dict, config: Config) -> Figure:
    runs = diagnoses.runs_of(tables["diagnosis_grid"], config, ("FrozenLake",))
    if not runs:
        raise style.Nothing("no run of FrozenLake has been diagnosed")
    run = runs[0]
    grid, tiles = (panels.rows_of(tables[name], run) for name in ("diagnosis_grid", "diagnosis_map"))
    rounds = diagnoses.rounds_of(panels.rows_of(tables["diagnosis_summary"], run[:2]))
    figure = style.new_figure(style.WIDTH, 4.2)
    axes = figure.subplots(3, len(rounds), squeeze=False, height_ratios=(1.7, 1.1, 1.1))
    for (maps, errors, products), k in zip(axes.T, rounds, strict=True):
        diagnoses.draw_map(maps, tiles)
        for x, y, tile in tiles[["x", "y", "tile"]].itertuples(index=False):
            if tile != "floor":
                letter = {"color": style.GREY, "fontsize": style.SMALL, "ha": "left", "va": "top"}
                maps.text(x - 0.46, y - 0.46, tile[0].upper(), zorder=2, **letter)
        bottom = grid[grid["round"] == k]
        _draw_arrows(maps, bottom)
        maps.set_title(f"round {k}, bottom {bottom['records'].sum():g}")
        diagnoses.draw_ranks(errors, products, tables, run[:2], k)
        errors.set_xticklabels([])
    axes[1, 0].set_ylabel(f"|true \u2212 estimated|\n{diagnoses.ROOT_SCALE}")
    axes[2, 0].set_ylabel(f"true \u00d7 estimated\n{diagnoses.ROOT_SCALE}")
    figure.align_ylabels(axes[1:, 0])
    handles = [
        *(Patch(facecolor=color, label=f"estimated {sign}") for color, sign in diagnoses.SIGNS.values()),
        *(
            Patch(facecolor="white", edgecolor=color, linewidth=1.0, label=f"truly {sign}")
            for color, sign in diagnoses.SIGNS.values()
        ),
        *diagnoses.rank_handles(),
    ]
    notes = diagnoses.notes(tables, config, run)
    return style.finish(figure, handles, notes, diagnoses.RANK_LABEL, diagnoses.SMALL)


def _draw_arrows(axis: Axes, bottom: pd.DataFrame) -> None:
    for row in bottom.to_dict("records"):
        dx, dy = WAYS[int(row["action"])]
        width = 0.05 + 0.13 * np.sqrt(row["records"] / bottom["records"].max())
        axis.add_patch(
            FancyArrow(
                row["column"] + 0.12 * dx,
                row["row"] + 0.12 * dy,
                0.33 * dx,
                0.33 * dy,
                width=width,
                head_width=width + 0.13,
                head_length=0.15,
                length_includes_head=True,
                facecolor=diagnoses.SIGNS[row["positive"] >= 0.5][0],
                edgecolor=diagnoses.SIGNS[row["true"] >= 0][0],
                linewidth=1.0,
                zorder=3,
            )
        )
