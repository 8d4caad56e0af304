"""Parts that several figures share: which methods they compare, panels of learning curves, rows of tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from rl_influence.analysis.curves import (
    KEY,
    chosen_iif,
    compared_environments,
    reference_method,
    rows_of,
)
from rl_influence.config import Config

from . import style

BAND = 5  # seeds from which on a curve has a band; fewer are drawn one by one
CURVE_NOTE = (
    f"Lines: mean over seeds. Bands: t interval of the mean, from {BAND} seeds on; with fewer the seeds are drawn "
    "faintly instead. Grey panels: fewer than three seeds. The round axis ends where all curves have settled within 3 "
    "% of the panel's range; the panel says which rounds are not shown."
)
SMALL = {  # what a figure itself says of what is drawn of the seeds
    "band": "Lines: means over seeds; bands: t intervals.",
    "faint": f"Faint lines: seeds, where there are fewer than {BAND}.",
    "seeds": "Every line is a seed.",
}
CROWD = 6  # methods of a panel beyond which its lines stand alone


def standard_and_iif(config: Config, environment: str) -> list[str]:
    """Standard PPO and IIF at the environment's own p."""
    return [name for name in (reference_method(config), chosen_iif(config, environment)) if name]


def in_grid(config: Config) -> set[tuple[str, str]]:
    """(environment, method) pairs of the study."""
    return {(run.environment, run.method) for run in config.runs}


def look(config: Config, environment: str, method: str, one_iif: bool = True) -> dict:
    """A method's look; with `one_iif`, that of IIF at the environment's own p is the same everywhere."""
    chosen = one_iif and method == chosen_iif(config, environment)
    return style.iif_look() if chosen else style.look(config, method)


# Learning curves


def curves_figure(
    tables: dict,
    config: Config,
    methods: dict[str, list[str]],
    subject: Sequence[str] = (),
    *,
    one_iif: bool = True,
    spread: str = "band",
) -> Figure:
    """One panel of learning curves per environment; `methods` gives each environment's methods, in the order drawn. An
    environment is drawn if there are runs of a method of `subject` (default: of any); `Nothing` if no panel is left.
    `one_iif`: IIF at each environment's own p is one method. `spread`: see `draw_curves`."""
    grid, there = in_grid(config), {*conditions(tables["curves_summary"])}
    methods = {e: [m for m in ms if (e, m) in grid] for e, ms in methods.items()}
    subjects = {e: [m for m in ms if m in subject] if subject else ms for e, ms in methods.items()}
    drawn = [e for e, ms in subjects.items() if any((e, m) in there for m in ms)]
    if not drawn:
        parts = {e: ", ".join(config.methods[m].label for m in ms) for e, ms in subjects.items()}
        pairs = "; ".join(f"{config.environments[e].label}: {labels}" for e, labels in parts.items())
        raise style.Nothing(f"no finished run of {pairs or 'its methods in this study'}")
    figure, axes = style.grid(len(drawn))
    axes = list(axes[:, 0])
    shown = {name: methods[name] for name in drawn}
    kinds = draw_curves(axes, tables, config, shown, one_iif=one_iif, spread=spread)
    for axis in axes:
        if axis.get_subplotspec().is_first_col():
            axis.set_ylabel("test return")
    handles = legend(tables, config, methods, one_iif=one_iif)
    if spread == "seeds":
        for handle in handles:
            handle.set_marker("")
    notes = [*([CURVE_NOTE] if spread == "band" else []), *missing(tables, config, methods)]
    small = " ".join(text for kind, text in SMALL.items() if kind in kinds)
    return style.finish(figure, handles, notes, round_label(config, drawn), small)


def compared_with_iif(tables: dict, config: Config, methods: list[str]) -> Figure:
    """Curves of `methods` beside standard PPO and IIF, in the environments where there are runs of any of them."""
    environments = [e for e in compared_environments(config) if any((e, m) in in_grid(config) for m in methods)]
    return curves_figure(tables, config, {e: [*standard_and_iif(config, e), *methods] for e in environments}, methods)


def draw_curves(
    axes: list[Axes],
    tables: dict,
    config: Config,
    methods: dict[str, list[str]],
    *,
    one_iif: bool = True,
    spread: str = "band",
) -> set[str]:
    """A panel per environment; its title says p, where IIF is drawn at one, how many seeds there are, and which rounds
    are not shown. Returns which of `SMALL` are drawn.

    `spread`: `band` draws means with the interval of five or more seeds, or with fewer seeds faintly; of too many
    methods for one panel, and with `none`, only means; `seeds` only the seeds.
    """
    smalls, seeds, kinds = [], [], set()
    for axis, (environment, names) in zip(axes, methods.items(), strict=True):
        numbers, last, rounds, drawn = _draw_curves(axis, tables, config, environment, names, one_iif, spread)
        kinds |= drawn
        p = config.environments[environment].drop_percent
        shown = one_iif and chosen_iif(config, environment) in names
        left_out = f"; rounds {last + 1} to {rounds} not\u00a0shown" if last < rounds else ""
        smalls.append(f"{f'p = {p:g} %, ' if shown else ''}{style.counts(numbers)}{left_out}")
        seeds.append(max(numbers.values(), default=0))
    width = 30 if axes[0].get_subplotspec().get_gridspec().ncols == 3 else 46
    style.titles(axes, [config.environments[name].label for name in methods], smalls, width)
    style.mark_few(axes, seeds)
    return kinds


def _draw_curves(
    axis: Axes, tables: dict, config: Config, environment: str, methods: list[str], one_iif: bool, spread: str
) -> tuple[dict[str, int], int, int, set[str]]:
    """One panel; returns label -> number of seeds, the last round that is shown and that there is, which of `SMALL`."""
    curves, singles = (rows_of(tables[name], (environment,)) for name in ("curves_summary", "curves_per_seed"))
    curves = curves[curves["method"].isin(methods)]
    last, rounds = settled(curves), int(curves["round"].max())
    curves, singles = curves[curves["round"] <= last], singles[singles["round"] <= last]
    numbers, values, kinds = {}, [], set()
    for place, method in enumerate(methods):
        mean, single = (table[table["method"] == method] for table in (curves, singles))
        if mean.empty:
            continue
        this, n = look(config, environment, method, one_iif), int(mean["n"].max())
        numbers[this["label"]] = n
        step = max(1, len(mean) // 6)
        every = (place * step // max(1, len(methods)), step)
        if spread == "seeds":
            for _, run in single.groupby("seed"):
                axis.plot(run["round"], run["test_return"], **this | {"marker": ""}, lw=1.0, alpha=0.8)
            values.append(single["test_return"])
            kinds.add("seeds")
            continue
        if spread == "none" or len(methods) > CROWD:
            pass
        elif n >= BAND:
            color = this["color"]
            axis.fill_between(mean["round"], mean["low"], mean["high"], color=color, alpha=0.15, lw=0, zorder=1)
            values += [mean["low"], mean["high"]]
            kinds.add("band")
        elif n > 1:
            for _, run in single.groupby("seed"):
                axis.plot(run["round"], run["test_return"], color=this["color"], lw=0.6, alpha=0.35, zorder=2)
            values.append(single["test_return"])
            kinds.add("faint")
        axis.plot(mean["round"], mean["mean"], **this, markevery=every, zorder=3)
        values.append(mean["mean"])
    axis.set_ylim(style.limits(pd.concat(values)))
    axis.margins(x=0.02)
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
    return numbers, last, rounds, kinds


def settled(means: pd.DataFrame, tolerance: float = 0.03) -> int:
    """The last round worth showing of these curves: then, and a fifth, all means stay within a share of the range."""
    span = means["mean"].max() - means["mean"].min()
    ends = []
    for _, own in means.groupby("method"):
        smooth = own["mean"].rolling(1 + len(own) // 20, center=True, min_periods=1).mean()
        away = np.flatnonzero(np.abs(smooth - own["mean"].tail(1 + len(own) // 10).mean()) > tolerance * span)
        ends.append(own["round"].iloc[away[-1]] if len(away) else 0)
    last = means["round"].max()
    end = int(np.ceil(1.2 * max(ends) + 1))
    return int(last) if end > 0.85 * last else end


def legend(tables: dict, config: Config, methods: dict[str, list[str]], *, one_iif: bool = True) -> list[Line2D]:
    """One entry per look that is drawn anywhere, in the catalogue's order."""
    there = {*conditions(tables["curves_summary"])}
    pairs = [(e, m) for m in config.methods for e, ms in methods.items() if m in ms and (e, m) in there]
    looks = {(found := look(config, *pair, one_iif))["label"]: found for pair in pairs}
    return [style.handle(**found) for found in looks.values()]


def missing(tables: dict, config: Config, methods: dict[str, list[str]]) -> list[str]:
    """Which runs of these are missing."""
    return style.missing_note(tables["missing_runs"], [(e, m) for e, ms in methods.items() for m in ms], config)


def round_label(config: Config, environments: list[str]) -> str:
    """The unit of the round axis."""
    steps = {config.environments[name].label: config.environments[name].ppo.n_steps for name in environments}
    if len(set(steps.values())) == 1:
        return f"round ({next(iter(steps.values()))} environment steps each)"
    return f"round (environment steps each: {', '.join(f'{label} {n}' for label, n in steps.items())})"


# Tables


def conditions(table: pd.DataFrame) -> list[tuple[str, str]]:
    """(environment, method) pairs of a table, in its order."""
    return list(dict.fromkeys(zip(table["environment"], table["method"], strict=True)))


def runs_of(table: pd.DataFrame, config: Config, gym_ids: tuple[str, ...]) -> list[tuple]:
    """(environment, method, seed) of the runs in a table whose environment's gym_id begins with one of these."""
    keys = table[KEY].drop_duplicates().itertuples(index=False, name=None)
    return [key for key in keys if config.environments[key[0]].gym_id.startswith(gym_ids)]


def missing_analyses(tables: dict, analysis: str, config: Config, environments: list[str] | None = None) -> list[str]:
    """The runs (of these environments; default all) of which an analysis is missing."""
    missing = tables["missing_analyses"]
    mine = missing[missing["analysis"] == analysis]
    about = [pair for pair in conditions(mine) if environments is None or pair[0] in environments]
    return style.missing_note(mine, about, config, what="analyses")


def find(table: pd.DataFrame, environment: str, method: str) -> pd.Series | None:
    """The row of a table of means, if there is one."""
    rows = rows_of(table, (environment, method))
    return None if rows.empty else rows.iloc[0]
