"""What tables of a study share: runs by environment, method and seed, pairs of the same seed, and expected counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from rl_influence.config import Config

from .curves import KEY, StudyCurves, chosen_iif, reference_method
from .reported import Pair

Rounds = dict[str, np.ndarray]  # columns of one run, indexed by round


def paper_columns(name: str, pair: Pair | None) -> dict[str, float]:
    """The paper's [mean, spread], from percent to fractions."""
    mean, spread = pair or (np.nan, np.nan)
    return {f"paper_{name}": mean / 100, f"paper_{name}_spread": spread / 100}


def rounds_by_run(study: StudyCurves) -> dict[tuple[str, str, int], Rounds]:
    """(environment, method, seed) -> that run's rounds; in the study's order."""
    curves = study.curves
    first = np.flatnonzero(curves["round"] == 0)
    columns = {name: np.split(curves[name].to_numpy(), first[1:]) for name in curves if name not in KEY}
    keys = curves.loc[first, KEY].itertuples(index=False, name=None)
    return {key: {name: parts[i] for name, parts in columns.items()} for i, key in enumerate(keys)}


def expected_seeds(study: StudyCurves) -> dict[tuple[str, str], int]:
    """(environment, method) -> number of seeds in the grid, in the study's order."""
    return study.runs.groupby(["environment", "method"], observed=True).size().to_dict()


def with_expected(table: pd.DataFrame, seeds: Mapping[tuple[str, str], int]) -> pd.DataFrame:
    """The table with `expected`, the seeds that the study asks for, after n."""
    expected = [seeds[pair] for pair in zip(table["environment"], table["method"], strict=True)]
    table.insert(table.columns.get_loc("n") + 1, "expected", expected)
    return table


def compared(study: StudyCurves) -> Iterator[tuple[str, str, int]]:
    """(environment, method, number of seeds that the grid has of it and of standard PPO)."""
    reference = reference_method(study.config)
    seeds = {key: set(group["seed"]) for key, group in study.runs.groupby(["environment", "method"], observed=True)}
    for (environment, method), own in seeds.items():
        if method != reference and (both := own & seeds.get((environment, reference), set())):
            yield environment, method, len(both)


def pairs(study: StudyCurves) -> Iterator[tuple[tuple[str, str, int], Rounds, Rounds]]:
    """(key, standard run of the same seed, run) for every run that has one."""
    runs, reference = rounds_by_run(study), reference_method(study.config)
    for (environment, method, seed), own in runs.items():
        standard = runs.get((environment, reference, seed))
        if method != reference and standard is not None:
            yield (environment, method, seed), standard, own


def by_seed(runs: dict, environment: str, method: str) -> dict[int, Rounds]:
    return {seed: run for (e, m, seed), run in runs.items() if (e, m) == (environment, method)}


def returns_by_run(study: StudyCurves) -> dict[tuple[str, str, int], np.ndarray]:
    """(environment, method, seed) -> that run's test returns by round."""
    return {key: run["test_return"] for key, run in rounds_by_run(study).items()}


def chosen_rows(frame: pd.DataFrame, config: Config, environments: list[str]) -> pd.DataFrame:
    """Rows of IIF at each of these environments' own p."""
    chosen = [(name, chosen_iif(config, name)) for name in environments]
    keep = [key in chosen for key in zip(frame["environment"], frame["method"], strict=True)]
    return frame.loc[keep].reset_index(drop=True)
