"""SE_ave and SE_peak (Figure 6b, Tables 2 and 3), per run and per method."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rl_influence.config import Config

from .curves import KEY, StudyCurves, adam_variants, environments_of, iif_sweep, reference_method
from .first_passage import FRACTIONS, saved
from .groups import chosen_rows, compared, pairs, paper_columns
from .reported import Reported
from .sample_efficiency import sample_efficiency
from .statistics import columns_of, mean_columns

EFFICIENCY = ["environment", "method", "n", "expected", *columns_of("se_ave"), "se_ave_null"]
EFFICIENCY += [*columns_of("se_peak"), "levels", "unreached", "peak_unreached"]
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


def rounds_saved(passages: pd.DataFrame, study: StudyCurves) -> pd.DataFrame:
    """Rounds saved against standard PPO of the same seed, at each part of PPO's rise and on average over them.

    Columns: environment, method, at (`0.5`, `0.75`, `0.9`, `mean`), n, expected, unreached (levels of all seeds that
    either side never reaches), rounds_saved (a share in [-1, 1]) with its interval.
    """
    reference = reference_method(study.config)
    rows = []
    for environment, method, expected in compared(study):
        both = saved(passages, environment, method, reference)
        for at in (*FRACTIONS, "mean"):
            part = both if at == "mean" else both[both["fraction"] == at]
            values = part.groupby("seed")["saved"].mean()
            row = {"environment": environment, "method": method, "at": str(at), "n": len(values), "expected": expected}
            rows.append(row | {"unreached": int(part["never"].sum())} | mean_columns("rounds_saved", values, most=1.0))
    columns = ["environment", "method", "at", "n", "expected", "unreached", *columns_of("rounds_saved")]
    return pd.DataFrame(rows, columns=columns)


def efficiency(per_seed: pd.DataFrame, nulls: pd.DataFrame, study: StudyCurves, reported: Reported) -> pd.DataFrame:
    """SE_ave and SE_peak per method: mean, standard deviation, 95 % t interval over seeds, and the paper's numbers.

    n counts the seeds for which they are defined and peak_unreached seeds; levels and unreached are sums over seeds.
    Where more than half of the seeds never reach PPO's maximum, se_peak says nothing but the budget, and is empty.
    se_ave_null is the mean SE_ave of PPO against PPO of another seed.
    """
    rows = []
    for environment, method, expected in compared(study):
        mine = per_seed[(per_seed["environment"] == environment) & (per_seed["method"] == method)]
        mine = mine[mine["levels"] > 0]
        source, paper = reported.efficiency(environment, method)
        unreached = int((~mine["peak_reached"]).sum())
        peaks = mine["se_peak"] if 2 * unreached <= len(mine) else []
        null = nulls.loc[(nulls["environment"] == environment) & (nulls["metric"] == "se_ave"), "mean"]
        rows.append(
            {
                "environment": environment,
                "method": method,
                "n": len(mine),
                "expected": expected,
                **mean_columns("se_ave", mine["se_ave"]),
                "se_ave_null": null.iloc[0] if len(null) else np.nan,
                **mean_columns("se_peak", peaks),
                "levels": int(mine["levels"].sum()),
                "unreached": int(mine["unreached"].sum()),
                "peak_unreached": unreached,
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
                theirs = (paper_columns(name, paper and getattr(paper, name)) for name in ("se_ave", "se_peak"))
                rows.append({**row, **next(theirs), **next(theirs), "drop_percent": percent})
    return pd.DataFrame(rows, columns=["environment", "method", "drop_percent", *EFFICIENCY[2:-1]])


def table_3(efficiencies: pd.DataFrame, config: Config) -> pd.DataFrame:
    """Table 3: IIF at each environment's p with the Adam optimiser, against PPO with Adam."""
    mine = chosen_rows(efficiencies, config, adam_variants(config))
    return mine.drop(columns="paper_source").reset_index(drop=True)
