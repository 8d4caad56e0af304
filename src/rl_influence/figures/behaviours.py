"""What figures 4 and 10 share: how one behaviour was learned in a run, with states drawn as pictures.

Above: the probability of the behaviour's action in its target state, the roughness of the records' influence on it, and
the target state. Below: the records of most positive influence in each phase.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from rl_influence.config import Config

from . import panels, style

TABLES = ("behaviour", "behaviour_phases", "behaviour_records", "behaviour_targets", "missing_analyses")
RAMP = ("#0a1f5c", "#1d86c8", "#7fc8b4", "#e69f00", "#cc79a7")  # numbers of neighbours, from few to many
SIGNS = {1: ("#0b55a5", "positive advantage"), -1: ("#d55e00", "negative advantage")}  # the paper: green, red
THIRDS = ("first", "middle", "last")


@dataclass(frozen=True)
class View:
    """How an environment's states are drawn.

    Attributes:
        draw: axes, observation, action, colour -> draws both, and sets the axes' limits.
        describe: observation, action -> the words below a picture.
        shape: rows and columns of pictures per phase.
        height: of a picture, in inches.
        symbols: legend entries of what the pictures show.
        note: the pictures in words.
    """

    gym_id: str
    draw: Callable[[Axes, list[float], int, str], None]
    describe: Callable[[list[float], int], str]
    shape: tuple[int, int]
    height: float
    symbols: tuple[Line2D, ...]
    note: str


def draw(name: str, tables: dict, config: Config, view: View) -> Figure:
    """The figure of the first analysed run of an environment; further seeds stand behind it faintly."""
    runs = [
        key
        for key in tables["behaviour_targets"][list(panels.KEY)].itertuples(index=False, name=None)
        if config.environments[key[0]].gym_id == view.gym_id
    ]
    if not runs:
        return style.nothing(f"{name}: no run of {view.gym_id} has been analysed.")
    run = runs[0]
    table, phases, records, targets = (panels.rows_of(tables[kind], run) for kind in TABLES[:4])
    target = targets.iloc[0]
    rows, columns = view.shape
    figure = style.new_figure(style.WIDTH, 1.6 + 0.25 + rows * (view.height + 0.22))
    halves = figure.add_gridspec(2, 1, height_ratios=(1.6, 0.25 + rows * (view.height + 0.22)))
    top = halves[0].subgridspec(1, 3, width_ratios=(1.15, 1.15, 0.9)).subplots()
    others = [key for key in runs[1:] if key[:2] == run[:2]]
    _draw_probability(top[0], table, phases, [panels.rows_of(tables["behaviour"], key) for key in others])
    _draw_roughness(top[1], table, phases, [panels.rows_of(tables["behaviour"], key) for key in others])
    _picture(top[2], view, target["observation"], int(target["action"]), "#000000")
    top[2].set_title("target state")
    top[2].set_xlabel(f"{target['label']}:\n{top[2].get_xlabel()}")
    grid = halves[1].subgridspec(rows, columns * len(phases))
    for place, phase in enumerate(phases.to_dict("records")):
        best = records[records["phase"] == phase["phase"]].head(rows * columns).to_dict("records")
        for number, record in enumerate(best):
            axis = figure.add_subplot(grid[number // columns, place * columns + number % columns])
            sign = 1 if record["advantage"] >= 0 else -1
            _picture(axis, view, record["observation"], int(record["action"]), SIGNS[sign][0])
            if number == 0:
                axis.set_title(" ", fontsize=6.5, pad=4)  # the room for what stands above all of the phase's pictures
                axis.annotate(
                    f"phase {phase['phase']}, round {phase['shown_round']}", (0.53 * columns - 0.03, 1), (0, 4),
                    xycoords="axes fraction", textcoords="offset points", ha="center", fontsize=6.5,
                ).set_in_layout(False)  # fmt: skip
    handles = [
        *(Line2D([], [], color=RAMP[i % len(RAMP)], label=f"u = {u}") for i, u in enumerate(_neighbours(table))),
        Line2D([], [], color=RAMP[0], lw=0.6, linestyle="--", label=f"thirds, u = {_neighbours(table)[0]}"),
        *(Line2D([], [], color=color, lw=2.5, label=label) for color, label in SIGNS.values()),
        *view.symbols,
    ]
    return style.finish(figure, handles, _notes(tables, config, run, view, target, others))


def _draw_probability(axis: Axes, table: pd.DataFrame, phases: pd.DataFrame, others: list[pd.DataFrame]) -> None:
    for other in others:
        series = other.groupby("round")["probability"].first()
        axis.plot(series.index, series, color="#000000", lw=0.5, alpha=0.3)
    series = table.groupby("round")["probability"].first()
    axis.plot(series.index, series, color="#000000")
    shown = phases["shown_round"]
    axis.plot(shown, series.loc[shown], color="#000000", marker="v", linestyle="none")
    axis.set_title("probability of the action in it")
    axis.set_ylabel("$\\pi(a|s)$")
    axis.set_ylim(-0.02, 1.02)
    _shade(axis, phases)


def _draw_roughness(axis: Axes, table: pd.DataFrame, phases: pd.DataFrame, others: list[pd.DataFrame]) -> None:
    fewest, *_ = neighbours = _neighbours(table)
    for other in others:
        faint = other[other["neighbours"] == fewest]
        axis.plot(faint["round"], faint["roughness"], color=RAMP[0], lw=0.5, alpha=0.3)
    for place, u in enumerate(neighbours):
        line = table[table["neighbours"] == u]
        axis.plot(line["round"], line["roughness"], color=RAMP[place % len(RAMP)])
    few = table[(table["neighbours"] == fewest) & table["roughness"].notna()]
    for third in THIRDS:
        part = few[few["third"] == third]
        if len(part):
            ends = part["round"].iloc[[0, -1]]
            axis.plot(ends, [part["roughness"].mean()] * 2, color=RAMP[0], lw=0.6, linestyle="--")
    axis.set_title("roughness of the influence on it")
    axis.set_ylim(bottom=0)
    _shade(axis, phases)


def _shade(axis: Axes, phases: pd.DataFrame) -> None:
    """Every other phase on grey, a line at every breakpoint, numbers above."""
    ends = [phases["first_round"].iloc[0]]
    ends += [(a + b) / 2 for a, b in zip(phases["last_round"], phases["first_round"].iloc[1:], strict=False)]
    ends += [phases["last_round"].iloc[-1]]
    for number, (first, last) in enumerate(zip(ends, ends[1:], strict=False), start=1):
        if number % 2 == 0:
            axis.axvspan(first, last, color="#f0f0f0", lw=0, zorder=0)
        if number > 1:
            axis.axvline(first, color="#999999", lw=0.6, linestyle=":", zorder=1)
        top = axis.get_xaxis_transform()
        axis.text((first + last) / 2, 0.99, number, transform=top, fontsize=5.5, color="#666666", ha="center", va="top")
    axis.set_xlim(ends[0], ends[-1])
    axis.set_xlabel("round")
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.grid(visible=False)


def _picture(axis: Axes, view: View, observation: str, action: int, color: str) -> None:
    state = json.loads(observation)
    view.draw(axis, state, action, color)
    axis.set_xlabel(view.describe(state, action), fontsize=5.5, color=color, labelpad=1.5)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.grid(visible=False)
    for spine in axis.spines.values():
        spine.set_visible(False)


def _neighbours(table: pd.DataFrame) -> list[int]:
    return sorted(int(u) for u in table["neighbours"].unique())


def _notes(tables: dict, config: Config, run: tuple, view: View, target: pd.Series, others: list[tuple]) -> list[str]:
    environment, method, seed = run
    nodes = panels.rows_of(tables["behaviour"], run)["nodes"].median()
    seeds = ", ".join(str(key[2]) for key in others)
    faint = f" Faint: other seeds ({seeds}), each with a target state of its own." if others else ""
    return [
        f"{config.environments[environment].label}, {config.methods[method].label}, seed {seed}. Target state: record "
        f"{target['record']} of round {target['round']} ({target['rule']}).{faint}",
        "Phases (numbers, shaded): the constant levels that fit the probability best, each of at least 3 rounds. "
        "Below, from the left and the top: the records of most positive influence on log \u03c0(a|s) in the middle "
        "round of each phase (triangle).",
        "Roughness: weighted mean squared difference of influence between records that lie near each other in the "
        f"final network, over the u nearest of each record of positive influence (median {nodes:.0f} records); dashed: "
        "its mean in each third of the rounds.",
        view.note,
        *panels.missing_analyses(tables, "behaviour", config, [environment]),
    ]


def arrow(axis: Axes, start, end, color: str, **arguments) -> None:
    """An arrow in the axes' data coordinates."""
    properties = {"arrowstyle": "-|>", "mutation_scale": 5, "lw": 0.9, "shrinkA": 0, "shrinkB": 0, "color": color}
    axis.annotate("", end, start, arrowprops=properties | arguments, annotation_clip=False)
