"""Learning curves, final returns, and gains over standard PPO (Table 4)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from rl_influence.config import Config

from .curves import KEY, StudyCurves, environments_of, paper_id, reference_method
from .first_passage import rises
from .groups import by_seed, chosen_rows, compared, expected_seeds, returns_by_run, rounds_by_run
from .reported import Reported
from .statistics import (
    columns_of,
    final_return,
    mean_columns,
    mean_training_return,
    minimum_detectable_effect,
    probability_of_improvement,
    t_quantile,
)

GAINS = ["environment", "method", "n", "expected", "round", "reference_round", *columns_of("gain")]
GAINS += ["probability_of_improvement", "detectable_gain"]
GAINS += [*columns_of("training_gain"), "paper_gain_low", "paper_gain_high"]


def curves_per_seed(study: StudyCurves) -> pd.DataFrame:
    """Test return of every run at every evaluated round."""
    columns = [*KEY, "round", "test_return"]
    return study.curves.loc[study.curves["test_return"].notna(), columns].astype({"environment": str, "method": str})


def curves_summary(study: StudyCurves) -> pd.DataFrame:
    """Mean test return over seeds with its t interval, per evaluated round; one seed has no interval."""
    keys = ["environment", "method", "round", "env_steps"]
    evaluated = study.curves[study.curves["test_return"].notna()]
    table = evaluated.groupby(keys, observed=True)["test_return"].agg(["mean", "std", "count"]).reset_index()
    n = table["count"].to_numpy()
    half = t_quantile(n) * table["std"] / np.sqrt(n)  # std of one value is nan
    seeds = expected_seeds(study)
    expected = [seeds[key] for key in zip(table["environment"], table["method"], strict=True)]
    table = table.assign(low=table["mean"] - half, high=table["mean"] + half, n=n, expected=expected)
    return table[[*keys, "mean", "low", "high", "n", "expected"]].astype({"environment": str, "method": str})


def final_returns(study: StudyCurves) -> pd.DataFrame:
    """Final return (mean of the last tenth of the rounds) and mean training return, per method."""
    rows, runs = [], rounds_by_run(study)
    for (environment, method), expected in expected_seeds(study).items():
        own = list(by_seed(runs, environment, method).values())
        final = [final_return(run["test_return"]) for run in own]
        rows.append(
            {
                "environment": environment,
                "method": method,
                "n": len(final),
                "expected": expected,
                "round": own[0]["round"][-1] if own else np.nan,
                **mean_columns("final_return", final),
                "iqm": float(stats.trim_mean(final, 0.25)) if final else np.nan,
                **mean_columns("mean_training_return", [mean_training_return(run["test_return"]) for run in own]),
            }
        )
    return pd.DataFrame(rows)


def returns_per_seed(study: StudyCurves) -> pd.DataFrame:
    """Final return and mean training return of every run, and its number of rounds. ppo_rise is the environment's: the
    way from standard PPO's untrained return to the highest point of its mean curve; empty without standard PPO."""
    curves = returns_by_run(study)
    ways = {name: top - start for name, (start, top) in rises(curves, reference_method(study.config)).items()}
    rows = [
        (*key, len(curve) - 1, final_return(curve), mean_training_return(curve), ways[key[0]])
        for key, curve in curves.items()
    ]
    return pd.DataFrame(rows, columns=[*KEY, "rounds", "final_return", "mean_training_return", "ppo_rise"])


def final_gains(study: StudyCurves, reported: Reported) -> pd.DataFrame:
    """Final return of each method minus standard PPO's of the same seed: t intervals over seeds.

    detectable_gain is the smallest true gain that n such seeds find with a power of 80 % (95 % paired t test), from the
    differences' own standard deviation. training_gain compares mean training returns over the rounds that both have.
    """
    rows, runs, reference = [], rounds_by_run(study), reference_method(study.config)
    for environment, method, expected in compared(study):
        own, standard = (by_seed(runs, environment, name) for name in (method, reference))
        seeds = sorted(own.keys() & standard.keys())
        pairs = [(own[seed]["test_return"], standard[seed]["test_return"]) for seed in seeds]
        finals = np.array([[final_return(returns) for returns in both] for both in pairs]).reshape(-1, 2)
        gains = finals[:, 0] - finals[:, 1]
        training = [[mean_training_return(returns[: min(map(len, both))]) for returns in both] for both in pairs]
        paper = reported.table_4.get(environment, {}).get(paper_id(study.config, environment, method), (np.nan, np.nan))
        rows.append(
            {
                "environment": environment,
                "method": method,
                "n": len(gains),
                "expected": expected,
                "round": own[seeds[0]]["round"][-1] if seeds else np.nan,
                "reference_round": standard[seeds[0]]["round"][-1] if seeds else np.nan,
                **mean_columns("gain", gains),
                "probability_of_improvement": probability_of_improvement(*finals.T),
                "detectable_gain": minimum_detectable_effect(len(gains), mean_columns("gain", gains)["gain_sd"]),
                **mean_columns("training_gain", [a - b for a, b in training]),
                "paper_gain_low": paper[0],
                "paper_gain_high": paper[1],
            }
        )
    return pd.DataFrame(rows, columns=GAINS)


def table_4(gains: pd.DataFrame, config: Config) -> pd.DataFrame:
    """Table 4: the t interval of the final gain of IIF at each environment's p."""
    columns = ["environment", "method", "n", "expected", "gain", "gain_low", "gain_high", "detectable_gain"]
    columns += ["paper_gain_low", "paper_gain_high"]
    return chosen_rows(gains, config, environments_of(config, adam=False))[columns]
