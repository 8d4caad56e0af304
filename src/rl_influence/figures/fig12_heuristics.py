"""Figure 12: both advantage heuristics against IIF and standard PPO."""

from __future__ import annotations

from matplotlib.figure import Figure

from rl_influence.analysis.curves import methods_of
from rl_influence.config import Config

from . import panels

TABLES = panels.CURVE_TABLES


def draw(tables: dict, config: Config) -> Figure:
    heuristics = [*methods_of(config, "advantage_h1"), *methods_of(config, "advantage_h2")]
    return panels.compared_with_iif("fig12_heuristics", tables, config, heuristics)
