"""All environments together: learning curves, rounds saved and the probability of improvement, of IIF and random drops.

Returns are normalised by PPO's rise in their environment (0: its untrained mean, 1: the top of its mean curve), rounds
by the run's number of rounds. Every environment has the same weight, however many seeds it has. Intervals of means over
environments are Welch's; those of interquartile means and probabilities are percentiles of a stratified bootstrap over
seeds, as rliable's are, with one difference: of an environment's n seeds n - 1 are drawn, without which the variance of
a mean of few seeds is too small by (n - 1) / n (Rao and Wu 1988). With four environments of five seeds such a 95 %
interval of a mean covers 92 % (without the difference 89 %). Environments with fewer than `FEWEST` seeds take no part.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from rl_influence.config import Config

from .curves import StudyCurves, chosen_iif, compared_environments, random_methods, reference_method
from .first_passage import Curves, rises, saved
from .groups import compared, returns_by_run
from .statistics import mean_training_return, percentiles, probability_of_improvement, t_interval, welch_interval

SHARES = np.linspace(0, 1, 51)  # of a run's rounds
FEWEST = 3
RESAMPLES = 2000
ALL = "all"
AGGREGATE = ["environment", "method", "share", "iqm", "low", "high", "environments", "runs"]
IMPROVEMENT = ["environment", "method", "n", "expected", "rounds_saved", "rounds_saved_low", "rounds_saved_high"]
IMPROVEMENT += ["unreached", "probability", "probability_low", "probability_high"]

BOOTSTRAP_SEED = 20250519  # of the resampling: the same results give the same intervals


def weighted_iqm(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Mean of the middle half of a weighted sample, along the last axis; at its edges values count in part. `values`
    and `weights` (of any sum): (..., n)."""
    order = np.argsort(values, axis=-1, kind="stable")
    values, weights = np.take_along_axis(values, order, -1), np.take_along_axis(weights, order, -1)
    ends = np.cumsum(weights, axis=-1) / weights.sum(axis=-1, keepdims=True)
    starts = np.concatenate([np.zeros_like(ends[..., :1]), ends[..., :-1]], axis=-1)
    inside = np.clip(np.minimum(ends, 0.75) - np.maximum(starts, 0.25), 0, None)
    return (values * inside).sum(axis=-1) / inside.sum(axis=-1)


def resamples(sizes: list[int], number: int, generator: np.random.Generator) -> list[np.ndarray]:
    """For each stratum of n the (number, n - 1) indices of a bootstrap whose variance of a mean is s^2 / n."""
    return [generator.integers(0, n, (number, n - 1)) for n in sizes]


def aggregate_curves(study: StudyCurves) -> pd.DataFrame:
    """Interquartile means over all environments' normalised curves, at equal shares of their rounds; method `chosen` is
    IIF at each environment's own p. No rows unless every method has enough seeds somewhere."""
    config, curves = study.config, returns_by_run(study)
    roles = _roles(config)
    groups = {name: _curves_of(curves, config, name) for name in roles}
    environments = [e for e in groups[reference_method(config)] if all(e in group for group in groups.values())]
    rows = []
    for name in roles if environments else ():
        strata = [groups[name][e] for e in environments]
        found = _iqm(strata, [np.arange(len(s))[None] for s in strata])[0]
        drawn = resamples([len(s) for s in strata], RESAMPLES, np.random.default_rng(BOOTSTRAP_SEED))
        low, high = percentiles(_iqm(strata, drawn))
        runs = sum(map(len, strata))
        rows += [(ALL, name, *row, len(environments), runs) for row in zip(SHARES, found, low, high, strict=True)]
    return pd.DataFrame(rows, columns=AGGREGATE)


def improvement(passages: pd.DataFrame, study: StudyCurves) -> pd.DataFrame:
    """Rounds saved against PPO, and the probability that a run's mean training return is higher than one of PPO's. Per
    environment the former is that of its table, mean over levels, with the t interval; unreached: share of levels that
    either side never reaches. Row `all`: means over the environments, with their intervals."""
    config, curves, rows = study.config, returns_by_run(study), []
    reference = reference_method(config)
    expected = {(environment, method): n for environment, method, n in compared(study)}
    for role in _roles(config)[1:]:
        strata = []
        for environment in compared_environments(config):
            method = chosen_iif(config, environment) if role == "chosen" else role
            both = saved(passages, environment, method, reference)
            savings = both.groupby("seed")["saved"].mean().to_numpy()
            if not len(savings) or (environment, method) not in expected:
                continue
            sides = (_of(curves, environment, name, config) for name in (role, reference))
            scores = [np.array([mean_training_return(curve) for curve in side]) for side in sides]
            mean, low, high, n = t_interval(savings, most=1.0)
            counts = (n, expected[environment, method], mean, low, high, both["never"].mean())
            rows.append((environment, role, *counts, probability_of_improvement(*scores), np.nan, np.nan))
            strata.append((savings, *scores))
        strata = [stratum for stratum in strata if min(map(len, stratum)) >= FEWEST]
        if strata:
            rows.append((ALL, role, *_over_environments(strata)))
    return pd.DataFrame(rows, columns=IMPROVEMENT)


def _over_environments(strata: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> tuple:
    """Means over environments of (savings, method's scores, PPO's scores) by seed, with their intervals."""
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    drawn = np.zeros(RESAMPLES)
    for _, own, standard in strata:
        a, b = resamples([len(own), len(standard)], RESAMPLES, generator)
        ahead = np.sign(own[a][:, :, None] - standard[b][:, None, :])
        drawn += (1 + ahead).mean(axis=(1, 2)) / 2 / len(strata)
    probability = np.mean([probability_of_improvement(own, standard) for _, own, standard in strata])
    mean, low, high, n = welch_interval([savings for savings, _, _ in strata])
    return (n, n, mean, max(low, -1), min(high, 1), np.nan, probability, *percentiles(drawn))


def _roles(config: Config) -> list[str]:
    """Standard PPO, IIF at each environment's own p, and random dropping if the study has it."""
    return [reference_method(config), "chosen", *random_methods(config)[:1]]


def _of(curves: Curves, environment: str, role: str, config: Config) -> list[np.ndarray]:
    method = chosen_iif(config, environment) if role == "chosen" else role
    return [curve for (e, m, _), curve in curves.items() if (e, m) == (environment, method)]


def _curves_of(curves: Curves, config: Config, role: str) -> dict[str, np.ndarray]:
    """environment -> (seeds, len(SHARES)) normalised returns of a method, where it has enough seeds and PPO rises."""
    found, ways = {}, rises(curves, reference_method(config))
    for environment in compared_environments(config):
        own, (start, top) = _of(curves, environment, role, config), ways.get(environment, (0.0, 0.0))
        if len(own) >= FEWEST and top > start:
            found[environment] = (np.array([_at_shares(curve) for curve in own]) - start) / (top - start)
    return found


def _at_shares(curve: np.ndarray) -> np.ndarray:
    """A curve at equal shares of its rounds, between the evaluated ones on a line."""
    rounds = np.flatnonzero(~np.isnan(curve))
    return np.interp(SHARES * (len(curve) - 1), rounds, curve[rounds])


def _iqm(strata: list[np.ndarray], indices: list[np.ndarray]) -> np.ndarray:
    """(resamples, len(SHARES)) interquartile means of resampled strata, each of the same weight."""
    values = np.concatenate([stratum[index] for stratum, index in zip(strata, indices, strict=True)], axis=1)
    weights = np.concatenate([np.full(index.shape[1], 1 / index.shape[1]) for index in indices])
    values = values.swapaxes(1, 2)  # resample, share, seed
    return weighted_iqm(values, np.broadcast_to(weights, values.shape))
