"""Observations as geometry: Highway's vehicles, Acrobot's links, BipedalWalker's legs, for targets and pictures.

It knows of no training, so that figures can use it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LANE, LANES = 4.0, 4  # metres, and highway-env's default number of lanes
# What 1 means in a row of highway-env's Kinematics: presence, x, y (the road's width), vx, vy.
HIGHWAY_UNITS = np.array([1.0, 200.0, LANES * LANE, 80.0, 80.0])
GOAL_HEIGHT = 1.0  # of Acrobot's tip, in link lengths above the fixed joint
# BipedalWalker's hull, hips, length of a leg's half and of its lidar's rays, in metres (30 of gymnasium's pixels).
WALKER_HULL = np.array([(-30, 9), (6, 9), (34, 1), (34, -8), (-30, -8)]) / 30
WALKER_HIP, WALKER_LEG, WALKER_LIDAR = (0, -8 / 30), 34 / 30, 160 / 30


def vehicles(observations: np.ndarray) -> np.ndarray:
    """Vehicles of Highway's Kinematics observations, (n, 5 * cars) or (n, cars, 5) -> (n, cars, 5) float64: presence,
    x, y, vx, vy in metres and metres per second. The first one is the agent's own, whose y counts from the centre of
    the leftmost lane; the others are relative to it. y grows to the right."""
    return np.asarray(observations, dtype=np.float64).reshape(len(observations), -1, 5) * HIGHWAY_UNITS


def links(observation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Acrobot's links in one of its observations (cos and sin of both angles, both angular velocities): (3, 2) x and y
    of the fixed joint, the middle joint and the tip, in link lengths; (2,) velocity of the tip, in link lengths per
    second."""
    cos1, sin1, cos2, sin2, velocity1, velocity2 = np.asarray(observation, dtype=np.float64)
    cos12, sin12 = cos1 * cos2 - sin1 * sin2, sin1 * cos2 + cos1 * sin2
    middle = np.array([sin1, -cos1])  # angle 0 hangs down
    places = np.array([[0.0, 0.0], middle, middle + [sin12, -cos12]])
    velocity = velocity1 * np.array([cos1, sin1]) + (velocity1 + velocity2) * np.array([cos12, sin12])
    return places, velocity


def walker(state: Sequence[float]) -> dict[str, np.ndarray]:
    """BipedalWalker in one of its observations, in metres, the hull's origin at 0. hull: (5, 2) corners; legs: (2, 3,
    2) hip, knee and foot of both; contacts: (2,) bool, feet on the ground; ground: (k, 2), where the lidar meets it."""
    state = np.asarray(state, dtype=np.float64)
    hull = turned(WALKER_HULL, state[0])
    hip = turned(WALKER_HIP, state[0])
    legs = []
    for hip_angle, knee_angle in (state[[4, 6]], state[[9, 11]]):
        upper = state[0] + hip_angle
        knee = hip + turned([0, -WALKER_LEG], upper)
        legs.append([hip, knee, knee + turned([0, -WALKER_LEG], upper + knee_angle - 1)])
    angles = 1.5 * np.arange(10) / 10
    rays = WALKER_LIDAR * state[14:, None] * np.array([np.sin(angles), -np.cos(angles)]).T
    return {"hull": hull, "legs": np.array(legs), "contacts": state[[8, 13]] > 0.5, "ground": rays[state[14:] < 1]}


def turned(points, angle: float) -> np.ndarray:
    """Points (..., 2) turned counterclockwise around the origin."""
    cos, sin = np.cos(angle), np.sin(angle)
    return np.asarray(points, dtype=np.float64) @ np.array([[cos, sin], [-sin, cos]])
