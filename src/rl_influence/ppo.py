"""PPO (Schulman et al. 2017) as Stable-Baselines3 does it: GAE, the clipped loss, the update of one round.

It differs in mechanism, not in numbers: parameters, gradients and optimiser state are single flat vectors, and the
loss is differentiated by hand (`fast_mlp`). The tests compare losses, gradients and weights with Stable-Baselines3 over
whole rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from rl_influence.config import PPOConfig
from rl_influence.fast_mlp import FlatParameters, MLPKernel
from rl_influence.inference import Inference, is_repeatable
from rl_influence.networks import ActorCritic
from rl_influence.records import Records


class TrainingError(RuntimeError):
    """Training cannot go on; the message says where it stopped and why."""


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
    """
    rewards, values, next_values = (np.asarray(x, dtype=np.float64) for x in (rewards, values, next_values))
    terminated, truncated = np.asarray(terminated, dtype=bool), np.asarray(truncated, dtype=bool)
    delta = rewards + gamma * next_values * ~terminated - values
    decay = gamma * gae_lambda * ~(terminated | truncated)
    advantages = np.empty_like(delta)
    following = np.zeros_like(delta[0]) if len(delta) else 0.0
    for t in range(len(delta) - 1, -1, -1):
        advantages[t] = following = delta[t] + decay[t] * following
    return advantages


def collect(sampler, policy: ActorCritic, n_steps: int, generator: np.random.Generator, config: PPOConfig) -> Records:
    """One round's buffer: n_steps consecutive steps of the sampler's environment, episodes going on across rounds.

    Args:
        sampler: see `environments.make_sampler`.
        generator: action noise.
    """
    inference = Inference(policy)
    noise = inference.noise(n_steps, generator)
    observations, actions, final_observations, final_steps = [], [], [], []
    rewards = np.empty(n_steps)
    terminated, truncated = np.zeros(n_steps, dtype=bool), np.zeros(n_steps, dtype=bool)
    for t in range(n_steps):
        observation = np.asarray(sampler.observation)
        action = inference.step(observation, noise[t])
        rewards[t], next_observation, terminated[t], truncated[t] = sampler.step(action)
        observations.append(observation)
        actions.append(action)
        if terminated[t] or truncated[t] or t == n_steps - 1:
            final_observations.append(np.asarray(next_observation))
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


class Optimizer:
    """SGD without momentum, or Adam with Stable-Baselines3's eps, on a flat vector; same numbers as `torch.optim`."""

    def __init__(self, parameters: FlatParameters, config: PPOConfig):
        self.parameters, self.config = parameters, config
        self.steps = 0
        adam = config.optimizer == "adam"
        self.mean = np.zeros_like(parameters.vector) if adam else None
        self.square = np.zeros_like(parameters.vector) if adam else None

    def step(self, norm: float) -> None:
        """Clips the gradient, whose norm is given, and moves the parameters."""
        gradient, config = self.parameters.gradient, self.config
        if config.max_grad_norm is not None:
            gradient *= min(1.0, config.max_grad_norm / (norm + 1e-6))
        self.steps += 1
        if self.mean is None:
            gradient *= config.learning_rate
            self.parameters.vector -= gradient
            return
        beta1, beta2, eps = 0.9, 0.999, 1e-5
        self.mean += (1 - beta1) * (gradient - self.mean)
        self.square *= beta2
        self.square += (1 - beta2) * gradient**2
        denominator = np.sqrt(self.square) / np.sqrt(1 - beta2**self.steps) + eps
        self.parameters.vector -= config.learning_rate / (1 - beta1**self.steps) * self.mean / denominator

    def state(self) -> dict[str, np.ndarray]:
        """Arrays that `restore` takes."""
        moments = {} if self.mean is None else {"mean": self.mean, "square": self.square}
        return {"steps": np.array(self.steps)} | moments

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Puts a saved state back."""
        self.steps = int(state["steps"])
        if self.mean is not None:
            self.mean[:], self.square[:] = state["mean"], state["square"]


def minibatches(order: np.ndarray, batch_size: int, *, drop_short: bool) -> list[np.ndarray]:
    """Splits an epoch's record indices into mini-batches.

    The short last one is left out with `drop_short`, unless it is the only one. No records, no mini-batches.
    """
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    if drop_short and len(batches) > 1 and len(batches[-1]) < batch_size:
        batches.pop()
    return batches


def normalize(advantages: np.ndarray) -> np.ndarray:
    """(A - mean) / (std + 1e-8) over a mini-batch, std with n - 1; a single record stays as it is."""
    n = len(advantages)
    if n < 2:
        return advantages
    centred = advantages - advantages.sum() / n  # written out: numpy's mean and std cost more than all of this
    return centred / (np.sqrt(centred @ centred / (n - 1)) + 1e-8)


@dataclass
class Step:
    """One optimisation step, just before it is taken."""

    index: int
    batch: np.ndarray  # record indices
    policy_loss: float
    value_loss: float
    gradient_norm: float  # before clipping


class Learner:
    """A policy together with its optimiser: everything that one run trains.

    Attributes:
        policy: the torch module.
        parameters: its flat parameters.
        optimizer: SGD or Adam.
    """

    def __init__(self, policy: ActorCritic, config: PPOConfig):
        self.policy, self.config = policy, config
        self.parameters = FlatParameters(policy)
        self.optimizer = Optimizer(self.parameters, config)
        self.gradients = self.parameters.views(self.parameters.gradient)
        self.kernel = MLPKernel(policy)

    def update(
        self, records: Records, epochs: Iterable[np.ndarray], before_step: Callable[[Step], None] | None = None
    ) -> int:
        """One round of PPO.

        Args:
            records: the round's buffer.
            epochs: record indices of each epoch, in order.
            before_step: called with gradients computed and the parameters not yet moved.

        Returns:
            The number of optimisation steps.

        Raises:
            TrainingError: at the first loss or gradient that is not finite.
        """
        count = 0
        for step in self.steps(records, epochs):
            if before_step:
                before_step(step)
            count += 1
        return count

    def steps(self, records: Records, epochs: Iterable[np.ndarray]) -> Iterator[Step]:
        """The round's optimisation steps: yields each with the parameters still before it, then takes it."""
        config, index = self.config, 0
        gradient_of = self._gradient(records)
        for order in epochs:
            for batch in minibatches(order, config.batch_size, drop_short=config.drop_short_minibatch):
                with np.errstate(over="ignore", invalid="ignore"):  # reported below, with the place
                    policy_loss, value_loss = gradient_of(batch)
                    norm = float(np.sqrt(self.parameters.gradient @ self.parameters.gradient))
                if not np.isfinite(policy_loss + value_loss + norm):
                    raise TrainingError(
                        f"update {index + 1}: policy loss {policy_loss:.4g}, value loss {value_loss:.4g}, "
                        f"gradient norm {norm:.4g}: not finite"
                    )
                yield Step(index, batch, policy_loss, value_loss, norm)
                self.optimizer.step(norm)
                index += 1

    def _gradient(self, records: Records) -> Callable[[np.ndarray], tuple[float, float]]:
        """A function that writes a mini-batch's gradient and returns its policy and value loss."""
        config, kernel, policy = self.config, self.kernel, self.policy
        # Records that share an observation share its passes: in a grid a mini-batch of 64 has some 10 different ones.
        distinct, inverse = distinct_observations(records.observations)
        inputs = kernel.encode(distinct) if policy.is_mlp else torch.from_numpy(distinct)
        shared = len(distinct) < len(records)
        extractor = dict(policy.features.named_parameters(prefix="features"))

        def gradient(batch: np.ndarray) -> tuple[float, float]:
            needed, rows = np.unique(inverse[batch], return_inverse=True) if shared else (batch, None)
            if policy.is_mlp:
                features = inputs[needed]
            else:
                tensor = policy.features(policy.inputs(inputs[torch.from_numpy(needed)]))
                features = tensor.detach().numpy()
            advantages = records.advantages[batch]
            policy_loss, value_loss, by_features = kernel.ppo_gradient(
                features,
                rows,
                records.actions[batch],
                records.log_probs[batch],
                normalize(advantages) if config.normalize_advantage else advantages,
                records.returns[batch],
                clip_range=config.clip_range,
                value_coef=config.value_coef,
                entropy_coef=config.entropy_coef,
                out=self.gradients,
            )
            if extractor:
                by_parameters = torch.autograd.grad(tensor, list(extractor.values()), torch.from_numpy(by_features))
                for name, part in zip(extractor, by_parameters, strict=True):
                    self.gradients[name][...] = part.numpy()
            return policy_loss, value_loss

        return gradient


def distinct_observations(observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct observations (m, ...) and each record's row among them (n,); large or real-valued ones all count."""
    if len(observations) == 0 or not is_repeatable(observations[0]):
        return observations, np.arange(len(observations))
    rows = np.ascontiguousarray(observations).reshape(len(observations), -1)
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return observations[first], inverse.ravel()
