"""Environments of the paper (section 5, appendix B): an environment, a sampler of records, a batch of test copies.

Two engines simulate them: `gymnasium` (the reference) and `envpool` (C++, the optional extra `fast`). Where they differ
is in docs/deviations.md; tests/parity/test_engines.py compares them.
"""

from rl_influence.config import EnvironmentConfig
from rl_influence.environments.gymnasium_engine import GymnasiumBatch, GymnasiumSampler, make_env
from rl_influence.environments.reading import EnvironmentFault
from rl_influence.environments.sampler import Batch, Sampler

__all__ = ["Batch", "EnvironmentFault", "Sampler", "make_batch", "make_env", "make_sampler"]


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


def make_batch(environment: EnvironmentConfig, copies: int, seed: int) -> Batch:
    """Independent copies of an environment for test episodes, on the evaluation engine that the configuration names.

    Raises:
        ConfigError: for an environment that cannot be made, see `make_env`.
    """
    if environment.evaluation_engine == "envpool":
        from rl_influence.environments.envpool_engine import EnvpoolBatch

        return EnvpoolBatch(environment, copies, seed)
    return GymnasiumBatch(environment, copies, seed)
