"""Figure 9: records of most negative influence where there is no map: states in numbers, or frames.

The paper shows frames of Pong and of BipedalWalker; a state table says more than the latter's picture.
"""

from __future__ import annotations

import base64
import io

import matplotlib.image
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rl_influence.config import Config

from . import diagnoses, panels, style

TABLES = ("diagnosis_records", "missing_analyses")
SHOWN = 6  # records of a round


def draw(tables: dict, config: Config) -> Figure:
    table = tables["diagnosis_records"]
    runs = [] if table.empty else diagnoses.runs_of(table, config, ("",))
    parts: dict[tuple[str, str], pd.DataFrame] = {}  # (environment, method) -> a round of its first run
    for run in runs:
        own = panels.rows_of(table, run)
        own = own[own["round"] == diagnoses.rounds_of(own)[-1]].dropna(axis=1, how="all")
        if "frame" in own or "mean" in set(own["end"]):
            parts.setdefault(run[:2], own)
    if not parts:
        return style.nothing("fig09_records: no run of an environment without a map has been diagnosed.")
    heights = [1.3 if "frame" in own else 0.6 + 0.105 * len(_rows(own)) for own in parts.values()]
    figure = style.new_figure(style.WIDTH, sum(heights))
    for place, own in zip(figure.add_gridspec(len(parts), 1, height_ratios=heights), parts.values(), strict=True):
        environment, _, seed = own[panels.KEY].iloc[0]
        worst = own[own["end"] == "bottom"].head(SHOWN)
        title = f"{config.environments[environment].label}, round {own['round'].iloc[0]:g}, seed {seed}"
        if "frame" in own:
            _draw_frames(place.subgridspec(1, SHOWN).subplots(), worst, title)
        else:
            _draw_states(figure.add_subplot(place), own, worst, title)
    handles = [
        Line2D([], [], color=color, marker="s", linestyle="none", label=f"{sign} advantage estimate")
        for color, sign in diagnoses.SIGNS.values()
    ]
    notes = [
        "The records of most negative influence, the worst one first. Numbers: state, action and advantage estimate, "
        "beside mean and standard deviation over the buffer; bold where they lie more than two of these from the mean.",
        *panels.missing_analyses(tables, "diagnosis", config, [environment for environment, _ in parts]),
    ]
    return style.finish(figure, handles, notes)


def _draw_frames(axes: np.ndarray, worst: pd.DataFrame, title: str) -> None:
    for axis in axes:
        axis.set_axis_off()
    for axis, record in zip(axes, worst.to_dict("records"), strict=False):
        picture = matplotlib.image.imread(io.BytesIO(base64.b64decode(record["frame"])))
        axis.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        color, _ = diagnoses.SIGNS[record["advantage"] >= 0]
        text = f"action {record['action']:g}\n{record['advantage']:+.2f}"
        axis.text(0.5, -0.04, text, transform=axis.transAxes, fontsize=5.5, color=color, ha="center", va="top")
    axes[0].set_title(title, loc="left")


def _rows(own: pd.DataFrame) -> list[str]:
    """Columns of the state, the action (or its dimensions) and the advantage."""
    mean = own[own["end"] == "mean"].iloc[0].drop([*panels.KEY, "round", "end", "advantage"])
    return [*mean.index[mean.notna()], *(["action"] if "action" in own else []), "advantage"]


def _draw_states(axis: Axes, own: pd.DataFrame, worst: pd.DataFrame, title: str) -> None:
    """A table: a row per quantity, a column per record, and those of mean and standard deviation."""
    axis.set_axis_off()
    axis.set_title(title, loc="left")
    mean, std = (own[own["end"] == end].iloc[0] for end in ("mean", "std"))
    names = _rows(own)
    axis.set_xlim(0, 1)
    axis.set_ylim(len(names) + 0.2, -1.2)
    places = np.linspace(0.3, 0.8, SHOWN)
    head = {"fontsize": 5.5, "color": "#444444", "ha": "right", "va": "center"}
    for place, record in zip(places, worst.to_dict("records"), strict=False):
        axis.text(place, -0.8, f"record {record['record']:g}", **head)
    axis.text(0.99, -0.8, "buffer", **head)
    for row, name in enumerate(names):
        if row % 2 == 0:
            axis.axhspan(row - 0.5, row + 0.5, color="#f4f4f4", lw=0)
        axis.text(0.005, row, name.replace("_", " "), fontsize=5.5, va="center")
        for place, record in zip(places, worst.to_dict("records"), strict=False):
            far = abs(record[name] - mean[name]) > 2 * std[name]  # no discrete action is
            color = diagnoses.SIGNS[record[name] >= 0][0] if name == "advantage" else "#000000"
            text = f"{record[name]:.0f}" if name == "action" else f"{record[name]:.2f}"
            weight = "bold" if far else "normal"
            axis.text(place, row, text, fontsize=5.5, ha="right", va="center", color=color, fontweight=weight)
        if name != "action":
            axis.text(0.99, row, f"{mean[name]:.2f} \u00b1 {std[name]:.2f}", fontsize=5.5, ha="right", va="center")
