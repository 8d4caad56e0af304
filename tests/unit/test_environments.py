"""Environments, samplers and their exact resumption; toy environments make every number known."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from rl_influence.config import ConfigError, EnvironmentConfig, load_environments
from rl_influence.environments import make_batch, make_env, make_sampler
from rl_influence.environments.envpool_engine import HighwayMirror, envpool_arguments
from rl_influence.runs.check import check_environment
from rl_influence.runs.checkpoints import pack, unpack

ENVIRONMENTS = load_environments(Path(__file__).parents[2] / "config/environments")


def environment(gym_id, **fields):
    defaults = {"id": "test", "label": "Test", "rounds": 1, "drop_percent": 50, "evaluation": {"kind": "batched"}}
    return EnvironmentConfig(**(defaults | {"gym_id": gym_id} | fields))


SPACES = {
    "counts": gym.spaces.Box(0, np.inf, (2,), np.float32),
    "two": gym.spaces.Box(np.float32([-1, -2]), np.float32([1, 2])),
    "pairs": gym.spaces.MultiDiscrete([2, 2]),
    "from_one": gym.spaces.Discrete(3, start=1),
    "matrix": gym.spaces.Box(-1, 1, (2, 2)),
    "text": gym.spaces.Text(3),
    "integers": gym.spaces.Box(0, 9, (2,), np.int64),
}


class Counter(gym.Env):
    """Observation (episode, step); reward 10 * episode + step; ends after 3 steps or when told; notes its actions."""

    def __init__(self, observations="counts", actions="two"):
        self.observation_space, self.action_space = SPACES[observations], SPACES[actions]
        self.episode, self.seeds, self.actions = 0, [], []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode, self.count = self.episode + 1, 0
        return self._observation(), {}

    def step(self, action):
        self.actions.append(np.array(action))
        self.count += 1
        terminated = bool(action[0] == 1)  # the largest action that can be executed
        return self._observation(), 10.0 * self.episode + self.count, terminated, False, {}

    def _observation(self):
        return np.array([self.episode, self.count], np.float32)


gym.register("Counter-v0", Counter, max_episode_steps=3)


# what is refused, in one line


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gym_id": "Acrobat-v1"}, "gym_id 'Acrobat-v1'"),
        ({"gym_id": "LunarLander-v2"}, "LunarLander-v2"),
        ({"gym_id": "Acrobot-v1", "package": "no_such_package"}, "package no_such_package: install it, or name"),
        ({"gym_id": "Acrobot-v1", "kwargs": {"slippery": True}}, "slippery"),
        ({"gym_id": "FrozenLake-v1", "kwargs": {"map_name": "5x5"}}, "5x5"),
        ({"gym_id": "MiniGrid-Empty-8x8-v0", "package": "minigrid"}, "observation space Dict is not supported"),
        ({"gym_id": "Acrobot-v1", "wrappers": ["image_only"]}, "image_only needs an observation 'image'"),
        (
            {"gym_id": "highway-v0", "package": "highway_env", "kwargs": {"config": {"vehicle_count": 10}}},
            "unknown key 'vehicle_count'",
        ),
        (
            {"gym_id": "Counter-v0", "kwargs": {"actions": "pairs"}},
            "action space MultiDiscrete is not supported",
        ),
        (
            {"gym_id": "Counter-v0", "kwargs": {"actions": "from_one"}},
            "action space Discrete is not supported",
        ),
        (
            {"gym_id": "Counter-v0", "kwargs": {"actions": "matrix"}},
            "one-dimensional Box",
        ),
        (
            {"gym_id": "Counter-v0", "kwargs": {"observations": "text"}},
            "observation space Text is not supported",
        ),
        (
            {"gym_id": "Counter-v0", "kwargs": {"observations": "integers"}},
            "observation space Box is not supported",
        ),
        ({"gym_id": "ALE/Pong-v5", "package": "ale_py", "wrappers": ["atari"]}, "repeat_action_probability"),
        (
            {
                "gym_id": "ALE/Pong-v5",
                "package": "ale_py",
                "wrappers": ["atari"],
                "kwargs": {"repeat_action_probability": 0.25, "frameskip": 4},
            },
            "frameskip 4 with wrapper atari",
        ),
        (
            {"gym_id": "Acrobot-v1", "wrappers": ["atari"], "kwargs": {"repeat_action_probability": 0.0}},
            "repeat_action_probability",
        ),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line(fields, message):
    with pytest.raises(ConfigError) as error:
        make_env(environment(**fields))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert "environment test" in str(error.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gym_id": "FrozenLake-v1", "kwargs": {"is_slippery": False}}, "no FrozenLake with is_slippery false"),
        ({"gym_id": "FrozenLake-v1", "kwargs": {"map_name": "8x8"}}, "no FrozenLake-v1 with map_name '8x8'"),
        ({"gym_id": "FrozenLake-v1", "kwargs": {"desc": ["SG"]}}, "kwargs.desc"),
        ({"gym_id": "LunarLander-v3", "kwargs": {"gravity": -5.0}}, "kwargs.gravity"),
        ({"gym_id": "highway-v0", "kwargs": {"config": {"vehicle_count": 3}}}, "config.vehicle_count"),
        ({"gym_id": "highway-v0", "kwargs": {"config": {"observation": {"type": "TimeToCollision"}}}}, "Kinematics"),
        ({"gym_id": "highway-v0", "kwargs": {"config": {"action": {"type": "ContinuousAction"}}}}, "ContinuousAction"),
        ({"gym_id": "ALE/Pong-v5"}, "wrapper atari only"),
        ({"gym_id": "ALE/Pong-v5", "wrappers": ["atari"]}, "repeat_action_probability"),
        (
            {"gym_id": "Acrobot-v1", "wrappers": ["atari"], "kwargs": {}},
            "wrapper atari needs an ALE/... id, not 'Acrobot-v1'",
        ),
        ({"gym_id": "highway-fast-v0", "kwargs": {"config": {}}}, "kwargs.config"),
        ({"gym_id": "MiniGrid-Empty-8x8-v0", "kwargs": {"max_episode_steps": 50}}, "kwargs.max_episode_steps"),
        ({"gym_id": "highway-v0", "kwargs": {"max_episode_steps": 9}}, "kwargs.max_episode_steps"),
        (
            {
                "gym_id": "ALE/Pong-v5",
                "wrappers": ["atari"],
                "kwargs": {"repeat_action_probability": 0, "max_episode_steps": 9},
            },
            "kwargs.max_episode_steps",
        ),
        (
            {"gym_id": "CartPole-v1", "kwargs": {"max_episode_steps": -1}},
            "whole numbers from 1 on as max_episode_steps, not -1",
        ),
        ({"gym_id": "CartPole-v1", "kwargs": {"max_episode_steps": True}}, "max_episode_steps, not True"),
    ],
)
def test_what_envpool_cannot_do_is_refused_in_one_line(fields, message):
    fields = {"kwargs": {"other": 1}} | fields
    with pytest.raises(ConfigError) as error:
        envpool_arguments(environment(**fields))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_an_environment_that_envpool_lacks_is_refused():
    with pytest.raises(ConfigError, match="environment test: envpool has no Counter-v0; or set engine"):
        make_sampler(environment("Counter-v0", engine="envpool"), 0)


def test_a_missing_envpool_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "envpool", None)
    with pytest.raises(ConfigError, match=r"needs the package envpool: in the clone, pip install '.\[fast\]'"):
        make_sampler(environment("Acrobot-v1", engine="envpool"), 0)


def test_a_check_finds_what_a_run_would_stumble_over():
    check_environment(ENVIRONMENTS["frozenlake"])
    check_environment(ENVIRONMENTS["acrobot"])
    with pytest.raises(ConfigError, match="environment test: .* does not fit network nature_cnn: a uint8 image"):
        check_environment(environment("Acrobot-v1", network="nature_cnn"))
    grid = {"package": "minigrid", "wrappers": ["image_only"]}
    with pytest.raises(ConfigError, match="does not fit network nature_cnn: the images are too small"):
        check_environment(environment("MiniGrid-Empty-8x8-v0", network="nature_cnn", **grid))
    with pytest.raises(ConfigError, match="'exact' is not available"):
        check_environment(environment("Acrobot-v1", evaluation={"kind": "exact"}))
    with pytest.raises(ConfigError, match="envpool has no Counter-v0"):
        check_environment(environment("Counter-v0", evaluation_engine="envpool"))
    with pytest.deprecated_call(), pytest.raises(ConfigError, match="envpool has exit-v0 for test episodes only"):
        check_environment(environment("exit-v0", package="highway_env", wrappers=["flatten"], engine="envpool"))
    with pytest.raises(ConfigError, match="envpool does not take .*'lanes_count': 'four'"):
        config = {"package": "highway_env", "wrappers": ["flatten"], "kwargs": {"config": {"lanes_count": "four"}}}
        make_sampler(environment("highway-v0", engine="envpool", **config), 0)


NO_START = {"desc": ["FFFF", "FHFH", "FFFH", "HFFG"], "is_slippery": False}


@pytest.mark.parametrize("kind", ["exact", "batched"])
def test_a_map_without_a_start_is_refused(kind):
    """gymnasium makes it, and every episode begins in the corner."""
    config = environment("FrozenLake-v1", kwargs=NO_START, evaluation={"kind": kind})
    for refused in (check_environment, make_env, lambda config: make_batch(config, 1, 0)):
        with pytest.raises(ConfigError, match="environment test: no state can be an episode's first: has the map a st"):
            refused(config)


# the catalogue


@pytest.mark.slow
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_environment_of_the_catalogue_can_be_made(name):
    check_environment(ENVIRONMENTS[name])


@pytest.mark.parametrize(
    ("name", "rounds", "drop_percent", "optimizer", "learning_rate", "episodes"),
    [  # appendix B of the paper; facts that the comments in the files give a source for
        ("frozenlake", 50, 50, "sgd", 5e-3, None),
        ("minigrid", 40, 12.5, "sgd", 5e-3, None),
        ("acrobot", 50, 50, "sgd", 5e-3, 1000),
        ("highway", 100, 50, "sgd", 5e-3, 100),
        ("lunarlander", 150, 12.5, "sgd", 5e-3, 1000),
        ("bipedalwalker", 500, 6.25, "adam", 3e-4, 100),
        ("lunarlander_adam", 150, 12.5, "adam", 1e-3, 1000),
        ("minigrid_adam", 40, 12.5, "adam", 3e-4, None),
    ],
)
def test_settings_are_the_papers(name, rounds, drop_percent, optimizer, learning_rate, episodes):
    config = ENVIRONMENTS[name]
    assert (config.rounds, config.drop_percent) == (rounds, drop_percent)
    assert (config.ppo.optimizer, config.ppo.learning_rate) == (optimizer, learning_rate)
    if episodes:
        assert config.evaluation.episodes == episodes
    else:
        assert config.evaluation.kind == "exact"


@pytest.mark.parametrize("name", ["minigrid", "lunarlander"])
def test_the_variants_with_adam_differ_in_the_optimiser_only(name):
    plain, adam = (ENVIRONMENTS[key].model_dump() for key in (name, f"{name}_adam"))
    differing = {key for key in plain if plain[key] != adam[key]}
    assert differing == {"id", "label", "ppo"}
    assert {key for key in plain["ppo"] if plain["ppo"][key] != adam["ppo"][key]} == {"optimizer", "learning_rate"}


def test_frozenlake_does_not_slip():
    table = make_env(ENVIRONMENTS["frozenlake"]).unwrapped.P
    assert all(len(outcomes) == 1 for row in table.values() for outcomes in row.values())


# one step after the other


def test_a_step_returns_where_it_led_and_the_reset_comes_after():
    sampler = make_sampler(environment("Counter-v0"), 7)
    none = np.zeros(2, np.float32)
    assert sampler.observation.tolist() == [1, 0]
    rows = []
    for action in (none, none, none, none, np.array([5, 0], np.float32), none):  # truncated after 3, terminated after 2
        before = sampler.observation.tolist()
        reward, after, terminated, truncated = sampler.step(action)
        rows.append((before, reward, after.tolist(), terminated, truncated, sampler.episode_step))
    assert rows == [
        ([1, 0], 11, [1, 1], False, False, 1),
        ([1, 1], 12, [1, 2], False, False, 2),
        ([1, 2], 13, [1, 3], False, True, 0),  # the final observation, not that of the reset
        ([2, 0], 21, [2, 1], False, False, 1),  # no row was spent on the reset
        ([2, 1], 22, [2, 2], True, False, 0),
        ([3, 0], 31, [3, 1], False, False, 1),
    ]
    assert sampler.pop_statistics() == [(36.0, 3), (43.0, 2)]
    assert sampler.pop_statistics() == []
    assert sampler.env.unwrapped.seeds == [7, None, None]  # seeded once


def test_continuous_actions_are_clipped_only_where_they_are_executed():
    sampler = make_sampler(environment("Counter-v0"), 0)
    action = np.array([-2.5, 0.5], np.float32)
    sampler.step(action)
    assert action.tolist() == [-2.5, 0.5]
    assert [a.tolist() for a in sampler.env.unwrapped.actions] == [[-1, 0.5]]
    assert sampler.env.unwrapped.actions[0].dtype == np.float32


@pytest.mark.parametrize("engine", ["gymnasium", "envpool"])
def test_test_episodes_clip_too(engine):
    config = environment("BipedalWalker-v3", evaluation_engine=engine)
    ids = np.arange(2)
    steps = []
    for action in (1.0, 40.0):
        batch = make_batch(config, 2, 3)
        batch.reset(ids)
        steps.append(batch.step(ids, np.full((2, 4), action)))
    for one, other in zip(*steps, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("engine", ["gymnasium", "envpool"])
def test_a_truncated_episode_ends_with_its_own_observation(engine):
    sampler = make_sampler(environment("Acrobot-v1", engine=engine), 0)
    for _ in range(499):
        assert sampler.step(1)[2:] == (False, False)
    last = sampler.observation
    _, final, terminated, truncated = sampler.step(1)
    assert (terminated, truncated) == (False, True)
    assert sampler.pop_statistics() == [(-500.0, 500)]
    # hanging down it hardly swings: one step lies between the last two; the next episode starts elsewhere
    assert np.abs(final - last).max() < 0.5
    assert not np.array_equal(final, sampler.observation)
    assert np.abs(sampler.observation[4:]).max() <= 0.1


@pytest.mark.parametrize(
    ("name", "engine", "n"),
    [("acrobot", "gymnasium", 3), ("acrobot", "envpool", 3), ("highway", "envpool", 70)],  # 70: more than one pool has
)
def test_episodes_differ_and_streams_follow_from_the_seed(name, engine, n):
    config = ENVIRONMENTS[name].model_copy(update={"engine": engine})

    def first_observations(seed, n):
        sampler = make_sampler(config, seed)
        found = [sampler.observation]
        while len(found) < n:
            if any(sampler.step(0)[2:]):
                found.append(sampler.observation)
        return np.array(found)

    observations = first_observations(0, n)
    assert len(np.unique(observations, axis=0)) == n
    np.testing.assert_array_equal(observations, first_observations(np.int64(0), n))
    assert not (observations == first_observations(1, n)).all(1).any()


def test_20_first_observations_of_a_random_environment_differ():
    batch = make_batch(environment("Acrobot-v1"), 2, 0)
    one = np.array([0])
    observations = np.concatenate([batch.reset(one) for _ in range(20)])
    assert len(np.unique(observations, axis=0)) == 20


# interrupted and continued


RESUMED = [
    ("frozenlake", "gymnasium", 300),
    ("minigrid", "gymnasium", 600),
    ("acrobot", "gymnasium", 1100),
    ("lunarlander", "gymnasium", 400),
    ("bipedalwalker", "gymnasium", 400),
    ("bipedalwalker", "envpool", 600),
    ("highway", "envpool", 1500),
    pytest.param("pong", "gymnasium", 1100, marks=pytest.mark.slow),
    pytest.param("pong", "envpool", 1100, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "engine", "steps"), RESUMED)
def test_a_restored_sampler_goes_on_exactly(name, engine, steps):
    """Through the bytes of a checkpoint, from random points, past the ends of episodes."""
    config = ENVIRONMENTS[name].model_copy(update={"engine": engine})
    rng = np.random.default_rng(5)
    for seed in (0, 1):
        straight = make_sampler(config, seed)
        space = straight.action_space
        discrete = isinstance(space, gym.spaces.Discrete)
        actions = rng.integers(space.n, size=steps) if discrete else rng.standard_normal((steps, *space.shape))
        cut = int(rng.integers(1, steps // 2))
        for action in actions[:cut]:
            straight.step(action)
        resumed = make_sampler(config, seed)
        resumed.restore(unpack(pack(straight.state())))
        assert resumed.episode_step == straight.episode_step
        assert resumed.episode_returns == straight.episode_returns
        for action in actions[cut:]:
            for one, other in zip(straight.step(action), resumed.step(action), strict=True):
                np.testing.assert_array_equal(one, other)
            np.testing.assert_array_equal(straight.observation, resumed.observation)
        assert resumed.pop_statistics() == straight.pop_statistics()
        assert pack(resumed.state()) == pack(straight.state())


def test_bipedalwalker_in_a_used_world_would_not_resume():
    """Why its episodes begin in a new environment: a used one's contacts are ordered differently."""
    config = ENVIRONMENTS["bipedalwalker"].model_copy(update={"engine": "gymnasium"})
    env = make_env(config)
    env.reset(seed=0)
    differing = 0
    for _ in range(20):
        generator = env.unwrapped.np_random.bit_generator.state
        used = [env.reset()[0]] + [env.step(np.ones(4, np.float32))[0] for _ in range(5)]
        new = make_env(config)
        new.unwrapped.np_random = np.random.default_rng()
        new.unwrapped.np_random.bit_generator.state = generator
        fresh = [new.reset()[0]] + [new.step(np.ones(4, np.float32))[0] for _ in range(5)]
        differing += not np.array_equal(used, fresh)
    assert differing


def test_a_state_that_does_not_fit_is_refused():
    sampler = make_sampler(ENVIRONMENTS["acrobot"], 0)
    for _ in range(10):
        sampler.step(0)
    with pytest.raises(ValueError, match="environment acrobot cannot be resumed: replaying 10 actions") as error:
        make_sampler(ENVIRONMENTS["acrobot"], 1).restore(sampler.state())
    assert "\n" not in str(error.value)


def test_states_are_small_and_hold_the_current_episode_only():
    sampler = make_sampler(ENVIRONMENTS["highway"], 0)
    for _ in range(500):
        sampler.step(3)
    state = sampler.state()
    assert len(state["actions"]) == sampler.episode_step <= 40
    assert state["actions"].dtype == np.uint8


# the highway in a mirror: values by hand


def test_the_mirror_of_the_highway():
    config = {
        "lanes_count": 4,
        "right_lane_reward": 0.1,
        "collision_reward": -1.0,
        "high_speed_reward": 0.4,
        "normalize_reward": True,
        "initial_lane_id": 0,
    }
    mirror = HighwayMirror(config)
    assert mirror.arguments == {"right_lane_reward": -0.1, "normalize_reward": False, "initial_lane_id": 3}
    assert mirror.actions(np.arange(5)).tolist() == [2, 1, 0, 3, 4]
    # ego in lane 1 of the mirrored road, 4 m from the left: lane 2, 8 m of 16 m; the other car one lane further left
    rows = np.array([[[1, 0.9, 0.25, 0.3, 0.02], [1, 0.1, -0.25, -0.03, 0.01]]], np.float32)
    expected = np.array([[[1, 0.9, 0.5, 0.3, -0.02], [1, 0.1, 0.25, -0.03, -0.01]]], np.float32)
    seen = mirror.observations(rows)
    np.testing.assert_array_equal(seen, expected)
    # half speed in lane 2: (0.4 / 2 + 0.1 * 2 / 3 + 1) / 1.5; envpool counts lane 1: 0.4 / 2 - 0.1 * 1 / 3
    reward = (0.2 + 0.2 / 3 + 1) / 1.5
    np.testing.assert_allclose(mirror.rewards(np.float32([0.2 - 0.1 / 3]), seen), [reward], atol=1e-7)
    off_road = seen.copy()
    off_road[0, 0, 2] = 0.9  # the road ends half a lane right of the last lane's centre, 0.875
    assert mirror.rewards(np.float32([0.0]), off_road).tolist() == [0.0]
