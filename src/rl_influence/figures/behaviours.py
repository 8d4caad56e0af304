"""What figures 4 and 10 share: how one behaviour was learned in a run, with states drawn as pictures.

Above: the target state, the probability of the behaviour's action in it, and the roughness of the records' influence on
that. Below: the records of most positive influence in each phase.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from rl_influence.config import Config

from . import panels, style

READ = ("behaviour", "behaviour_phases", "behaviour_records", "behaviour_targets")
RAMP = ("#0a1f5c", "#1d86c8", "#7fc8b4", "#882255", "#cc79a7")  # numbers of neighbours, from few to many
THIRD = "#e69f00"
SIGNS = {1: (style.POSITIVE, "positive advantage"), -1: (style.NEGATIVE, "negative advantage")}  # the paper: green, red
LEARNED = 0.3  # rise of the probability from which on a behaviour is learned


class View(NamedTuple):
    """How an environment's states are drawn."""

    gym_id: str
    draw: Callable[[Axes, list[float], int, str], None]  # axes, observation, action, colour; sets the axes' limits
    describe: Callable[[list[float], int], str]  # observation, action -> the words below a picture
    shape: tuple[int, int]  # rows and columns of pictures per phase
    height: float  # of a picture, in inches
    symbols: Iterable[Line2D]  # legend entries of what the pictures show


def draw(tables: dict, config: Config, view: View) -> Figure:
    """The figure of the first analysed run of an environment; further seeds stand behind it faintly."""
    runs = panels.runs_of(tables["behaviour_targets"], config, (view.gym_id,))
    if not runs:
        labels = [known.label for known in config.environments.values() if known.gym_id == view.gym_id]
        raise style.Nothing(f"no run of {' or '.join(labels)} has been analysed")
    run = runs[0]
    table, phases, records, targets = (panels.rows_of(tables[kind], run) for kind in READ)
    target = targets.iloc[0]
    rows, columns = view.shape
    below = 0.25 + rows * (view.height + 0.25)
    figure = style.new_figure(style.WIDTH, 1.6 + below)
    halves = figure.add_gridspec(2, 1, height_ratios=(1.6, below))
    picture, probability, roughness = halves[0].subgridspec(1, 3, width_ratios=(0.9, 1.15, 1.15)).subplots()
    _picture(picture, view, target, "#000000")
    picture.set_title("target state")
    picture.set_xlabel(f"{target['label']}:\n{picture.get_xlabel()}")
    others = [panels.rows_of(tables["behaviour"], key) for key in runs[1:] if key[:2] == run[:2]]
    _draw_probability(probability, table, phases, others)
    _draw_roughness(roughness, table, phases, others)
    grid = halves[1].subgridspec(rows, columns * len(phases))
    for place, phase in enumerate(phases.to_dict("records")):
        best = records[records["phase"] == phase["phase"]].head(rows * columns).to_dict("records")
        for number, record in enumerate(best):
            axis = figure.add_subplot(grid[number // columns, place * columns + number % columns])
            color, _ = SIGNS[1 if record["advantage"] >= 0 else -1]
            _picture(axis, view, record, color)
            if number == 0:
                axis.set_title(" ", fontsize=7.5, pad=4)  # the room for what stands above all of the phase's pictures
                axis.annotate(
                    f"phase {phase['phase']}, round {phase['shown_round']}", (0.53 * columns - 0.03, 1), (0, 4),
                    xycoords="axes fraction", textcoords="offset points", ha="center", fontsize=7.5,
                ).set_in_layout(False)  # fmt: skip
    neighbours = dict(zip(_neighbours(table), RAMP, strict=False))
    handles = [
        *(style.handle(color=color, label=f"{u} nearest neighbours") for u, color in neighbours.items()),
        style.handle(color=THIRD, lw=1.6, label=f"mean of each third, {min(neighbours)}"),
        *(style.handle(color=color, lw=2.5, label=label) for color, label in SIGNS.values()),
        *view.symbols,
    ]
    return style.finish(figure, handles, _notes(tables, config, run, target, len(others)))


def _draw_probability(axis: Axes, table: pd.DataFrame, phases: pd.DataFrame, others: list[pd.DataFrame]) -> None:
    for run, look in [*((other, {"lw": 0.6, "alpha": 0.35}) for other in others), (table, {})]:
        series = run.groupby("round")["probability"].first()
        axis.plot(series.index, series, color="#000000", **look)
    shown = phases["shown_round"]
    axis.plot(shown, series.loc[shown], color="#000000", marker="v", linestyle="none")
    rise = series.iloc[-1] - series.iloc[0]
    word, color = ("learned", style.GREY) if rise >= LEARNED else ("not learned", style.NEGATIVE)
    axis.text(
        0.97, 0.04, f"{word}: {series.iloc[0]:.2f} \u2192 {series.iloc[-1]:.2f}", transform=axis.transAxes, ha="right",
        fontsize=style.SMALL, color=color,
    )  # fmt: skip
    axis.set_ylim(-0.02, 1.02)
    _mark_phases(axis, phases, "\u03c0(a|s) of its action")


def _draw_roughness(axis: Axes, table: pd.DataFrame, phases: pd.DataFrame, others: list[pd.DataFrame]) -> None:
    fewest, *_ = neighbours = _neighbours(table)
    for other in others:
        faint = other[other["neighbours"] == fewest]
        axis.plot(faint["round"], faint["roughness"], color=RAMP[0], lw=0.6, alpha=0.3)
    for u, color in zip(neighbours, RAMP, strict=False):
        line = table[table["neighbours"] == u]
        axis.plot(line["round"], line["roughness"], color=color, lw=1.0)
    few = table[(table["neighbours"] == fewest) & table["roughness"].notna()]
    for _, part in few.groupby("third", sort=False):
        ends = part["round"].iloc[[0, -1]]
        axis.plot(ends, [part["roughness"].mean()] * 2, color=THIRD, lw=1.6, solid_capstyle="butt", zorder=4)
    axis.set_ylim(bottom=0)
    _mark_phases(axis, phases, "roughness of influence on it")


def _mark_phases(axis: Axes, phases: pd.DataFrame, title: str) -> None:
    """Every other phase on grey, a line at every breakpoint, numbers above the panel."""
    ends = [phases["first_round"].iloc[0]]
    ends += [(a + b) / 2 for a, b in zip(phases["last_round"], phases["first_round"].iloc[1:], strict=False)]
    ends += [phases["last_round"].iloc[-1]]
    for number, (first, last) in enumerate(zip(ends, ends[1:], strict=False), start=1):
        if number % 2 == 0:
            axis.axvspan(first, last, color="#ebebeb", lw=0, zorder=0)
        if number > 1:
            axis.axvline(first, color=style.SOFT, lw=0.6, linestyle=":", zorder=1)
        top = axis.get_xaxis_transform()
        axis.text(
            (first + last) / 2, 1.02, number, transform=top, fontsize=style.SMALL, color=style.GREY, ha="center"
        )  # fmt: skip
    axis.set_title(title, pad=12)
    axis.set_xlim(ends[0], ends[-1])
    axis.set_xlabel("round")
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.grid(visible=False)


def _picture(axis: Axes, view: View, of: Mapping, color: str) -> None:
    state, action = json.loads(of["observation"]), int(of["action"])
    view.draw(axis, state, action, color)
    axis.set_xlabel(view.describe(state, action), fontsize=style.SMALL, color=color, labelpad=1.5)
    axis.set(xticks=[], yticks=[])
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)


def _neighbours(table: pd.DataFrame) -> list[int]:
    return sorted(int(u) for u in table["neighbours"].unique())


def _notes(tables: dict, config: Config, run: tuple, target: pd.Series, others: int) -> list[str]:
    environment, method, seed = run
    nodes = panels.rows_of(tables["behaviour"], run)["nodes"].median()
    faint = f" Faint: {others} other seeds, each with a target state of its own." if others else " One seed."
    return [
        f"{config.environments[environment].label}, {config.methods[method].label}, seed {seed}. Target state: record "
        f"{target['record']} of round {target['round']} ({target['rule']}).{faint} Records of positive influence in a "
        f"round: {nodes:.0f} in the median.",
        *panels.missing_analyses(tables, "behaviour", config, [environment]),
    ]


def arrow(axis: Axes, start, end, color: str, **arguments) -> None:
    """An arrow in the axes' data coordinates."""
    properties = {"arrowstyle": "-|>", "mutation_scale": 5, "lw": 0.9, "shrinkA": 0, "shrinkB": 0, "color": color}
    axis.annotate("", end, start, arrowprops=properties | arguments, annotation_clip=False)
