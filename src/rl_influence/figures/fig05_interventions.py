"""Every round of standard PPO on its own, trained again from its start without the records of negative influence,
without as many random ones, and with all records (Figures 5 and 11 of the paper). Boxes: the change of the test
return in the round, over the seeds' rounds before the return has made 90 % of its way; quartiles, median, whiskers to
the farthest within 1.5 box lengths. Fewer records also mean fewer updates, at random as well. Below, ours, over all
rounds: the difference between removing negative records and removing nothing (circle), or as many at random (cross),
paired by round and averaged within each seed; points are means over seeds, bars t intervals over seeds, dots single
seeds. Beside all negative records, the most negative share p is removed, which is what IIF does. FrozenLake and
MiniGrid have exact returns; elsewhere the arms of a round play the same 200 test episodes (the paper: 1000), and the
panel says what this sampling adds to a change.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rl_influence.config import Config

from . import panels, style

READS = ("interventions", "interventions_summary", "missing_analyses")
NONE, WORST, CHANCE = "#777777", style.POSITIVE, "#e69f00"
ARMS = {  # arm -> place, colour
    "all": (0.0, NONE),
    "negative": (1.4, WORST),
    "random": (2.3, CHANCE),
    "negative_p": (3.7, WORST),
    "random_p": (4.6, CHANCE),
}
TICKS = {0.0: "none", 1.85: "all\nnegative", 4.15: "most\nnegative p"}
MARKERS = {"all": "o", "random": "X", "random_p": "X"}  # minus what
RISEN = 0.9


def draw(tables: dict, config: Config) -> Figure:
    table, summary = tables["interventions"], tables["interventions_summary"]
    drawn = panels.conditions(table)
    if not drawn:
        raise style.Nothing("no run has been analysed")
    figure, axes = style.grid(len(drawn), (1.35, 1.0))
    smalls, seeds = [], []
    for condition, (boxes, points) in zip(drawn, axes, strict=True):
        own, means = panels.rows_of(table, condition), panels.rows_of(summary, condition)
        _draw_boxes(boxes, rising(own))
        _draw_differences(points, own, means)
        for axis in (boxes, points):
            axis.set_xlim(-0.7, 5.3)
            axis.axhline(0, color=style.SOFT, lw=0.6, zorder=1)
            axis.grid(visible=False, axis="x")
            axis.set_xticks([*TICKS], TICKS.values() if axis is points else [""] * len(TICKS))
            axis.tick_params(axis="x", length=0)
        if boxes.get_subplotspec().is_first_col():
            boxes.set_ylabel("change of return")
            points.set_ylabel("difference")
            figure.align_ylabels([boxes, points])
        smalls.append(_small(own, means, config))
        seeds.append(int(means["n"].max()))
    names = [config.environments[environment].label for environment, _ in drawn]
    style.titles(list(axes[:, 0]), names, smalls, 40 if len(drawn) in (2, 4) else 26)
    style.mark_few(axes[:, 0], seeds)
    style.mark_few(axes[:, 1], seeds)
    entries = {
        "none removed": (NONE, "s"), "negative removed": (WORST, "s"), "as many at random": (CHANCE, "s"),
        "negative \u2212 none": (WORST, "o"), "negative \u2212 random": (WORST, "X"),
    }  # fmt: skip
    return style.finish(figure, style.points(entries), panels.missing_analyses(tables, "interventions", config))


def rising(table: pd.DataFrame) -> pd.DataFrame:
    """The rounds of each seed that begin before its return has made most of its way."""
    start, best = (table.groupby("seed")["return_before"].transform(kind) for kind in ("min", "max"))
    return table[table["return_before"] < start + RISEN * (best - start)]


def _draw_boxes(axis: Axes, table: pd.DataFrame) -> None:
    black = {"color": "#222222", "linewidth": 0.5}
    for arm, (place, color) in ARMS.items():
        props = {"medianprops": black | {"linewidth": 1.0}, "whiskerprops": black, "capprops": black}
        props["boxprops"] = {"facecolor": color, "edgecolor": "#222222", "linewidth": 0.5, "alpha": 0.8}
        deltas = table.loc[table["arm"] == arm, "delta"].to_numpy()
        axis.boxplot([deltas], positions=[place], widths=0.7, patch_artist=True, showfliers=False, **props)


def _draw_differences(axis: Axes, table: pd.DataFrame, summary: pd.DataFrame) -> None:
    deltas = table.groupby(["seed", "round", "arm"])["delta"].mean().unstack("arm")
    values, bars = [0.0], []
    for row in summary.to_dict("records"):
        place = ARMS[row["arm"]][0] + (0.1 if row["minus"] == "all" else 0.7)
        seeds = (deltas[row["arm"]] - deltas[row["minus"]]).groupby("seed").mean()
        dots = {"color": WORST, "linestyle": "none", "marker": ".", "markersize": 3, "alpha": 0.5}
        axis.plot([place + 0.15] * len(seeds), seeds, **dots)
        if not np.isnan(row["difference_low"]):
            axis.plot([place, place], [row["difference_low"], row["difference_high"]], color=WORST, lw=1.1)
            bars += [row["difference_low"], row["difference_high"]]
        axis.plot([place], [row["difference"]], color=WORST, marker=MARKERS[row["minus"]], linestyle="none")
        values += [row["difference"], *seeds]
    axis.set_ylim(style.limits([*values, *bars]))


def _small(table: pd.DataFrame, summary: pd.DataFrame, config: Config) -> str:
    """Method, p, seeds, rounds, and what the sampled test returns add."""
    environment = config.environments[table["environment"].iloc[0]]
    text = f"p = {environment.drop_percent:g} %, n = {style.of(summary.iloc[0])}, {table['round'].nunique()} rounds"
    error = np.hypot(table["se_before"], table["se_after"]).median()
    return text + (f"; sampling\u00a0\u00b1\u00a0{error:.2g}" if error else "")
