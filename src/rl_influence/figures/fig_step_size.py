"""Do larger steps explain the gain? Every point is a method, a mean over seeds, from three on with its t interval
(faint: seeds). The step is how far a round moves the actor's parameters (L2 norm) while the method learns, until 90
% of PPO's rise, relative to PPO of the same seed. Above: the share of PPO's rounds that the method saves, at 50, 75
and 90 % of PPO's rise. Below: its final return, from PPO's untrained return (0) to the top of PPO's mean curve (1);
hollow: some seeds collapsed, that is, lost half of that rise after their best round, or never learned, that is,
ended below a tenth of it. The larger the marker, the larger the learning rate, in multiples of the environment's,
joined by lines; diamonds: each round's step scaled to that of the other method's round; triangles: without clipping
of the gradient's norm. If the step were the cause, methods with the same step would save the same rounds.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rl_influence.analysis.aggregate import FEWEST
from rl_influence.analysis.curves import environments_of, reference_method
from rl_influence.config import Config

from . import panels, style

READS = ("step_size", "diagnostics_summary", "missing_runs")
FAMILIES = {"all": ("#000000", "PPO"), "influence": (style.STYLES["iif"][0], "IIF"), "random": ("#e69f00", "Random")}
ROWS = {"rounds_saved": ("rounds saved (%)", 100), "rise_kept": ("final return (of rise)", 1)}
MATCHED, UNCLIPPED = "D", "^"


def draw(tables: dict, config: Config) -> Figure:
    table, placed = tables["step_size"], tables["diagnostics_summary"]
    placed = placed[placed["displacement_ratio"].notna()].value_counts(["environment", "method"])  # PPO's step is known
    table = table.assign(n=[placed.get(pair, 0) for pair in zip(table["environment"], table["method"], strict=True)])
    table = table[table["n"] > 0]
    kinds = {name: config.methods[name].selection.kind for name in table["method"].unique()}
    pairs = zip(table["environment"], table["method"], strict=True)
    table = table[[kinds[name] in FAMILIES and _is_one(environment, name, config) for environment, name in pairs]]
    counts = table.groupby("environment")["method"].nunique() if len(table) else {}
    drawn = [e for e in environments_of(config) if e in counts and counts[e] > 1]
    if not drawn:
        raise style.Nothing("no environment has the diagnostics of two methods")
    enough = [e for e in drawn if panels.rows_of(table, (e,))["n"].max() >= FEWEST]
    drawn = enough or drawn  # one seed's points beside others' means would be taken for means
    figure, axes = style.grid(len(drawn), (1.5, 1.2))
    for environment, pair in zip(drawn, axes, strict=True):
        own = panels.rows_of(table, (environment,))
        seeds = panels.rows_of(tables["diagnostics_summary"], (environment,))
        for axis, (quantity, (label, scale)) in zip(pair, ROWS.items(), strict=True):
            _draw(axis, own, seeds, config, quantity, scale)
            style.log_scale(axis, "x")
            axis.axhline(0 if quantity == "rounds_saved" else 1, color=style.SOFT, lw=0.6, zorder=1)
            axis.axvline(1, color=style.SOFT, lw=0.6, zorder=1)
            if axis.get_subplotspec().is_first_col():
                axis.set_ylabel(label)
        pair[0].set_xlim(pair[1].get_xlim())
        for axis in pair:
            style.log_ticks(axis.xaxis)
        pair[0].set_xticklabels([])
        figure.align_ylabels(pair)
    ranges = [panels.rows_of(table, (e,))["n"].agg(["min", "max"]) for e in drawn]
    smalls = [f"n = {low}" if low == high else f"n = {low} to {high}" for low, high in ranges]
    style.titles(list(axes[:, 0]), [config.environments[name].label for name in drawn], smalls, 30)
    methods = {e: [*panels.rows_of(table, (e,))["method"]] for e in drawn}
    handles, notes = _legend(table[table["environment"].isin(drawn)], config), panels.missing(tables, config, methods)
    return style.finish(figure, handles, notes, "step of a round, relative to PPO's")


def _legend(table: pd.DataFrame, config: Config) -> list[Line2D]:
    kinds = {config.methods[name].selection.kind for name in table["method"]}
    handles = [
        style.handle(color=color, marker="o", linestyle="-", label=label)
        for kind, (color, label) in FAMILIES.items()
        if kind in kinds
    ]
    markers = {name: _look(name, config)["marker"] for name in table["method"]}
    for marker, label in {MATCHED: "the other's step", UNCLIPPED: "no clipping"}.items():
        if marker in markers.values():
            handles += style.points({label: (style.GREY, marker)})
    factors = {config.methods[name].ppo.learning_rate_factor for name, marker in markers.items() if marker == "o"}
    for factor in sorted(factors) if len(factors) > 1 else ():
        handles += style.points({f"learning rate \u00d7 {factor:g}": (style.GREY, "o")}, markersize=_size(factor))
    if table[["collapsed", "never_rose"]].gt(0).any(axis=None):
        handles += style.points({"some seeds collapse or never learn": (style.GREY, "o")}, markerfacecolor="white")
    return handles


def _is_one(environment: str, name: str, config: Config) -> bool:
    """Whether a method is one of this figure: PPO, IIF at the environment's p or random, with whatever step size."""
    selection, changes = config.methods[name].selection, config.methods[name].ppo.model_dump(exclude_unset=True)
    chosen = selection.drop_percent in (None, "chosen", config.environments[environment].drop_percent)
    return chosen and selection.updates == "own" and set(changes) <= {"learning_rate_factor", "max_grad_norm"}


def _look(name: str, config: Config) -> dict:
    """Colour by what trains, marker by what sets the step, size by the learning rate."""
    method = config.methods[name]
    clipping = "max_grad_norm" not in method.ppo.model_fields_set
    marker = MATCHED if method.selection.displacement != "own" else "o" if clipping else UNCLIPPED
    size = _size(method.ppo.learning_rate_factor) if marker == "o" else 3.8
    return {"color": FAMILIES[method.selection.kind][0], "marker": marker, "markersize": size}


def _size(factor: float) -> float:
    return 3.2 + 2.2 * np.log10(max(factor, 1))


def _draw(axis: Axes, table: pd.DataFrame, seeds: pd.DataFrame, config: Config, quantity: str, scale: float) -> None:
    lines: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in FAMILIES}
    for row in table.to_dict("records"):
        name, look = row["method"], _look(row["method"], config)
        standard = name == reference_method(config) and quantity == "rounds_saved"
        own = seeds[seeds["method"] == name]
        x, y = row["displacement_ratio"], 0.0 if standard else scale * row[quantity]
        if np.isnan(x) or np.isnan(y):
            continue
        if not standard:
            axis.plot(
                own["displacement_ratio"], scale * own[quantity], ".", color=look["color"], markersize=3, alpha=0.35
            )
        low, high = (scale * row[f"{quantity}_{end}"] for end in ("low", "high"))
        if row["n"] >= FEWEST and not np.isnan(low):
            bounds = np.clip([low, high], -100, 100) if quantity == "rounds_saved" else (low, high)
            axis.plot([x, x], bounds, color=look["color"], lw=0.9)
        fill = "white" if row["collapsed"] > 0 or row["never_rose"] > 0 else look["color"]
        axis.plot([x], [y], **look, linestyle="none", markerfacecolor=fill, zorder=4)
        if look["marker"] == "o":
            kind = config.methods[name].selection.kind
            lines[kind].append((config.methods[name].ppo.learning_rate_factor, x, y))
    for kind, points in lines.items():
        if len(points) > 1:
            _, x, y = zip(*sorted(points), strict=True)
            axis.plot(x, y, color=FAMILIES[kind][0], lw=0.8, alpha=0.6, zorder=2)
