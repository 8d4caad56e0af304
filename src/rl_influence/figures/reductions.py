"""Reductions of rounds and of time against PPO, with the paper's beside them: what several figures share."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rl_influence.analysis.aggregate import FEWEST
from rl_influence.analysis.curves import reference_method
from rl_influence.config import Config

from . import panels, style

REDUCTIONS = {  # quantity -> its name, and what it is
    "se_ave": ("SE_ave", "rounds saved, averaged over all returns that PPO reaches"),
    "se_peak": ("SE_peak", "rounds saved, to PPO's best return"),
    "rt_peak": ("RT_peak", "CPU time saved, to PPO's best return"),
}
LIMITS = (-100.0, 100.0)  # percent; what lies lower is an arrow at the edge
KINDS = {  # of points -> what the legend says of them
    "mean": "mean over seeds",
    "mean bound": "mean, at most",
    "seed": "a seed",
    "seed bound": "a seed, at most",
    "beyond": "beyond the axis",
}
COUNTED = "Reached by: the seeds that ever reach PPO's best return; no mean where fewer than half do."


def reductions_figure(
    tables: dict, config: Config, methods: dict[str, list[str]], quantities: list[str], *, one_iif: bool = True
) -> Figure:
    """A panel per quantity, a row per environment and method (of `methods`) that has runs beside PPO's; `Nothing` if
    there is no row."""
    grid = panels.in_grid(config)
    wanted = [(e, m) for e, ms in methods.items() for m in ms if m and (e, m) in grid]
    found = {row: panels.find(tables["efficiency"], *row) for row in wanted}
    rows = [row for row, mean in found.items() if mean is not None and mean["n"]]
    flat = [config.environments[e].label for e in methods if _is_flat(tables["efficiency_per_seed"], e)]
    never = [f"In {label} PPO never rises above round 0: there is no level to be reached." for label in flat]
    if not rows:
        raise style.Nothing(" ".join(never) or "no method has a finished run beside PPO's of the same seed")
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
    kinds = set()
    for axis, quantity in zip(axes, quantities, strict=True):
        kinds |= draw_reductions(axis, tables, config, quantity, places, one_iif=one_iif)
        axis.set_title(REDUCTIONS[quantity][0])
        axis.grid(visible=False, axis="y")
        axis.tick_params(axis="y", length=0)
    axes[0].set_yticks([*ticks], [text for text, _ in ticks.values()])
    for label, (_, bold) in zip(axes[0].get_yticklabels(), ticks.values(), strict=True):
        label.set_fontweight("bold" if bold else "normal")
    axes[0].set_ylim(place - 0.6, -0.6)
    unit = "rounds or time" if "rt_peak" in quantities else "rounds"
    xlabel = f"{unit} saved against PPO (%)"
    return style.finish(
        figure, handles(kinds), [*notes(tables, config, wanted), *never], xlabel, small(kinds, quantities)
    )


def _is_flat(seeds: pd.DataFrame, environment: str) -> bool:
    """Whether PPO has no level in any seed: no method saves rounds to nowhere."""
    levels = panels.rows_of(seeds, (environment,))["levels"]
    return len(levels) > 0 and not levels.any()


def draw_reductions(
    axis: Axes,
    tables: dict,
    config: Config,
    quantity: str,
    rows: dict[tuple[str, str], float],
    *,
    horizontal: bool = True,
    one_iif: bool = True,
) -> set[str]:
    """Mean with t interval, single seeds and the paper's number, in percent, for each (environment, method); `rows`
    gives their places on the other axis. Returns which of `KINDS`, `counted` and `paper` are drawn.

    What is only an upper bound, because returns of PPO were never reached, is hollow, and has no interval if it is a
    peak's; where most seeds never reach the peak, those that do are counted instead, beside the panel.
    """
    values, counts, drawn = [0.0], {}, set()
    table = "runtimes" if quantity == "rt_peak" else "efficiency"
    peak = quantity != "se_ave"  # one level, reached or not; of the many of an average only some are not
    for (environment, method), place in rows.items():
        mean = panels.find(tables[table], environment, method)
        if mean is None or not mean["n"]:
            continue
        this = panels.look(config, environment, method, one_iif)
        seeds = panels.rows_of(tables[f"{table}_per_seed"], (environment, method))
        seeds = seeds[seeds[quantity].notna()]
        reached = seeds["peak_reached"].astype(str) == "True" if peak else seeds[quantity].notna()
        few = 2 * reached.sum() < len(seeds)
        paper = _paper(axis, mean, quantity, place, horizontal)
        drawn |= {"paper"} if paper else set()
        values += [*paper, *(100 * seeds.loc[reached | ~few, quantity])]
        for value, known in zip(100 * seeds[quantity], reached, strict=True):
            if known or not few:
                which = "seed" if known else "seed bound"
                drawn.add(_mark(axis, value, place, this["color"], which, horizontal))
        if few:
            counts[place] = f"{reached.sum()}/{len(seeds)}"
            continue
        value, low, high = (100 * mean[name] for name in (quantity, f"{quantity}_low", f"{quantity}_high"))
        hollow = bool(mean["peak_unreached" if peak else "unreached"])
        if mean["n"] >= FEWEST and not np.isnan(low) and not (hollow and peak):
            ends = np.clip([low, high], *LIMITS)
            values += [low, high]
            axis.plot(*_turn(ends, [place, place], horizontal), color=this["color"], lw=1.1)
            for edge in LIMITS:
                if low < edge < high:
                    drawn.add(_mark(axis, edge, place, this["color"], "beyond", horizontal, up=edge > 0))
        which = "mean bound" if hollow else "mean"
        drawn.add(_mark(axis, value, place, this["color"], which, horizontal, marker=this["marker"]))
    if horizontal:
        axis.set_xlim(LIMITS[0] - 6, LIMITS[1] + 6)
    else:
        axis.set_ylim(style.limits(np.clip(values, *LIMITS), 0.12))
    (axis.axvline if horizontal else axis.axhline)(0, color=style.SOFT, lw=0.6, zorder=1)
    if counts:
        _write_counts(axis, counts, horizontal)
    return drawn | ({"counted"} if counts else set())


def _write_counts(axis: Axes, counts: dict[float, str], horizontal: bool) -> None:
    """Right of a panel, or above it: outside, where no number is taken for a point."""
    text = {"fontsize": style.SMALL, "color": style.GREY, "textcoords": "offset points"}
    if horizontal:
        axis.annotate("reached by", (1, 1), (4, 3), xycoords="axes fraction", ha="left", va="bottom", **text)
        text |= {"xycoords": axis.get_yaxis_transform(), "xytext": (4, 0), "ha": "left", "va": "center"}
    else:
        axis.annotate("reached by", (0, 1), (-4, 3), xycoords="axes fraction", ha="right", va="bottom", **text)
        text |= {"xycoords": axis.get_xaxis_transform(), "xytext": (0, 3), "ha": "center", "va": "bottom"}
    for place, count in counts.items():
        axis.annotate(count, _turn(1, place, horizontal), **text)


def _turn(values, places, horizontal: bool) -> tuple:
    return (values, places) if horizontal else (places, values)


def _mark(axis: Axes, value, place, color, kind: str, horizontal: bool, *, marker: str = "", up: bool = False) -> str:
    """A point, of a mean with this marker; what is below the panel is a full arrow at its edge. Returns its kind."""
    faint = kind.startswith("seed")
    if value < LIMITS[0]:
        kind = kind if kind.endswith("bound") else "beyond"
        if not faint:
            at, offset = _turn(LIMITS[0], place, horizontal), (5, 3) if horizontal else (5, 0)
            text = f"{value:.0f}".replace("-", "\u2212")
            axis.annotate(text, at, offset, textcoords="offset points", fontsize=style.SMALL, color=color)
    look = {"alpha": 0.45, "zorder": 3} if faint else {"zorder": 4}
    at = _turn([max(value, LIMITS[0])], [place], horizontal)
    axis.plot(*at, **_look(kind, color, horizontal, marker, up), **look)
    return kind


def _look(kind: str, color: str, horizontal: bool, marker: str = "s", up: bool = False) -> dict:
    """Of a point: bounds are hollow arrows to where the value may lie."""
    arrow = ("<>" if horizontal else "v^")[up]
    marker, size = {
        "mean": (marker, 4.0), "seed": (".", 4.0), "mean bound": (arrow, 5.0), "seed bound": (arrow, 3.5),
        "beyond": (arrow, 3.5),
    }[kind]  # fmt: skip
    fill = "white" if kind.endswith("bound") else color
    look = {"marker": marker, "markersize": size, "markerfacecolor": fill, "markeredgewidth": 0.7}
    return look | {"color": color, "linestyle": "none"}


def _paper(axis: Axes, mean: pd.Series, quantity: str, place: float, horizontal: bool) -> list[float]:
    """Draws the paper's number, if it prints one; returns what was drawn."""
    paper, spread = 100 * mean[f"paper_{quantity}"], 100 * mean[f"paper_{quantity}_spread"]
    if np.isnan(paper):
        return []
    beside, ends = place + (0.36 if horizontal else 0.3), [paper - spread, paper + spread]
    axis.plot(*_turn(ends, [beside, beside], horizontal), color=style.PAPER["color"], lw=0.8)
    axis.plot(*_turn([paper], [beside], horizontal), **style.PAPER)
    return ends


def handles(kinds: set[str], *, horizontal: bool = True) -> list:
    """Legend of these kinds of points as they are drawn, and of the paper's; methods stand beside their rows."""
    entries = []
    for kind, label in KINDS.items():
        if kind in kinds:
            alpha = 0.5 if kind.startswith("seed") else 1
            entries.append(style.handle(**_look(kind, style.GREY, horizontal), label=label, alpha=alpha))
    return entries + ([style.paper_handle()] if "paper" in kinds else [])


def small(kinds: set[str], quantities: Iterable[str]) -> str:
    """What the figure itself says of its quantities, and of the counts in it."""
    saved = "; ".join(": ".join(REDUCTIONS[name]) for name in quantities)
    return f"{saved}. {COUNTED if 'counted' in kinds else ''}".strip()


NOTE = (
    "Points: mean over seeds, paired by seed with PPO; bars: t interval; dots: single seeds; the paper: mean and "
    "spread as printed. Hollow arrows: an upper bound, since some returns of PPO were never reached and the last round "
    "stands for their round. Where most seeds never reach PPO's best, those that do are counted beside the panel "
    "(1/5). Full arrows at the edge lie beyond it."
)


def notes(tables: dict, config: Config, rows: Iterable[tuple[str, str]]) -> list[str]:
    """What points and bars are, and which runs are missing."""
    rows = [*rows]
    pairs = [*rows, *((environment, reference_method(config)) for environment, _ in rows)]
    return [NOTE, *style.missing_note(tables["missing_runs"], pairs, config)]
