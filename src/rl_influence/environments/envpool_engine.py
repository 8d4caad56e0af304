"""The fast engine: envpool's C++ simulators of the same environments, on one thread.

A configuration is written for gymnasium; here its arguments are translated, and whatever envpool cannot do is refused.
Resets are asked for explicitly, so envpool's automatic ones (a step that ignores its action) never occur.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from rl_influence.config import ConfigError, EnvironmentConfig
from rl_influence.environments.gymnasium_engine import (
    FRAME_SIZE,
    FRAME_SKIP,
    FRAME_STACK,
    NOOP_MAX,
    check_atari_arguments,
    check_spaces,
)
from rl_influence.environments.sampler import Sampler


class Pool:
    """Copies of an environment in envpool; observations, wrapped as configured, have one row per requested copy."""

    def __init__(self, environment: EnvironmentConfig, copies: int, seed: int):
        try:
            import envpool
        except ImportError:
            raise ConfigError(
                f"environment {environment.id}: engine envpool needs the package envpool: pip install "
                "'rl-influence[fast]', or set engine and evaluation_engine to gymnasium"
            ) from None
        task = environment.gym_id.removeprefix("ALE/")
        if task not in envpool.list_all_envs():
            raise _refusal(environment, f"has no {environment.gym_id}")
        # envpool gives copy i the seed seed + i; spread, so that pools of neighbouring seeds share no copy
        seeds = (np.random.SeedSequence(seed).generate_state(copies) >> 1).tolist()
        self._pool = envpool.make_gymnasium(
            task, num_envs=copies, num_threads=1, seed=seeds, **envpool_arguments(environment)
        )
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
        self._pool._reset(ids.astype(np.int32))
        return self._receive()[0]

    def step(self, ids: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """observations, rewards, terminated, truncated, a row for each of the copies `ids`."""
        ids = ids.astype(np.int32)
        actions = np.ascontiguousarray(actions, self._action_dtype).reshape(len(ids), *self._shape)
        # the pool's own methods: its public `step` spends four times as long on rearranging dictionaries
        self._pool._send([ids, ids, actions])
        return self._receive()

    def _receive(self):
        values = self._pool._recv()
        observations, rewards, done, truncated = (values[i] for i in self._indices)
        if self._flatten:
            observations = observations.reshape(len(observations), -1)
        return observations, rewards, done & ~truncated, truncated


class EnvpoolSampler(Sampler):
    """Resumes by replaying the whole history of its actions: envpool does not show the state of its generators."""

    def __init__(self, environment: EnvironmentConfig, seed: int):
        self._environment, self._name, self._seed = environment, environment.id, int(seed)
        self._ids = np.zeros(1, np.int32)
        super().__init__()

    def _start(self, generator: None):
        self._pool = Pool(self._environment, 1, self._seed)
        self.observation_space, self.action_space = self._pool.observation_space, self._pool.action_space
        return self._next_episode()

    def _advance(self, action):
        observations, rewards, terminated, truncated = self._pool.step(self._ids, np.asarray(action)[None])
        return observations[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0])

    def _next_episode(self):
        return self._pool.reset(self._ids)[0]


class EnvpoolBatch:
    """Copies of an environment for test episodes, see `environments.make_batch`."""

    def __init__(self, environment: EnvironmentConfig, copies: int, seed: int):
        self._pool = Pool(environment, copies, seed)
        self.action_space = self._pool.action_space

    def reset(self, ids: np.ndarray) -> np.ndarray:
        return self._pool.reset(ids)

    def step(self, ids: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        observations, rewards, terminated, truncated = self._pool.step(ids, actions)
        return observations, rewards, terminated | truncated


def envpool_arguments(environment: EnvironmentConfig) -> dict:
    """The arguments of `envpool.make` that give what `kwargs` and `wrappers` mean in gymnasium.

    Raises:
        ConfigError: for an argument or a value that envpool does not have.
    """
    kwargs, gym_id = dict(environment.kwargs), environment.gym_id
    arguments = {"max_episode_steps": kwargs.pop("max_episode_steps")} if "max_episode_steps" in kwargs else {}
    if gym_id.startswith("ALE/"):
        if "atari" not in environment.wrappers:
            raise _refusal(environment, "has Atari games with the wrapper atari only")
        check_atari_arguments(environment)
        kwargs.pop("frameskip", None)
        # envpool presses FIRE after a reset by default, which gymnasium's wrapper does not
        arguments |= {"frame_skip": FRAME_SKIP, "stack_num": FRAME_STACK, "noop_max": NOOP_MAX, "use_fire_reset": False}
        arguments |= {"img_height": FRAME_SIZE, "img_width": FRAME_SIZE}
        choices = ("repeat_action_probability", "full_action_space", "mode", "difficulty")
    elif gym_id in ("highway-v0", "highway-fast-v0"):
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
    for key in kwargs:
        if key not in choices:
            raise _refusal(
                environment,
                f"does not take kwargs.{key} for {gym_id}; choices: {', '.join((*choices, 'max_episode_steps'))}",
            )
    if "atari" in environment.wrappers and not gym_id.startswith("ALE/"):
        raise ConfigError(f"environment {environment.id}: wrapper atari needs an ALE/... id, not {gym_id!r}")
    return arguments | kwargs


def _highway_arguments(environment: EnvironmentConfig, config: dict) -> dict:
    config, arguments = dict(config), {}
    action = dict(config.pop("action", {"type": "DiscreteMetaAction"}))
    if action != {"type": "DiscreteMetaAction"}:
        raise _refusal(environment, f"has highway with action {{type: DiscreteMetaAction}} only, not {action}")
    observation = dict(config.pop("observation", {"type": "Kinematics"}))
    if observation.pop("type", None) != "Kinematics" or set(observation) - {"vehicles_count"}:
        raise _refusal(environment, "has highway with observation {type: Kinematics, vehicles_count: n} only")
    arguments["observation_vehicles_count"] = observation.get("vehicles_count", 5)
    known = "lanes_count vehicles_count duration simulation_frequency policy_frequency ego_spacing vehicles_density "
    known += "collision_reward right_lane_reward high_speed_reward lane_change_reward normalize_reward offroad_terminal"
    for key, value in config.items():
        if key == "reward_speed_range":
            arguments["reward_speed_low"], arguments["reward_speed_high"] = map(float, value)
        elif key == "initial_lane_id":
            arguments[key] = -1 if value is None else value
        elif key in known.split():
            arguments[key] = value
        else:
            raise _refusal(environment, f"does not take highway's config.{key}; choices: {', '.join(known.split())}")
    return arguments


def _refusal(environment: EnvironmentConfig, reason: str) -> ConfigError:
    return ConfigError(
        f"environment {environment.id}: envpool {reason}; or set engine and evaluation_engine to gymnasium"
    )
