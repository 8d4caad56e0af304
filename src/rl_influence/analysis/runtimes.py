"""Runtimes by phase, and RT_peak (Table 5).

Seconds are those of rounds that PPO and IIF took in turn, in one process of one version of the code (runs/timings.py);
rounds are those of the runs. What a run's own `timing.csv` says depends on day, machine and code, and is not compared.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from rl_influence.config import Config, ConfigError, RunSpec, choose
from rl_influence.runs.columns import PHASES

from .curves import KEY, StudyCurves, chosen_iif, environments_of, paper_id, reference_method, rows_of
from .groups import expected_seeds, paper_columns, returns_by_run
from .reported import Reported
from .sample_efficiency import time_efficiency
from .statistics import columns_of, mean_columns

TOTALS = {"": ["influence_s", "optimise_s"], "_with_sampling": ["influence_s", "optimise_s", "sampling_s"]}
RUNTIMES = [*KEY, *PHASES]
RUNTIMES += [name for suffix in TOTALS for name in (f"total{suffix}_s", f"matching_peak{suffix}_s", f"rt_peak{suffix}")]
RUNTIMES += ["peak_reached"]
TABLE_5 = [  # quantity, whose, column of runtimes_per_seed
    ("influence_s", "iif", "influence_s"),
    ("optimise_iif_s", "iif", "optimise_s"),
    ("optimise_ppo_s", "ppo", "optimise_s"),
    ("influence_share", "iif", "influence_share"),
    ("total_iif_s", "iif", "total_s"),
    ("total_ppo_s", "ppo", "total_s"),
    ("matching_peak_s", "iif", "matching_peak_s"),
    ("rt_peak", "iif", "rt_peak"),
    ("sampling_iif_s", "iif", "sampling_s"),
    ("sampling_ppo_s", "ppo", "sampling_s"),
    ("total_iif_with_sampling_s", "iif", "total_with_sampling_s"),
    ("total_ppo_with_sampling_s", "ppo", "total_with_sampling_s"),
    ("matching_peak_with_sampling_s", "iif", "matching_peak_with_sampling_s"),
    ("rt_peak_with_sampling", "iif", "rt_peak_with_sampling"),
]


def timed(config: Config) -> dict[str, dict[str, RunSpec]]:
    """Environment -> method -> specification of the rounds that a study times in turn: PPO's, and IIF's at the
    environment's own p. `ConfigError` for an environment that there is not, or one without that IIF."""
    specs = {}
    for environment in config.study_config.timings:
        choose("environment", environment, config.environments, f"{config.name}: timings: ")
        iif = chosen_iif(config, environment)
        if iif is None:
            raise ConfigError(f"{config.name}: timings: methods.yaml has no IIF at the p of environment {environment}")
        names = (reference_method(config), iif)
        specs[environment] = {name: config.resolve(environment, name, seed=0) for name in names}
    return specs


def runtimes_per_seed(study: StudyCurves) -> pd.DataFrame:
    """CPU seconds of a round by phase, totals, and RT_peak against standard PPO of the same seed, of what was timed.

    A run has the mean round of that repeat of the timings whose number is its seed modulo the number of repeats. Totals
    count influence and optimisation, as the paper does; *_with_sampling adds environment sampling. matching_peak_s is
    the time after which the method reaches standard PPO's maximum, or all of its time (peak_reached is false then).
    """
    runs, reference = returns_by_run(study), reference_method(study.config)
    of_round = study.timings.groupby(["environment", "method", "repeat"])[[*PHASES]].mean()
    repeats = study.timings["repeat"].nunique()
    rows = []
    for (environment, method, seed), returns in runs.items():
        if (environment, method) not in of_round.index.droplevel("repeat"):
            continue
        rounds = np.arange(len(returns))
        own = of_round.loc[environment, method, seed % repeats]
        row = {"environment": environment, "method": method, "seed": seed, "peak_reached": pd.NA} | own.to_dict()
        standard = runs.get((environment, reference, seed)) if method != reference else None
        for suffix, phases in TOTALS.items():
            row[f"total{suffix}_s"] = rounds[-1] * own[phases].sum()
            if standard is not None:
                of_ppo = of_round.loc[environment, reference, seed % repeats][phases].sum()
                result = time_efficiency(standard, returns, rounds * of_ppo, rounds * own[phases].sum())
                row |= {f"matching_peak{suffix}_s": result.method_s, f"rt_peak{suffix}": result.rt_peak}
                row["peak_reached"] = result.reached
        rows.append(row)
    return pd.DataFrame(rows, columns=RUNTIMES).astype({"peak_reached": "boolean"})


def runtimes(per_seed: pd.DataFrame, study: StudyCurves, reported: Reported) -> pd.DataFrame:
    """Means over seeds of `runtimes_per_seed`, of what was timed, with the paper's RT_peak (Figure 6b, Table 3)."""
    rows = []
    measured = set(study.timings[["environment", "method"]].itertuples(index=False, name=None))
    for (environment, method), expected in expected_seeds(study).items():
        if (environment, method) not in measured:
            continue
        mine = rows_of(per_seed, (environment, method))
        row = {"environment": environment, "method": method, "n": len(mine), "expected": expected}
        for name in RUNTIMES[3:-1]:
            row |= mean_columns(name, mine[name].dropna())
        row["peak_unreached"] = int((~mine["peak_reached"]).sum())
        _, paper = reported.efficiency(environment, paper_id(study.config, environment, method))
        rows.append(row | paper_columns("rt_peak", paper and paper.rt_peak))
    names = [name for quantity in RUNTIMES[3:-1] for name in columns_of(quantity)]
    counts = ["environment", "method", "n", "expected"]
    return pd.DataFrame(rows, columns=[*counts, *names, "peak_unreached", "paper_rt_peak", "paper_rt_peak_spread"])


def table_5(per_seed: pd.DataFrame, study: StudyCurves, reported: Reported) -> pd.DataFrame:
    """Table 5: runtimes of IIF at each environment's p and of standard PPO, one row per environment and quantity.

    Per round: sampling, influence, optimisation. Totals, matching peak and rt_peak as in the paper (influence +
    optimisation) and with sampling. influence_share is influence / (influence + optimisation) of IIF.
    """
    config, reference = study.config, reference_method(study.config)
    expected = expected_seeds(study)
    rows = []
    for environment in environments_of(config):
        method = chosen_iif(config, environment)
        if (environment, method) not in expected or environment not in set(study.timings["environment"]):
            continue
        names = {"iif": method, "ppo": reference}
        frames = {who: rows_of(per_seed, (environment, name)) for who, name in names.items()}
        optimise, influence = frames["iif"]["optimise_s"], frames["iif"]["influence_s"]
        frames["iif"] = frames["iif"].assign(influence_share=influence / (influence + optimise))
        for quantity, who, column in TABLE_5:
            values = frames[who][column].dropna()
            unit, scale = ("s", 1) if column.endswith("_s") else ("fraction", 100)  # the paper prints percent
            mean, spread = getattr(reported.table_5.get(environment), quantity, None) or (np.nan, np.nan)
            rows.append(
                {
                    "environment": environment,
                    "method": names[who],
                    "quantity": quantity,
                    "unit": unit,
                    "n": len(values),
                    "expected": expected.get((environment, names[who]), 0),
                    **mean_columns("value", values),
                    "peak_unreached": int((~frames[who]["peak_reached"]).sum()) if "peak" in quantity else 0,
                    "paper_value": mean / scale,
                    "paper_value_spread": spread / scale,
                }
            )
    columns = ["environment", "method", "quantity", "unit", "n", "expected", *columns_of("value"), "peak_unreached"]
    return pd.DataFrame(rows, columns=[*columns, "paper_value", "paper_value_spread"])
