"""Figures 5 and 11: every round on its own, trained again without its records of negative influence, without as many
random ones, and with all of them.

The paper shows the change of the return, whose spread is that of the rounds. The second row, ours, pairs the arms by
round: the claim is about that difference, and the seed is its unit.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rl_influence.config import Config

from . import panels, style

TABLES = ("interventions", "interventions_summary", "missing_analyses")
ARMS = {  # arm -> colour, label
    "all": ("#777777", "nothing removed"),
    "negative": ("#0b55a5", "all negative removed"),
    "random": ("#e69f00", "as many at random"),
    "negative_p": ("#7fb3dc", "most negative p removed"),
    "random_p": ("#f3d08a", "as many at random (p)"),
}
PLACES = {"all": 0.0, "negative": 1.2, "random": 2.0, "negative_p": 3.2, "random_p": 4.0}
MARKERS = {False: "o", True: "X"}  # against nothing removed, against random


def draw(tables: dict, config: Config) -> Figure:
    table, summary = tables["interventions"], tables["interventions_summary"]
    drawn = panels.conditions(table)
    if not drawn:
        return style.nothing("fig05_interventions: no run has been analysed.")
    figure, axes = style.grid(len(drawn), (1.6, 1.1))
    smalls = []
    for condition, (boxes, points) in zip(drawn, axes, strict=True):
        own = panels.rows_of(table, condition)
        _draw_boxes(boxes, own)
        _draw_differences(points, own, panels.rows_of(summary, condition))
        if boxes.get_subplotspec().is_first_col():
            boxes.set_ylabel("change of test return")
            points.set_ylabel("difference")
        figure.align_ylabels([boxes, points])
        smalls.append(_counts(own, panels.rows_of(summary, condition), condition, config))
    names = [config.environments[environment].label for environment, _ in drawn]
    style.titles(list(axes[:, 0]), names, smalls, 40 if len(drawn) in (2, 4) else 34)
    handles = [Line2D([], [], color=color, marker="s", linestyle="none", label=text) for color, text in ARMS.values()]
    versus = {False: "minus nothing removed", True: "minus random"}
    handles += [
        Line2D([], [], color="#444444", marker=MARKERS[random], linestyle="none", label=text)
        for random, text in versus.items()
    ]
    notes = [
        "Above: every round of every seed on its own; box: quartiles, line: median, whiskers: the farthest within 1.5 "
        "box lengths, dots: beyond. Fewer records also mean fewer updates, at random as well.",
        "Below: differences paired by round and averaged within each seed; points: mean over seeds, bars: 95 % t "
        "interval (longer where they leave the panel), none for one seed; dots: single seeds.",
        *panels.missing_analyses(tables, "interventions", config),
    ]
    return style.finish(figure, handles, notes)


def _draw_boxes(axis: Axes, table: pd.DataFrame) -> None:
    for arm, place in PLACES.items():
        color, black = ARMS[arm][0], "#222222"
        axis.boxplot(
            [table.loc[table["arm"] == arm, "delta"].to_numpy()],
            positions=[place],
            widths=0.65,
            patch_artist=True,
            boxprops={"facecolor": color, "edgecolor": black, "linewidth": 0.5},
            medianprops={"color": black, "linewidth": 1.0},
            whiskerprops={"color": black, "linewidth": 0.5},
            capprops={"color": black, "linewidth": 0.5},
            flierprops={"marker": ".", "markersize": 1.5, "markeredgecolor": color, "markerfacecolor": color},
        )
    axis.axhline(0, color="#999999", lw=0.6, zorder=0)
    axis.set_xticks([])
    axis.set_xlim(-0.7, 4.7)
    axis.grid(visible=False, axis="x")


def _draw_differences(axis: Axes, table: pd.DataFrame, summary: pd.DataFrame) -> None:
    deltas = table.groupby(["seed", "round", "arm"])["delta"].mean().unstack("arm")
    values, bars = [0.0], []
    for row in summary.to_dict("records"):
        random = row["minus"].startswith("random")
        place, color = PLACES[row["arm"]] + 0.2 + (0.4 if random else 0.0), ARMS[row["arm"]][0]
        seeds = (deltas[row["arm"]] - deltas[row["minus"]]).groupby("seed").mean()
        dots = {"color": color, "linestyle": "none", "marker": ".", "markersize": 3, "alpha": 0.5}
        axis.plot([place + 0.12] * len(seeds), seeds, **dots)
        if not np.isnan(row["difference_low"]):
            axis.plot([place, place], [row["difference_low"], row["difference_high"]], color=color, lw=1.1)
            bars += [row["difference_low"], row["difference_high"]]
        axis.plot([place], [row["difference"]], color=color, marker=MARKERS[random], linestyle="none")
        values += [row["difference"], *seeds]
    largest = 2.5 * np.max(np.abs(values))  # the wide interval of two seeds must not squeeze all others
    axis.set_ylim(style.limits(np.clip([*values, *bars], -largest, largest)) if largest else None)
    axis.axhline(0, color="#999999", lw=0.6, zorder=1)
    axis.set_xticks([PLACES["negative"] + 0.4, PLACES["negative_p"] + 0.4], ["all negative", "most negative p"])
    axis.tick_params(axis="x", length=0)
    axis.set_xlim(-0.7, 4.7)
    axis.grid(visible=False, axis="x")


def _counts(table: pd.DataFrame, summary: pd.DataFrame, condition: tuple[str, str], config: Config) -> str:
    """Method, p, seeds, rounds, and what the sampled test returns add."""
    environment, method = (config.environments[condition[0]], config.methods[condition[1]])
    rounds, seeds = table["round"].nunique(), style.of(summary.iloc[0])
    text = f"{method.label}, p = {environment.drop_percent:g} %; n = {seeds} seed{'s' if seeds != '1' else ''}"
    text += f", {rounds} round{'s' if rounds != 1 else ''} each"
    error = np.hypot(table["se_before"], table["se_after"]).median()
    return text + (f"; sampling adds about \u00b1 {error:.2g} to a change" if error else "; exact returns")
