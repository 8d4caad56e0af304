"""Sample efficiency of IIF at each environment's p against PPO of the same seed (Figure 6b of the paper): SE_ave, the
mean share of rounds saved over all levels that PPO reaches; SE_peak, the share at PPO's best; RT_peak, the same in
CPU time of influence and optimisation, where rounds were timed. Random removal, which the paper leaves out here, is a
control. An environment with less than half the seeds of the others (Pong, whose seed shows records) is not compared.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from rl_influence.analysis.curves import chosen_iif, random_methods
from rl_influence.config import Config

from . import panels, reductions

READS = ("efficiency", "efficiency_per_seed", "runtimes", "runtimes_per_seed", "missing_runs")


def draw(tables: dict, config: Config) -> Figure:
    methods = {e: [chosen_iif(config, e), *random_methods(config)] for e in panels.compared_environments(config)}
    quantities = [name for name in reductions.REDUCTIONS if name != "rt_peak" or len(tables["runtimes"])]
    return reductions.reductions_figure(tables, config, methods, quantities)
