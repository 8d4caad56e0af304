"""Comparisons with the seed as the unit: what a table has per seed as a mean with its interval, and methods compared.

The gain of IIF over PPO in the paper mixes up to three causes, because its filtered runs also take fewer updates and,
in the public code, train without clipping the gradient's norm. `controls` takes it apart: each row changes one thing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pandas as pd

from rl_influence.config import Config

from .curves import adam_variants, environments_of, reference_method
from .statistics import Interval, paired_differences, t_interval

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
CONTRASTS = (  # effect, what is compared, method, minus
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


def method_of(config: Config, environment: str, role: Role) -> str | None:
    """The catalogue's method that plays a role in an environment."""
    percent = config.environment(environment).drop_percent
    for name, method in config.methods.items():
        selection, changed = method.selection, method.ppo.model_dump(exclude_unset=True)
        if (
            (selection.kind, selection.updates) == role[:2]
            and selection.drop_percent in (None, "chosen", percent)
            and changed == ({} if role.clipped else {"max_grad_norm": None})
        ):
            return name
    return None


def rows_where(table: pd.DataFrame, where: Mapping[str, object]) -> pd.DataFrame:
    """The rows that have these values, numbers or text; a list or tuple: one of them."""
    for name, value in where.items():
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        table = table[table[name].astype(str if isinstance(values[0], str) else float).isin(values)]
    return table


def per_seed(table: pd.DataFrame, quantity: str, over: str | None = None, unit: str = "seed") -> pd.Series:
    """seed -> mean of a column over the seed's rows, or of its ratio to another column.

    A ratio to 0 is undefined, as an empty value is: such rows enter no mean, and a seed without others is left out.
    """
    values = table[quantity].astype(float)
    if over:
        below = table[over].astype(float)
        values = values / below.where(below != 0)
    return values.groupby(table[unit].astype(int)).mean().dropna()


def contrast(own: pd.Series, minus: pd.Series | None = None) -> Interval:
    """Mean of `own` and its 95 % t interval over seeds; with `minus`, of the differences by seed."""
    return t_interval(own if minus is None else paired_differences(minus, own).differences)


def controls(returns: pd.DataFrame, efficiencies: pd.DataFrame, config: Config) -> pd.DataFrame:
    """What the filter, the number of updates and clipping do, each with the rest held equal, per environment.

    Rows have quantity `se_ave` (difference of the SE_ave that both methods have against standard PPO) or
    `mean_training_return` (difference). Differences of the same two ends add up along any path, as
    IIF − PPO = (IIF − PPO with IIF's updates) + (PPO with IIF's updates − PPO). unreached counts the levels that either
    side never reaches (its SE_ave is then an upper bound).
    """
    grid = {(run.environment, run.method): set() for run in config.runs}
    for run in config.runs:
        grid[run.environment, run.method].add(run.seed)
    reference = reference_method(config)
    rows = []
    for environment in environments_of(config):
        if environment in adam_variants(config):
            continue
        for effect, label, *roles in CONTRASTS:
            method, minus = (method_of(config, environment, role) for role in roles)
            expected = grid.get((environment, method), set()) & grid.get((environment, minus), set())
            if not expected:
                continue
            for quantity, table in (("se_ave", efficiencies), ("mean_training_return", returns)):
                sides = [rows_where(table, {"environment": environment, "method": m}) for m in (method, minus)]
                own, other = (per_seed(side, quantity) for side in sides)
                if quantity == "se_ave" and minus == reference:
                    other = own * 0
                unreached = sum(int(side["unreached"].sum()) for side in sides) if quantity == "se_ave" else 0
                place = (environment, effect, label, method, minus, quantity)
                rows.append((*place, *contrast(own, other), len(expected), unreached))
    return pd.DataFrame(rows, columns=COLUMNS)


def conditions(config: Config) -> Iterable[tuple[str, str]]:
    """(environment, method) pairs of the study that `controls` compares."""
    grid = {(run.environment, run.method) for run in config.runs}
    for environment in environments_of(config):
        for method in dict.fromkeys(method_of(config, environment, r) for _, _, *roles in CONTRASTS for r in roles):
            if (environment, method) in grid:
                yield environment, method
