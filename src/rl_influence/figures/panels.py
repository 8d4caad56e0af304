"""Parts that several figures share: panels of learning curves, and points with the paper's beside them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rl_influence.analysis.curves import (
    KEY,
    adam_variants,
    chosen_iif,
    compared_environments,
    methods_of,
    reference_method,
)
from rl_influence.config import Config

from . import style

CURVE_TABLES = ("curves_summary", "curves_per_seed", "missing_runs")
CURVE_NOTE = "Lines: mean over seeds. Bands: 95 % t interval of the mean, from 3 seeds on. Faint lines: single seeds."


@dataclass(frozen=True)
class Efficiency:
    """Where a reduction lies in the tables: of means, of seeds, and the column that counts what was never reached."""

    label: str
    means: str
    seeds: str
    bounds: str


EFFICIENCIES = {
    "se_ave": Efficiency("SE$_\\mathrm{ave}$", "efficiency", "efficiency_per_seed", "unreached"),
    "se_peak": Efficiency("SE$_\\mathrm{peak}$", "efficiency", "efficiency_per_seed", "peak_unreached"),
    "rt_peak": Efficiency("RT$_\\mathrm{peak}$", "runtimes", "runtimes_per_seed", "peak_unreached"),
}
LOWEST = -100.0  # percent; what lies lower is drawn at the edge, with its value


def main_environments(config: Config) -> list[str]:
    """The environments that are compared over seeds, without those that repeat another one with Adam."""
    return [name for name in compared_environments(config) if name not in adam_variants(config)]


def standard_and_iif(config: Config, environment: str) -> list[str]:
    """Standard PPO and IIF at the environment's own p."""
    return [name for name in (reference_method(config), chosen_iif(config, environment)) if name]


def random_methods(config: Config) -> list[str]:
    """Random dropping with nothing else changed."""
    return [name for name in methods_of(config, "random") if config.methods[name].selection.updates == "own"]


def in_grid(config: Config) -> set[tuple[str, str]]:
    """(environment, method) pairs of the study."""
    return {(run.environment, run.method) for run in config.runs}


def curves_figure(name: str, tables: dict, config: Config, methods: dict[str, list[str]]) -> Figure:
    """One panel of learning curves per environment; `methods` gives each environment's methods, in the order drawn.

    Raises:
        FigureError: if no run of these is there.
    """
    methods, drawn = wanted(name, tables, config, methods)
    figure, axes = style.grid(len(drawn))
    axes = list(axes[:, 0])
    draw_curves(axes, tables, config, {environment: methods[environment] for environment in drawn}, 36)
    for axis in axes:
        if axis.get_subplotspec().is_first_col():
            axis.set_ylabel("test return")
    return style.finish(
        figure, legend(tables, config, methods), notes(tables, config, methods), round_label(config, drawn)
    )


def compared_with_iif(name: str, tables: dict, config: Config, methods: list[str]) -> Figure:
    """Curves of `methods` beside standard PPO and IIF, in the environments where the study has any of them."""
    grid = in_grid(config)
    environments = [e for e in main_environments(config) if any((e, method) in grid for method in methods)]
    return curves_figure(name, tables, config, {e: [*standard_and_iif(config, e), *methods] for e in environments})


def wanted(name: str, tables: dict, config: Config, methods: dict[str, list[str]]) -> tuple[dict, list[str]]:
    """The part of `methods` that the study's grid has, and the environments of which there are curves."""
    grid = in_grid(config)
    methods = {e: [m for m in ms if (e, m) in grid] for e, ms in methods.items()}
    there = set(zip(tables["curves_summary"]["environment"], tables["curves_summary"]["method"], strict=True))
    drawn = [environment for environment, ms in methods.items() if any((environment, m) in there for m in ms)]
    if not drawn:
        pairs = "; ".join(f"{e}: {', '.join(ms)}" for e, ms in methods.items() if ms)
        raise style.FigureError(f"{name}: nothing to draw, no finished run of {pairs or 'its methods in this study'}")
    return methods, drawn


def draw_curves(axes: list[Axes], tables: dict, config: Config, methods: dict[str, list[str]], width: int) -> None:
    """A panel per environment: mean, 95 % band and single seeds of its methods; its title says how many seeds."""
    counts = [
        style.counts(_draw_curves(axis, tables, config, environment, methods[environment]))
        for axis, environment in zip(axes, methods, strict=True)
    ]
    style.titles(axes, [config.environments[name].label for name in methods], counts, width)


def _draw_curves(axis: Axes, tables: dict, config: Config, environment: str, methods: list[str]) -> dict[str, int]:
    """One panel; returns label -> number of seeds."""
    summary, seeds = _of(tables["curves_summary"], environment), _of(tables["curves_per_seed"], environment)
    numbers, values = {}, []
    faint = 1.0 if len(methods) <= 4 else 0.6
    for place, method in enumerate(methods):
        mean, single = summary[summary["method"] == method], seeds[seeds["method"] == method]
        if mean.empty:
            continue
        look = style.method_style(config, method)
        for _, run in single.groupby("seed"):
            axis.plot(run["round"], run["test_return"], color=look["color"], lw=0.5, alpha=0.25 * faint, zorder=2)
        if mean["n"].max() > 2:  # of two seeds the interval is thirteen standard errors and covers everything
            band = axis.fill_between(mean["round"], mean["low"], mean["high"], color=look["color"], lw=0, zorder=1)
            band.set_alpha(0.15 * faint)
        step = max(1, len(mean) // 6)
        axis.plot(mean["round"], mean["mean"], **look, markevery=(place * step // max(1, len(methods)), step), zorder=3)
        numbers[look["label"]] = int(mean["n"].max())
        values.append(single["test_return"])
    axis.set_ylim(style.limits(pd.concat(values)))
    axis.margins(x=0.02)
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
    return numbers


def draw_efficiency(
    axis: Axes, tables: dict, config: Config, quantity: str, rows: dict[tuple[str, str], float], *, horizontal: bool
) -> None:
    """Mean with 95 % t interval, single seeds and the paper's number, in percent, for each (environment, method).

    `rows` gives their places on the other axis.
    """
    kind = EFFICIENCIES[quantity]
    values = [0.0]

    def points(value, place):
        return (value, place) if horizontal else (place, value)

    for row, place in rows.items():
        mean = find(tables[kind.means], *row)
        if mean is None or not mean["n"] or np.isnan(mean[quantity]):
            continue
        look = style.method_style(config, row[1]) | {"linestyle": "none"}
        table = tables[kind.seeds]
        seeds = 100 * table[(table["environment"] == row[0]) & (table["method"] == row[1])][quantity].dropna()
        dots = {"color": look["color"], "linestyle": "none", "marker": ".", "markersize": 3, "alpha": 0.35}
        axis.plot(*points(seeds.clip(LOWEST), [place] * len(seeds)), **dots)
        value, low, high = (100 * mean[name] for name in (quantity, f"{quantity}_low", f"{quantity}_high"))
        if not np.isnan(low):
            axis.plot(*points([low, high], [place, place]), color=look["color"], lw=1.0)
        axis.plot(*points([max(value, LOWEST)], [place]), **look, zorder=4)
        marks = ("\u2264" if mean[kind.bounds] else "") + (f"{value:.0f}" if value < LOWEST else "")
        offset = (0, 3) if horizontal else (4, 0)
        axis.annotate(
            marks, points(max(value, LOWEST), place), offset, textcoords="offset points", fontsize=6,
            color=look["color"], ha="center" if horizontal else "left", va="bottom" if horizontal else "center",
        )  # fmt: skip
        values += [value, *seeds, *np.clip([low, high], LOWEST, -LOWEST)]
        if not np.isnan(mean[f"paper_{quantity}"]):
            paper, spread = 100 * mean[f"paper_{quantity}"], 100 * mean[f"paper_{quantity}_spread"]
            beside = place + (0.36 if horizontal else 0.3)
            axis.plot(*points([paper - spread, paper + spread], [beside, beside]), color=style.PAPER["color"], lw=0.8)
            axis.plot(*points([paper], [beside]), **style.PAPER)
            values += [paper - spread, paper + spread]
    limits = style.limits(np.clip(values, LOWEST, None), 0.1)
    (axis.set_xlim if horizontal else axis.set_ylim)(limits)
    (axis.axvline if horizontal else axis.axhline)(0, color="#999999", lw=0.6, zorder=1)


def efficiency_legend(config: Config, rows: list[tuple[str, str]]) -> list:
    """One entry per method, in the catalogue's order, and the paper's."""
    drawn = {method for _, method in rows}
    looks = [style.method_style(config, name) | {"linestyle": "none"} for name in config.methods if name in drawn]
    return [*map(style.handle, looks), style.paper_handle()]


def efficiency_notes(tables: dict, config: Config, rows: list[tuple[str, str]]) -> list[str]:
    """What points and bars are, what is a bound, which runs are missing."""
    notes = ["Points: mean over seeds; bars: 95 % t interval; dots: single seeds; paper: mean and spread as printed."]
    found = [find(tables["efficiency"], *row) for row in rows]
    if any(row is not None and (row["unreached"] or row["peak_unreached"]) for row in found):
        notes.append(
            "\u2264: an upper bound; some returns of PPO are never reached, and the last round stands for their round."
        )
    pairs = [*rows, *((environment, reference_method(config)) for environment in dict.fromkeys(e for e, _ in rows))]
    return notes + style.missing_note(tables["missing_runs"], pairs, config)


def conditions(table: pd.DataFrame) -> list[tuple[str, str]]:
    """(environment, method) pairs of a table, in its order."""
    return list(dict.fromkeys(zip(table["environment"], table["method"], strict=True)))


def rows_of(table: pd.DataFrame, key: tuple) -> pd.DataFrame:
    """The rows of an (environment, method), or of one with a seed."""
    for name, value in zip(KEY, key, strict=False):
        table = table[table[name] == value]
    return table


def missing_analyses(tables: dict, analysis: str, config: Config, environments: list[str] | None = None) -> list[str]:
    """Names the runs (of these environments; default all) of which an analysis is missing."""
    missing = tables["missing_analyses"]
    mine = missing.loc[missing["analysis"] == analysis, [*KEY, "reason"]]
    about = [pair for pair in conditions(mine) if environments is None or pair[0] in environments]
    return style.missing_note(mine, about, config, what="analyses")


def find(table: pd.DataFrame, environment: str, method: str) -> pd.Series | None:
    """The row of a table of means, if there is one."""
    rows = table[(table["environment"] == environment) & (table["method"] == method)]
    return None if rows.empty else rows.iloc[0]


def legend(tables: dict, config: Config, methods: dict[str, list[str]]) -> list:
    """One entry per method that is drawn anywhere, in the catalogue's order."""
    there = set(zip(tables["curves_summary"]["environment"], tables["curves_summary"]["method"], strict=True))
    shown = {m for e, ms in methods.items() for m in ms if (e, m) in there}
    return [style.handle(style.method_style(config, name)) for name in config.methods if name in shown]


def notes(tables: dict, config: Config, methods: dict[str, list[str]]) -> list[str]:
    """What lines and bands are, and which runs are missing."""
    pairs = [(environment, method) for environment, ms in methods.items() for method in ms]
    return [CURVE_NOTE, *style.missing_note(tables["missing_runs"], pairs, config)]


def round_label(config: Config, environments: list[str]) -> str:
    """The unit of the round axis."""
    steps = {config.environments[name].label: config.environments[name].ppo.n_steps for name in environments}
    if len(set(steps.values())) == 1:
        return f"round ({next(iter(steps.values()))} environment steps each)"
    return f"round (environment steps each: {', '.join(f'{label} {n}' for label, n in steps.items())})"


def _of(table: pd.DataFrame, environment: str) -> pd.DataFrame:
    return table[table["environment"] == environment]
