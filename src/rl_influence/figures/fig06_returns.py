"""Figure 6a: test return of standard PPO, IIF at each environment's p, and random dropping."""

from __future__ import annotations

from matplotlib.figure import Figure

from rl_influence.config import Config

from . import panels

TABLES = panels.CURVE_TABLES


def draw(tables: dict, config: Config) -> Figure:
    methods = {
        environment: [*panels.standard_and_iif(config, environment), *panels.random_methods(config)]
        for environment in panels.main_environments(config)
    }
    return panels.curves_figure("fig06_returns", tables, config, methods)
