"""The reference engine: environments of gymnasium's registry with the wrappers that a configuration names."""

from __future__ import annotations

import importlib

import gymnasium as gym
import numpy as np

from rl_influence.config import ConfigError, EnvironmentConfig, missing_package
from rl_influence.environments.reading import Reader
from rl_influence.environments.sampler import Sampler
from rl_influence.environments.tabular import is_distribution

FRAME_SKIP, FRAME_SIZE, FRAME_STACK, NOOP_MAX = 4, 84, 4, 30  # of the wrapper `atari`


def make_env(environment: EnvironmentConfig) -> gym.Env:
    """The environment, registered and wrapped. Deterministic given the seed of its first reset.

    Wrappers: `image_only` (MiniGrid's image alone), `flatten` (vector observations), `atari` (frame skip 4 with the
    maximum of the last two frames, 84x84 grey, up to 30 no-ops after a reset, 4 frames stacked).

    Raises:
        ConfigError: unknown gym id, missing package, arguments that the environment refuses, unsupported spaces.
    """
    name, gym_id = environment.id, environment.gym_id
    import_package(environment)  # registers its ids, in worker processes as well
    kwargs = dict(environment.kwargs)
    if "atari" in environment.wrappers:
        check_atari_arguments(environment)
        kwargs["frameskip"] = 1  # the wrapper skips; ALE's ids would skip 4 frames as well
    try:
        with np.errstate(invalid="ignore"):  # a map without a start, which is refused below
            env = gym.make(gym_id, disable_env_checker=True, **kwargs)
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        raise ConfigError(
            f"environment {name}: {_first_line(error)}; in the clone, pip install '.[environments]'"
        ) from None
    except Exception as error:  # an environment may raise anything for arguments that it does not take
        raise ConfigError(f"environment {name}: gym_id {gym_id!r} with {kwargs}: {_first_line(error)}") from None
    if hasattr(type(env.unwrapped), "default_config"):  # highway-env ignores unknown keys silently
        known = type(env.unwrapped).default_config()
        for key in kwargs.get("config", {}):
            if key not in known:
                raise ConfigError(f"environment {name}: unknown key {key!r} in config; choices: {', '.join(known)}")
    starts = getattr(env.unwrapped, "initial_state_distrib", None)  # of gymnasium's tables: FrozenLake, Taxi, ...
    if starts is not None and not is_distribution(np.asarray(starts)):
        raise ConfigError(f"environment {name}: no state can be an episode's first: has the map a start?")
    for wrapper in environment.wrappers:
        env = _wrap(env, wrapper, name)
    check_spaces(name, env.observation_space, env.action_space)
    return env


def import_package(environment: EnvironmentConfig) -> None:
    """Imports the package that registers an environment's id.

    Raises:
        ConfigError: if it is not there, or cannot be imported.
    """
    name, package = environment.id, environment.package
    try:
        importlib.import_module(package)
    except Exception as error:  # a package of one's own may raise anything
        if isinstance(error, ModuleNotFoundError) and f"{package}.".startswith(f"{error.name}."):
            raise ConfigError(missing_package(name, package)) from None
        raise ConfigError(
            f"environment {name}: package {package} cannot be imported: {type(error).__name__}: {_first_line(error)}"
        ) from None


def _wrap(env: gym.Env, wrapper: str, name: str) -> gym.Env:
    if wrapper == "image_only":
        if "image" not in getattr(env.observation_space, "spaces", ()):
            raise ConfigError(f"environment {name}: wrapper image_only needs an observation 'image'")
        from minigrid.wrappers import ImgObsWrapper

        return ImgObsWrapper(env)
    if wrapper == "flatten":
        return gym.wrappers.FlattenObservation(env)
    try:
        env = gym.wrappers.AtariPreprocessing(
            env, noop_max=NOOP_MAX, frame_skip=FRAME_SKIP, screen_size=FRAME_SIZE, grayscale_obs=True
        )
    except (gym.error.Error, AttributeError) as error:
        raise ConfigError(f"environment {name}: wrapper atari: {_first_line(error)}") from None
    return gym.wrappers.FrameStackObservation(env, FRAME_STACK)


def check_atari_arguments(environment: EnvironmentConfig) -> None:
    """Frames are skipped once, by the wrapper, and sticky actions are written down."""
    kwargs = environment.kwargs
    if kwargs.get("frameskip", 1) != 1:
        raise ConfigError(
            f"environment {environment.id}: frameskip {kwargs['frameskip']!r} with wrapper atari, which skips "
            f"{FRAME_SKIP} frames itself; leave it out"
        )
    if "repeat_action_probability" not in kwargs:
        raise ConfigError(
            f"environment {environment.id}: wrapper atari needs kwargs.repeat_action_probability "
            "(0.25: sticky actions; 0: none)"
        )


def check_spaces(name: str, observations: gym.Space, actions: gym.Space) -> None:
    """Refuses what the networks cannot take, by name."""
    discrete, box = gym.spaces.Discrete, gym.spaces.Box
    if not (
        (isinstance(observations, discrete) and observations.start == 0)
        or (isinstance(observations, box) and (observations.dtype.kind == "f" or observations.dtype == np.uint8))
    ):
        raise ConfigError(
            f"environment {name}: observation space {type(observations).__name__} is not supported ({observations}); "
            "choices: Discrete from 0, Box of floats, Box of uint8"
        )
    if not (
        (isinstance(actions, discrete) and actions.start == 0)
        or (isinstance(actions, box) and actions.dtype.kind == "f" and len(actions.shape) == 1)
    ):
        raise ConfigError(
            f"environment {name}: action space {type(actions).__name__} is not supported ({actions}); "
            "choices: Discrete from 0, one-dimensional Box of floats"
        )


class GymnasiumSampler(Sampler):
    """Resumes from the state that the environment's generator had when the current episode began."""

    def _start(self, origin: dict | None):
        env = make_env(self.environment)
        self._reader = Reader(self.environment.id, env.observation_space)
        if origin is None:
            first = env.reset(seed=self.seed)
        else:
            env.unwrapped.np_random = np.random.Generator(getattr(np.random, origin["bit_generator"])())
            env.unwrapped.np_random.bit_generator.state = origin
            env, first = _next_episode(env, self.environment)
        self._use(env)
        return first

    def _advance(self, action):
        return self._env_step(action)

    def _next_episode(self):
        origin = self.env.unwrapped.np_random.bit_generator.state
        env, first = _next_episode(self.env, self.environment)
        self._use(env)
        return origin, first

    def _use(self, env: gym.Env) -> None:
        self.env, self._env_step = env, env.step
        self.observation_space, self.action_space = env.observation_space, env.action_space


class GymnasiumBatch:
    """Copies of an environment for test episodes, see `sampler.Batch`."""

    def __init__(self, environment: EnvironmentConfig, copies: int, seed: int):
        self._environment = environment
        self._envs = [make_env(environment) for _ in range(copies)]
        self._readers = [Reader(environment.id, env.observation_space) for env in self._envs]
        self._seeds: list[int | None] = np.random.SeedSequence(seed).generate_state(copies).tolist()
        self._discrete = isinstance(self._envs[0].action_space, gym.spaces.Discrete)
        if not self._discrete:
            self._low, self._high = self._envs[0].action_space.low, self._envs[0].action_space.high

    def reset(self, ids: np.ndarray) -> np.ndarray:
        observations = []
        for i in ids.tolist():
            if self._seeds[i] is None:
                self._envs[i], first = _next_episode(self._envs[i], self._environment)
            else:
                first = self._envs[i].reset(seed=self._seeds[i])
                self._seeds[i] = None
            observations.append(self._readers[i].reset(first))
        return np.stack(observations)

    def step(self, ids: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if self._discrete:
            actions = actions.tolist()
        else:
            actions = np.clip(actions, self._low, self._high).astype(self._low.dtype)
        results = [self._readers[i].step(self._envs[i].step(a)) for i, a in zip(ids.tolist(), actions, strict=True)]
        observations, rewards, terminated, truncated = zip(*results, strict=True)
        return np.stack(observations), np.array(rewards), np.array(terminated) | np.array(truncated)


def _next_episode(env: gym.Env, environment: EnvironmentConfig) -> tuple[gym.Env, tuple]:
    """Begins an episode that depends on nothing but the state of the environment's generator.

    A reset is enough for most environments. BipedalWalker keeps its Box2D world, and the order of the contacts in it
    changes the dynamics a little (knee angles by 0.01), so there it takes a new environment with the old generator.
    ALE has a second generator inside, which is seeded from the first.

    Returns:
        The environment to go on with, and what its `reset` gave.
    """
    generator = env.unwrapped.np_random
    if environment.gym_id.startswith("BipedalWalker"):
        env.close()
        env = make_env(environment)
        env.unwrapped.np_random = generator
    seed = int(generator.integers(2**31)) if environment.gym_id.startswith("ALE/") else None
    return env, env.reset(seed=seed)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
