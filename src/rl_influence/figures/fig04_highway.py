"""How Highway's "slower while tailing" is learned in one run of standard PPO (Figure 4 of the paper). Above: the
target state; the probability of "slower" in it after every round; the graph roughness of the records' influence on
its logarithm, the weighted mean squared difference of influence between records that lie near each other in the final
network, for several numbers u of nearest neighbours (the paper says 20 to 100). Below: the records of most positive
influence in the middle round of each phase (triangle), on the road from above, driving to the right, 100 m ahead,
twice as wide as it is: the own vehicle with its action, others with the way that they move against it in 2 s. Nothing
is chosen by eye: the target state is the one of median gap among the last buffer's records that tail a slower
vehicle, and phases are the three constant levels that fit the probability best. The paper chooses both by hand, and
names no sigma: here it is the median distance between records.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from rl_influence.analysis.geometry import LANE, LANES, vehicles
from rl_influence.config import Config

from . import behaviours, style

READS = ("behaviour", "behaviour_phases", "behaviour_records", "behaviour_targets", "missing_analyses")
ACTIONS = ("lane left", "idle", "lane right", "faster", "slower")
AHEAD, BEHIND = 100.0, 15.0  # metres of road
CAR = np.array([5.0, 2.0])  # length and width in metres
SECONDS = 2.0  # that an arrow of relative motion covers
OTHERS = "#8a8a8a"


def draw(tables: dict, config: Config) -> Figure:
    symbols = style.points({"own vehicle": ("#000000", "s"), "others": (OTHERS, "s")}, markersize=6)
    view = behaviours.View("highway-v0", road, describe, shape=(3, 1), height=0.42, symbols=symbols)
    return behaviours.draw(tables, config, view)


def road(axis: Axes, observation: list[float], action: int, color: str) -> None:
    """The lanes, the vehicles that the agent sees, and its action as an arrow."""
    own, *others = vehicles(np.array([observation]))[0]
    lane = own[2]
    axis.add_patch(Rectangle((-BEHIND, -LANE / 2), BEHIND + AHEAD, LANES * LANE, color="#efefef", lw=0, zorder=0))
    for line in range(LANES + 1):
        edge = line in (0, LANES)
        look = {"color": "#777777", "lw": 0.7} if edge else {"color": "#b5b5b5", "lw": 0.5, "linestyle": (0, (4, 4))}
        axis.plot([-BEHIND, AHEAD], [(line - 0.5) * LANE] * 2, **look, zorder=1)
    for present, x, y, vx, _ in others:
        if present > 0.5 and -BEHIND < x < AHEAD - CAR[0]:
            _car(axis, x, lane + y, OTHERS)
            start = x + np.sign(vx) * CAR[0] / 2
            end = np.clip(start + vx * SECONDS, -BEHIND, AHEAD)
            if abs(end - start) > 2:
                behaviours.arrow(axis, (start, lane + y), (end, lane + y), OTHERS, lw=0.7)
    _car(axis, 0.0, lane, "#000000")
    front, rear, side = CAR[0] / 2, -CAR[0] / 2, CAR[1] / 2
    starts_and_ends = [
        ((0, lane - side), (0, lane - LANE)),
        None,
        ((0, lane + side), (0, lane + LANE)),
        ((front, lane), (front + 12, lane)),
        ((rear, lane), (rear - 12, lane)),
    ]
    if starts_and_ends[action]:
        behaviours.arrow(axis, *starts_and_ends[action], color, lw=1.3)
    else:
        axis.plot([0], [lane], ".", color=color, markersize=3, zorder=4)
    axis.set_xlim(-BEHIND - 2, AHEAD)
    axis.set_ylim((LANES - 0.4) * LANE, -0.6 * LANE)  # the leftmost lane is the uppermost
    axis.set_aspect(2)  # a road is long


def describe(observation: list[float], action: int) -> str:
    """The action and the own speed."""
    return f"{ACTIONS[action]}, at {vehicles(np.array([observation]))[0, 0, 3]:.0f} m/s"


def _car(axis: Axes, x: float, y: float, color: str) -> None:
    axis.add_patch(Rectangle((x - CAR[0] / 2, y - CAR[1] / 2), *CAR, color=color, lw=0, zorder=3))
