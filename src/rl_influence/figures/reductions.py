"""Reductions of rounds and of time against PPO, with the paper's beside them: what several figures share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rl_influence.analysis.curves import reference_method
from rl_influence.config import Config

from . import panels, style


@dataclass(frozen=True)
class Reduction:
    """Where a reduction lies in the tables: of means, of seeds, and the column that counts what was never reached."""

    label: str
    means: str
    seeds: str
    unreached: str


REDUCTIONS = {
    "se_ave": Reduction("SE_ave", "efficiency", "efficiency_per_seed", "unreached"),
    "se_peak": Reduction("SE_peak", "efficiency", "efficiency_per_seed", "peak_unreached"),
    "rt_peak": Reduction("RT_peak", "runtimes", "runtimes_per_seed", "peak_unreached"),
}
LIMITS = (-100.0, 100.0)  # percent; what lies lower is an arrow at the edge


def reductions_figure(
    tables: dict, config: Config, methods: dict[str, list[str]], quantities: list[str], *, one_iif: bool = True
) -> Figure:
    """A panel per quantity, a row per environment and method (of `methods`) that has runs beside PPO's.

    Raises:
        Nothing: if there is no row.
    """
    grid = panels.in_grid(config)
    wanted = [(e, m) for e, ms in methods.items() for m in ms if m and (e, m) in grid]
    found = {row: panels.find(tables["efficiency"], *row) for row in wanted}
    rows = [row for row, mean in found.items() if mean is not None and mean["n"]]
    if not rows:
        raise style.Nothing("no method has a finished run beside PPO's of the same seed")
    places, ticks, place = {}, {}, 0
    for environment in dict.fromkeys(e for e, _ in rows):
        ticks[place] = (config.environments[environment].label, True)
        for method in [m for e, m in rows if e == environment]:
            place += 1
            places[environment, method] = float(place)
            label = panels.look(config, environment, method, one_iif)["label"]
            p = f", p = {config.environments[environment].drop_percent:g} %" if label == "IIF" else ""
            ticks[place] = (f"{label}{p}, n = {style.of(found[environment, method])}", False)
        place += 1.3
    figure = style.new_figure(style.WIDTH, 0.45 + 0.155 * place)
    axes = figure.subplots(1, len(quantities), sharey=True, squeeze=False)[0]
    for axis, quantity in zip(axes, quantities, strict=True):
        draw_reductions(axis, tables, config, quantity, places, one_iif=one_iif)
        axis.set_title(REDUCTIONS[quantity].label)
        axis.grid(visible=False, axis="y")
        axis.tick_params(axis="y", length=0)
    axes[0].set_yticks([*ticks], [text for text, _ in ticks.values()])
    for label, (_, bold) in zip(axes[0].get_yticklabels(), ticks.values(), strict=True):
        label.set_fontweight("bold" if bold else "normal")
    axes[0].set_ylim(place - 0.6, -0.6)
    unit = "rounds or time" if "rt_peak" in quantities else "rounds"
    return style.finish(figure, handles(), notes(tables, config, wanted), f"{unit} saved against PPO (%)")


def draw_reductions(
    axis: Axes,
    tables: dict,
    config: Config,
    quantity: str,
    rows: dict[tuple[str, str], float],
    *,
    horizontal: bool = True,
    one_iif: bool = True,
) -> None:
    """Mean with t interval, single seeds and the paper's number, in percent, for each (environment, method).

    What is only an upper bound, because returns of PPO were never reached, is hollow, and has no interval if it is a
    peak's; where most seeds never reach the peak, they are counted instead. `rows` gives the places on the other axis.
    """
    kind, values, crowded = REDUCTIONS[quantity], [0.0], False
    for (environment, method), place in rows.items():
        mean = panels.find(tables[kind.means], environment, method)
        if mean is None or not mean["n"]:
            continue
        this = panels.look(config, environment, method, one_iif)
        seeds = panels.rows_of(tables[kind.seeds], (environment, method))
        seeds = seeds[seeds[quantity].notna()]
        peak = quantity != "se_ave"  # one level, reached or not; of the many of an average only some are not
        reached = seeds["peak_reached"].astype(str) == "True" if peak else seeds[quantity].notna()
        few = 2 * reached.sum() < len(seeds)
        values += [*_paper(axis, mean, quantity, place, horizontal), *(100 * seeds.loc[reached | ~few, quantity])]
        for value, known in zip(100 * seeds[quantity], reached, strict=True):
            if known or not few:
                _mark(axis, value, place, this["color"], "dot" if known else "hollow", horizontal, faint=True)
        if few:
            text = {"fontsize": style.SMALL, "color": this["color"], "ha": "center"}
            at = (LIMITS[0] + 22, place) if horizontal else (place, 0.03)
            text |= {"va": "center"} if horizontal else {"transform": axis.get_xaxis_transform()}
            axis.text(
                *at, f"{reached.sum()} of {len(seeds)}" if horizontal else f"{reached.sum()}/{len(seeds)}", **text
            )
            crowded = True
            continue
        value, low, high = (100 * mean[name] for name in (quantity, f"{quantity}_low", f"{quantity}_high"))
        hollow = bool(mean[kind.unreached])
        if not np.isnan(low) and not (hollow and peak):
            ends = np.clip([low, high], *LIMITS)
            values += [low, high]
            axis.plot(*_turn(ends, [place, place], horizontal), color=this["color"], lw=1.1)
            for edge in LIMITS:
                if low < edge < high:
                    _mark(axis, edge, place, this["color"], "beyond", horizontal, up=edge > 0)
        _mark(axis, value, place, this["color"], "hollow mean" if hollow else this["marker"], horizontal)
    if horizontal:
        axis.set_xlim(LIMITS[0] - 6, LIMITS[1] + 6)
    else:
        low, high = style.limits(np.clip(values, *LIMITS), 0.12)
        axis.set_ylim(low - (0.25 * (high - low) if crowded else 0), high)  # room for the counts
    (axis.axvline if horizontal else axis.axhline)(0, color=style.SOFT, lw=0.6, zorder=1)


def _turn(values, places, horizontal: bool) -> tuple:
    return (values, places) if horizontal else (places, values)


def _mark(
    axis: Axes, value, place, color, kind: str, horizontal: bool, *, faint: bool = False, up: bool = False
) -> None:
    """A point; one below the panel is a full arrow at its edge, a bound a hollow arrow."""
    down = {True: ">", False: "<"}[up] if horizontal else {True: "^", False: "v"}[up]
    marker, size, fill = {
        "dot": (".", 4.0, color), "hollow": (down, 3.5, "white"), "hollow mean": (down, 5.0, "white"),
        "beyond": (down, 3.5, color),
    }.get(kind, (kind, 4.0, color))  # fmt: skip
    if value < LIMITS[0]:
        marker, text = down, f"{value:.0f}".replace("-", "\u2212")
        if not faint:
            at, offset = _turn(LIMITS[0], place, horizontal), (5, 3) if horizontal else (5, 0)
            axis.annotate(text, at, offset, textcoords="offset points", fontsize=style.SMALL, color=color)
    look = {"alpha": 0.45, "zorder": 3} if faint else {"zorder": 4}
    at = _turn([max(value, LIMITS[0])], [place], horizontal)
    point = {"marker": marker, "markersize": size, "markerfacecolor": fill, "markeredgewidth": 0.7}
    axis.plot(*at, color=color, linestyle="none", **point, **look)


def _paper(axis: Axes, mean: pd.Series, quantity: str, place: float, horizontal: bool) -> list[float]:
    """Draws the paper's number, if it prints one; returns what was drawn."""
    paper, spread = 100 * mean[f"paper_{quantity}"], 100 * mean[f"paper_{quantity}_spread"]
    if np.isnan(paper):
        return []
    beside, ends = place + (0.36 if horizontal else 0.3), [paper - spread, paper + spread]
    axis.plot(*_turn(ends, [beside, beside], horizontal), color=style.PAPER["color"], lw=0.8)
    axis.plot(*_turn([paper], [beside], horizontal), **style.PAPER)
    return ends


def handles() -> list:
    """Legend: what a single seed, a bound and the paper's number look like; methods stand beside their rows."""
    grey = {"color": style.GREY, "linestyle": "none"}
    return [
        style.handle(grey | {"marker": "s", "label": "mean over seeds"}),
        style.handle(grey | {"marker": ".", "alpha": 0.5, "label": "a seed"}),
        style.handle(grey | {"marker": "<", "markerfacecolor": "white", "label": "at most"}),
        style.paper_handle(),
    ]


NOTE = (
    "Points: mean over seeds, paired by seed with PPO; bars: t interval; dots: single seeds; the paper: mean and "
    "spread as printed. Hollow arrows: an upper bound, since some returns of PPO were never reached and the last round "
    "stands for their round. Where most seeds never reach PPO's best, those that do are counted (1 of 5). Full arrows "
    "at the edge lie beyond it."
)


def notes(tables: dict, config: Config, rows: Iterable[tuple[str, str]]) -> list[str]:
    """What points and bars are, and which runs are missing."""
    rows = [*rows]
    pairs = [*rows, *((environment, reference_method(config)) for environment, _ in rows)]
    return [NOTE, *style.missing_note(tables["missing_runs"], pairs, config)]
