"""Tables of a study: the paper's Tables 2 to 5, what its figures are drawn from, and what is missing.

Sample efficiency, returns and probabilities are fractions or returns as they are (percent only in LaTeX and figures);
columns that end in _s are seconds. The same runs give the same bytes: order follows the configuration, floats have six
significant digits. Tables made of runtimes lie in a folder of their own, since no two runs take the same time.

`n` counts the seeds behind a number and `expected` those that the study's grid asks for. Published numbers stand beside
ours in columns named paper_*, and nothing is computed from them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from rl_influence.config import Config, choose
from rl_influence.runs.files import write_atomic

from .aggregate import aggregate_curves, improvement
from .contrasts import controls
from .curves import KEY, StudyCurves, adam_variants, chosen_iif, environments_of, iif_sweep, reference_method
from .first_passage import null_values, rise, rounds_to
from .reported import Pair, Reported, load_reported
from .sample_efficiency import FRACTIONS, efficiency_at, sample_efficiency, time_efficiency
from .statistics import (
    bootstrap_interval,
    columns_of,
    final_return,
    interquartile_mean,
    mean_columns,
    mean_training_return,
    minimum_detectable_effect,
    paired_differences,
    probability_of_improvement,
)

Rounds = dict[str, np.ndarray]  # columns of one run, indexed by round


EFFICIENCY = ["environment", "method", "n", "expected", *columns_of("se_ave"), *columns_of("se_peak")]
EFFICIENCY += ["levels", "unreached", "peak_unreached"]
EFFICIENCY += ["paper_se_ave", "paper_se_ave_spread", "paper_se_peak", "paper_se_peak_spread", "paper_source"]
EFFICIENCIES = ["se_ave", "se_ave_least", "se_peak", "levels", "unreached", "peak_reached"]
GAINS = ["environment", "method", "n", "expected", "round", "reference_round", *columns_of("gain")]
GAINS += ["gain_bootstrap_low", "gain_bootstrap_high", "probability_of_improvement", "detectable_gain"]
GAINS += [*columns_of("training_gain"), "paper_gain_low", "paper_gain_high"]
TOTALS = {"": ["influence_s", "optimise_s"], "_with_sampling": ["influence_s", "optimise_s", "sampling_s"]}
PHASES = ["sampling_s", "influence_s", "optimise_s", "evaluate_s"]
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


# Curves


def curves_per_seed(study: StudyCurves) -> pd.DataFrame:
    """Test return of every run at every evaluated round."""
    columns = [*KEY, "round", "test_return"]
    return study.curves.loc[study.curves["test_return"].notna(), columns].astype({"environment": str, "method": str})


def curves_summary(study: StudyCurves) -> pd.DataFrame:
    """Mean test return over seeds with its 95 % t interval, per evaluated round; one seed has no interval."""
    keys = ["environment", "method", "round", "env_steps"]
    evaluated = study.curves[study.curves["test_return"].notna()]
    table = evaluated.groupby(keys, observed=True)["test_return"].agg(["mean", "std", "count"]).reset_index()
    n = table["count"].to_numpy()
    half = stats.t.ppf(0.975, np.maximum(n - 1, 1)) * table["std"] / np.sqrt(n)  # std of one value is nan
    seeds = _expected(study)
    expected = [seeds[key] for key in zip(table["environment"], table["method"], strict=True)]
    table = table.assign(low=table["mean"] - half, high=table["mean"] + half, n=n, expected=expected)
    return table[[*keys, "mean", "low", "high", "n", "expected"]].astype({"environment": str, "method": str})


def final_returns(study: StudyCurves) -> pd.DataFrame:
    """Final return (mean of the last tenth of the rounds) and mean training return, per method."""
    rows = []
    runs = _runs(study)
    for (environment, method), expected in _expected(study).items():
        own = list(_by_seed(runs, environment, method).values())
        final = [final_return(run["test_return"]) for run in own]
        rows.append(
            {
                "environment": environment,
                "method": method,
                "n": len(final),
                "expected": expected,
                "round": own[0]["round"][-1] if own else np.nan,
                **mean_columns("final_return", final),
                "iqm": float(interquartile_mean(final)) if final else np.nan,
                **mean_columns("mean_training_return", [mean_training_return(run["test_return"]) for run in own]),
            }
        )
    return pd.DataFrame(rows)


def returns_per_seed(study: StudyCurves) -> pd.DataFrame:
    """Final return and mean training return of every run, and its number of rounds.

    ppo_rise is the same for all runs of an environment: the way from standard PPO's untrained return to the highest
    point of its mean curve; empty without standard PPO.
    """
    curves, reference = _returns(study), reference_method(study.config)
    rises = {}
    for environment in dict.fromkeys(key[0] for key in curves):
        standard = [curve for key, curve in curves.items() if key[:2] == (environment, reference)]
        start, top = rise(standard) if standard else (np.nan, np.nan)
        rises[environment] = top - start
    rows = [
        (*key, len(curve) - 1, final_return(curve), mean_training_return(curve), rises[key[0]])
        for key, curve in curves.items()
    ]
    return pd.DataFrame(rows, columns=[*KEY, "rounds", "final_return", "mean_training_return", "ppo_rise"])


def final_gains(study: StudyCurves, reported: Reported) -> pd.DataFrame:
    """Final return of each method minus standard PPO's of the same seed: t and bootstrap intervals over seeds.

    detectable_gain is the smallest true gain that n such seeds find with a power of 80 % (95 % paired t test), from the
    differences' own standard deviation. training_gain compares mean training returns over the rounds that both have.
    """
    rows = []
    runs, reference = _runs(study), reference_method(study.config)
    for environment, method, expected in _compared(study):
        own = _by_seed(runs, environment, method)
        standard = _by_seed(runs, environment, reference)
        final = {"own": _final(own), "standard": _final(standard)}
        gains = paired_differences(final["standard"], final["own"]).differences
        training = []
        for seed in gains.index:
            both = own[seed]["test_return"], standard[seed]["test_return"]
            means = [mean_training_return(returns[: min(map(len, both))]) for returns in both]
            training.append(means[0] - means[1])
        boot = bootstrap_interval(gains)
        paper = reported.table_4.get(environment, {}).get(method, (np.nan, np.nan))
        seeds = list(gains.index)
        rows.append(
            {
                "environment": environment,
                "method": method,
                "n": len(gains),
                "expected": expected,
                "round": own[seeds[0]]["round"][-1] if seeds else np.nan,
                "reference_round": standard[seeds[0]]["round"][-1] if seeds else np.nan,
                **mean_columns("gain", gains),
                "gain_bootstrap_low": boot.low,
                "gain_bootstrap_high": boot.high,
                "probability_of_improvement": probability_of_improvement(
                    final["own"].loc[seeds], final["standard"].loc[seeds]
                ),
                "detectable_gain": minimum_detectable_effect(len(gains), gains.std(ddof=1)) if seeds else np.nan,
                **mean_columns("training_gain", training),
                "paper_gain_low": paper[0],
                "paper_gain_high": paper[1],
            }
        )
    return pd.DataFrame(rows, columns=GAINS)


def table_4(gains: pd.DataFrame, config: Config) -> pd.DataFrame:
    """Table 4: the 95 % t interval of the final gain of IIF at each environment's p."""
    columns = ["environment", "method", "n", "expected", "gain", "gain_low", "gain_high", "detectable_gain"]
    return _chosen_rows(gains, config)[[*columns, "paper_gain_low", "paper_gain_high"]]


# Sample efficiency


def efficiency_per_seed(study: StudyCurves) -> pd.DataFrame:
    """SE_ave and SE_peak of each run against standard PPO of the same seed (section 5.2).

    Columns: se_ave, se_peak (fractions; empty if the reference never rises above round 0), levels, unreached (levels
    that the method never reaches: with any, se_ave is an upper bound, and se_ave_least the least), peak_reached.
    """
    rows = []
    for key, standard, own in _pairs(study):
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
    for (environment, method, _), standard, own in _pairs(study):
        for at in efficiency_at(standard["test_return"], own["test_return"]).itertuples():
            if not np.isnan(at.reduction):
                found[environment, method, at.fraction].append((at.reduction, at.reached))
    rows = []
    for environment, method, expected in _compared(study):
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
    for environment, method, expected in _compared(study):
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
                **_paper("se_ave", paper and paper.se_ave),
                **_paper("se_peak", paper and paper.se_peak),
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
                row |= _paper("se_ave", paper and paper.se_ave) | _paper("se_peak", paper and paper.se_peak)
                rows.append(row | {"drop_percent": percent})
    return pd.DataFrame(rows, columns=["environment", "method", "drop_percent", *EFFICIENCY[2:-1]])


def table_3(efficiencies: pd.DataFrame, config: Config) -> pd.DataFrame:
    """Table 3: IIF at each environment's p with the Adam optimiser, against PPO with Adam."""
    mine = _chosen_rows(efficiencies, config, adam_variants(config))
    return mine.drop(columns="paper_source").reset_index(drop=True)


# Runtimes


def runtimes_per_seed(study: StudyCurves) -> pd.DataFrame:
    """CPU seconds of each run by phase (mean per round), totals, and RT_peak against standard PPO of the same seed.

    total_s and rt_peak count influence and optimisation, as the paper does; *_with_sampling adds environment sampling.
    matching_peak_s is the time after which the method reaches standard PPO's maximum (or all of its time, if it never
    does: peak_reached is false and rt_peak a bound).
    """
    runs, reference = _runs(study), reference_method(study.config)
    rows = []
    for (environment, method, seed), run in runs.items():
        row = {"environment": environment, "method": method, "seed": seed}
        row |= {name: run[name][1:].mean() for name in PHASES}  # round 0 is the untrained policy
        standard = runs.get((environment, reference, seed)) if method != reference else None
        row["peak_reached"] = pd.NA
        for suffix, phases in TOTALS.items():
            row[f"total{suffix}_s"] = _seconds(run, phases)[-1]
            if standard is not None:
                result = time_efficiency(
                    standard["test_return"],
                    run["test_return"],
                    _seconds(standard, phases),
                    _seconds(run, phases),
                )
                row |= {f"matching_peak{suffix}_s": result.method_s, f"rt_peak{suffix}": result.rt_peak}
                row["peak_reached"] = result.reached
        rows.append(row)
    return pd.DataFrame(rows, columns=RUNTIMES).astype({"peak_reached": "boolean"})


def runtimes(per_seed: pd.DataFrame, study: StudyCurves, reported: Reported) -> pd.DataFrame:
    """Means over seeds of `runtimes_per_seed`, with the paper's RT_peak (Figure 6b, Table 3)."""
    rows = []
    for (environment, method), expected in _expected(study).items():
        mine = per_seed[(per_seed["environment"] == environment) & (per_seed["method"] == method)]
        row = {"environment": environment, "method": method, "n": len(mine), "expected": expected}
        for name in RUNTIMES[3:-1]:
            row |= mean_columns(name, mine[name].dropna())
        row["peak_unreached"] = int((~mine["peak_reached"]).sum())
        _, paper = reported.efficiency(environment, method)
        rows.append(row | _paper("rt_peak", paper and paper.rt_peak))
    names = [name for quantity in RUNTIMES[3:-1] for name in columns_of(quantity)]
    counts = ["environment", "method", "n", "expected"]
    return pd.DataFrame(rows, columns=[*counts, *names, "peak_unreached", "paper_rt_peak", "paper_rt_peak_spread"])


def table_5(per_seed: pd.DataFrame, study: StudyCurves, reported: Reported) -> pd.DataFrame:
    """Table 5: runtimes of IIF at each environment's p and of standard PPO, one row per environment and quantity.

    Per round: sampling, influence, optimisation. Totals, matching peak and rt_peak as in the paper (influence +
    optimisation) and with sampling. influence_share is influence / (influence + optimisation) of IIF.
    """
    config, reference = study.config, reference_method(study.config)
    expected = _expected(study)
    rows = []
    for environment in environments_of(config):
        method = chosen_iif(config, environment)
        if (environment, method) not in expected or environment in adam_variants(config):
            continue
        frames = {
            who: per_seed[(per_seed["environment"] == environment) & (per_seed["method"] == name)]
            for who, name in (("iif", method), ("ppo", reference))
        }
        frames["iif"] = frames["iif"].assign(
            influence_share=lambda f: f["influence_s"] / (f["influence_s"] + f["optimise_s"])
        )
        paper = reported.table_5.get(environment)
        for quantity, who, column in TABLE_5:
            values = frames[who][column].dropna()
            unit = "s" if column.endswith("_s") else "fraction"
            pair = getattr(paper, quantity, None)
            if pair and unit == "fraction":
                pair = (pair[0] / 100, pair[1] / 100)
            bounds = (~frames[who]["peak_reached"]).sum() if "peak" in quantity else 0
            rows.append(
                {
                    "environment": environment,
                    "method": method if who == "iif" else reference,
                    "quantity": quantity,
                    "unit": unit,
                    "n": len(values),
                    "expected": expected.get((environment, method if who == "iif" else reference), 0),
                    **mean_columns("value", values),
                    "peak_unreached": int(bounds),
                    "paper_value": pair[0] if pair else np.nan,
                    "paper_value_spread": pair[1] if pair else np.nan,
                }
            )
    columns = ["environment", "method", "quantity", "unit", "n", "expected", *columns_of("value"), "peak_unreached"]
    return pd.DataFrame(rows, columns=[*columns, "paper_value", "paper_value_spread"])


# What the tables rest on


def runs(study: StudyCurves) -> pd.DataFrame:
    """Every run that the study expects: fingerprint, code and packages that made it, or why it is missing."""
    return study.runs.astype({"environment": str, "method": str})


def missing_runs(study: StudyCurves) -> pd.DataFrame:
    """Runs that the study expects and no table contains, with the reason."""
    table = runs(study)
    return table.loc[table["reason"] != "", [*KEY, "reason"]].reset_index(drop=True)


@dataclass(frozen=True)
class Table:
    """How a table is made: `make(*needs)`, where a need is `study`, `config`, `reported` or another table's name."""

    make: Callable[..., pd.DataFrame]
    needs: tuple[str, ...]
    folder: str = "tables"


TABLES: dict[str, Table] = {
    "curves_per_seed": Table(curves_per_seed, ("study",)),
    "curves_summary": Table(curves_summary, ("study",)),
    "returns_per_seed": Table(returns_per_seed, ("study",)),
    "final_returns": Table(final_returns, ("study",)),
    "final_gains": Table(final_gains, ("study", "reported")),
    "efficiency_per_seed": Table(efficiency_per_seed, ("study",)),
    "rounds_to": Table(lambda study: rounds_to(_returns(study), reference_method(study.config)), ("study",)),
    "null_values": Table(lambda study: null_values(_returns(study), reference_method(study.config)), ("study",)),
    "efficiency_levels": Table(efficiency_levels, ("study",)),
    "efficiency": Table(efficiency, ("efficiency_per_seed", "study", "reported")),
    "table_2": Table(table_2, ("efficiency", "config", "reported")),
    "table_3": Table(table_3, ("efficiency", "config")),
    "table_4": Table(table_4, ("final_gains", "config")),
    "aggregate_curves": Table(lambda study, config: aggregate_curves(_returns(study), config), ("study", "config")),
    "improvement": Table(lambda study, config: improvement(_returns(study), config), ("study", "config")),
    "controls": Table(controls, ("returns_per_seed", "efficiency_per_seed", "config")),
    "runs": Table(runs, ("study",)),
    "missing_runs": Table(missing_runs, ("study",)),
    "runtimes_per_seed": Table(runtimes_per_seed, ("study",), "runtimes"),
    "runtimes": Table(runtimes, ("runtimes_per_seed", "study", "reported"), "runtimes"),
    "table_5": Table(table_5, ("runtimes_per_seed", "study", "reported"), "runtimes"),
}


def make_tables(
    study: StudyCurves, names: Iterable[str] = tuple(TABLES), reported: Reported | None = None
) -> dict[str, pd.DataFrame]:
    """The named tables (default: all) of a study; tables that others need are made once.

    `reported` is by default what the catalogue in the current folder says.

    Raises:
        ConfigError: for a name that is not in `TABLES`.
    """
    made: dict = {"study": study, "config": study.config, "reported": reported or load_reported()}

    def make(name: str):
        if name not in made:
            table = TABLES[name]
            made[name] = table.make(*map(make, table.needs))
        return made[name]

    return {name: make(choose("table", name, TABLES)) for name in names}


def write_table(frame: pd.DataFrame, path: str | Path) -> None:
    """CSV with six significant digits, empty where undefined; a reader never sees half a file."""
    numbers = frame.select_dtypes("floating").columns
    frame = frame.assign(**{name: frame[name] + 0.0 for name in numbers})  # -0.0 is 0
    write_atomic(path, frame.to_csv(index=False, float_format="%.6g", lineterminator="\n").encode())


# Shared parts


def _paper(name: str, pair: Pair | None) -> dict[str, float]:
    """The paper's [mean, spread], from percent to fractions."""
    mean, spread = pair or (np.nan, np.nan)
    return {f"paper_{name}": mean / 100, f"paper_{name}_spread": spread / 100}


def _runs(study: StudyCurves) -> dict[tuple[str, str, int], Rounds]:
    """(environment, method, seed) -> that run's rounds; in the study's order."""
    curves = study.curves
    first = np.flatnonzero(curves["round"] == 0)
    columns = {name: np.split(curves[name].to_numpy(), first[1:]) for name in curves if name not in KEY}
    keys = curves.loc[first, KEY].itertuples(index=False, name=None)
    return {key: {name: parts[i] for name, parts in columns.items()} for i, key in enumerate(keys)}


def _seconds(run: Rounds, phases: list[str]) -> np.ndarray:
    """Cumulative seconds of these phases, by round."""
    return np.cumsum(sum(run[name] for name in phases))


def _expected(study: StudyCurves) -> dict[tuple[str, str], int]:
    """(environment, method) -> number of seeds in the grid, in the study's order."""
    return study.runs.groupby(["environment", "method"], observed=True).size().to_dict()


def _compared(study: StudyCurves) -> Iterator[tuple[str, str, int]]:
    """(environment, method, number of seeds that the grid has of it and of standard PPO)."""
    reference = reference_method(study.config)
    seeds = {key: set(group["seed"]) for key, group in study.runs.groupby(["environment", "method"], observed=True)}
    for (environment, method), own in seeds.items():
        if method != reference and (both := own & seeds.get((environment, reference), set())):
            yield environment, method, len(both)


def _pairs(study: StudyCurves) -> Iterator[tuple[tuple[str, str, int], Rounds, Rounds]]:
    """(key, standard run of the same seed, run) for every run that has one."""
    runs, reference = _runs(study), reference_method(study.config)
    for (environment, method, seed), own in runs.items():
        standard = runs.get((environment, reference, seed))
        if method != reference and standard is not None:
            yield (environment, method, seed), standard, own


def _by_seed(runs: dict, environment: str, method: str) -> dict[int, Rounds]:
    return {seed: run for (e, m, seed), run in runs.items() if (e, m) == (environment, method)}


def _final(runs: dict[int, Rounds]) -> pd.Series:
    return pd.Series({seed: final_return(run["test_return"]) for seed, run in runs.items()}, dtype=float)


def _returns(study: StudyCurves) -> dict[tuple[str, str, int], np.ndarray]:
    """(environment, method, seed) -> that run's test returns by round."""
    return {key: run["test_return"] for key, run in _runs(study).items()}


def _chosen_rows(frame: pd.DataFrame, config: Config, environments: list[str] | None = None) -> pd.DataFrame:
    """Rows of IIF at each environment's own p; default: all environments but the Adam variants."""
    if environments is None:
        environments = [name for name in environments_of(config) if name not in adam_variants(config)]
    chosen = [(name, chosen_iif(config, name)) for name in environments]
    keep = [key in chosen for key in zip(frame["environment"], frame["method"], strict=True)]
    return frame.loc[keep].reset_index(drop=True)
