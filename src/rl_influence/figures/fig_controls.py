"""What makes up the gain of IIF over PPO: the filter, the number of updates, and clipping, each on its own.

The paper compares runs that differ in all three (its public code clips the gradient's norm in PPO only, and filtered
rounds take fewer updates). Here every row is a difference of two methods; those of one colour differ in the same thing.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rl_influence.analysis.contrasts import conditions
from rl_influence.config import Config

from . import panels, style

TABLES = ("controls", "missing_runs")
COLORS = {  # effect -> colour, marker
    "all three": ("#000000", "o"),
    "filter and updates": ("#666666", "D"),
    "filter": ("#0b55a5", "s"),
    "updates": ("#e69f00", "^"),
    "clipping": ("#882255", "v"),
}


def draw(tables: dict, config: Config) -> Figure:
    table = tables["controls"]
    # environments of which the study has controls: elsewhere there is nothing to take apart
    apart = table[table["effect"].isin(["updates", "clipping"])]
    drawn = [name for name in panels.main_environments(config) if apart.loc[apart["environment"] == name, "n"].any()]
    if not drawn:
        raise style.FigureError("fig_controls: nothing to draw, no two methods that differ in one thing have finished")
    heights = [0.2 + 0.13 * len(_rows(table, name, "mean_training_return")) for name in drawn]
    figure = style.new_figure(style.WIDTH, sum(heights) + 0.25 * len(drawn))
    grid = figure.subplots(len(drawn), 2, squeeze=False, height_ratios=heights)
    for name, axes in zip(drawn, grid, strict=True):
        for axis, (quantity, scale) in zip(axes, (("se_ave", 100), ("mean_training_return", 1)), strict=True):
            _draw(axis, _rows(table, name, quantity), scale)
        axes[1].set_yticklabels([])
        axes[0].annotate(
            config.environments[name].label, (0, 1), (-128, 2), xycoords="axes fraction", textcoords="offset points",
            fontsize=7.5, fontweight="bold",
        )  # fmt: skip
    grid[0, 0].set_title(f"{panels.EFFICIENCIES['se_ave'].label} of the first against the second (%)")
    grid[0, 1].set_title("difference in mean return")
    handles = [
        Line2D([], [], color=color, marker=marker, linestyle="none", label=effect)
        for effect, (color, marker) in COLORS.items()
        if (table["effect"] == effect).any()
    ]
    se_ave = panels.EFFICIENCIES["se_ave"].label
    notes = [
        "Points: mean over seeds, paired by seed; bars: 95 % t interval (longer where they leave the panel), none for "
        "one seed. Right of 0 the first method is ahead.",
        "Mean return: over all rounds. Random and difficulty drop as many records as IIF, which makes as many updates.",
        f"{se_ave}: with the second method in PPO's place. *: some of its returns are never reached; the last round "
        "stands for their round.",
        *style.missing_note(tables["missing_runs"], list(conditions(config)), config),
    ]
    return style.finish(figure, handles, notes)


def _rows(table, environment: str, quantity: str) -> list[dict]:
    rows = table[(table["environment"] == environment) & (table["quantity"] == quantity)]
    return rows.to_dict("records")


def _draw(axis, rows: list[dict], scale: float) -> None:
    """One panel; the first row is the uppermost."""
    values = [0.0]
    for place, row in enumerate(rows):
        if not row["n"]:
            continue
        color, marker = COLORS[row["effect"]]
        value, low, high = (scale * row[name] for name in ("value", "low", "high"))
        if not np.isnan(low):
            axis.plot([low, high], [place, place], color=color, lw=1.1)
        axis.plot([value], [place], color=color, marker=marker, linestyle="none")
        values += [value, *([] if np.isnan(low) else [low, high])]
    marks = ["*" if row["unreached"] else "" for row in rows]
    labels = [f"{row['contrast']}{mark}, n = {style.of(row)}" for row, mark in zip(rows, marks, strict=True)]
    axis.set_yticks(range(len(rows)), labels)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    # one wide interval of two seeds must not squeeze all others
    middle = np.quantile(np.abs(values), 0.8)
    axis.set_xlim(style.limits(np.clip(values, -2.5 * middle, 2.5 * middle)) if middle else None)
    axis.axvline(0, color="#999999", lw=0.6, zorder=1)
    axis.grid(visible=False, axis="y")
