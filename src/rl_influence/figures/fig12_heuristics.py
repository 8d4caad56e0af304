"""Figure 12: both advantage heuristics against IIF and standard PPO, and, ours, both with exact true advantages."""

from __future__ import annotations

from matplotlib.figure import Figure

from rl_influence.analysis.curves import methods_of
from rl_influence.config import EXACT_HEURISTICS, Config

from . import panels

TABLES = panels.CURVE_TABLES


def draw(tables: dict, config: Config) -> Figure:
    kinds = ("advantage_h1", "advantage_h2", *EXACT_HEURISTICS)
    heuristics = [method for kind in kinds for method in methods_of(config, kind)]
    return panels.compared_with_iif("fig12_heuristics", tables, config, heuristics)
