"""Observations as geometry: against the simulators' own state, and velocities by differences."""

import gymnasium as gym
import numpy as np
import pytest

from rl_influence.analysis.geometry import GOAL_HEIGHT, WALKER_HULL, links, turned, vehicles, walker


def acrobot(first, second, velocity1=0.0, velocity2=0.0):
    return [np.cos(first), np.sin(first), np.cos(second), np.sin(second), velocity1, velocity2]


def test_acrobot_ends_where_the_tip_is_high_enough():
    env = gym.make("Acrobot-v1").unwrapped
    generator, ends = np.random.default_rng(0), []
    for state in np.c_[generator.uniform(-np.pi, np.pi, (200, 2)), generator.standard_normal((200, 2))]:
        env.state = state
        places, _ = links(env._get_ob())
        assert (places[2, 1] > GOAL_HEIGHT) == env._terminal()
        np.testing.assert_allclose(np.linalg.norm(np.diff(places, axis=0), axis=1), 1, rtol=1e-6)
        ends.append(env._terminal())
    assert 10 < sum(ends) < 190


def test_velocity_of_the_tip_is_its_difference_in_time():
    generator, step = np.random.default_rng(1), 1e-6
    for _ in range(20):
        angles, velocities = generator.uniform(-np.pi, np.pi, 2), generator.uniform(-4, 4, 2)
        places, velocity = links(acrobot(*angles, *velocities))
        later, _ = links(acrobot(*(angles + step * velocities)))
        np.testing.assert_allclose(velocity, (later[2] - places[2]) / step, atol=1e-4)


def test_vehicles_are_where_highways_are():
    pytest.importorskip("highway_env")
    env = gym.make("highway-v0", config={"vehicles_count": 10, "duration": 10})
    observation, _ = env.reset(seed=3)
    for action in (1, 0, 3):  # idle, to the left, faster
        observation, *_ = env.step(action)
        own = env.unwrapped.vehicle
        found = vehicles(np.array([observation.ravel(), observation.ravel()]))
        assert found.shape == (2, 5, 5)
        np.testing.assert_array_equal(found[0], found[1])
        np.testing.assert_allclose(found[0, 0, [0, 2, 3, 4]], [1, own.position[1], *own.velocity], atol=1e-3)
        others = {tuple(np.round(v.position - own.position, 2)) for v in env.unwrapped.road.vehicles if v is not own}
        seen = found[0, 1:][found[0, 1:, 0] == 1]
        assert len(seen) and {tuple(np.round(x, 2)) for x in seen[:, 1:3]} <= others


def test_the_walker_is_where_box2d_has_it():
    env = gym.make("BipedalWalker-v3")
    state, _ = env.reset(seed=1)
    for action in np.random.default_rng(0).uniform(-0.3, 0.3, (12, 4)):
        state, *_ = env.step(action)
    world = env.unwrapped
    origin = np.array(world.hull.position)
    found = walker(state)
    corners = [world.hull.GetWorldPoint(tuple(corner)) for corner in WALKER_HULL]
    np.testing.assert_allclose(found["hull"], np.array(corners) - origin, atol=1e-5)
    for leg, lower in zip(found["legs"], world.legs[1::2], strict=True):
        ends = [lower.GetWorldPoint((0, sign * 17 / 30)) for sign in (1, -1)]  # knee and foot
        np.testing.assert_allclose(leg[1:], np.array(ends) - origin, atol=0.1)  # joints give a little
    assert found["contacts"].tolist() == [bool(lower.ground_contact) for lower in world.legs[1::2]]
    hits = [ray.p2 for ray in world.lidar if ray.fraction < 1]
    assert 0 < len(hits) < 10
    np.testing.assert_allclose(found["ground"], np.array(hits) - origin, atol=1e-4)
    env.close()


def test_a_quarter_turn_is_counterclockwise():
    np.testing.assert_allclose(turned([[1, 0], [0, 1]], np.pi / 2), [[0, 1], [-1, 0]], atol=1e-15)
