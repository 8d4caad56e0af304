"""SE_ave and SE_peak (Figure 6b, Tables 2 and 3), per run and per method."""

from __future__ import annotations

import zlib
from collections import defaultdict

import numpy as np
import pandas as pd

from rl_influence.config import Config

from .curves import KEY, StudyCurves, adam_variants, environments_of, iif_sweep, paper_id, reference_method, rows_of
from .first_passage import FRACTIONS, saved
from .groups import chosen_rows, compared, pairs, paper_columns
from .reported import Reported
from .sample_efficiency import sample_efficiency
from .statistics import columns_of, mean_columns

EFFICIENCY = ["environment", "method", "n", "expected", *columns_of("se_ave"), "se_ave_null"]
EFFICIENCY += [*columns_of("se_peak"), "levels", "unreached", "peak_unreached"]
EFFICIENCY += ["paper_se_ave", "paper_se_ave_spread", "paper_se_peak", "paper_se_peak_spread", "paper_source"]
EPISODES, DRAWS = 1000, 100
EFFICIENCIES = ["se_ave", "se_ave_least", "se_peak", "levels", "unreached", "peak_reached"]


def efficiency_per_seed(study: StudyCurves) -> pd.DataFrame:
    """SE_ave and SE_peak of each run against standard PPO of the same seed (section 5.2): fractions, empty if the
    reference never rises above round 0. unreached counts the levels that the method never reaches: with any, se_ave is
    an upper bound, and se_ave_least the least."""
    rows = []
    for key, standard, own in pairs(study):
        result = sample_efficiency(standard["test_return"], own["test_return"])
        levels = result.levels
        peak_reached = bool(len(levels) and levels["reached"].iloc[-1])
        numbers = (result.se_ave, result.se_ave_least, result.se_peak, len(levels), result.unreached)
        rows.append((*key, *numbers, peak_reached))
    return pd.DataFrame(rows, columns=[*KEY, *EFFICIENCIES])


def rounds_saved(passages: pd.DataFrame, study: StudyCurves) -> pd.DataFrame:
    """Rounds saved against standard PPO of the same seed (a share in [-1, 1], with its interval), at each part of PPO's
    rise and on average over them (`at`). unreached counts the levels of all seeds that either side never reaches."""
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
    """SE_ave and SE_peak per method: mean, standard deviation, t interval over seeds, and the paper's numbers.

    n counts the seeds for which they are defined and peak_unreached seeds; levels and unreached are sums over seeds.
    Where more than half of the seeds never reach PPO's maximum, se_peak says nothing but the budget, and is empty.
    se_ave_null is the mean SE_ave of PPO against PPO of another seed.
    """
    rows = []
    for environment, method, expected in compared(study):
        mine = rows_of(per_seed[per_seed["levels"] > 0], (environment, method))
        source, paper = reported.efficiency(environment, paper_id(study.config, environment, method))
        unreached = int((~mine["peak_reached"]).sum())
        peaks = mine["se_peak"] if 2 * unreached <= len(mine) else []
        null = rows_of(nulls[nulls["metric"] == "se_ave"], (environment,))["mean"]
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


def episodic_efficiency(study: StudyCurves, reported: Reported) -> pd.DataFrame:
    """SE_ave and SE_peak as the paper's `EPISODES` test episodes would have shown them, where returns are exact chances
    of success (FrozenLake), of the methods of which the paper prints the number.

    The mean of such episodes is binomial: both curves are drawn `DRAWS` times, and each seed's number is the mean over
    the draws. levels and unreached are means per seed, exact_se_ave is the mean of the exact one over the same seeds.
    """
    found = defaultdict(list)
    for (environment, method, seed), standard, own in pairs(study):
        config = study.config.environment(environment)
        exact = config.gym_id.startswith("FrozenLake") and config.evaluation.kind == "exact"
        if exact and reported.efficiency(environment, paper_id(study.config, environment, method))[1]:
            random = np.random.default_rng([zlib.crc32(f"{environment}/{method}".encode()), seed])
            drawn = [_episodes(run["test_return"], random) for run in (standard, own)]
            results = [sample_efficiency(*both) for both in zip(*drawn, strict=True)]
            numbers = [(r.se_ave, r.se_peak, len(r.levels), r.unreached) for r in results if len(r.levels)]
            exactly = sample_efficiency(standard["test_return"], own["test_return"]).se_ave
            if numbers:
                found[environment, method].append((*np.mean(numbers, axis=0), exactly))
    rows = []
    for environment, method, expected in compared(study):
        if seeds := found.get((environment, method)):
            se_ave, se_peak, levels, unreached, exactly = zip(*seeds, strict=True)
            row = {"environment": environment, "method": method, "n": len(seeds), "expected": expected}
            row |= {"episodes": EPISODES, **mean_columns("se_ave", se_ave), **mean_columns("se_peak", se_peak)}
            rows.append(
                row | {"levels": np.mean(levels), "unreached": np.mean(unreached), "exact_se_ave": np.mean(exactly)}
            )
    columns = ["environment", "method", "n", "expected", "episodes", *columns_of("se_ave"), *columns_of("se_peak")]
    return pd.DataFrame(rows, columns=[*columns, "levels", "unreached", "exact_se_ave"])


def _episodes(chances: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """(DRAWS, K + 1) means of `EPISODES` successes and failures; nan where the curve is."""
    known = np.clip(np.nan_to_num(chances), 0, 1)
    drawn = random.binomial(EPISODES, np.broadcast_to(known, (DRAWS, len(known)))) / EPISODES
    return np.where(np.isnan(chances), np.nan, drawn)


def table_2(efficiencies: pd.DataFrame, config: Config, reported: Reported) -> pd.DataFrame:
    """Table 2: the p sweep of IIF; the paper's numbers are its Table 2's."""
    ours = {(row["environment"], row["method"]): row for row in efficiencies.to_dict("records")}
    rows = []
    for environment in environments_of(config, adam=False):
        for method, percent in iif_sweep(config).items():
            if row := ours.get((environment, method)):
                paper = reported.table_2.get(environment, {}).get(method)
                theirs = [paper_columns(name, paper and getattr(paper, name)) for name in ("se_ave", "se_peak")]
                rows.append(row | theirs[0] | theirs[1] | {"drop_percent": percent})
    return pd.DataFrame(rows, columns=["environment", "method", "drop_percent", *EFFICIENCY[2:-1]])


def table_3(efficiencies: pd.DataFrame, config: Config) -> pd.DataFrame:
    """Table 3: IIF at each environment's p with the Adam optimiser, against PPO with Adam."""
    return chosen_rows(efficiencies, config, adam_variants(config)).drop(columns="paper_source")
