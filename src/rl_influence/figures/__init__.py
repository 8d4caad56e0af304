"""The figures: every module here that has `READS` turns tables into one figure, and knows of no training.

    docstring   the figure's caption, for its reader
    READS       names of the tables that it reads, a literal
    draw        (tables, config) -> Figure; raises `style.Nothing` where there is nothing to draw

They are found by reading the files, so that planning a study imports neither them nor matplotlib.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from rl_influence.analysis.claims import level_of
from rl_influence.analysis.registry import check_tables
from rl_influence.config import Config, choose

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class FigureError(ValueError):
    """A figure that cannot be drawn; the message is one line."""


@dataclass(frozen=True)
class Entry:
    """What there is to know of a figure before it is drawn."""

    reads: tuple[str, ...]
    caption: str


def discover(folder: Path) -> dict[str, Entry]:
    """Name -> entry of every figure's module in a folder."""
    found = {}
    for path in sorted(folder.glob("[!_]*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        for line in module.body:
            if isinstance(line, ast.Assign) and [getattr(target, "id", "") for target in line.targets] == ["READS"]:
                found[path.stem] = Entry(tuple(ast.literal_eval(line.value)), ast.get_docstring(module) or "")
    return found


FIGURES = discover(Path(__file__).parent)


def check(config: Config) -> None:
    """Refuses figures that there are not, and those of analyses that the study does not ask for (`ConfigError`)."""
    names = config.study_config.figures
    for name in names:
        choose("figure", name, FIGURES, f"{config.name}: ")
    check_tables(config, {f"figure {name}": FIGURES[name].reads for name in names})


def make(name: str, tables: Mapping[str, pd.DataFrame], config: Config) -> Figure:
    """The figure of these tables; where there is nothing to draw, one that says so. `ConfigError` for an unknown
    name."""
    from . import style

    module = importlib.import_module(f".{choose('figure', name, FIGURES)}", __name__)
    with style.context():
        try:
            figure = module.draw(tables, config)
        except style.Nothing as reason:
            return style.nothing(f"{name}: nothing to draw: {reason}")
    if "interval" in f"{FIGURES[name].caption} {figure.notes}":
        figure.notes = f"Intervals are {100 * level_of(config):.3g} % ones. {figure.notes}".strip()
    return figure


def draw(name: str, tables: Mapping[str, str | Path], out_pdf: str | Path, out_png: str | Path, config: Config) -> None:
    """Reads a figure's tables and writes it as PDF and PNG; the same tables give the same bytes.

    The files' metadata name the runs and analyses behind them, and hold the figure's notes. `tables` (table -> file)
    has, beside those that the figure reads, `runs`, and `analyses` if it is of any. `ConfigError` for an unknown name,
    `FigureError` if a table cannot be read.
    """
    from rl_influence.analysis.single_rounds import source

    from . import style

    read, path = {}, None
    reads = FIGURES[choose("figure", name, FIGURES)].reads
    try:
        for table in reads:
            path = tables[table]
            read[table] = pd.read_csv(path, keep_default_na=False, na_values=[""])
        path = Path(tables["runs"]).parent
        made_of = source(reads, path, config.study)
    except (OSError, ValueError) as error:
        raise FigureError(f"{path}: cannot be read ({type(error).__name__})") from None
    figure = make(name, read, config)
    with style.context():
        style.save(figure, out_pdf, out_png, made_of)


def notes(png: str | Path) -> str:
    """What a figure's file says of what it shows, beside its caption: numbers of seeds, what is missing."""
    from PIL import Image

    with Image.open(png) as image:
        return image.info.get("Comment", "")
