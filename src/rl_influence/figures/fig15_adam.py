"""Figure 15: standard PPO and IIF with the Adam optimiser (appendix B.7)."""

from __future__ import annotations

from matplotlib.figure import Figure

from rl_influence.analysis.curves import adam_variants
from rl_influence.config import Config

from . import panels

TABLES = panels.CURVE_TABLES


def draw(tables: dict, config: Config) -> Figure:
    methods = {name: panels.standard_and_iif(config, name) for name in adam_variants(config)}
    return panels.curves_figure("fig15_adam", tables, config, methods)
