"""Whether influence scores predict what removing records does to a round (ours; the paper reports no such test): the
linear datamodelling score, the Spearman correlation, over removed sets of records, of the summed scores with the
outcome of the redone round. 1: the scores order all removals rightly. Points are seeds, ticks their mean; the
intervals of each seed, by bootstrap over the sets, are in the table. Blue: the surrogate that the scores are made
for, f_return on the whole buffer; orange: the exact test return. Sets: random halves of the buffer, or the largest
groups of records of one state and action, one at a time. Outcomes are means over mini-batch orders; dotted: their
rank correlation between the orders, which no scoring can be expected to exceed by much. Scorings: full TracIn over
the round's steps, IIF's shortcut at its start with raw and with normalised advantages, and baselines.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rl_influence.analysis.numbers import REMOVALS
from rl_influence.config import Config

from . import panels, style

READS = ("faithfulness", "faithfulness_summary", "missing_analyses")
PLACE = ["environment", "method", "removal"]
OUTCOMES = {"f_return": (style.POSITIVE, "o", "f_return"), "test_return": (style.NEGATIVE, "D", "test return")}


def draw(tables: dict, config: Config) -> Figure:
    table = tables["faithfulness"]
    if table.empty:
        raise style.Nothing("no run has been analysed")
    summary = tables["faithfulness_summary"].set_index(PLACE)
    parts = dict(iter(table.groupby(PLACE, sort=False)))
    scorings = [list(part["scoring"].unique()) for part in parts.values()]
    heights = [0.5 + 0.17 * len(names) for names in scorings]
    columns = max(part["round"].nunique() for part in parts.values())
    figure = style.new_figure(style.WIDTH, sum(heights))
    grid = figure.subplots(len(parts), columns, squeeze=False, height_ratios=heights)
    for (place, part), names, axes in zip(parts.items(), scorings, grid, strict=True):
        rounds = sorted(part["round"].unique())
        for axis in axes[len(rounds) :]:
            axis.remove()
        for axis, k in zip(axes, rounds, strict=False):
            _draw(axis, part[part["round"] == k], names)
            axis.set_title(f"round {k}", fontsize=style.SMALL, pad=2)
            axis.set_yticks(range(len(names)), names if axis is axes[0] else [""] * len(names))
        count = style.of(summary.loc[[place]].iloc[0])
        left = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "bottom"}
        label = config.environments[place[0]].label
        axes[0].annotate(label, (0, 1), (-104, 12), fontsize=7.5, fontweight="bold", **left)
        text = f"{REMOVALS[place[2]]}, n = {count}"
        axes[0].annotate(text, (0, 1), (-104, 3), fontsize=style.SMALL, color=style.GREY, **left)
    handles = style.points({label: (color, marker) for color, marker, label in OUTCOMES.values()})
    handles += style.points({"mean": (style.GREY, "|")}, markersize=7)
    handles.append(style.handle(color=style.GREY, lw=0.8, linestyle=":", label="reliability"))
    notes = [
        f"Sets: {'; '.join(f'{REMOVALS[name]}: {n:g}' for name, n in table.groupby('removal')['sets'].max().items())}; "
        f"mini-batch orders: {table['orders'].max():g}.",
        *panels.missing_analyses(tables, "faithfulness", config),
    ]
    return style.finish(figure, handles, notes, "linear datamodelling score (Spearman correlation)")


def _draw(axis: Axes, seeds: pd.DataFrame, names: list[str]) -> None:
    """One round: a row per scoring, the first uppermost."""
    for shift, (outcome, (color, marker, _)) in zip((-0.19, 0.19), OUTCOMES.items(), strict=True):
        own = seeds[seeds["outcome"] == outcome]
        if own["reliability"].notna().any():
            axis.axvline(own["reliability"].mean(), color=color, lw=0.8, linestyle=":", zorder=1)
        for place, name in enumerate(names):
            single = own.loc[own["scoring"] == name, "spearman"].dropna()
            dots = {"color": color, "linestyle": "none", "marker": marker, "markersize": 2.6, "alpha": 0.6}
            axis.plot(single, [place + shift] * len(single), **dots, markeredgewidth=0)
            if len(single):
                axis.plot([single.mean()], [place + shift], color=color, marker="|", markersize=7, markeredgewidth=1.2)
    axis.axvline(0, color=style.SOFT, lw=0.6, zorder=0)
    axis.set_xlim(-1.05, 1.05)
    axis.set_xticks(np.linspace(-1, 1, 5), ["\u22121", "", "0", "", "1"])
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.grid(visible=False, axis="y")
