"""Sample efficiency: how many rounds earlier a method reaches the returns of standard training (paper, section 5.2).

m_X(v) is the first round at which method X's test return is at least v, and the reduction at v is
1 - m_method(v) / m_reference(v). The paper is silent on two cases. A level that the reference has at round 0 divides by
zero: it is left out. A level that the method never reaches has no m_method: it is set to the method's last evaluated
round, which bounds the reduction from above, and is counted as unreached.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class SampleEfficiency:
    """Reductions are fractions (0.34 is printed as 34 %).

    Attributes:
        se_ave: mean reduction over all levels; nan if there is none (a reference that never rises above round 0).
        se_peak: the reduction at the reference's maximum; nan as above.
        levels: one row per level, in rising order: level, m_reference, m_method (rounds), reduction, reached.
        unreached: levels that the method never reaches; with any, se_ave is an upper bound.
        se_ave_least: se_ave with the reductions of these levels at -1, where they are not lower already: what
            (m_reference - m_method) / max(m_reference, m_method) tends to as m_method grows.
    """

    se_ave: float
    se_peak: float
    levels: pd.DataFrame
    unreached: int
    se_ave_least: float


@dataclass(frozen=True)
class TimeEfficiency:
    """RT_peak (a fraction) and the two times, in seconds, at which the reference's maximum is reached."""

    rt_peak: float
    reference_s: float
    method_s: float
    reached: bool


def sample_efficiency(reference_returns, method_returns) -> SampleEfficiency:
    """SE_ave and SE_peak of one method against the standard run of the same seed (section 5.2).

    Args:
        reference_returns: (K + 1,) test return per round of standard training; index 0 is the untrained policy, nan a
            round that was not evaluated. The levels are its strictly increasing running maxima.
        method_returns: the same of the method; its length may differ.

    Raises:
        ValueError: for a curve that is empty, not one-dimensional, infinite somewhere, or nan everywhere.
    """
    reference, method = _curve(reference_returns, "reference"), _curve(method_returns, "method")
    seen = np.where(np.isnan(reference), -np.inf, reference)
    rises = 1 + np.flatnonzero(seen[1:] > np.maximum.accumulate(seen)[:-1])  # round 0 is no rise
    values = reference[rises]
    m_reference, (m_method, reached) = first_rounds(reference, values)[0], first_rounds(method, values)
    reductions = 1 - m_method / m_reference
    levels = pd.DataFrame(
        {
            "level": values,
            "m_reference": m_reference,
            "m_method": m_method,
            "reduction": reductions,
            "reached": reached,
        }
    )
    return SampleEfficiency(
        se_ave=float(reductions.mean()) if len(levels) else np.nan,
        se_peak=float(reductions[-1]) if len(levels) else np.nan,
        levels=levels,
        unreached=int((~reached).sum()),
        se_ave_least=float(np.where(reached, reductions, np.minimum(reductions, -1)).mean()) if len(levels) else np.nan,
    )


def time_efficiency(reference_returns, method_returns, reference_time_s, method_time_s) -> TimeEfficiency:
    """RT_peak: SE_peak with cumulative time in place of rounds (section 5.2, Table 5).

    Args:
        reference_time_s, method_time_s: (K + 1,) *cumulative* seconds until the policy of round k was there; 0 at
            round 0. The caller chooses what counts (the paper: influence + optimisation).

    Raises:
        ValueError: as `sample_efficiency`, and for times that do not fit the curve, are not finite, or fall.
    """
    levels = sample_efficiency(reference_returns, method_returns).levels
    reference_time = _cumulative(reference_time_s, reference_returns, "reference")
    method_time = _cumulative(method_time_s, method_returns, "method")
    if not len(levels):
        return TimeEfficiency(np.nan, np.nan, np.nan, False)
    peak = levels.iloc[-1]
    reference_s, method_s = reference_time[int(peak["m_reference"])], method_time[int(peak["m_method"])]
    rt_peak = 1 - method_s / reference_s if reference_s > 0 else np.nan
    return TimeEfficiency(float(rt_peak), float(reference_s), float(method_s), bool(peak["reached"]))


def first_rounds(returns, levels) -> tuple[np.ndarray, np.ndarray]:
    """First round at which a curve is at or above each level, its last evaluated one if never; and whether it is."""
    curve = np.asarray(returns, dtype=float)
    hits = [np.flatnonzero(curve >= level) for level in levels]
    last = np.flatnonzero(~np.isnan(curve))[-1]
    return np.array([hit[0] if len(hit) else last for hit in hits], dtype=int), np.array(list(map(len, hits))) > 0


def _curve(returns, name: str) -> np.ndarray:
    curve = np.asarray(returns, dtype=float)
    if curve.ndim != 1 or not curve.size:
        raise ValueError(f"{name}_returns: shape {curve.shape}; expected one value per round, round 0 first")
    if np.isinf(curve).any():
        raise ValueError(f"{name}_returns: infinite at round {np.flatnonzero(np.isinf(curve))[0]}")
    if np.isnan(curve).all():
        raise ValueError(f"{name}_returns: no round was evaluated")
    return curve


def _cumulative(time_s, returns, name: str) -> np.ndarray:
    time = np.asarray(time_s, dtype=float)
    if time.shape != np.shape(returns):
        raise ValueError(f"{name}_time_s: shape {time.shape}, but the curve's is {np.shape(returns)}")
    if not np.isfinite(time).all() or (np.diff(time) < 0).any() or time[0] < 0:
        raise ValueError(f"{name}_time_s: expected finite cumulative seconds that never fall")
    return time
