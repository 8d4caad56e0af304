"""PPO and IIF at each environment's p, both with the Adam optimiser (the paper's appendix B.7, Figure 15). Every line
is a seed: some runs collapse and stay there, which a mean would hide.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from rl_influence.analysis.curves import adam_variants
from rl_influence.config import Config

from . import panels

READS = ("curves_summary", "curves_per_seed", "missing_runs")


def draw(tables: dict, config: Config) -> Figure:
    methods = {name: panels.standard_and_iif(config, name) for name in adam_variants(config)}
    return panels.curves_figure(tables, config, methods, spread="seeds")
