"""Figure 13: sampling by TD error against IIF and standard PPO."""

from __future__ import annotations

from matplotlib.figure import Figure

from rl_influence.analysis.curves import methods_of
from rl_influence.config import Config

from . import panels

TABLES = panels.CURVE_TABLES


def draw(tables: dict, config: Config) -> Figure:
    return panels.compared_with_iif("fig13_td_error", tables, config, methods_of(config, "td_error"))
