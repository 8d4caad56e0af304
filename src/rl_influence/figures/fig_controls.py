"""What the gain of IIF over PPO is made of. Each row is a difference of two methods, paired by seed: points are means
over seeds, bars t intervals (n in the row's label; none for one seed). Right of 0 the first method is ahead. Rows of
one colour differ in the same thing: which records train (filter), how many updates a round makes (updates), clipping
of the gradient's norm (clipping), or several of these; random and difficulty drop as many records as IIF, which makes
as many updates. Left: the share of rounds that the first method saves against the second at 50, 75 and 90 % of PPO's
rise; hollow: a bound, since one of them never got there. Right: mean test return over training. The paper shows no
such comparison; its public code, which clips PPO only and whose filtered rounds take fewer updates, is the row of all
three.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from rl_influence.analysis.contrasts import conditions
from rl_influence.config import Config

from . import panels, style

READS = ("controls", "missing_runs")
EFFECTS = {  # effect -> colour, marker
    "all three": ("#000000", "o"),
    "filter and updates": ("#666666", "D"),
    "filter": ("#0b55a5", "s"),
    "updates": ("#e69f00", "^"),
    "clipping": ("#882255", "v"),
}
COLUMNS = {"rounds_saved": (100, "rounds saved (%)"), "mean_training_return": (1, "training return, difference")}


def draw(tables: dict, config: Config) -> Figure:
    table = tables["controls"]
    # environments of which the study has controls: elsewhere there is nothing to take apart
    apart = table[table["effect"].isin(["updates", "clipping"])]
    drawn = [e for e in panels.compared_environments(config) if panels.rows_of(apart, (e,))["n"].any()]
    if not drawn:
        raise style.Nothing("no two methods that differ in one thing have finished")
    parts = {name: panels.rows_of(table[table["n"] > 0], (name,)) for name in drawn}
    heights = [0.3 + 0.15 * part["contrast"].nunique() for part in parts.values()]
    figure = style.new_figure(style.WIDTH, sum(heights) + 0.25 * len(drawn))
    grid = figure.subplots(len(drawn), 2, squeeze=False, height_ratios=heights)
    for (name, part), axes in zip(parts.items(), grid, strict=True):
        for axis, (quantity, (scale, label)) in zip(axes, COLUMNS.items(), strict=True):
            _draw(axis, part[part["quantity"] == quantity].to_dict("records"), scale)
            if axis in grid[-1]:
                axis.set_xlabel(label)
        axes[1].set_yticklabels([])
        axes[0].annotate(
            config.environments[name].label, (0, 1), (-140, 3), xycoords="axes fraction", textcoords="offset points",
            fontsize=8, fontweight="bold",
        )  # fmt: skip
    handles = style.points({effect: look for effect, look in EFFECTS.items() if (table["effect"] == effect).any()})
    handles += style.points({"a bound": (style.GREY, "o")}, markerfacecolor="white")
    return style.finish(figure, handles, style.missing_note(tables["missing_runs"], [*conditions(config)], config))


def _draw(axis, rows: list[dict], scale: float) -> None:
    """One panel; the first row is the uppermost."""
    values = [0.0]
    for place, row in enumerate(rows):
        color, marker = EFFECTS[row["effect"]]
        value, low, high = (scale * row[name] for name in ("value", "low", "high"))
        if not np.isnan(low):
            axis.plot([low, high], [place, place], color=color, lw=1.1)
        fill = "white" if row["unreached"] else color
        axis.plot([value], [place], color=color, marker=marker, markerfacecolor=fill, linestyle="none")
        values += [value, *([] if np.isnan(low) else [low, high])]
    axis.set_yticks(range(len(rows)), [f"{row['contrast']}, n = {style.of(row)}" for row in rows])
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xlim(style.limits(values))
    axis.axvline(0, color=style.SOFT, lw=0.6, zorder=1)
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)
