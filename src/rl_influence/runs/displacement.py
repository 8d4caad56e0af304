"""Matched displacement: a round moves the actor as far as another method's round from the same policy and buffer would.

Dropping records that pull the other way makes a round's steps larger in effect, as a larger learning rate does. With
`selection.displacement` the learning rate of a round is scaled until its L2 displacement of the actor's parameters
equals the other method's, so that what is left of a difference is where the round goes, not how far.
"""

from __future__ import annotations

import math
from collections.abc import Callable

TOLERANCE = 0.01  # relative, of the displacement
TRIALS = 12  # rounds that are tried at most; the best of them counts then


def matching_scale(target: float, moved: Callable[[float], float]) -> float:
    """The factor of the learning rate at which a round moves as far as `target`, within `TOLERANCE`.

    A secant method on logarithms (a displacement is nearly proportional to the learning rate), then the Illinois
    variant of regula falsi between two factors that move too little and too far. If none of `TRIALS` factors is within
    the tolerance, the closest is taken: clipping of the probability ratio may bound how far a round goes.

    Args:
        target: displacement of the other method's round; 0 gives the factor 0.
        moved: displacement of a round at a factor; infinite where training breaks down.
    """
    if target == 0:
        return 0.0
    tried: list[tuple[float, float]] = []  # logarithm of the factor, error of the logarithm of the displacement
    ends: dict[bool, tuple[float, float]] = {}  # too far? -> the latest of these, its error halved if it stays for long
    x = 0.0
    for _ in range(TRIALS):
        distance = moved(math.exp(x))
        if distance == 0:  # no record trains
            return 1.0
        error = min(math.log(distance / target), 3.0)
        if abs(error) <= math.log1p(TOLERANCE):
            return math.exp(x)
        far = error > 0
        if len(ends) == 2 and far == (tried[-1][1] > 0):
            ends[not far] = ends[not far][0], ends[not far][1] / 2
        tried.append((x, error))
        ends[far] = x, error
        if len(ends) == 2:
            (x0, e0), (x1, e1) = ends.values()
            x = x0 - e0 * (x1 - x0) / (e1 - e0)
        else:  # proportional at first; then by the last slope, which is lower where clipping holds a round back
            slope = (error - tried[-2][1]) / (x - tried[-2][0]) if len(tried) > 1 else 1.0
            x -= error / min(max(slope, 0.2), 1.0)
    return math.exp(min(tried, key=lambda pair: abs(pair[1]))[0])
