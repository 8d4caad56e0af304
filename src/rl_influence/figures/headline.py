"""Does IIF learn faster than PPO? Left: all environments together, the interquartile mean of the returns, normalised
so that 0 is PPO's untrained return and 1 the top of its mean curve, against the share of each environment's rounds.
Middle: the share of PPO's rounds that IIF at the environment's own p saves, paired by seed: the paper's metric SE_ave
with the paper's number beside it (hollow arrow: an upper bound, since some of PPO's returns were never reached), and
the rounds to 50, 75 and 90 % of PPO's rise, a measure that is 0 between equal methods, where SE_ave is below 0.
Right: the probability that a run of IIF has a higher mean training return than one of PPO. Every environment has the
same weight. Intervals: t over seeds, Welch's over environments, and on the left and in the last row on the right a
stratified bootstrap. Grey rows have fewer than three seeds.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rl_influence.analysis.aggregate import ALL, FEWEST
from rl_influence.analysis.curves import chosen_iif, reference_method
from rl_influence.config import Config

from . import panels, style

READS = ("aggregate_curves", "improvement", "efficiency", "missing_runs")
SE_AVE, PASSAGE = ("s", "SE_ave, the paper's metric"), ("o", "rounds to 50, 75, 90 % of PPO's rise")
BOUND = ("<", "SE_ave, at most")
PASSAGE_COLOR = "#5b9bd5"
LIMITS = (-60.0, 100.0)


def draw(tables: dict, config: Config) -> Figure:
    table = tables["improvement"]
    table = table[(table["method"] == "chosen") & (table["n"] > 0)].reset_index(drop=True)
    if table.empty:
        raise style.Nothing("IIF has no finished run beside PPO's of the same seed")
    figure = style.new_figure(style.WIDTH, max(2.2, 0.9 + 0.26 * len(table)))
    curves, saved, chances = figure.subplots(1, 3, width_ratios=(1.35, 1.25, 0.7))
    _draw_curves(curves, tables["aggregate_curves"], config)
    curves.set_title(_seeds(tables["aggregate_curves"], table), color=style.GREY)
    bounds = False
    for place, row in table.iterrows():
        few = row["n"] < FEWEST
        for axis in (saved, chances):
            if few:
                axis.axhspan(place - 0.5, place + 0.5, color=style.THIN, lw=0, zorder=0)
            if row["environment"] == ALL:
                axis.axhline(place - 0.5, color=style.SOFT, lw=0.6)
        if row["environment"] != ALL:
            mean = panels.find(tables["efficiency"], row["environment"], chosen_iif(config, row["environment"]))
            _draw_se_ave(saved, mean, place - 0.2)
            bounds |= bool(mean["unreached"])
        below = place + (0 if row["environment"] == ALL else 0.2)
        _draw_interval(saved, row, "rounds_saved", below, PASSAGE[0], 100, PASSAGE_COLOR)
        _draw_interval(chances, row, "probability", place, "D", 1, style.POSITIVE)
    labels = [
        "all" if row.environment == ALL else f"{config.environments[row.environment].label}, n = {row.n}"
        for row in table.itertuples()
    ]
    saved.set_yticks(range(len(table)), labels)
    chances.set_yticks(range(len(table)), [""] * len(table))
    saved.set_xlim(*LIMITS)
    saved.set_xlabel("rounds saved by IIF (%)")
    chances.set_xlim(-0.08, 1.08)  # room for a marker at either end
    chances.set_xticks([0, 0.5, 1], ["0", "\u00bd", "1"])
    chances.set_xlabel("P(IIF's mean\ntraining return\n> PPO's)")
    for axis, nothing in ((saved, 0), (chances, 0.5)):
        axis.set_ylim(len(table) - 0.5, -0.5)
        axis.axvline(nothing, color=style.SOFT, lw=0.6, zorder=1)
        axis.grid(visible=False, axis="y")
        axis.tick_params(axis="y", length=0)
    handles = [
        *(style.handle(**_look(role, config)) for role in tables["aggregate_curves"]["method"].unique()),
        *style.points({PASSAGE[1]: (PASSAGE_COLOR, PASSAGE[0]), SE_AVE[1]: (style.POSITIVE, SE_AVE[0])}),
        *(style.points({BOUND[1]: (style.POSITIVE, BOUND[0])}, markerfacecolor="white") if bounds else []),
        style.paper_handle(),
    ]
    methods = {e: [reference_method(config), chosen_iif(config, e)] for e in panels.compared_environments(config)}
    return style.finish(figure, handles, panels.missing(tables, config, methods))


def _look(role: str, config: Config) -> dict:
    return style.iif_look() if role == "chosen" else style.look(config, role)


def _draw_curves(axis: Axes, table: pd.DataFrame, config: Config) -> None:
    for place, role in enumerate(table["method"].unique()):
        own, look = table[table["method"] == role], _look(role, config)
        axis.fill_between(100 * own["share"], own["low"], own["high"], color=look["color"], alpha=0.15, lw=0)
        axis.plot(100 * own["share"], own["iqm"], **look, markevery=(3 * place, 10), zorder=3)
    axis.set_xlabel("rounds (% of each environment's)")
    axis.set_ylabel("normalised return (IQM)")
    if table.empty:
        axis.text(0.5, 0.5, "too few seeds", transform=axis.transAxes, ha="center", color=style.GREY)


def _seeds(curves: pd.DataFrame, improvement: pd.DataFrame) -> str:
    """What is averaged on the left: `5 environments × 5 seeds`, or each one's number of seeds."""
    if curves.empty:
        return ""
    environments, runs = (int(curves[name].iloc[0]) for name in ("environments", "runs"))
    own = improvement[(improvement["environment"] != ALL) & (improvement["n"] >= FEWEST)]["n"]
    places = f"{environments} environment{'' if environments == 1 else 's'}"
    if {*own} == {runs / environments}:
        return f"{places} \u00d7 {runs // environments} seeds"
    return f"{places},\n{' + '.join(map(str, own)) if own.sum() == runs else runs} seeds"


def _draw_se_ave(axis: Axes, mean: pd.Series, place: float) -> None:
    marker, fill = (BOUND[0], "white") if mean["unreached"] else (SE_AVE[0], style.POSITIVE)
    _draw_interval(axis, mean, "se_ave", place, marker, 100, style.POSITIVE, markerfacecolor=fill)
    paper, spread = 100 * mean["paper_se_ave"], 100 * mean["paper_se_ave_spread"]
    if not np.isnan(paper):
        axis.plot([paper - spread, paper + spread], [place, place], color=style.PAPER["color"], lw=0.8)
        axis.plot([paper], [place], **style.PAPER, zorder=5)


def _draw_interval(
    axis, row: pd.Series, name: str, place: float, marker: str, scale: float, color: str, **look
) -> None:
    value, low, high = (scale * row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if not np.isnan(low):
        axis.plot(np.clip([low, high], *(LIMITS if scale > 1 else (0, 1))), [place, place], color=color, lw=1.1)
    axis.plot([value], [place], color=color, marker=marker, linestyle="none", zorder=4, **look)
