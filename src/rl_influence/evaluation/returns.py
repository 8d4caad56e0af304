"""Test returns: the undiscounted return of the stochastic policy (section 5 of the paper, 100 or 1000 episodes).

Three ways of measuring the same expectation. `exact` computes it, where the environment is a finite Markov decision
process. `batched` plays many copies at once. `episodes` plays one after another. Training is not touched: test
environments and their random streams are new at every evaluation, and parameters are only read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rl_influence.config import EnvironmentConfig, EvaluationConfig
from rl_influence.environments import make_batch, make_env, tabular
from rl_influence.ppo.inference import Inference

COPIES = 100
_models: dict[str, tabular.TabularModel] = {}


@dataclass(frozen=True)
class ReturnEstimate:
    """Mean test return with its standard error (0 if exact), over `episodes` episodes (0 if exact).

    `unfinished` of them did not end within the step cap; they count with the return that they had reached there.
    """

    mean: float
    se: float
    episodes: int
    unfinished: int = 0


def evaluate(policy, environment: EnvironmentConfig, evaluation: EvaluationConfig, seed: int) -> ReturnEstimate:
    """The test return of a policy.

    Args:
        policy: `networks.ActorCritic`; its parameters are not changed.
        evaluation: how, and with how many episodes.
        seed: of everything random here; not used by kind `exact`.

    Raises:
        ConfigError: if the environment cannot be made, or has no exact model although kind is `exact`.
    """
    if evaluation.kind == "exact":
        model = exact_model(environment)
        mean = tabular.expected_return(model, tabular.policy_probabilities(policy, model))
        return ReturnEstimate(mean, 0.0, 0)
    copies = min(COPIES, evaluation.episodes) if evaluation.kind == "batched" else 1
    returns, lengths, unfinished = play(
        Inference(policy).act, environment, evaluation.episodes, seed, copies=copies, max_steps=evaluation.max_steps
    )
    if unfinished:
        warnings.warn(
            f"environment {environment.id}: {unfinished} of {evaluation.episodes} test episodes did not end within "
            f"max_steps {evaluation.max_steps}",
            stacklevel=2,
        )
    return ReturnEstimate(
        float(returns.mean()), float(returns.std(ddof=1) / len(returns) ** 0.5), len(returns), unfinished
    )


def play(
    act: Callable[[np.ndarray, np.random.Generator], np.ndarray],
    environment: EnvironmentConfig,
    episodes: int,
    seed: int,
    *,
    copies: int = COPIES,
    max_steps: int = 100_000,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Plays test episodes on `copies` environments at once.

    Every copy plays a number of episodes that is fixed beforehand: counting whichever episodes end first would
    over-represent short ones.

    Args:
        act: (observations (k, ...), generator) -> raw actions (k,) or (k, dims).

    Returns:
        Undiscounted returns (episodes,), lengths (episodes,), and how many episodes were cut at `max_steps`.
    """
    environments, actions = np.random.SeedSequence(seed).spawn(2)
    batch = make_batch(environment, copies, int(environments.generate_state(1)[0] >> 1))
    generator = np.random.default_rng(actions)
    quota = np.full(copies, episodes // copies)
    quota[: episodes % copies] += 1
    returns, lengths, unfinished = [], [], 0
    running_return, running_length = np.zeros(copies), np.zeros(copies, int)
    ids = np.arange(copies)
    observations = batch.reset(ids)
    while len(ids):
        observations, rewards, ended = batch.step(ids, act(observations, generator))
        running_return[ids] += rewards
        running_length[ids] += 1
        cut = ~ended & (running_length[ids] >= max_steps)
        over = ended | cut
        if over.any():
            unfinished += int(cut.sum())
            done = ids[over]
            returns.extend(running_return[done].tolist())
            lengths.extend(running_length[done].tolist())
            running_return[done], running_length[done] = 0.0, 0
            quota[done] -= 1
            again = over & (quota[ids] > 0)
            if again.any():
                observations[again] = batch.reset(ids[again])
            ids, observations = ids[quota[ids] > 0], observations[quota[ids] > 0]
    return np.array(returns), np.array(lengths), unfinished


def exact_model(environment: EnvironmentConfig) -> tabular.TabularModel:
    """The environment's `tabular.tabular_model`, made once per process.

    Raises:
        ConfigError: if it has none.
    """
    key = environment.model_dump_json(include={"id", "gym_id", "kwargs", "package", "wrappers"})
    if key not in _models:
        _models[key] = tabular.tabular_model(make_env(environment))
    return _models[key]
