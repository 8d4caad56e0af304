"""How a behaviour of Acrobot, pushing with the swing, changes in one run of standard PPO (Figure 10 of the paper,
whose state and action are not given). Above: the target state; the probability of the torque in it after every round;
the graph roughness of the records' influence on its logarithm, for several numbers u of nearest neighbours; other
seeds are faint behind it. Below: the records of most positive influence in the middle round of each phase (triangle),
drawn as both links hanging from the fixed joint (square), the tip's way in 0.15 s, the torque around the joint
between them, and the height that the tip must reach (dashed). The target state is the one of median velocity among
the last buffer's records whose lower link swings forwards; phases are the three constant levels that fit the
probability best. A behaviour whose probability rises by less than 0.3 is said not to be learned.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rl_influence.analysis.geometry import GOAL_HEIGHT, links
from rl_influence.config import Config

from . import behaviours, style

READS = ("behaviour", "behaviour_phases", "behaviour_records", "behaviour_targets", "missing_analyses")
ACTIONS = ("torque \u22121", "no torque", "torque +1")
SECONDS = 0.15  # that the arrow of the tip's motion covers
LINKS, MOTION = "#444444", "#9a9a9a"


def draw(tables: dict, config: Config) -> Figure:
    symbols = [style.handle(color=MOTION, lw=0.9, label="motion of the tip")]
    view = behaviours.View("Acrobot-v1", arm, lambda _, action: ACTIONS[action], (1, 2), height=0.95, symbols=symbols)
    return behaviours.draw(tables, config, view)


def arm(axis: Axes, observation: list[float], action: int, color: str) -> None:
    """Both links, the height to reach, the motion of the tip, and the torque as an arrow around the middle joint."""
    places, velocity = links(np.array(observation))
    axis.plot([-1.7, 1.7], [GOAL_HEIGHT] * 2, color="#b5b5b5", lw=0.5, linestyle=(0, (4, 4)))
    axis.plot(*places.T, color=LINKS, lw=1.4, solid_capstyle="round", zorder=3)
    for place, marker, size in ((places[0], "s", 3), (places[1], "o", 2)):
        axis.plot(*place, linestyle="none", marker=marker, markersize=size, color="#000000", zorder=4)
    tip = places[2]
    if np.hypot(*velocity) * SECONDS > 0.15:
        behaviours.arrow(axis, tip, tip + velocity * SECONDS, MOTION, lw=0.7)
    if action != 1:  # counterclockwise is positive
        angles = np.radians(np.linspace(-60, 150, 20) if action == 2 else np.linspace(240, 30, 20))
        around = places[1] + 0.45 * np.array([np.cos(angles), np.sin(angles)]).T
        axis.plot(*around[:-1].T, color=color, lw=1.0, zorder=5)
        behaviours.arrow(axis, around[-4], around[-1], color, lw=1.0, mutation_scale=5)
    axis.set_xlim(-1.75, 1.75)
    axis.set_ylim(-2.1, 1.4)
    axis.set_aspect("equal")
