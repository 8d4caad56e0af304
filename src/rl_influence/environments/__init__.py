"""Environments of the paper (section 5, appendix B): an environment, a sampler of records, a batch of test copies.

Two engines simulate them: `gymnasium` (the reference) and `envpool` (C++, the optional extra `fast`). Where they differ
is in docs/deviations.md; tests/parity/test_engines.py compares them.
"""

import torch

from rl_influence.config import ConfigError, EnvironmentConfig
from rl_influence.environments.gymnasium_engine import GymnasiumBatch, GymnasiumSampler, make_env
from rl_influence.environments.sampler import Sampler
from rl_influence.environments.tabular import tabular_model
from rl_influence.ppo.networks import make_policy

__all__ = ["Sampler", "check_environment", "make_batch", "make_env", "make_sampler"]


def make_sampler(environment: EnvironmentConfig, seed: int) -> Sampler:
    """The one environment that training collects its records from, on the engine that the configuration names.

    Args:
        seed: gymnasium: of the first reset, and only of that; envpool: the seeds of all episodes follow from it.

    Raises:
        ConfigError: for an environment that cannot be made, see `make_env`.
    """
    if environment.engine == "envpool":
        from rl_influence.environments.envpool_engine import EnvpoolSampler  # takes a second to import, and is optional

        return EnvpoolSampler(environment, seed)
    return GymnasiumSampler(environment, seed)


def make_batch(environment: EnvironmentConfig, copies: int, seed: int):
    """Independent copies of an environment for test episodes, on the evaluation engine that the configuration names.

    Returns an object with `reset(ids) -> observations` and `step(ids, actions) -> observations, rewards, ended`, where
    `ids` (k,) selects the copies to move and each result has k rows. Nothing resets by itself.
    """
    if environment.evaluation_engine == "envpool":
        from rl_influence.environments.envpool_engine import EnvpoolBatch

        return EnvpoolBatch(environment, copies, seed)
    return GymnasiumBatch(environment, copies, seed)


def check_environment(environment: EnvironmentConfig) -> None:
    """Makes the environment on both of its engines, its network and, for exact evaluation, its model: what a run would
    stumble over later is found here, in a second or two.

    Raises:
        ConfigError: in one line, for the first thing that does not work.
    """
    env = make_env(environment)
    try:
        make_policy(environment.network, env.observation_space, env.action_space, torch.Generator())
    except ConfigError as error:
        raise ConfigError(f"environment {environment.id}: {error}") from None
    if environment.evaluation.kind == "exact":
        tabular_model(env)
    env.close()
    if environment.engine == "envpool":
        make_sampler(environment, 0)
    if environment.evaluation_engine == "envpool":
        make_batch(environment, 1, 0)
