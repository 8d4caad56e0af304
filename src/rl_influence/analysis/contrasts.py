"""Comparisons with the seed as the unit: what a table has per seed, and methods compared directly.

The gain of IIF over PPO in the paper mixes up to three causes, because its filtered runs also take fewer updates and,
in the public code, train without clipping the gradient's norm. `CONTRASTS` takes it apart: each row changes one thing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from rl_influence.config import Config

from .curves import KEY, StudyCurves, environments_of, reference_method
from .first_passage import rounds_to, saving
from .groups import returns_by_run
from .sample_efficiency import sample_efficiency
from .statistics import final_return, mean_training_return, t_interval

QUANTITIES = ("rounds_saved", "se_ave", "mean_training_return", "final_return")
COLUMNS = ["environment", "effect", "contrast", "method", "minus", "quantity", "value", "low", "high", "n", "expected"]
COLUMNS += ["unreached"]


class Role(NamedTuple):
    """A method by what it does: IIF and random at the environment's own p, PPO, or a control of one of them."""

    kind: str
    updates: str = "own"
    clipped: bool = True


PPO, IIF = Role("all"), Role("influence")
RANDOM, DIFFICULTY = Role("random"), Role("difficulty")  # both drop as many records as IIF: the same updates
PPO_FEW, IIF_MANY = Role("all", "as_influence"), Role("influence", "as_all")
PPO_UNCLIPPED, IIF_UNCLIPPED = Role("all", clipped=False), Role("influence", clipped=False)
# Both: effect, what is compared, method, minus. CONTRASTS: what the filter, the number of updates and clipping do, each
# with the rest held equal. HEURISTICS: what noise in the estimated advantages costs them, and how they are beside IIF.
CONTRASTS = (
    ("all three", "IIF unclipped − PPO (public code)", IIF_UNCLIPPED, PPO),
    ("filter and updates", "IIF − PPO", IIF, PPO),
    ("filter and updates", "IIF unclipped − PPO unclipped", IIF_UNCLIPPED, PPO_UNCLIPPED),
    ("filter", "IIF − PPO with IIF's updates", IIF, PPO_FEW),
    ("filter", "IIF with PPO's updates − PPO", IIF_MANY, PPO),
    ("filter", "IIF − random", IIF, RANDOM),
    ("filter", "IIF − difficulty", IIF, DIFFICULTY),
    ("updates", "PPO with IIF's updates − PPO", PPO_FEW, PPO),
    ("updates", "IIF − IIF with PPO's updates", IIF, IIF_MANY),
    ("clipping", "PPO unclipped − PPO", PPO_UNCLIPPED, PPO),
    ("clipping", "IIF unclipped − IIF", IIF_UNCLIPPED, IIF),
)
H1, H2 = Role("advantage_h1"), Role("advantage_h2")
H1_EXACT, H2_EXACT = Role("advantage_h1_exact"), Role("advantage_h2_exact")
HEURISTICS = (
    ("noise in the advantages", "H1 exact − H1", H1_EXACT, H1),
    ("noise in the advantages", "H2 exact − H2", H2_EXACT, H2),
    ("rule", "H1 exact − IIF", H1_EXACT, IIF),
    ("rule", "H2 exact − IIF", H2_EXACT, IIF),
    ("rule", "H1 − IIF", H1, IIF),
    ("rule", "H2 − IIF", H2, IIF),
)


def method_of(config: Config, environment: str, role: Role) -> str | None:
    """The method that plays a role in an environment: one of the grid's, or else of the catalogue's."""
    percent = config.environment(environment).drop_percent
    names = [
        name
        for name, method in config.methods.items()
        if (method.selection.kind, method.selection.updates, method.selection.displacement) == (*role[:2], "own")
        and method.selection.drop_percent in (None, "chosen", percent)
        and method.ppo.model_dump(exclude_unset=True) == ({} if role.clipped else {"max_grad_norm": None})
    ]
    used = {run.method for run in config.runs if run.environment == environment}
    return next((name for name in [*(n for n in names if n in used), *names]), None)


def rows_where(table: pd.DataFrame, where: Mapping[str, object]) -> pd.DataFrame:
    """The rows that have these values, numbers or text; a list or tuple: one of them."""
    for name, value in where.items():
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        table = table[table[name].astype(str if isinstance(values[0], str) else float).isin(values)]
    return table


def per_seed(table: pd.DataFrame, quantity: str, over: str | None = None, unit: str = "seed") -> pd.Series:
    """seed -> mean of a column over the seed's rows, or of its ratio to another column. Rows where this is undefined (a
    ratio to 0 is) enter no mean, and a seed without others is left out."""
    values = table[quantity].astype(float)
    if over:
        below = table[over].astype(float)
        values = values / below.where(below != 0)
    return values.groupby(table[unit].astype(int)).mean().dropna()


def direct(study: StudyCurves, contrasts: Iterable[tuple[str, str, Role, Role]]) -> pd.DataFrame:
    """Two methods of the same seeds, compared directly, in every environment that has both (without Adam's).

    Quantities: rounds_saved (of the first against the second), se_ave (with the second in the place of standard PPO),
    mean_training_return and final_return (differences). unreached counts the levels that the first (for rounds_saved:
    either) never reaches, over all seeds.
    """
    config, curves, grid, rows = study.config, returns_by_run(study), defaultdict(set), []
    passages = rounds_to(curves, reference_method(config)).set_index(KEY)
    for run in config.runs:
        grid[run.environment, run.method].add(run.seed)
    for environment in environments_of(config, adam=False):
        for effect, label, *roles in contrasts:
            method, minus = (method_of(config, environment, role) for role in roles)
            expected = grid[environment, method] & grid[environment, minus]
            found = {quantity: [] for quantity in QUANTITIES}
            for seed in sorted(expected):
                keys = [(environment, name, seed) for name in (method, minus)]
                if all(key in curves for key in keys):
                    for quantity, pair in _compared(*keys, curves, passages).items():
                        found[quantity].append(pair)
            for quantity, pairs in found.items() if expected else ():
                values = [value for value, _ in pairs if not np.isnan(value)]
                place = (environment, effect, label, method, minus, quantity)
                most = 1.0 if quantity == "rounds_saved" else np.inf
                rows.append((*place, *t_interval(values, most=most), len(expected), sum(number for _, number in pairs)))
    return pd.DataFrame(rows, columns=COLUMNS)


def _compared(own: tuple, other: tuple, curves: Mapping, passages: pd.DataFrame) -> dict[str, tuple[float, int]]:
    """Quantity -> value and unreached levels, of two runs of one seed."""
    pair = curves[own], curves[other]
    efficiency = sample_efficiency(pair[1], pair[0])
    found = {"se_ave": (efficiency.se_ave, efficiency.unreached)}
    for measure in (mean_training_return, final_return):
        found[measure.__name__] = (measure(pair[0]) - measure(pair[1]), 0)
    if own in passages.index:
        arrays = [passages.loc[[key], name].to_numpy() for name in ("rounds", "reached") for key in (own, other)]
        found["rounds_saved"] = (float(saving(*arrays)[0].mean()), int((~(arrays[2] & arrays[3])).sum()))
    return found


def conditions(config: Config) -> Iterable[tuple[str, str]]:
    """(environment, method) pairs of the study that `CONTRASTS` compares."""
    grid = {(run.environment, run.method) for run in config.runs}
    for environment in environments_of(config):
        for method in dict.fromkeys(method_of(config, environment, r) for _, _, *roles in CONTRASTS for r in roles):
            if (environment, method) in grid:
                yield environment, method
