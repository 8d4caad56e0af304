"""Test return against rounds of PPO, IIF at each environment's p, and random removal of as many records (Figure 6a of
the paper). The policy is stochastic; FrozenLake and MiniGrid are exact expectations, the others means over test
episodes. An environment with less than half the seeds of the others (Pong, whose seed shows records) is not compared.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from rl_influence.analysis.curves import random_methods
from rl_influence.config import Config

from . import panels

READS = ("curves_summary", "curves_per_seed", "missing_runs")


def draw(tables: dict, config: Config) -> Figure:
    methods = {
        environment: [*panels.standard_and_iif(config, environment), *random_methods(config)]
        for environment in panels.compared_environments(config)
    }
    return panels.curves_figure(tables, config, methods)
