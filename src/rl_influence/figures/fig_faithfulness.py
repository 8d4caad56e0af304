"""Do influence scores predict what removing records does? Ours; the paper does not ask.

The linear datamodelling score of every scoring: the rank correlation, over removed sets of records, of what the scores
predict with what the redone round gives, for the surrogate f_return and for the test return.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rl_influence.config import Config

from . import panels, style

TABLES = ("faithfulness", "faithfulness_summary", "missing_analyses")
OUTCOMES = {  # outcome -> colour, marker, label
    "f_return": ("#0b55a5", "o", "$f_\\mathrm{return}$, which the scores are made for"),
    "test_return": ("#d55e00", "D", "test return"),
}
REMOVALS = {"subsets": "random halves", "groups": "single groups"}


def draw(tables: dict, config: Config) -> Figure:
    table, summary = tables["faithfulness"], tables["faithfulness_summary"]
    rows = [
        (condition, removal)
        for condition in panels.conditions(table)
        for removal in REMOVALS
        if (panels.rows_of(summary, condition)["removal"] == removal).any()
    ]
    if not rows:
        return style.nothing("fig_faithfulness: no run has been analysed.")
    parts = [_of(panels.rows_of(summary, condition), removal) for condition, removal in rows]
    scorings = [list(part["scoring"].unique()) for part in parts]
    heights = [0.35 + 0.17 * len(names) for names in scorings]
    columns = max(part["round"].nunique() for part in parts)
    figure = style.new_figure(style.WIDTH, sum(heights))
    grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
    for (condition, removal), part, names, axes in zip(rows, parts, scorings, grid, strict=True):
        seeds = _of(panels.rows_of(table, condition), removal)
        rounds = sorted(part["round"].unique())
        for axis in axes[len(rounds) :]:
            axis.remove()
        for axis, k in zip(axes, rounds, strict=False):
            _draw(axis, part[part["round"] == k], seeds[seeds["round"] == k], names)
            axis.set_title(f"round {k}", fontsize=6.5, pad=2)
            axis.set_yticks(range(len(names)), names if axis is axes[0] else [""] * len(names))
        count = f"n = {style.of(part.iloc[0])}, {int(part['sets'].iloc[0])} sets"
        axes[0].annotate(
            config.environments[condition[0]].label, (0, 1), (-92, 10), xycoords="axes fraction",
            textcoords="offset points", fontsize=7.5, fontweight="bold", va="bottom",
        )  # fmt: skip
        axes[0].annotate(
            f"{REMOVALS[removal]}, {count}", (0, 1), (-92, 2), xycoords="axes fraction", textcoords="offset points",
            fontsize=5.5, color="#444444", va="bottom",
        )  # fmt: skip
    handles = [
        Line2D([], [], color=color, marker=marker, linestyle="none", label=label)
        for color, marker, label in OUTCOMES.values()
    ]
    handles.append(Line2D([], [], color="#777777", lw=0.8, linestyle=":", label="reliability (same colours)"))
    notes = [
        "Points: mean over seeds; bars: 95 % t interval over seeds (cut at \u00b11), none for one seed; dots: single "
        "seeds. 1: the scores order all removals rightly.",
        "Sets: random halves of the buffer, or the largest groups one at a time (records of one state and action). "
        f"Outcomes are means over {int(summary['orders'].iloc[0])} mini-batch orders; reliability is their rank "
        "correlation between the orders, which no scoring can be expected to exceed by much.",
        *panels.missing_analyses(tables, "faithfulness", config),
    ]
    return style.finish(figure, handles, notes, "linear datamodelling score (Spearman correlation)")


def _draw(axis: Axes, means: pd.DataFrame, seeds: pd.DataFrame, names: list[str]) -> None:
    """One round: a row per scoring, the first uppermost."""
    for shift, (outcome, (color, marker, _)) in zip((-0.17, 0.17), OUTCOMES.items(), strict=True):
        own = means[means["outcome"] == outcome]
        if own["reliability"].notna().any():
            axis.axvline(own["reliability"].iloc[0], color=color, lw=0.8, linestyle=":", zorder=1)
        for row in own.to_dict("records"):
            place = names.index(row["scoring"]) + shift
            single = seeds[(seeds["outcome"] == outcome) & (seeds["scoring"] == row["scoring"])]["spearman"].dropna()
            dots = {"color": color, "linestyle": "none", "marker": ".", "markersize": 2.5, "alpha": 0.35}
            axis.plot(single, [place] * len(single), **dots)
            interval = [row["spearman_low"], row["spearman_high"]]
            if not np.isnan(interval[0]):
                axis.plot(np.clip(interval, -1, 1), [place, place], color=color, lw=0.9)
            axis.plot([row["spearman"]], [place], color=color, marker=marker, markersize=3, linestyle="none", zorder=4)
    axis.axvline(0, color="#999999", lw=0.6, zorder=0)
    axis.set_xlim(-1.05, 1.05)
    axis.set_xticks([-1, -0.5, 0, 0.5, 1], ["\u22121", "", "0", "", "1"])
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.grid(visible=False, axis="y")


def _of(table: pd.DataFrame, removal: str) -> pd.DataFrame:
    return table[table["removal"] == removal]
