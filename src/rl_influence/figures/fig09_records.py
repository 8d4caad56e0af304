"""The records of most negative influence in BipedalWalker and Pong (Figure 9 of the paper), the worst one first, of
one run each: the walker in the state of the record, with the ground where its lidar meets it and feet filled that
touch it, or the frame that the policy saw, with its action and the record's advantage estimate.
"""

from __future__ import annotations

import base64
import io

import matplotlib.image
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from rl_influence.analysis.geometry import walker
from rl_influence.config import Config

from . import diagnoses, panels, style

READS = ("diagnosis_records", "missing_analyses")
PICTURES = 5  # of a run
LEGS = ("#444444", "#9a9a9a")
PONG = ("none", "fire", "up", "down", "up, fire", "down, fire")
JOINTS = ("hip{}_angle", "hip{}_speed", "knee{}_angle", "knee{}_speed", "contact{}")
STATE = ["hull_angle", "hull_angular_velocity", "vx", "vy"]
STATE += [name.format(leg) for leg in (1, 2) for name in JOINTS] + [f"lidar{ray}" for ray in range(10)]


def draw(tables: dict, config: Config) -> Figure:
    table = tables["diagnosis_records"]
    runs = [] if table.empty else panels.runs_of(table, config, ("BipedalWalker", "ALE/", "Pong"))
    parts: dict[tuple[str, str], pd.DataFrame] = {}  # (environment, method) -> the worst of a round of its first run
    for run in runs:
        own = panels.rows_of(table, run)
        own = own[(own["round"] == diagnoses.rounds_of(own)[-1]) & (own["end"] == "bottom")].dropna(axis=1, how="all")
        parts.setdefault(run[:2], own.sort_values("place").head(PICTURES))
    if not parts:
        raise style.Nothing("no run of BipedalWalker or Pong has been diagnosed")
    figure = style.new_figure(style.WIDTH, 1.55 * len(parts))
    rows = figure.subplots(len(parts), PICTURES, squeeze=False)
    for axes, ((environment, _), worst) in zip(rows, parts.items(), strict=True):
        for axis in axes:
            axis.set_axis_off()
        for axis, record in zip(axes, worst.to_dict("records"), strict=False):
            color, _ = diagnoses.SIGNS[record["advantage"] >= 0]
            words = _draw_frame(axis, record) if "frame" in record else _draw_walker(axis, record)
            text = f"{words}\n{record['advantage']:+.2f}".replace("-", "\u2212")
            at = {"transform": axis.transAxes, "ha": "center", "va": "top"}
            axis.text(0.5, -0.03, text, fontsize=style.SMALL, color=color, **at)
        seed, k = worst[["seed", "round"]].iloc[0]
        axes[0].set_title(f"{config.environments[environment].label}, round {k:g}, seed {seed:g}", loc="left")
    handles = style.points({f"{sign} advantage estimate": (color, "s") for color, sign in diagnoses.SIGNS.values()})
    missing = panels.missing_analyses(tables, "diagnosis", config, [environment for environment, _ in parts])
    return style.finish(figure, handles, missing)


def _draw_frame(axis: Axes, record: dict) -> str:
    picture = matplotlib.image.imread(io.BytesIO(base64.b64decode(record["frame"])))
    axis.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    return PONG[int(record["action"])]


def _draw_walker(axis: Axes, record: dict) -> str:
    found = walker([record.get(name, 0.0) for name in STATE])
    axis.plot(*found["ground"].T, color=style.SOFT, lw=1.0)
    axis.add_patch(Polygon(found["hull"], facecolor="#c8c8c8", edgecolor=style.GREY, lw=0.6, zorder=3))
    for leg, contact, color in zip(found["legs"], found["contacts"], LEGS, strict=True):
        axis.plot(*leg.T, color=color, lw=2.2, solid_capstyle="round", solid_joinstyle="round", zorder=2)
        foot = {"marker": "o", "markersize": 4, "color": color, "markerfacecolor": color if contact else "white"}
        axis.plot(*leg[2], **foot, zorder=4)
    axis.set_xlim(-2.7, 2.6)
    axis.set_ylim(-3.0, 1.3)
    axis.set_aspect("equal")
    return f"hull {np.degrees(record['hull_angle']):.0f}\u00b0"
