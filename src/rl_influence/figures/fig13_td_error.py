"""Mini-batches drawn by rank-based TD-error priority against IIF and PPO (Figure 13 of the paper), where there are
such runs.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from rl_influence.analysis.curves import methods_of
from rl_influence.config import Config

from . import panels

READS = ("curves_summary", "curves_per_seed", "missing_runs")


def draw(tables: dict, config: Config) -> Figure:
    return panels.compared_with_iif(tables, config, methods_of(config, "td_error"))
