"""How every figure looks: one colour, line and marker per method, sizes of a paper column, files without dates.

Colours are told apart by readers with any of the common colour deficiencies (Okabe and Ito's set; the sweep of p is one
ramp from light to dark), and line style and marker differ as well.
"""

from __future__ import annotations

import io
import textwrap
from contextlib import contextmanager
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rl_influence.config import Config
from rl_influence.runs.files import write_atomic

WIDTH = 5.5  # inches: the text width of a one-column paper
NARROW = 3.3
SETTINGS = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same on every machine
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,  # TrueType: text stays text
    "svg.hashsalt": "rl-influence",
}
STYLES = {  # colour, line, marker
    "ppo": ("#000000", "-", "o"),
    "iif_p6_25": ("#7fc8b4", (0, (1, 1)), "v"),
    "iif_p12_5": ("#35a8c0", (0, (4, 1)), "^"),
    "iif_p25": ("#1d86c8", (0, (4, 1, 1, 1)), "D"),
    "iif_p50": ("#0b55a5", "-", "s"),
    "iif_p100": ("#0a1f5c", (0, (2, 1)), "P"),
    "random": ("#e69f00", (0, (3, 1.5)), "X"),
    "advantage_h1": ("#d55e00", "-.", "<"),
    "advantage_h2": ("#cc79a7", (0, (5, 1.5)), ">"),
    "advantage_h1_exact": ("#7f3300", (0, (1, 1)), "1"),
    "advantage_h2_exact": ("#7a2f63", (0, (2, 1)), "2"),
    "td_error": ("#009e73", (0, (3, 1, 1, 1, 1, 1)), "h"),
    "difficulty": ("#8c510a", ":", "p"),
    "ppo_noclip": ("#777777", "--", "o"),
    "ppo_matched_updates": ("#777777", ":", "*"),
    "iif_p50_noclip": ("#882255", "--", "s"),
    "iif_matched_updates": ("#882255", ":", "d"),
}
SPARE = [("#999933", "-", "8"), ("#aa4499", "--", "H"), ("#117733", ":", "d"), ("#661100", "-.", "*")]
PAPER = {"color": "#666666", "marker": "D", "linestyle": "none", "markerfacecolor": "white", "markersize": 3.5}


class FigureError(ValueError):
    """A figure that cannot be drawn; the message is one line."""


@contextmanager
def context():
    """matplotlib's defaults and the settings above, whatever the user's own configuration says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        yield


def method_style(config: Config, method: str) -> dict:
    """Colour, line style, marker and label of a method; one without a place in `STYLES` takes a spare one."""
    others = [name for name in config.methods if name not in STYLES]
    color, line, marker = STYLES.get(method) or SPARE[others.index(method) % len(SPARE)]
    return {"color": color, "linestyle": line, "marker": marker, "label": config.methods[method].label}


def grid(panels: int, heights: tuple[float, ...] = (1.75,)) -> tuple[Figure, np.ndarray]:
    """A figure of `panels` columns of axes with these heights (inches), at most three beside each other.

    Returns:
        The figure and its axes, (panels, len(heights)).
    """
    columns = min(panels, 2 if panels == 4 else 3)
    blocks = -(-panels // columns)
    figure = new_figure(NARROW if columns == 1 else WIDTH, sum(heights) * blocks)
    axes = figure.subplots(blocks * len(heights), columns, squeeze=False, height_ratios=heights * blocks)
    axes = axes.reshape(blocks, len(heights), columns).swapaxes(1, 2).reshape(-1, len(heights))
    for axis in axes[panels:].flat:
        axis.remove()
    return figure, axes[:panels]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure with automatic layout; no state of pyplot is touched."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def finish(figure: Figure, handles: list, notes: list[str], xlabel: str = "") -> Figure:
    """Adds what stands below the panels, and its room: the label of all x axes, the legend, the notes."""
    width, height = figure.get_size_inches()
    longest = max(len(handle.get_label()) for handle in handles)
    rows = -(-len(handles) // max(1, int(width / (0.5 + 0.058 * longest))))
    columns = -(-len(handles) // rows)
    lines = [line for note in notes for line in textwrap.wrap(note, int(width * 21))]
    notes_height, legend_height = 0.115 * len(lines) + 0.05, 0.16 * rows + 0.06
    below = notes_height + legend_height + (0.14 if xlabel else 0)
    figure.set_size_inches(width, height + below)
    share = below / (height + below)
    figure.get_layout_engine().set(rect=(0, share, 1, 1 - share), w_pad=0.03, h_pad=0.03)
    figure.text(0.5, share, xlabel, ha="center", va="top", fontsize=SETTINGS["axes.labelsize"])
    anchor = (0.5, notes_height / (height + below))
    figure.legend(handles=handles, loc="lower center", bbox_to_anchor=anchor, ncols=columns, borderaxespad=0)
    if lines:
        bottom = 0.04 / (height + below)
        figure.text(0.01, bottom, "\n".join(lines), fontsize=5.5, color="#444444", va="bottom", linespacing=1.25)
    figure.draw_without_rendering()  # lays the panels out, once for both files
    figure.set_layout_engine("none")
    return figure


def nothing(text: str) -> Figure:
    """A figure that says why nothing is drawn in it: what it is made of is not there yet."""
    figure = new_figure(WIDTH, 0.5)
    figure.text(0.01, 0.5, text, va="center", color="#444444")
    figure.set_layout_engine("none")
    return figure


def handle(style: dict) -> Line2D:
    """A legend entry."""
    return Line2D([], [], **style)


def paper_handle() -> Line2D:
    """The legend entry of numbers that the paper prints."""
    return handle(PAPER | {"label": "the paper"})


def of(row: pd.Series) -> str:
    """Seeds behind a number: `5`, or `4 of 5`."""
    n, expected = int(row["n"]), int(row["expected"])
    return str(n) if n == expected else f"{n} of {expected}"


def missing_note(
    missing: pd.DataFrame, conditions: list[tuple[str, str]], config: Config, most: int = 6, what: str = "runs"
) -> list[str]:
    """Names the missing runs (or analyses) of the (environment, method) pairs that a figure is about."""
    names = [
        f"{config.environments[environment].label} {config.methods[method].label} seed {seed}"
        for environment, method, seed, _ in missing.itertuples(index=False)
        if (environment, method) in conditions
    ]
    if not names:
        return []
    more = f"; and {len(names) - most} more (missing_{what}.csv)" if len(names) > most else ""
    return [f"Missing {what}: {'; '.join(names[:most])}{more}."]


def counts(seeds: dict[str, int]) -> str:
    """`n = 5 seeds`, and methods with another number by name."""
    if not seeds:
        return "n = 0 seeds"
    numbers = list(seeds.values())
    usual = max(numbers, key=lambda n: (numbers.count(n), n))
    # no-break spaces keep a label in one line
    others = [f"{label}: {n}".replace(" ", "\u00a0") for label, n in seeds.items() if n != usual]
    return "; ".join([f"n = {usual} seed{'s' if usual != 1 else ''}", *others])


def titles(axes: list[Axes], texts: list[str], smalls: list[str], width: int) -> None:
    """Titles of panels, at one height, each with smaller text below it that is broken after `width` characters."""
    wrapped = [textwrap.wrap(small, width) for small in smalls]
    most = max(map(len, wrapped))
    for axis, text, lines in zip(axes, texts, wrapped, strict=True):
        axis.set_title(text, pad=3 + 7 * most)
        axis.annotate(
            "\n".join(lines + [""] * (most - len(lines))), (0.5, 1), (0, 3), xycoords="axes fraction", fontsize=5.5,
            textcoords="offset points", ha="center", va="bottom", color="#444444", linespacing=1.1,
        )  # fmt: skip


def limits(values, margin: float = 0.06) -> tuple[float, float]:
    """Axis limits around finite values, so that a wide band does not squeeze the lines."""
    values = np.asarray(values, dtype=float)
    low, high = np.nanmin(values), np.nanmax(values)
    pad = margin * (high - low) or max(abs(high), 1) * margin
    return low - pad, high + pad


def save(figure: Figure, out_pdf: str | Path, out_png: str | Path, source: str) -> None:
    """PDF and PNG without dates or program versions: the same figure gives the same bytes.

    `source` says in both files' metadata which runs they are made of.
    """
    dated = {"pdf": ("CreationDate", "Creator", "Producer"), "png": ("Software",)}
    place = {"pdf": "Subject", "png": "Description"}
    for path, kind in ((out_pdf, "pdf"), (out_png, "png")):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, metadata=dict.fromkeys(dated[kind]) | {place[kind]: source})
        write_atomic(path, buffer.getvalue())
