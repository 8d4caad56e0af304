"""The fast engine: envpool's C++ simulators of the same environments, on one thread.

A configuration is written for gymnasium; here its arguments are translated, and whatever envpool cannot do is refused.
Resets are asked for explicitly, so envpool's automatic ones (a step that ignores its action) never occur.

envpool tells of an episode's end and of its time limit in one flag: an episode that terminates on the limit's own step
looks truncated, and PPO would go on from its last observation. So training asks for episodes that are longer than the
limit, and cuts them itself.
"""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np

from rl_influence.config import ConfigError, EnvironmentConfig, missing_package
from rl_influence.environments.gymnasium_engine import (
    FRAME_SIZE,
    FRAME_SKIP,
    FRAME_STACK,
    NOOP_MAX,
    check_atari_arguments,
    check_spaces,
)
from rl_influence.environments.reading import Reader
from rl_influence.environments.sampler import Sampler

NO_LIMIT = 2**31 - 1  # envpool's max_episode_steps where it has none
HIGHWAY_KEYS = (
    "lanes_count",
    "vehicles_count",
    "duration",
    "initial_lane_id",
    "simulation_frequency",
    "policy_frequency",
    "ego_spacing",
    "vehicles_density",
    "collision_reward",
    "right_lane_reward",
    "high_speed_reward",
    "lane_change_reward",
    "reward_speed_range",
    "normalize_reward",
    "offroad_terminal",
)


class Pool:
    """Copies of an environment in envpool; observations, wrapped as configured, have one row per requested copy.

    With `uncut` its episodes go on for at least one step after the time limit, and the caller cuts them there.

    Attributes:
        limit: the step on which gymnasium truncates an episode (None: none does), if `uncut`.
    """

    def __init__(
        self, environment: EnvironmentConfig, copies: int, seed: np.random.SeedSequence, *, uncut: bool = False
    ):
        try:
            import envpool
        except ImportError:
            raise ConfigError(missing_package(environment.id, "envpool")) from None
        task = environment.gym_id.removeprefix("ALE/")
        self._mirror = None
        if task not in envpool.list_all_envs():
            raise _refusal(environment, f"has no {environment.gym_id}")
        # from a single seed, envpool would give copy i the seed + i: neighbouring seeds would share their copies
        seeds = (seed.generate_state(copies) >> 1).tolist()
        arguments = envpool_arguments(environment)
        try:
            config = envpool.make_spec(task, **arguments).config._asdict()
            if environment.gym_id == "highway-v0":
                self._mirror = HighwayMirror(config)
                arguments |= self._mirror.arguments
            if uncut:
                self.limit, longer = _longer(environment, config)
                arguments |= longer
            self._pool = envpool.make_gymnasium(task, num_envs=copies, num_threads=1, seed=seeds, **arguments)
        except ConfigError:
            raise
        except (RuntimeError, TypeError, ValueError) as error:  # values of a type that the C++ side does not take
            raise _refusal(environment, f"does not take {arguments} ({' '.join(str(error).split())[:200]})") from None
        with warnings.catch_warnings():
            # the bounds of Acrobot's velocities are float64 there
            warnings.filterwarnings("ignore", message=".*precision lowered by casting to float32")
            space, key = self._pool.observation_space, "obs"
        if "image_only" in environment.wrappers:
            if "image" not in getattr(space, "spaces", ()):
                raise ConfigError(f"environment {environment.id}: wrapper image_only needs an observation 'image'")
            space, key = space["image"], "obs:image"
        if "flatten" in environment.wrappers:
            space = gym.spaces.flatten_space(space)
        check_spaces(environment.id, space, self._pool.action_space)
        self.observation_space, self.action_space = space, self._pool.action_space
        keys = self._pool._state_keys
        self._indices = [keys.index(name) for name in (key, "reward", "done", "trunc")]
        self._flatten = "flatten" in environment.wrappers
        self._action_dtype = np.int32 if isinstance(self.action_space, gym.spaces.Discrete) else self.action_space.dtype
        self._shape = self.action_space.shape

    def reset(self, ids: np.ndarray) -> np.ndarray:
        """First observations (k, ...) of new episodes of the copies `ids` (k,)."""
        self._pool._reset(ids.astype(np.int32, copy=False))
        return self._receive()[0]

    def step(self, ids: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """observations, rewards, terminated, truncated, a row for each of the copies `ids`."""
        ids = ids.astype(np.int32, copy=False)
        if self._mirror:
            actions = self._mirror.actions(actions)
        actions = np.ascontiguousarray(actions, self._action_dtype).reshape(len(ids), *self._shape)
        # the pool's own methods: its public `step` spends four times as long on rearranging dictionaries
        self._pool._send([ids, ids, actions])
        return self._receive()

    def _receive(self):
        values = self._pool._recv()
        observations, rewards, done, truncated = (values[i] for i in self._indices)
        if self._mirror:
            observations, rewards = self._mirror.observations(observations), self._mirror.rewards(rewards, observations)
        if self._flatten:
            observations = observations.reshape(len(observations), -1)
        return observations, rewards, done & ~truncated, truncated


class EnvpoolSampler(Sampler):
    """envpool does not show the state of its generators, so every episode has a copy and a seed of its own: both follow
    from the sampler's seed and the episode's number."""

    def _start(self, origin: dict | None):
        # copies are made by the dozen, which costs no more than one, but for a game of ALE (80 ms each)
        self._copies = 1 if self.environment.gym_id.startswith("ALE/") else 64
        self._episode = origin["episode"] if origin else 0
        self._make_pool()
        self._reader = Reader(self.environment.id, self.observation_space)
        return self._first()

    def _advance(self, action):
        observations, rewards, terminated, _ = self._pool.step(self._copy, np.asarray(action)[None])
        step, limit, reward = self.episode_step + 1, self._pool.limit, float(rewards[0])
        if reward > 0 and self.environment.gym_id.startswith("MiniGrid-"):
            reward = 1 - 0.9 * (step / limit)  # there the limit, which is longer here, decides the reward
        return observations[0], reward, bool(terminated[0]), step == limit, {}

    def _next_episode(self):
        self._episode += 1
        if self._episode % self._copies == 0:
            self._make_pool()
        return {"episode": self._episode}, self._first()

    def _make_pool(self) -> None:
        sequence = np.random.SeedSequence(self.seed, spawn_key=(self._episode // self._copies,))
        self._pool = Pool(self.environment, self._copies, sequence, uncut=True)
        self.observation_space, self.action_space = self._pool.observation_space, self._pool.action_space

    def _first(self):
        self._copy = np.array([self._episode % self._copies], np.int32)
        return self._pool.reset(self._copy)[0], {}


class EnvpoolBatch:
    """Copies of an environment for test episodes, see `sampler.Batch`."""

    def __init__(self, environment: EnvironmentConfig, copies: int, seed: int):
        self._pool = Pool(environment, copies, np.random.SeedSequence(seed))
        self._reader = Reader(environment.id, self._pool.observation_space)
        self._steps = np.zeros(copies, int)

    def reset(self, ids: np.ndarray) -> np.ndarray:
        self._steps[ids] = 0
        return self._pool.reset(ids)

    def step(self, ids: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        space = self._pool.action_space
        if isinstance(space, gym.spaces.Box):
            actions = np.clip(actions, space.low, space.high)
        observations, rewards, terminated, truncated = self._pool.step(ids, actions)
        self._steps[ids] += 1
        if not (np.isfinite(rewards).all() and np.isfinite(observations).all()):
            for i, *row in zip(ids.tolist(), observations, rewards, terminated, truncated, strict=True):
                self._reader.step_number = self._steps[i] - 1
                self._reader.step((*row, {}))  # names the first value that is not finite
        return observations, rewards, terminated | truncated


def envpool_arguments(environment: EnvironmentConfig) -> dict:
    """The arguments of `envpool.make` that give what `kwargs` and `wrappers` mean in gymnasium.

    Raises:
        ConfigError: for an argument or a value that envpool does not have.
    """
    kwargs, gym_id, arguments = dict(environment.kwargs), environment.gym_id, {}
    if gym_id.startswith("ALE/"):
        if "atari" not in environment.wrappers:
            raise _refusal(environment, "has Atari games with the wrapper atari only")
        check_atari_arguments(environment)
        kwargs.pop("frameskip", None)
        # envpool presses FIRE after a reset by default, which gymnasium's wrapper does not
        arguments |= {"frame_skip": FRAME_SKIP, "stack_num": FRAME_STACK, "noop_max": NOOP_MAX, "use_fire_reset": False}
        arguments |= {"img_height": FRAME_SIZE, "img_width": FRAME_SIZE}
        choices = ("repeat_action_probability", "full_action_space", "mode", "difficulty")
    elif gym_id == "highway-v0":
        arguments |= _highway_arguments(environment, kwargs.pop("config", {}))
        choices = ("config",)
    elif gym_id == "FrozenLake-v1":
        if kwargs.pop("is_slippery", True) is not True:
            raise _refusal(environment, "has no FrozenLake with is_slippery false")
        if kwargs.pop("map_name", "4x4") != "4x4":
            raise _refusal(environment, f"has no FrozenLake-v1 with map_name {environment.kwargs['map_name']!r}")
        choices = ("is_slippery", "map_name")
    else:
        choices = ()
    # Elsewhere it means something else here: nothing (highway), another reward (MiniGrid), steps and not frames (ALE).
    limit = _registered_limit(gym_id)
    if limit is not None:
        choices += ("max_episode_steps",)
        arguments["max_episode_steps"] = limit
        value = kwargs.get("max_episode_steps", limit)
        if type(value) is not int or value < 1:
            raise _refusal(environment, f"takes whole numbers from 1 on as max_episode_steps, not {value!r}")
    for key in kwargs:
        if key not in choices:
            raise _refusal(
                environment, f"does not take kwargs.{key} for {gym_id}; choices: {', '.join(choices) or 'none'}"
            )
    if "atari" in environment.wrappers and not gym_id.startswith("ALE/"):
        raise ConfigError(f"environment {environment.id}: wrapper atari needs an ALE/... id, not {gym_id!r}")
    return arguments | kwargs


def _registered_limit(gym_id: str) -> int | None:
    """The time limit that gymnasium's registry has for an id; environments that have their own have none there."""
    spec = gym.registry.get(gym_id)
    return spec and spec.max_episode_steps


def _longer(environment: EnvironmentConfig, config: dict) -> tuple[int | None, dict]:
    """The step on which gymnasium truncates an episode (None: none does), and arguments for longer ones.

    Args:
        config: of envpool's environment, as it would be without these arguments.

    Raises:
        ConfigError: if the limit cannot be moved.
    """
    gym_id, limit = environment.gym_id, config["max_episode_steps"]
    if gym_id == "highway-v0":  # counts seconds, as highway-env does; max_episode_steps does nothing
        if config["policy_frequency"] < 1:
            raise _refusal(environment, f"does not take highway's config.policy_frequency {config['policy_frequency']}")
        steps, seconds = 1, 1 / config["policy_frequency"]
        while seconds < config["duration"]:
            steps, seconds = steps + 1, seconds + 1 / config["policy_frequency"]
        return steps, {"duration": config["duration"] + 1}
    if limit == NO_LIMIT:
        return None, {}
    if _registered_limit(gym_id) is None and not gym_id.startswith(("ALE/", "MiniGrid-")):
        raise _refusal(environment, f"has {gym_id} for test episodes only: a termination on its last step is not shown")
    return limit, {"max_episode_steps": limit + 1}


def _highway_arguments(environment: EnvironmentConfig, config: dict) -> dict:
    config, arguments = dict(config), {}
    action = config.pop("action", {"type": "DiscreteMetaAction"})
    if action != {"type": "DiscreteMetaAction"}:
        raise _refusal(environment, f"has highway with action {{type: DiscreteMetaAction}} only, not {action}")
    observation = dict(config.pop("observation", {"type": "Kinematics"}))
    arguments["observation_vehicles_count"] = observation.pop("vehicles_count", 5)
    if observation != {"type": "Kinematics"}:
        raise _refusal(environment, "has highway with observation {type: Kinematics, vehicles_count: n} only")
    if "reward_speed_range" in config:
        arguments["reward_speed_low"], arguments["reward_speed_high"] = map(float, config.pop("reward_speed_range"))
    if config.get("initial_lane_id", 0) is None:
        config["initial_lane_id"] = -1
    for key in config:
        if key not in HIGHWAY_KEYS:
            raise _refusal(environment, f"does not take highway's config.{key}; choices: {', '.join(HIGHWAY_KEYS)}")
    return arguments | config


class HighwayMirror:
    """Makes envpool's highway equal to highway-env's by driving it in a mirror.

    Where both neighbouring lanes suit a car of the traffic, highway-env's takes the one on the right, envpool's the one
    on the left (highway-env's `IDMVehicle.change_lane_policy` goes on to the second lane after it has accepted the
    first). In a mirror, left is right: lanes are counted from the other side, the two lane-change actions swap, lateral
    positions and speeds change sign, and the reward for the right lane is taken off instead of added.

    Args:
        config: of envpool's highway, as it would be without the mirror.
    """

    def __init__(self, config: dict):
        lanes, lane, right = config["lanes_count"], config["initial_lane_id"], config["right_lane_reward"]
        self.arguments = {
            "right_lane_reward": -right,
            "normalize_reward": False,
            "initial_lane_id": lane if lane < 0 else lanes - 1 - lane,
        }
        self._swap = np.array([2, 1, 0, 3, 4])
        self._signs = np.array([1, 1, -1, 1, -1], np.float32)
        self._last_lane = (lanes - 1) / lanes  # its centre, in units of the road's width
        # reward = scale * (envpool's + right_lane_reward) + shift; with one lane there is no right one
        self._right = right if lanes > 1 else 0.0
        low, high = config["collision_reward"], config["high_speed_reward"] + right
        self._scale, self._shift = (1 / (high - low), -low / (high - low)) if config["normalize_reward"] else (1.0, 0.0)

    def actions(self, actions: np.ndarray) -> np.ndarray:
        """Swaps LANE_LEFT (0) and LANE_RIGHT (2)."""
        return self._swap[actions]

    def observations(self, observations: np.ndarray) -> np.ndarray:
        """(n, vehicles, 5): presence, x, y, vx, vy. The first vehicle is the agent's, whose y counts from the leftmost
        lane in units of the road's width; the others are relative to it."""
        mirrored = observations * self._signs
        mirrored[:, 0, 2] += self._last_lane
        return mirrored

    def rewards(self, rewards: np.ndarray, observations: np.ndarray) -> np.ndarray:
        """highway-env's reward: lanes counted from the other side, then normalised; 0 off the road."""
        on_road = np.abs(observations[:, 0, 2] - self._last_lane / 2) <= 0.5
        return (self._scale * (rewards.astype(np.float64) + self._right) + self._shift) * on_road


def _refusal(environment: EnvironmentConfig, reason: str) -> ConfigError:
    return ConfigError(
        f"environment {environment.id}: envpool {reason}; or set engine and evaluation_engine to gymnasium"
    )
