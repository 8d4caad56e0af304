"""The sweep of p, the share of the records of negative influence that is dropped in each round (Figure 14 and Table 2
of the paper): learning curves, and SE_ave and SE_peak against p with the paper's numbers beside ours. An environment
is shown if at least two p have finished there.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from rl_influence.analysis.curves import iif_sweep, reference_method
from rl_influence.config import Config

from . import panels, reductions, style

READS = ("curves_summary", "curves_per_seed", "missing_runs", "table_2", "efficiency_per_seed")
QUANTITIES = ("se_ave", "se_peak")


def draw(tables: dict, config: Config) -> Figure:
    sweep, tables = iif_sweep(config), tables | {"efficiency": tables["table_2"]}
    finished = panels.conditions(table := tables["table_2"][tables["table_2"]["n"] > 0])
    swept = {e: [m for m in sweep if (e, m) in finished] for e in panels.compared_environments(config)}
    swept = {environment: methods for environment, methods in swept.items() if len(methods) > 1}
    if not swept:
        raise style.Nothing("no environment has finished runs of two p")
    methods = {environment: [reference_method(config), *own] for environment, own in swept.items()}
    figure, axes = style.grid(len(swept), (1.6, 1.1, 1.1))
    panels.draw_curves(list(axes[:, 0]), tables, config, methods, one_iif=False, spread="none")
    places = {method: float(place) for place, method in enumerate(sweep)}
    kinds = set()
    for environment, (curve, *points) in zip(swept, axes, strict=True):
        curve.set_xlabel("round")
        for axis, quantity in zip(points, QUANTITIES, strict=True):
            rows = {(environment, method): places[method] for method in swept[environment]}
            kinds |= reductions.draw_reductions(axis, tables, config, quantity, rows, horizontal=False, one_iif=False)
            axis.set_xticks([*places.values()], [f"{p:g}" for p in sweep.values()])
            axis.set_xlim(-0.6, len(places) - 0.3)
            axis.grid(visible=False, axis="x")
        points[-1].set_xlabel("p (%)")
        if curve.get_subplotspec().is_first_col():
            curve.set_ylabel("test return")
            for axis, quantity in zip(points, QUANTITIES, strict=True):
                axis.set_ylabel(f"{reductions.REDUCTIONS[quantity][0]} (%)")
            figure.align_ylabels([curve, *points])
    handles = panels.legend(tables, config, methods, one_iif=False)
    handles += reductions.handles(kinds - {"mean"}, horizontal=False)
    notes = ["Lines: mean over seeds.", *reductions.notes(tables, config, panels.conditions(table))]
    return style.finish(figure, handles, notes, small=reductions.small(kinds, QUANTITIES))
