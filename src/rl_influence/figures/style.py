"""How every figure looks: one colour, line and marker per method, sizes of a paper column, files without dates.

Colours are told apart by readers with any of the common colour deficiencies (Okabe and Ito's set; the sweep of p is one
ramp from light to dark), and line style and marker differ as well. Text is text: no label is read as mathematics.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from rl_influence.config import Config
from rl_influence.runs.files import write_atomic

WIDTH = 5.5  # inches: the text width of a one-column paper
NARROW = 3.3
SMALL = 7  # points: no text is smaller
CHARACTER = 0.053  # inches: of such text, on average
SETTINGS = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same on every machine
    "font.size": SMALL,
    "text.parse_math": False,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.use_mathtext": False,
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
GREY, SOFT, THIN = "#444444", "#999999", "#f3f3f3"  # small text, reference lines, panels of few seeds
POSITIVE, NEGATIVE = "#0b55a5", "#d55e00"  # the paper's green and red
LOOK = ("color", "linestyle", "marker", "label")  # of a method: those of `STYLES`, and its name
STYLES = {
    "ppo": ("#000000", "-", "o"),
    "iif": ("#0b55a5", "-", "s"),
    "iif_p6_25": ("#7fc8b4", (0, (1, 1)), "v"),
    "iif_p12_5": ("#35a8c0", (0, (4, 1)), "^"),
    "iif_p25": ("#1d86c8", (0, (4, 1, 1, 1)), "D"),
    "iif_p50": ("#0b55a5", (0, (6, 1)), "s"),
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
# Of other methods, each in its own order: the lengths have no common divisor, so that 440 methods differ in two or all.
SPARE_COLORS = ("#aa4499", "#117733", "#999933", "#661100", "#6699cc", "#dd8800", "#332288", "#44aa99")
SPARE_LINES = ("-", (0, (4, 1)), (0, (1, 1)), (0, (4, 1, 1, 1)), (0, (2, 1)))
SPARE_MARKERS = ("8", "H", "d", "*", "p", "D", "^", "v", "<", ">", "P")
PAPER = {"color": "#666666", "marker": "D", "linestyle": "none", "markerfacecolor": "white", "markersize": 3.5}


class Nothing(Exception):
    """Why there is nothing to draw; a figure says so in its place."""


@contextmanager
def context():
    """matplotlib's defaults and the settings above, whatever the user's own configuration says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        yield


def look(config: Config, method: str) -> dict:
    """Colour, line style, marker and label of a method; one without a place in `STYLES` takes a spare one."""
    others = [name for name in config.methods if name not in STYLES]
    style = STYLES[method] if method in STYLES else spare(others.index(method))
    return dict(zip(LOOK, (*style, config.methods[method].label), strict=True))


def spare(place: int) -> tuple:
    """Colour, line style and marker of a method without a place in a figure's own table."""
    return tuple(kind[place % len(kind)] for kind in (SPARE_COLORS, SPARE_LINES, SPARE_MARKERS))


def iif_look() -> dict:
    """IIF's, where it is one method: at each environment's own p, which stands elsewhere."""
    return dict(zip(LOOK, (*STYLES["iif"], "IIF"), strict=True))


def grid(panels: int, heights: tuple[float, ...] = (1.6,)) -> tuple[Figure, np.ndarray]:
    """A figure of `panels` columns of axes with these heights (inches), at most three beside each other, and its axes,
    (panels, len(heights))."""
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


def finish(
    figure: Figure, handles: Sequence[Line2D], notes: Iterable[str] = (), xlabel: str = "", small: str = ""
) -> Figure:
    """Adds what stands below the panels, and its room: the label of all x axes, the legend, and `small` text. `notes`
    go into the files' metadata, from where the report has them."""
    width, height = figure.get_size_inches()
    columns = rows = 0
    lines = textwrap.wrap(small, int(width / CHARACTER))
    if handles:
        longest = max(len(handle.get_label()) for handle in handles)
        rows = -(-len(handles) // max(1, int(width / (0.5 + 0.062 * longest))))
        columns = -(-len(handles) // rows)
    under = 0.13 * len(lines)
    below = under + 0.17 * rows + 0.06 + (0.15 if xlabel else 0)
    figure.set_size_inches(width, height + below)
    share = below / (height + below)
    figure.get_layout_engine().set(rect=(0, share, 1, 1 - share), w_pad=0.03, h_pad=0.03)
    if xlabel:
        figure.text(0.5, share, xlabel, ha="center", va="top", fontsize=SETTINGS["axes.labelsize"])
    if handles:
        labels = [handle.get_label() for handle in handles]
        anchor = (0.5, (under + 0.03) / (height + below))
        figure.legend(handles, labels, loc="lower center", bbox_to_anchor=anchor, ncols=columns, borderaxespad=0)
    if lines:
        text = {"ha": "center", "va": "bottom", "color": GREY, "linespacing": 1.1}
        figure.text(0.5, 0.02 / (height + below), "\n".join(lines), **text)
    figure.draw_without_rendering()  # lays the panels out, once for both files
    figure.set_layout_engine("none")
    figure.notes = " ".join(notes)
    return figure


def nothing(text: str) -> Figure:
    """A figure that says why nothing is drawn in it: what it is made of is not there yet."""
    lines = textwrap.wrap(text, 95)
    figure = new_figure(WIDTH, 0.3 + 0.14 * len(lines))
    figure.text(0.01, 0.5, "\n".join(lines), va="center", color=GREY)
    figure.set_layout_engine("none")
    return figure


def handle(**look) -> Line2D:
    """A legend entry."""
    return Line2D([], [], **look)


def points(entries: Mapping[str, tuple[str, str]], **look) -> list[Line2D]:
    """Legend entries of points: label -> colour, marker."""
    return [handle(color=c, marker=m, linestyle="none", label=label, **look) for label, (c, m) in entries.items()]


def paper_handle() -> Line2D:
    """The legend entry of numbers that the paper prints."""
    return handle(**PAPER, label="the paper")


def of(row: pd.Series | dict) -> str:
    """Seeds behind a number: `5`, or `4 of 5`."""
    n, expected = int(row["n"]), int(row["expected"])
    return str(n) if n == expected else f"{n} of {expected}"


def missing_note(
    missing: pd.DataFrame, conditions: Iterable[tuple[str, str]], config: Config, what: str = "runs"
) -> list[str]:
    """How many runs (or analyses) of the (environment, method) pairs that a figure is about are missing, by pair."""
    pairs = [(row.environment, row.method) for row in missing.itertuples()]
    conditions = {*conditions}
    numbers = {pair: pairs.count(pair) for pair in dict.fromkeys(pairs) if pair in conditions}
    if not numbers:
        return []
    named = (f"{n} of {config.environments[e].label}, {config.methods[m].label}" for (e, m), n in numbers.items())
    return [f"Missing {what}: {'; '.join(named)} (missing_{what}.csv)."]


def counts(seeds: dict[str, int]) -> str:
    """`n = 5`, and methods with another number by name."""
    if not seeds:
        return "n = 0"
    numbers = list(seeds.values())
    usual = max(numbers, key=lambda n: (numbers.count(n), n))
    # no-break spaces keep a label in one line
    others = [f"{label}: {n}".replace(" ", "\u00a0") for label, n in seeds.items() if n != usual]
    return "; ".join([f"n = {usual}", *others])


def titles(axes: Sequence[Axes], texts: Sequence[str], smalls: Sequence[str], width: int) -> None:
    """Titles of panels, at one height, each with smaller text below it that is broken after `width` characters."""
    wrapped = [textwrap.wrap(small, width) for small in smalls]
    most = max(map(len, wrapped))
    for axis, text, lines in zip(axes, texts, wrapped, strict=True):
        axis.set_title(text, pad=4.5 + 8.5 * most)
        axis.annotate(
            "\n".join(lines + [""] * (most - len(lines))), (0.5, 1), (0, 3), xycoords="axes fraction", fontsize=SMALL,
            textcoords="offset points", ha="center", va="bottom", color=GREY, linespacing=1.1,
        )  # fmt: skip


def mark_few(axes: Iterable[Axes], seeds: Sequence[int], few: int = 3) -> None:
    """Greys panels of fewer than `few` seeds that stand beside others with more."""
    for axis, n in zip(axes, seeds, strict=True):
        if n < few <= max(seeds):
            axis.set_facecolor(THIN)
            axis.title.set_color(SOFT)


def log_scale(axes: Axes, which: str) -> None:
    """A logarithmic x or y axis whose labels are plain text."""
    axes.set(**{f"{which}scale": "log"})
    axis = getattr(axes, f"{which}axis")
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def log_ticks(axis: Axis, fewest: int = 3) -> None:
    """Few numbers on a logarithmic axis, but enough to read its scale: finer ones where it is short."""
    low, high = axis.get_view_interval()
    for factors in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), tuple(range(1, 10))):
        axis.set_major_locator(LogLocator(subs=factors))
        if sum(low <= tick <= high for tick in axis.get_major_locator().tick_values(low, high)) >= fewest:
            return
    axis.set_major_locator(MaxNLocator(4))


def limits(values, margin: float = 0.06) -> tuple[float, float]:
    """Axis limits around finite values."""
    values = np.asarray(values, dtype=float)
    low, high = np.nanmin(values), np.nanmax(values)
    pad = margin * (high - low) or max(abs(high), 1) * margin
    return low - pad, high + pad


def save(figure: Figure, out_pdf: str | Path, out_png: str | Path, source: str) -> None:
    """PDF and PNG without dates or program versions: the same figure gives the same bytes. `source` says in both files'
    metadata which runs they are made of; the figure's notes stand beside it."""
    dated = {"pdf": ("CreationDate", "Creator", "Producer"), "png": ("Software",)}
    places = {"pdf": ("Subject", "Keywords"), "png": ("Description", "Comment")}
    for path, kind in ((out_pdf, "pdf"), (out_png, "png")):
        buffer = io.BytesIO()
        texts = dict(zip(places[kind], (source, getattr(figure, "notes", "")), strict=True))
        figure.savefig(buffer, format=kind, metadata=dict.fromkeys(dated[kind]) | texts)
        write_atomic(path, buffer.getvalue())
