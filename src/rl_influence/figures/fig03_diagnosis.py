"""Figure 3: the records of most negative influence in FrozenLake, on the map, and how wrong their advantages are.

The paper shows one run and estimates the true advantages; here they are exact, the map is one run's, and the rest are
means over seeds.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrow, Patch

from rl_influence.config import Config

from . import diagnoses, panels, style

TABLES = ("diagnosis_grid", "diagnosis_map", *diagnoses.RANK_TABLES, "missing_analyses")
DIRECTIONS = ((-1, 0), (0, 1), (1, 0), (0, -1))  # of FrozenLake's actions: left, down, right, up


def draw(tables: dict, config: Config) -> Figure:
    runs = diagnoses.runs_of(tables["diagnosis_grid"], config, ("FrozenLake",))
    if not runs:
        return style.nothing("fig03_diagnosis: no run of FrozenLake has been diagnosed.")
    run = runs[0]
    environment, method, seed = run
    grid, tiles = (panels.rows_of(tables[name], run) for name in TABLES[:2])
    rounds = diagnoses.rounds_of(panels.rows_of(tables["diagnosis_summary"], run[:2]))
    figure = style.new_figure(style.WIDTH, 4.3)
    axes = figure.subplots(3, len(rounds), squeeze=False, height_ratios=(1.75, 1.1, 1.1))
    for (maps, errors, products), k in zip(axes.T, rounds, strict=True):
        diagnoses.draw_map(maps, tiles)
        for x, y, tile in tiles[["x", "y", "tile"]].itertuples(index=False):
            if tile != "floor":
                letter = {"color": "#666666", "fontsize": 5, "ha": "left", "va": "top"}
                maps.text(x - 0.46, y - 0.46, tile[0].upper(), zorder=2, **letter)
        bottom = grid[grid["round"] == k]
        _draw_arrows(maps, bottom)
        maps.set_title(f"round {k}, bottom {bottom['records'].sum():g}")
        diagnoses.draw_ranks(errors, products, tables, run[:2], k)
        errors.set_xticklabels([])
    axes[1, 0].set_ylabel("|true \u2212 estimated|")
    axes[2, 0].set_ylabel("true \u00d7 estimated")
    figure.align_ylabels(axes[1:, 0])
    handles = [
        *(Patch(facecolor=color, label=f"{sign} estimate") for color, sign in diagnoses.SIGNS.values()),
        *(
            Patch(facecolor="white", edgecolor=color, linewidth=1.0, label=f"truly {sign}")
            for color, sign in diagnoses.SIGNS.values()
        ),
        *diagnoses.rank_handles(),
    ]
    seeds = style.of(panels.rows_of(tables["diagnosis_summary"], run[:2]).iloc[0])
    notes = [
        f"{config.environments[environment].label}, {config.methods[method].label}. Map: seed {seed}; S start, H hole, "
        "G goal; an arrow is an action in a state, its width the number of records; filled by the sign of most of "
        "their advantage estimates, outlined by the sign of the true advantage.",
        diagnoses.RANK_NOTE + f" n = {seeds} seeds.",
        *panels.missing_analyses(tables, "diagnosis", config, [environment]),
    ]
    return style.finish(figure, handles, notes, "rank of influence, 1 = most positive")


def _draw_arrows(axis: Axes, bottom: pd.DataFrame) -> None:
    for row in bottom.to_dict("records"):
        dx, dy = DIRECTIONS[int(row["action"])]
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
