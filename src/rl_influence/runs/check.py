"""What a run would stumble over, found before the first one starts.

`python -m rl_influence.runs.check` reads a JSON list of [environment, whether true advantages are needed] on standard
input, as the process that plans a sweep writes it (see `config.check_environments`). The first environment that does
not work is one line on standard error and exit code 1.
"""

import json
import sys

import torch

from rl_influence.config import ConfigError, EnvironmentConfig
from rl_influence.environments import Sampler, make_batch, make_sampler
from rl_influence.environments.tabular import tabular_model
from rl_influence.evaluation.true_advantages import check_observations
from rl_influence.ppo.networks import make_policy

STEPS = 3


def check_environment(environment: EnvironmentConfig, *, true_advantages: bool = False) -> None:
    """Makes the environment on its engines and on the reference, its network and, where needed, its exact model; resets
    it and takes a few steps. That takes a second or two.

    Args:
        true_advantages: whether a method of its runs needs exact ones.

    Raises:
        ConfigError: in one line, for the first thing that does not work.
    """
    env = _tried(environment.model_copy(update={"engine": "gymnasium"})).env
    try:
        make_policy(environment.network, env.observation_space, env.action_space, torch.Generator())
    except ConfigError as error:
        raise ConfigError(f"environment {environment.id}: {error}") from None
    if environment.evaluation.kind == "exact":
        model = tabular_model(env)
        if true_advantages:
            check_observations(model)
    if environment.engine == "envpool":
        _tried(environment)
    if environment.evaluation_engine == "envpool":
        make_batch(environment, 1, 0)


def _tried(environment: EnvironmentConfig) -> Sampler:
    """A sampler that has taken a few random steps."""
    try:
        sampler = make_sampler(environment, 0)
        sampler.action_space.seed(0)
        for _ in range(STEPS):
            sampler.step(sampler.action_space.sample())
    except ConfigError:
        raise
    except Exception as error:  # an environment of one's own may raise anything
        said = (str(error).strip().splitlines() or [""])[0]
        raise ConfigError(
            f"environment {environment.id}: a reset and {STEPS} steps were tried: {type(error).__name__}: {said}"
        ) from None
    return sampler


if __name__ == "__main__":
    try:
        for fields, true_advantages in json.load(sys.stdin):
            check_environment(EnvironmentConfig(**fields), true_advantages=true_advantages)
    except ConfigError as error:
        sys.exit(" ".join(str(error).split()))
