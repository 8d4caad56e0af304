"""Figure 6b: SE_ave, SE_peak and RT_peak of IIF at each environment's p, with the paper's numbers beside ours.

Random dropping, which the paper leaves out of this figure, stands below IIF as a control.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from rl_influence.analysis.curves import chosen_iif
from rl_influence.config import Config

from . import panels, style

TABLES = ("efficiency", "efficiency_per_seed", "runtimes", "runtimes_per_seed", "missing_runs")


def draw(tables: dict, config: Config) -> Figure:
    grid = panels.in_grid(config)
    rows = [
        (environment, method)
        for environment in panels.main_environments(config)
        for method in (chosen_iif(config, environment), *panels.random_methods(config))
        if (environment, method) in grid
    ]
    rows = [row for row in rows if panels.find(tables["efficiency"], *row) is not None]
    begun = {row[0] for row in rows if panels.find(tables["efficiency"], *row)["n"]}
    rows = [row for row in rows if row[0] in begun]  # what is missing is listed below the figure
    if not rows:
        raise style.FigureError("fig06_efficiency: nothing to draw, IIF and random have no finished run beside PPO's")
    places, labels, previous = [], [], None
    for environment, method in rows:
        new = environment != previous
        places.append(places[-1] + (1.5 if new else 1.0) if places else 0.0)
        count = style.of(panels.find(tables["efficiency"], environment, method))
        header = f"{config.environments[environment].label}\n" if new else ""
        labels.append(f"{header}{config.methods[method].label}, n = {count}")
        previous = environment
    figure = style.new_figure(style.WIDTH, 0.5 + 0.25 * (places[-1] + 1))
    axes = figure.subplots(1, 3, sharey=True)
    for axis, quantity in zip(axes, panels.EFFICIENCIES, strict=True):
        panels.draw_efficiency(axis, tables, config, quantity, dict(zip(rows, places, strict=True)), horizontal=True)
        axis.set_title(panels.EFFICIENCIES[quantity].label)
        axis.grid(visible=False, axis="y")
    axes[0].set_yticks(places, labels)
    axes[0].set_ylim(places[-1] + 0.9, -0.6)
    notes = panels.efficiency_notes(tables, config, rows)
    return style.finish(figure, panels.efficiency_legend(config, rows), notes, "reduction against PPO (%)")
