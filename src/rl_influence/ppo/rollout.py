"""One round's buffer: acting in the environment, and generalised advantage estimates."""

from __future__ import annotations

import numpy as np

from rl_influence.config import PPOConfig
from rl_influence.environments.sampler import Sampler
from rl_influence.ppo.inference import Inference
from rl_influence.ppo.networks import ActorCritic
from rl_influence.ppo.records import Records, as_flags, distinct_observations


def gae(
    rewards: np.ndarray,
    values: np.ndarray,
    next_values: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    *,
    gamma: float,
    gae_lambda: float,
) -> np.ndarray:
    """Generalised advantage estimates (Schulman et al. 2016).

    Args:
        rewards, values, next_values, terminated, truncated: (T,) or (T, envs). `next_values[t]` is the value of the
            observation that step t really led to: the final one, never that of the reset.

    Returns:
        advantages, float64, of the same shape. A terminated step is followed by nothing, a truncated one by its next
        value; the recursion is cut at both.

    Raises:
        ValueError: for arrays of different shapes, or flags that are neither true nor false.
    """
    rewards, values, next_values = (np.asarray(x, dtype=np.float64) for x in (rewards, values, next_values))
    terminated, truncated = as_flags("terminated", terminated), as_flags("truncated", truncated)
    shapes = [x.shape for x in (rewards, values, next_values, terminated, truncated)]
    if len(set(shapes)) > 1 or len(shapes[0]) not in (1, 2):
        raise ValueError(
            "rewards {}, values {}, next_values {}, terminated {}, truncated {}: expected one shape, (T,) or "
            "(T, envs)".format(*shapes)
        )
    delta = rewards + gamma * next_values * ~terminated - values
    decay = gamma * gae_lambda * ~(terminated | truncated)
    advantages = np.empty_like(delta)
    following = np.zeros_like(delta[0]) if len(delta) else 0.0
    for t in range(len(delta) - 1, -1, -1):
        advantages[t] = following = delta[t] + decay[t] * following
    return advantages


def collect(
    sampler: Sampler, policy: ActorCritic, n_steps: int, generator: np.random.Generator, config: PPOConfig
) -> Records:
    """One round's buffer: n_steps consecutive steps of the sampler's environment, episodes going on across rounds.

    Args:
        sampler: see `environments.make_sampler`.
        generator: action noise.
        config: gamma and lambda.

    Raises:
        EnvironmentFault: for what cannot be recorded, see `environments.reading`.
    """
    inference = Inference(policy)
    noise = inference.noise(n_steps, generator)
    observations, actions, final_observations, final_steps = [], [], [], []
    rewards = np.empty(n_steps)
    terminated, truncated = np.zeros(n_steps, dtype=bool), np.zeros(n_steps, dtype=bool)
    for t in range(n_steps):
        observation = np.array(sampler.observation)  # kept: a sampler may change its own
        action = inference.step(observation, noise[t])
        rewards[t], next_observation, terminated[t], truncated[t] = sampler.step(action)
        observations.append(observation)
        actions.append(action)
        if terminated[t] or truncated[t] or t == n_steps - 1:
            final_observations.append(np.array(next_observation))
            final_steps.append(t)
    observations, actions = np.stack(observations), np.array(actions)
    # Each distinct observation once: a batch rounds its rows differently, which would tell equal records apart, and
    # rank them by rounding errors wherever a method sorts records.
    distinct, row = distinct_observations(np.concatenate([observations, np.stack(final_observations)]))
    log_probs = inference.log_probs(inference.outputs(distinct)[row[:n_steps]], actions)
    values = inference.values(distinct)[row]
    values, final_values = values[:n_steps], values[n_steps:]
    next_values = np.append(values[1:], values[:1])  # within an episode the next observation is the next record's
    next_values[final_steps] = final_values
    advantages = gae(
        rewards, values, next_values, terminated, truncated, gamma=config.gamma, gae_lambda=config.gae_lambda
    )
    return Records(
        observations=observations,
        actions=actions,
        rewards=rewards.astype(values.dtype),
        terminated=terminated,
        truncated=truncated,
        log_probs=log_probs,
        values=values,
        next_values=next_values,
        advantages=advantages.astype(values.dtype),
        returns=(advantages + values).astype(values.dtype),
    )
