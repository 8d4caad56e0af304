"""SE_ave and SE_peak (Figure 6b, Tables 2 and 3), per run and per method."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pandas as pd

from rl_influence.config import Config

from .curves import KEY, StudyCurves, adam_variants, environments_of, iif_sweep
from .groups import chosen_rows, compared, pairs, paper_columns
from .reported import Reported
from .sample_efficiency import FRACTIONS, efficiency_at, sample_efficiency
from .statistics import columns_of, mean_columns

EFFICIENCY = ["environment", "method", "n", "expected", *columns_of("se_ave"), *columns_of("se_peak")]
EFFICIENCY += ["levels", "unreached", "peak_unreached"]
EFFICIENCY += ["paper_se_ave", "paper_se_ave_spread", "paper_se_peak", "paper_se_peak_spread", "paper_source"]
EFFICIENCIES = ["se_ave", "se_ave_least", "se_peak", "levels", "unreached", "peak_reached"]


def efficiency_per_seed(study: StudyCurves) -> pd.DataFrame:
    """SE_ave and SE_peak of each run against standard PPO of the same seed (section 5.2).

    Columns: se_ave, se_peak (fractions; empty if the reference never rises above round 0), levels, unreached (levels
    that the method never reaches: with any, se_ave is an upper bound, and se_ave_least the least), peak_reached.
    """
    rows = []
    for key, standard, own in pairs(study):
        result = sample_efficiency(standard["test_return"], own["test_return"])
        rows.append(
            {
                **dict(zip(KEY, key, strict=True)),
                "se_ave": result.se_ave,
                "se_ave_least": result.se_ave_least,
                "se_peak": result.se_peak,
                "levels": len(result.levels),
                "unreached": result.unreached,
                "peak_reached": bool(len(result.levels) and result.levels["reached"].iloc[-1]),
            }
        )
    return pd.DataFrame(rows, columns=[*KEY, *EFFICIENCIES])


def efficiency_levels(study: StudyCurves) -> pd.DataFrame:
    """The reduction at 50, 75, 90, 95 and 100 % of the standard run's range: mean and 95 % t interval over seeds."""
    found = defaultdict(list)
    for (environment, method, _), standard, own in pairs(study):
        for at in efficiency_at(standard["test_return"], own["test_return"]).itertuples():
            if not np.isnan(at.reduction):
                found[environment, method, at.fraction].append((at.reduction, at.reached))
    rows = []
    for environment, method, expected in compared(study):
        for fraction in FRACTIONS:
            at = found[environment, method, fraction]
            row = {"environment": environment, "method": method, "fraction": fraction, "n": len(at)}
            row |= {"expected": expected, "unreached": sum(not reached for _, reached in at)}
            rows.append(row | mean_columns("reduction", [reduction for reduction, _ in at]))
    columns = ["environment", "method", "fraction", "n", "expected", "unreached", *columns_of("reduction")]
    return pd.DataFrame(rows, columns=columns)


def efficiency(per_seed: pd.DataFrame, study: StudyCurves, reported: Reported) -> pd.DataFrame:
    """SE_ave and SE_peak per method: mean, standard deviation, 95 % t interval over seeds, and the paper's numbers.

    n counts the seeds for which they are defined and peak_unreached seeds; levels and unreached are sums over seeds.
    """
    rows = []
    for environment, method, expected in compared(study):
        mine = per_seed[(per_seed["environment"] == environment) & (per_seed["method"] == method)]
        mine = mine[mine["levels"] > 0]
        source, paper = reported.efficiency(environment, method)
        rows.append(
            {
                "environment": environment,
                "method": method,
                "n": len(mine),
                "expected": expected,
                **mean_columns("se_ave", mine["se_ave"]),
                **mean_columns("se_peak", mine["se_peak"]),
                "levels": int(mine["levels"].sum()),
                "unreached": int(mine["unreached"].sum()),
                "peak_unreached": int((~mine["peak_reached"]).sum()),
                **paper_columns("se_ave", paper and paper.se_ave),
                **paper_columns("se_peak", paper and paper.se_peak),
                "paper_source": source,
            }
        )
    return pd.DataFrame(rows, columns=EFFICIENCY)


def table_2(efficiencies: pd.DataFrame, config: Config, reported: Reported) -> pd.DataFrame:
    """Table 2: the p sweep of IIF; the paper's numbers are its Table 2's."""
    ours = {(row["environment"], row["method"]): row for row in efficiencies.to_dict("records")}
    rows = []
    for environment in [name for name in environments_of(config) if name not in adam_variants(config)]:
        for method, percent in iif_sweep(config).items():
            if row := ours.get((environment, method)):
                paper = reported.table_2.get(environment, {}).get(method)
                row |= paper_columns("se_ave", paper and paper.se_ave) | paper_columns(
                    "se_peak", paper and paper.se_peak
                )
                rows.append(row | {"drop_percent": percent})
    return pd.DataFrame(rows, columns=["environment", "method", "drop_percent", *EFFICIENCY[2:-1]])


def table_3(efficiencies: pd.DataFrame, config: Config) -> pd.DataFrame:
    """Table 3: IIF at each environment's p with the Adam optimiser, against PPO with Adam."""
    mine = chosen_rows(efficiencies, config, adam_variants(config))
    return mine.drop(columns="paper_source").reset_index(drop=True)
