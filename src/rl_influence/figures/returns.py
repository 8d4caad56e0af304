"""Test return against rounds of every method of the study, a panel per environment. The policy is stochastic; where
the environment has an exact model these are expectations, elsewhere means over test episodes.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from rl_influence.analysis.curves import environments_of, methods_of
from rl_influence.config import Config

from . import panels

READS = ("curves_summary", "curves_per_seed", "missing_runs")


def draw(tables: dict, config: Config) -> Figure:
    methods = {environment: methods_of(config) for environment in environments_of(config)}
    return panels.curves_figure(tables, config, methods, one_iif=False)
