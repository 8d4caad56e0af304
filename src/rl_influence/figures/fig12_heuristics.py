"""The advantage heuristics H1 and H2 against IIF and PPO (Figure 12 of the paper), with the true advantage estimated
from the buffer's Monte-Carlo returns, as in the paper, and, ours, with the exact one.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from rl_influence.analysis.curves import methods_of
from rl_influence.config import EXACT_HEURISTICS, Config

from . import panels

READS = ("curves_summary", "curves_per_seed", "missing_runs")


def draw(tables: dict, config: Config) -> Figure:
    kinds = ("advantage_h1", "advantage_h2", *EXACT_HEURISTICS)
    return panels.compared_with_iif(tables, config, [method for kind in kinds for method in methods_of(config, kind)])
