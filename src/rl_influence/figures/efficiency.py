"""Sample efficiency of every method of the study against PPO of the same seed: SE_ave, the mean share of rounds saved
over all levels that PPO reaches, and SE_peak, the share at PPO's best.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from rl_influence.analysis.curves import environments_of, methods_of
from rl_influence.config import Config

from . import reductions

READS = ("efficiency", "efficiency_per_seed", "missing_runs")


def draw(tables: dict, config: Config) -> Figure:
    methods = {environment: methods_of(config) for environment in environments_of(config)}
    return reductions.reductions_figure(tables, config, methods, ["se_ave", "se_peak"], one_iif=False)
