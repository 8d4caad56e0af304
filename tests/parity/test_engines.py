"""envpool against the reference, gymnasium's packages: the same spaces, and the same dynamics.

Step by step where both can be brought into one state or are deterministic given the actions (MiniGrid-Empty, Acrobot,
Highway, Pong without sticky actions). Elsewhere by distribution: mean return and length of a random and of a skilled
policy within their joint 99 % interval. Seeds are fixed, so nothing here fails by chance from one run to the next.
"""

from collections import Counter
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import scipy.stats

from rl_influence.config import EnvironmentConfig, EvaluationConfig, load_environments
from rl_influence.environments import envpool_engine, gymnasium_engine, make_batch, make_env, make_sampler
from rl_influence.environments.tabular import expected_return, tabular_model
from rl_influence.evaluation.returns import play

pytest.importorskip("envpool")

CATALOGUE = load_environments(Path(__file__).parents[2] / "config/environments")
ONE = np.zeros(1, int)
Z99 = 2.576


def on(name, engine, **fields):
    return CATALOGUE[name].model_copy(update={"engine": engine, "evaluation_engine": engine} | fields)


def pool_of(config, seed=0):
    return envpool_engine.Pool(config, 1, np.random.SeedSequence(seed))


def assert_means_agree(first, second):
    se = (first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second)) ** 0.5
    assert abs(first.mean() - second.mean()) <= Z99 * se


def played(name, act, episodes, engine):
    return play(act, on(name, engine), episodes, 11, copies=min(episodes, 100))


def test_spaces_are_equal():
    for name in ("acrobot", "bipedalwalker", "highway", "lunarlander", "minigrid", "pong"):
        reference, fast = make_env(CATALOGUE[name]), make_sampler(on(name, "envpool"), 0)
        assert fast.observation_space.shape == reference.observation_space.shape
        assert fast.observation_space.dtype == reference.observation_space.dtype
        assert fast.action_space == reference.action_space
        assert fast.observation.shape == reference.observation_space.shape
        assert fast.observation.dtype == reference.reset(seed=0)[0].dtype


# step by step


@pytest.mark.parametrize("seed", range(4))
def test_minigrid_empty_is_equal_step_by_step(seed):
    """Same actions, same images, rewards, ends; seeds 2 and 3 walk and reach the goal, 0 and 1 meet the time limit."""
    rng = np.random.default_rng(seed)
    pool, env = pool_of(on("minigrid", "envpool")), make_env(CATALOGUE["minigrid"])
    np.testing.assert_array_equal(pool.reset(ONE)[0], env.reset(seed=seed)[0])
    over = False
    while not over:
        action = int(rng.integers(7)) if seed < 2 else int(rng.choice([0, 1, 2, 2, 2]))
        observations, rewards, terminated, truncated = pool.step(ONE, np.array([action]))
        observation, reward, *ends, _ = env.step(action)
        np.testing.assert_array_equal(observations[0], observation)
        assert rewards[0] == np.float32(reward)
        assert [terminated[0], truncated[0]] == ends
        over = any(ends)
    assert (reward > 0) == (seed >= 2)


@pytest.mark.parametrize("swing", [False, True])
def test_acrobot_is_equal_step_by_step(swing):
    """Every step from the state that envpool shows (angles and speeds in float32): the dynamics are chaotic."""
    rng = np.random.default_rng(0)
    pool, env = pool_of(on("acrobot", "envpool")), make_env(CATALOGUE["acrobot"]).unwrapped
    env.reset(seed=0)
    observations = pool.reset(ONE)
    over, steps = False, 0
    while not over:
        cos1, sin1, cos2, sin2, speed1, speed2 = observations[0].astype(float)
        env.state = np.array([np.arctan2(sin1, cos1), np.arctan2(sin2, cos2), speed1, speed2])
        action = int(np.sign(speed2) + 1) if swing else int(rng.integers(3))
        observations, rewards, terminated, truncated = pool.step(ONE, np.array([action]))
        observation, reward, ends, _, _ = env.step(action)
        np.testing.assert_allclose(observations[0], observation, rtol=0, atol=3e-6)
        assert (rewards[0], terminated[0]) == (reward, ends)
        over, steps = terminated[0] or truncated[0], steps + 1
    assert (steps < 500) == ends == swing


def into_highway_env(pool, config, copy=0):
    """A highway-env in the state of one of envpool's copies, a mirror image (lanes counted from the other side)."""
    from highway_env.vehicle.behavior import IDMVehicle

    env = make_env(config)
    env.reset(seed=0)
    inner = env.unwrapped
    last = inner.config["lanes_count"] - 1
    inner.road.vehicles = []
    for i, state in enumerate(pool._pool.debug_states([copy])[0].vehicles):
        placed = {
            "position": np.array([state.x, 4 * last - state.y]),
            "heading": -state.heading,
            "speed": state.speed,
            "target_lane_index": ("0", "1", last - state.target_lane_index),
            "target_speed": state.target_speed,
        }
        if i == 0:
            inner.vehicle = vehicle = inner.action_type.vehicle_class(inner.road, **placed)
            inner.controlled_vehicles = [vehicle]
        else:
            vehicle = IDMVehicle(inner.road, **placed, timer=state.timer)
            vehicle.DELTA = state.idm_delta
        inner.road.vehicles.append(vehicle)
    inner.observation_type.observer_vehicle = inner.vehicle
    return env, inner.observation_type.observe().ravel()


OTHER_HIGHWAY = {
    "vehicles_count": 6,
    "lanes_count": 3,
    "initial_lane_id": 0,
    "policy_frequency": 2,
    "duration": 10,
    "normalize_reward": False,
    "reward_speed_range": [15, 25],
    "right_lane_reward": 0.3,
    "observation": {"type": "Kinematics", "vehicles_count": 8},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "episodes"),
    [(CATALOGUE["highway"], 8), (CATALOGUE["highway"].model_copy(update={"kwargs": {"config": OTHER_HIGHWAY}}), 4)],
    ids=["paper", "other"],
)
def test_highway_is_equal_step_by_step(config, episodes):
    """Whole episodes with traffic, from one state: without the mirror, a quarter of them part ways."""
    rng = np.random.default_rng(0)
    lengths = []
    for seed in range(episodes):
        pool = pool_of(config, seed)
        observations = pool.reset(ONE)
        env, observation = into_highway_env(pool, config)
        np.testing.assert_allclose(observations[0], observation, rtol=0, atol=1e-6)
        over, length = False, 0
        while not over:
            action = int(rng.choice(5, p=[0.2, 0.2, 0.2, 0.1, 0.3]))
            observations, rewards, terminated, truncated = pool.step(ONE, np.array([action]))
            observation, reward, *ends, _ = env.step(action)
            np.testing.assert_allclose(observations[0], observation, rtol=0, atol=1e-6)
            assert rewards[0] == pytest.approx(reward, abs=1e-6)
            assert [terminated[0], truncated[0]] == ends
            over, length = any(ends), length + 1
        lengths.append(length)
    assert max(lengths) >= 20 > min(lengths)


@pytest.mark.slow
def test_highway_starts_alike():
    fast = make_batch(on("highway", "envpool"), 300, 0).reset(np.arange(300))
    env = make_env(CATALOGUE["highway"])
    env.reset(seed=0)
    reference = np.array([env.reset()[0] for _ in range(300)])
    assert_distributions_agree(fast, reference)


@pytest.mark.slow
def test_pong_is_equal_frame_by_frame(monkeypatch):
    """Without sticky actions and with one no-op after the reset, all is deterministic."""
    monkeypatch.setattr(envpool_engine, "NOOP_MAX", 1)
    monkeypatch.setattr(gymnasium_engine, "NOOP_MAX", 1)
    config = on("pong", "envpool", kwargs={"repeat_action_probability": 0.0})
    pool, env = pool_of(config), make_env(config)
    np.testing.assert_array_equal(pool.reset(ONE)[0], env.reset(seed=0)[0])
    rng, total = np.random.default_rng(0), 0
    for _ in range(200):
        action = int(rng.integers(6))
        observations, rewards, terminated, truncated = pool.step(ONE, np.array([action]))
        observation, reward, *ends, _ = env.step(action)
        np.testing.assert_array_equal(observations[0], observation)
        assert (rewards[0], [terminated[0], truncated[0]]) == (reward, ends)
        total += reward
    assert total < 0  # points were lost on the way


# both flags at once: what envpool reports as a truncation alone

CARTPOLE = EnvironmentConfig(
    id="cartpole",
    label="CartPole",
    gym_id="CartPole-v1",
    kwargs={"max_episode_steps": 9},
    rounds=1,
    drop_percent=50,
    evaluation=EvaluationConfig(kind="batched"),
)
LIMITED = {"kwargs": {"max_episode_steps": 55}}


def test_a_termination_on_the_time_limit_is_reported_step_by_step():
    """CartPole pushed to one side falls at about the limit; every episode from the state in which envpool began it."""
    sampler, env = make_sampler(CARTPOLE.model_copy(update={"engine": "envpool"}), 0), make_env(CARTPOLE)
    rng, ends = np.random.default_rng(0), Counter()
    env.reset(seed=0)
    for _ in range(300):
        env.reset()
        env.unwrapped.state = sampler.observation.astype(float)
        over = False
        while not over:
            action = int(rng.random() < 0.05)
            reward, observation, *flags = sampler.step(action)
            expected, *outcome, _ = env.step(action)
            np.testing.assert_allclose(observation, expected, rtol=0, atol=1e-5)
            assert [reward, *flags] == outcome
            over = any(flags)
        ends[tuple(flags)] += 1
    assert len(ends) == 3 and min(ends.values()) > 20  # terminated, truncated, and both


@pytest.mark.slow
def test_lunarlander_terminates_on_the_time_limit_as_often_as_the_reference():
    """With its engines off it falls for 50 to 90 steps."""
    found = []
    for engine in ("envpool", "gymnasium"):
        sampler = make_sampler(on("lunarlander", engine, **LIMITED), 0)
        ends = Counter(sampler.step(0)[2:] for _ in range(40_000))
        assert ends[True, True] > 10
        found.append(np.repeat([1.0, 0.0], [ends[True, True], ends[False, True]]))
    assert_means_agree(*found)


@pytest.mark.parametrize("name", ["lunarlander", "bipedalwalker"])
def test_only_the_flags_know_of_the_time_limit(name):
    """The same episodes with the limit at 55 and at its usual place: all is equal up to the cut, terminations too."""
    sampler, rng, ends = make_sampler(on(name, "envpool", **LIMITED), 0), np.random.default_rng(2), Counter()
    pool = envpool_engine.Pool(on(name, "envpool"), 64, np.random.SeedSequence(0, spawn_key=(0,)))
    for copy in np.arange(60)[:, None]:
        np.testing.assert_array_equal(pool.reset(copy)[0], sampler.observation)
        over, step = False, 0
        while not over:
            action = rng.choice([0, 1, 3]) if name == "lunarlander" else rng.uniform(-1, 1, 4)
            reward, observation, *flags = sampler.step(action)
            observations, rewards, terminated, _ = pool.step(copy, np.array([action]))
            step += 1
            np.testing.assert_array_equal(observations[0], observation)
            assert (rewards[0], [terminated[0], step == 55]) == (reward, flags)
            over = any(flags)
        ends[tuple(flags)] += 1
    assert len(ends) == 3  # terminated, truncated, and both


@pytest.mark.parametrize("name", ["highway", "pong"])
def test_longer_episodes_begin_as_the_usual_ones(name):
    """Nothing in observations and rewards depends on the limit that envpool is asked for."""
    pools = [envpool_engine.Pool(CATALOGUE[name], 4, np.random.SeedSequence(5), uncut=uncut) for uncut in (False, True)]
    ids, rng = np.arange(4), np.random.default_rng(3)
    np.testing.assert_array_equal(*(pool.reset(ids) for pool in pools))
    for _ in range(38):
        actions = rng.choice(5, 4, p=[0.05, 0.4, 0.05, 0.05, 0.45])
        expected, found = (pool.step(ids, actions) for pool in pools)
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_array_equal(a, b)
        ids = ids[~found[2]]
    assert len(ids)


@pytest.mark.slow
def test_highway_terminates_on_its_last_step_as_the_reference_does():
    """A driver who is careful for 34 s, and then is not: two crashes in the 40th second, and a safe arrival."""

    config = CATALOGUE["highway"]

    def drive(compared):
        """The ends of 50 episodes; those that are `compared` are driven in highway-env, too."""
        sampler, rng, ends = make_sampler(config, 0), np.random.default_rng(0), []
        while len(ends) < 50:
            env = into_highway_env(sampler._pool, config, len(ends))[0] if len(ends) in compared else None
            over = False
            while not over:
                careful = sampler.episode_step < 34
                action = int(rng.choice(5, p=[0, 0.5, 0, 0, 0.5] if careful else [0.1, 0, 0.1, 0.8, 0]))
                reward, observation, *flags = sampler.step(action)
                over = any(flags)
                if env:
                    expected, value, *outcome, _ = env.step(action)
                    np.testing.assert_allclose(observation, expected, rtol=0, atol=1e-6)
                    assert reward == pytest.approx(value, abs=1e-6)
                    assert flags == outcome
            ends.append(tuple(flags))
        return ends

    ends = drive(())
    both = [i for i, flags in enumerate(ends) if flags == (True, True)]
    assert len(both) >= 3
    drive({*both[:2], ends.index((False, True))})


def test_minigrid_reaches_the_goal_on_the_last_step_as_the_reference_does():
    sampler, env = make_sampler(on("minigrid", "envpool"), 0), make_env(CATALOGUE["minigrid"])
    env.reset(seed=0)
    for steps, last in ((256, (True, True)), (100, (True, False))):
        env.reset()
        path = [2] * 5 + [1] + [2] * 5
        for action in [3] * (steps - len(path)) + path:
            reward, observation, *flags = sampler.step(action)
            expected, *outcome, _ = env.step(action)
            np.testing.assert_array_equal(observation, expected)
            assert [reward, *flags] == outcome
        assert tuple(flags) == last


# by distribution


def assert_distributions_agree(first, second):
    """Kolmogorov-Smirnov in every coordinate, at 1 % over all of them together."""
    for a, b in zip(first.T, second.T, strict=True):
        assert scipy.stats.ks_2samp(a, b).pvalue > 0.01 / first.shape[1]


def random_policy(n):
    return lambda observations, generator: generator.integers(n, size=len(observations))


def test_slippery_frozenlake_agrees_with_the_exact_value():
    config = CATALOGUE["frozenlake"].model_copy(
        update={"kwargs": {"is_slippery": True}, "evaluation_engine": "envpool"}
    )
    returns, _, _ = play(random_policy(4), config, 20_000, 0)
    model = tabular_model(make_env(config))
    exact = expected_return(model, np.full(model.shape, 0.25))
    assert abs(returns.mean() - exact) <= Z99 * (exact * (1 - exact) / len(returns)) ** 0.5


def test_acrobot_starts_alike():
    fast = make_batch(on("acrobot", "envpool"), 1000, 0).reset(np.arange(1000))
    env = make_env(CATALOGUE["acrobot"])
    env.reset(seed=0)
    assert_distributions_agree(fast, np.array([env.reset()[0] for _ in range(1000)]))


@pytest.mark.slow
def test_acrobot_agrees_for_a_skilled_policy():
    def swing(observations, generator):
        return (np.sign(observations[:, 5]) + 1).astype(int)

    fast, reference = (played("acrobot", swing, 600, engine) for engine in ("envpool", "gymnasium"))
    assert fast[0].mean() > -110
    assert_means_agree(fast[0], reference[0])
    assert_means_agree(fast[1], reference[1])


@pytest.mark.slow
def test_lunarlander_agrees_for_a_random_policy():
    fast, reference = (played("lunarlander", random_policy(4), 800, engine) for engine in ("envpool", "gymnasium"))
    assert_means_agree(fast[0], reference[0])
    assert_means_agree(fast[1], reference[1])


@pytest.mark.slow
def test_lunarlander_agrees_for_a_skilled_policy():
    from gymnasium.envs.box2d.lunar_lander import heuristic

    env = gym.make("LunarLander-v3")  # the heuristic asks it whether actions are continuous

    def land(observations, generator):
        return np.array([heuristic(env, observation) for observation in observations])

    fast, reference = (played("lunarlander", land, 300, engine) for engine in ("envpool", "gymnasium"))
    assert fast[0].mean() > 200
    assert_means_agree(fast[0], reference[0])
    assert_means_agree(fast[1], reference[1])


@pytest.mark.slow
def test_pong_agrees_for_a_random_policy():
    """With sticky actions and up to 30 no-ops, which the test frame by frame leaves out; 250 steps of each episode."""
    found = []
    for engine in ("envpool", "gymnasium"):
        returns, _, cut = play(random_policy(6), on("pong", engine), 16, 11, copies=16, max_steps=250)
        assert cut == 16 and returns.mean() < -3
        found.append(returns)
    assert_means_agree(*found)


@pytest.mark.slow
@pytest.mark.parametrize("action", [0, 2])
def test_lunarlander_moves_alike(action):
    """20 steps of falling, and of the main engine with its random dispersion."""
    found = []
    for engine in ("envpool", "gymnasium"):
        ids = np.arange(400)
        batch = make_batch(on("lunarlander", engine), 400, 1)
        batch.reset(ids)
        for _ in range(20):
            observations, rewards, _ = batch.step(ids, np.full(400, action))
        found.append(np.column_stack([observations, rewards]))
    assert_distributions_agree(*found)


@pytest.mark.slow
def test_bipedalwalker_moves_alike():
    """20 steps of one action. Equal only because every episode here has a world of its own, on both engines."""
    found = []
    for engine in ("envpool", "gymnasium"):
        ids = np.arange(300)
        batch = make_batch(on("bipedalwalker", engine), 300, 1)
        batch.reset(ids)
        batch.reset(ids)  # a second episode
        for _ in range(20):
            observations, rewards, _ = batch.step(ids, np.tile([0.5, -0.5, 0.3, 0.2], (300, 1)))
        found.append(np.column_stack([observations, rewards]))
    assert_distributions_agree(*found)


@pytest.mark.slow
def test_bipedalwalker_agrees_for_a_random_policy():
    def random_torques(observations, generator):
        return generator.standard_normal((len(observations), 4))

    fast, reference = (played("bipedalwalker", random_torques, 30, engine) for engine in ("envpool", "gymnasium"))
    assert_means_agree(fast[0], reference[0])
    assert_means_agree(fast[1], reference[1])


@pytest.mark.slow
def test_bipedalwalker_agrees_for_a_skilled_policy():
    from gymnasium.envs.box2d.bipedal_walker import BipedalWalkerHeuristics

    found = []
    for engine in ("envpool", "gymnasium"):
        sampler, walker, action = make_sampler(on("bipedalwalker", engine), 4), BipedalWalkerHeuristics(), np.zeros(4)
        while len(sampler.episode_returns) < 25:
            _, observation, terminated, truncated = sampler.step(action)
            action = np.array(walker.step_heuristic(observation))
            if terminated or truncated:
                walker, action = BipedalWalkerHeuristics(), np.zeros(4)
        found.append(np.array(sampler.pop_statistics()))
    assert found[0][:, 0].mean() > 0  # it walks: random torques get -110
    assert_means_agree(found[0][:, 0], found[1][:, 0])
    assert_means_agree(found[0][:, 1], found[1][:, 1])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "lowest"), [("acrobot", -1), ("lunarlander", -100), ("bipedalwalker", -100)])
def test_reward_ranges_are_equal(name, lowest):
    """The lowest reward exactly, and the bulk of the others, over random steps."""
    found = []
    for engine in ("envpool", "gymnasium"):
        sampler, rng = make_sampler(on(name, engine), 0), np.random.default_rng(0)
        discrete = isinstance(sampler.action_space, gym.spaces.Discrete)
        actions = rng.integers(sampler.action_space.n, size=5000) if discrete else rng.standard_normal((5000, 4))
        rewards = np.array([sampler.step(action)[0] for action in actions])
        assert rewards.min() == lowest
        found.append(np.quantile(rewards, [0.05, 0.5, 0.95]))
    np.testing.assert_allclose(*found, atol=0.1 * np.ptp(found[1]))
