"""Environments of the paper (section 5, appendix B): an environment, a sampler of records, a batch of test copies.

Two engines simulate them: `gymnasium` (the reference) and `envpool` (C++, the optional extra `fast`). Where they differ
is in docs/deviations.md; tests/parity/test_engines.py compares them.
"""

from rl_influence.environments.gymnasium_engine import GymnasiumBatch, GymnasiumSampler, make_env
from rl_influence.environments.sampler import Sampler

__all__ = ["Sampler", "make_batch", "make_env", "make_sampler"]


def make_sampler(environment, seed: int) -> Sampler:
    """The one environment that training collects its records from, on the engine that the configuration names.

    Args:
        environment: `config.EnvironmentConfig`.
        seed: seeds the first reset, and only that.

    Raises:
        ConfigError: for an environment that cannot be made, see `make_env`.
    """
    if environment.engine == "envpool":
        from rl_influence.environments.envpool_engine import EnvpoolSampler  # takes a second to import, and is optional

        return EnvpoolSampler(environment, seed)
    return GymnasiumSampler(environment, seed)


def make_batch(environment, copies: int, seed: int):
    """Independent copies of an environment for test episodes, on the evaluation engine that the configuration names.

    Returns an object with `reset(ids) -> observations` and `step(ids, actions) -> observations, rewards, ended`, where
    `ids` (k,) selects the copies to move and each result has k rows. Nothing resets by itself.
    """
    if environment.evaluation_engine == "envpool":
        from rl_influence.environments.envpool_engine import EnvpoolBatch

        return EnvpoolBatch(environment, copies, seed)
    return GymnasiumBatch(environment, copies, seed)
