"""Observations as geometry: Highway's vehicles in metres and Acrobot's links, for target states and their pictures.

It knows of no training, so that figures can use it.
"""

from __future__ import annotations

import numpy as np

LANE, LANES = 4.0, 4  # metres, and highway-env's default number of lanes
# What 1 means in a row of highway-env's Kinematics: presence, x, y (the road's width), vx, vy.
HIGHWAY_UNITS = np.array([1.0, 200.0, LANES * LANE, 80.0, 80.0])
GOAL_HEIGHT = 1.0  # of Acrobot's tip, in link lengths above the fixed joint


def vehicles(observations: np.ndarray) -> np.ndarray:
    """Vehicles of Highway's Kinematics observations.

    Args:
        observations: (n, 5 * cars), or (n, cars, 5).

    Returns:
        (n, cars, 5) float64: presence, x, y, vx, vy in metres and metres per second. The first vehicle is the agent's
        own, whose y counts from the centre of the leftmost lane; the others are relative to it. y grows to the right.
    """
    return np.asarray(observations, dtype=np.float64).reshape(len(observations), -1, 5) * HIGHWAY_UNITS


def links(observation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Acrobot's links in one of its observations (cos and sin of both angles, both angular velocities).

    Returns:
        - (3, 2) x and y of the fixed joint, the middle joint and the tip, in link lengths;
        - (2,) velocity of the tip, in link lengths per second.
    """
    cos1, sin1, cos2, sin2, velocity1, velocity2 = np.asarray(observation, dtype=np.float64)
    cos12, sin12 = cos1 * cos2 - sin1 * sin2, sin1 * cos2 + cos1 * sin2
    middle = np.array([sin1, -cos1])  # angle 0 hangs down
    places = np.array([[0.0, 0.0], middle, middle + [sin12, -cos12]])
    velocity = velocity1 * np.array([cos1, sin1]) + (velocity1 + velocity2) * np.array([cos12, sin12])
    return places, velocity
