"""PPO (Schulman et al. 2017) as Stable-Baselines3 does it: the clipped loss and the update of one round.

It differs in mechanism, not in numbers: parameters, gradients and optimiser state are single flat vectors, and the
loss is differentiated by hand (`kernels`). The tests compare losses, gradients and weights with Stable-Baselines3 over
whole rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch

from rl_influence.config import PPOConfig
from rl_influence.ppo.kernels import FlatParameters, MLPKernel
from rl_influence.ppo.networks import ActorCritic
from rl_influence.ppo.objective import Step, normalize
from rl_influence.ppo.records import Records, TrainingError, distinct_observations


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
                yield Step(batch, config.learning_rate, index, policy_loss, value_loss, norm)
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
