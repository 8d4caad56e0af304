"""PPO (Schulman et al. 2017) as Stable-Baselines3 does it: GAE, the clipped loss, the update of one round.

One value differs in mechanism, none in number: parameters, gradients and optimiser state are single flat vectors. The tests
compare losses, gradients and weights with Stable-Baselines3 over whole rounds.
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
    rewards, log_probs, values = (np.empty(n_steps, dtype=np.float64) for _ in range(3))
    terminated, truncated = np.zeros(n_steps, dtype=bool), np.zeros(n_steps, dtype=bool)
    for t in range(n_steps):
        observation = np.asarray(sampler.observation)
        action, log_probs[t], values[t] = inference.step(observation, noise[t])
        rewards[t], next_observation, terminated[t], truncated[t] = sampler.step(action)
        observations.append(observation)
        actions.append(action)
        if terminated[t] or truncated[t] or t == n_steps - 1:
            final_observations.append(np.asarray(next_observation))
            final_steps.append(t)
    dtype = np.float64 if next(policy.parameters()).dtype == torch.float64 else np.float32
    next_values = np.append(values[1:], 0.0)  # within an episode the next observation is the next record's
    next_values[final_steps] = inference.values(np.stack(final_observations))
    advantages = gae(
        rewards, values, next_values, terminated, truncated, gamma=config.gamma, gae_lambda=config.gae_lambda
    )
    return Records(
        observations=np.stack(observations),
        actions=np.array(actions),
        rewards=rewards.astype(dtype),
        terminated=terminated,
        truncated=truncated,
        log_probs=log_probs.astype(dtype),
        values=values.astype(dtype),
        next_values=next_values.astype(dtype),
        advantages=advantages.astype(dtype),
        returns=(advantages + values).astype(dtype),
    )


class Optimizer:
    """SGD without momentum, or Adam with Stable-Baselines3's eps, on a flat vector; same numbers as `torch.optim`."""

    def __init__(self, parameters: FlatParameters, config: PPOConfig):
        self.parameters, self.config = parameters, config
        self.steps = 0
        adam = config.optimizer == "adam"
        self.mean = np.zeros_like(parameters.vector) if adam else None
        self.square = np.zeros_like(parameters.vector) if adam else None

    def step(self) -> None:
        """Clips the gradient's norm and moves the parameters."""
        gradient, config = self.parameters.gradient, self.config
        if config.max_grad_norm is not None:
            norm = float(np.sqrt(gradient @ gradient))
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
    if len(advantages) < 2:
        return advantages
    return (advantages - advantages.mean()) / (advantages.std(ddof=1) + 1e-8)


@dataclass
class Step:
    """One optimisation step, just before it is taken."""

    index: int
    batch: np.ndarray  # record indices
    policy_loss: float
    value_loss: float


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
        self.kernel = MLPKernel(policy) if policy.is_mlp else None

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
        gradient_of = self._by_hand(records) if self.kernel else self._by_autograd(records)
        for order in epochs:
            for batch in minibatches(order, config.batch_size, drop_short=config.drop_short_minibatch):
                advantages = records.advantages[batch]
                if config.normalize_advantage:
                    advantages = normalize(advantages)
                policy_loss, value_loss = gradient_of(batch, advantages)
                if not np.isfinite(policy_loss + value_loss):
                    raise TrainingError(
                        f"update {index + 1}: policy loss {policy_loss}, value loss {value_loss} is not finite"
                    )
                yield Step(index, batch, policy_loss, value_loss)
                self.optimizer.step()
                index += 1

    def _by_hand(self, records: Records):
        inputs, config = self.kernel.encode(records.observations), self.config

        def gradient(batch: np.ndarray, advantages: np.ndarray) -> tuple[float, float]:
            policy_loss, value_loss, _ = self.kernel.ppo_gradient(
                inputs[batch],
                records.actions[batch],
                records.log_probs[batch],
                advantages,
                records.returns[batch],
                clip_range=config.clip_range,
                value_coef=config.value_coef,
                entropy_coef=config.entropy_coef,
                out=self.gradients,
            )
            return policy_loss, value_loss

        return gradient

    def _by_autograd(self, records: Records):
        # Records that share an observation share the forward pass: in a grid a mini-batch of 64 has some 20 different ones.
        distinct, inverse = distinct_observations(records.observations)
        observations = torch.from_numpy(distinct)
        parameters = list(self.policy.parameters())
        out = torch.from_numpy(self.parameters.gradient)

        def gradient(batch: np.ndarray, advantages: np.ndarray) -> tuple[float, float]:
            needed, rows = np.unique(inverse[batch], return_inverse=True)
            outputs, values = self.policy.heads(observations[torch.from_numpy(needed)])
            rows = torch.from_numpy(rows)
            outputs, values = outputs[rows], values[rows]
            loss, policy_loss, value_loss = ppo_loss(
                self.policy.log_prob_of(outputs, torch.from_numpy(records.actions[batch])),
                values,
                self.policy.entropy_of(outputs) if self.config.entropy_coef else None,
                torch.from_numpy(records.log_probs[batch]),
                torch.from_numpy(advantages),
                torch.from_numpy(records.returns[batch]),
                self.config,
            )
            gradients = torch.autograd.grad(loss, parameters)
            torch.cat([g.reshape(-1) for g in gradients], out=out)
            return float(policy_loss.detach()), float(value_loss.detach())

        return gradient


def ppo_loss(log_probs, values, entropy, old_log_probs, advantages, returns, config: PPOConfig):
    """PPO's loss on a mini-batch, in torch: total, policy part, value part."""
    ratio = (log_probs - old_log_probs).exp()
    clipped = ratio.clamp(1 - config.clip_range, 1 + config.clip_range)
    policy_loss = -torch.min(advantages * ratio, advantages * clipped).mean()
    value_loss = torch.nn.functional.mse_loss(values, returns)
    loss = policy_loss + config.value_coef * value_loss
    if entropy is not None:
        loss = loss - config.entropy_coef * entropy.mean()
    return loss, policy_loss, value_loss


def distinct_observations(observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct observations (m, ...) and each record's row among them (n,); large or real-valued ones are all distinct."""
    if len(observations) == 0 or not is_repeatable(observations[0]):
        return observations, np.arange(len(observations))
    rows = np.ascontiguousarray(observations).reshape(len(observations), -1)
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return observations[first], inverse.ravel()
