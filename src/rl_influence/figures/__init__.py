"""The paper's figures: each module turns tables into one figure, `draw(tables, config)`, and knows of no training."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from rl_influence.analysis.claims import CLAIM_TABLES
from rl_influence.analysis.registry import ANALYSIS_OF, LISTS
from rl_influence.analysis.single_rounds import source
from rl_influence.analysis.tables import TABLES
from rl_influence.config import Config, choose

from . import (
    fig03_diagnosis,
    fig04_highway,
    fig05_interventions,
    fig06_efficiency,
    fig06_returns,
    fig08_minigrid,
    fig09_records,
    fig10_acrobot,
    fig12_heuristics,
    fig13_td_error,
    fig14_p_sweep,
    fig15_adam,
    fig_claims,
    fig_controls,
    fig_faithfulness,
    style,
)
from .style import FigureError

MODULES = (
    fig03_diagnosis,
    fig04_highway,
    fig05_interventions,
    fig06_returns,
    fig06_efficiency,
    fig08_minigrid,
    fig09_records,
    fig10_acrobot,
    fig12_heuristics,
    fig13_td_error,
    fig14_p_sweep,
    fig15_adam,
    fig_controls,
    fig_faithfulness,
    fig_claims,
)
FIGURES = {  # name -> (module, tables it reads)
    module.__name__.rpartition(".")[2]: (module, module.TABLES) for module in MODULES
}
FOLDERS = (  # table -> its folder
    {name: table.folder for name, table in TABLES.items()}
    | dict.fromkeys((*CLAIM_TABLES, *ANALYSIS_OF, *LISTS), "tables")
)
__all__ = ["FIGURES", "FOLDERS", "FigureError", "draw", "make", "table_files"]


def table_files(name: str, tables_dir: str | Path, runtimes_dir: str | Path) -> dict[str, Path]:
    """The files that a figure reads: table -> path."""
    _, tables = FIGURES[choose("figure", name, FIGURES)]
    folders = {"tables": Path(tables_dir), "runtimes": Path(runtimes_dir)}
    return {t: folders[FOLDERS[t]] / f"{t}.csv" for t in tables}


def make(name: str, tables: dict[str, pd.DataFrame], config: Config) -> Figure:
    """The figure of these tables.

    Raises:
        ConfigError: for a name that is not in `FIGURES`.
        FigureError: if there is nothing to draw.
    """
    module, _ = FIGURES[choose("figure", name, FIGURES)]
    with style.context():
        return module.draw(tables, config)


def draw(
    name: str,
    tables_dir: str | Path,
    runtimes_dir: str | Path,
    out_pdf: str | Path,
    out_png: str | Path,
    config: Config,
) -> None:
    """Reads a figure's tables and writes it as PDF and PNG; the same tables give the same bytes.

    The files' metadata name the runs and analyses behind them, from the tables `runs` and `analyses`.

    Raises:
        ConfigError: for a name that is not in `FIGURES`.
        FigureError: if a table cannot be read or there is nothing to draw.
    """
    tables = {}
    for table, path in table_files(name, tables_dir, runtimes_dir).items():
        try:
            tables[table] = pd.read_csv(path, keep_default_na=False, na_values=[""])
        except (OSError, ValueError) as error:
            raise FigureError(f"{path}: cannot be read ({type(error).__name__})") from None
    try:
        made_of = source(tables, tables_dir, config.study)
    except (OSError, ValueError) as error:
        raise FigureError(f"{tables_dir}: runs.csv or analyses.csv cannot be read ({type(error).__name__})") from None
    figure = make(name, tables, config)
    with style.context():
        style.save(figure, out_pdf, out_png, made_of)
