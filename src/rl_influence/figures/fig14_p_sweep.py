"""Figure 14 and Table 2: the sweep of p. Curves above, SE_ave and SE_peak against p below, the paper's beside ours."""

from __future__ import annotations

from matplotlib.figure import Figure

from rl_influence.analysis.curves import iif_sweep, reference_method
from rl_influence.config import Config

from . import panels, style

TABLES = (*panels.CURVE_TABLES, "table_2", "efficiency_per_seed")


def draw(tables: dict, config: Config) -> Figure:
    grid, sweep = panels.in_grid(config), iif_sweep(config)
    swept = {
        environment: [method for method in sweep if (environment, method) in grid]
        for environment in panels.main_environments(config)
    }
    methods = {e: [reference_method(config), *ms] for e, ms in swept.items() if len(ms) > 1}
    tables = tables | {"efficiency": tables["table_2"]}
    methods, drawn = panels.wanted("fig14_p_sweep", tables, config, methods)
    figure, axes = style.grid(len(drawn), (1.75, 1.2, 1.2))
    panels.draw_curves(list(axes[:, 0]), tables, config, {name: methods[name] for name in drawn}, 36)
    places = {method: float(place) for place, method in enumerate(sweep)}
    for environment, (curve, *points) in zip(drawn, axes, strict=True):
        curve.set_xlabel("round")
        for axis, quantity in zip(points, ("se_ave", "se_peak"), strict=True):
            rows = {(environment, method): places[method] for method in swept[environment]}
            panels.draw_efficiency(axis, tables, config, quantity, rows, horizontal=False)
            axis.set_xticks(list(places.values()), [f"{p:g}" for p in sweep.values()])
            axis.set_xlim(-0.6, len(places) - 0.3)
            axis.set_xlabel("p (%)")
            axis.grid(visible=False, axis="x")
        if curve.get_subplotspec().is_first_col():
            curve.set_ylabel("test return")
            for axis, quantity in zip(points, ("se_ave", "se_peak"), strict=True):
                axis.set_ylabel(f"{panels.EFFICIENCIES[quantity].label} (%)")
            figure.align_ylabels([curve, *points])
    rows = [(environment, method) for environment in drawn for method in swept[environment]]
    handles = [*panels.legend(tables, config, methods), style.paper_handle()]
    notes = [f"Unit: {panels.round_label(config, drawn)}.", panels.CURVE_NOTE]
    return style.finish(figure, handles, notes + panels.efficiency_notes(tables, config, rows))
