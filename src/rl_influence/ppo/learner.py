"""One round's update, as Stable-Baselines3 does it: mini-batches, the objective's gradient, clipping, the optimiser.

It differs in mechanism, not in numbers: parameters, gradients and optimiser state are single flat vectors, and an
accelerator takes the place of autograd where it supports objective and policy (`kernels`). The tests compare losses,
gradients and weights with Stable-Baselines3 over whole rounds.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from rl_influence.config import PPOConfig
from rl_influence.ppo.kernels import ByHand, FlatParameters
from rl_influence.ppo.objective import Batch, Objective, PolicyGradient, Step, objective_of, prepared, replaced
from rl_influence.ppo.records import Records, TrainingError


class Optimizer:
    """SGD without momentum, Adam or RMSprop on a flat vector: the numbers of `torch.optim` with the settings that
    Stable-Baselines3's PPO has for Adam, and its A2C for RMSprop.

    Attributes:
        learning_rate: of the steps to come; at first the configuration's.
    """

    def __init__(self, parameters: FlatParameters, config: PPOConfig):
        self.parameters, self.config = parameters, config
        self.learning_rate, self.steps = config.learning_rate, 0
        self.mean = np.zeros_like(parameters.vector) if config.optimizer == "adam" else None
        self.square = np.zeros_like(parameters.vector) if config.optimizer != "sgd" else None

    def step(self, norm: float) -> None:
        """Clips the gradient, whose norm is given, and moves the parameters."""
        gradient, config, eps = self.parameters.gradient, self.config, 1e-5
        if config.max_grad_norm is not None:
            gradient *= min(1.0, config.max_grad_norm / (norm + 1e-6))
        self.steps += 1
        if config.optimizer == "sgd":
            gradient *= self.learning_rate
            self.parameters.vector -= gradient
        elif config.optimizer == "rmsprop":
            self.square *= 0.99
            self.square += (1 - 0.99) * gradient**2
            self.parameters.vector -= self.learning_rate * gradient / (np.sqrt(self.square) + eps)
        else:
            beta1, beta2 = 0.9, 0.999
            self.mean += (1 - beta1) * (gradient - self.mean)
            self.square *= beta2
            self.square += (1 - beta2) * gradient**2
            denominator = np.sqrt(self.square) / np.sqrt(1 - beta2**self.steps) + eps
            self.parameters.vector -= self.learning_rate / (1 - beta1**self.steps) * self.mean / denominator

    def state(self) -> dict[str, np.ndarray]:
        """Arrays that `restore` takes."""
        moments = {"mean": self.mean, "square": self.square}
        return {"steps": np.array(self.steps)} | {name: x for name, x in moments.items() if x is not None}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Puts a saved state back."""
        self.steps = int(state["steps"])
        for name in {*state} - {"steps"}:
            getattr(self, name)[:] = state[name]


def minibatches(order: np.ndarray, batch_size: int, *, drop_short: bool) -> list[np.ndarray]:
    """Splits an epoch's record indices into mini-batches.

    The short last one is left out with `drop_short`, unless it is the only one. No records, no mini-batches.
    """
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    if drop_short and len(batches) > 1 and len(batches[-1]) < batch_size:
        batches.pop()
    return batches


class Autograd:
    """The gradient of any objective of any policy on mini-batches of records.

    Args:
        out: parameter name -> array that each call writes the gradient of the loss to, which is to be minimised;
            zeros for what is frozen or not reached.
    """

    def __init__(self, objective: Objective, policy: nn.Module, records: Any, out: dict[str, np.ndarray]):
        self.objective, self.policy, self.out = objective, policy, out
        self.records = Batch(**vars(records)) if isinstance(records, Records) else records

    def __call__(self, indices: np.ndarray) -> tuple[float, float]:
        """Policy loss and value loss of the records with these indices; an objective of one's own is all policy."""
        objective, batch = self.objective, prepared(self.objective, self.records[indices])
        if isinstance(objective, PolicyGradient):
            parts = objective.parts(self.policy, batch)
            terms = objective.weighed(*parts, batch)
            losses = [0.0 if part is None else part.detach().mean().item() for part in parts[:2]]
            losses[0] *= -1
        else:
            terms = objective(self.policy, batch)
            losses = [-terms.detach().mean().item(), 0.0]
        named = dict(self.policy.named_parameters())
        trained = [name for name, parameter in named.items() if parameter.requires_grad]
        found = torch.autograd.grad(-terms.mean(), [named[name] for name in trained], allow_unused=True)
        gradients = dict(zip(trained, found, strict=True))
        for name, array in self.out.items():
            gradient = gradients.get(name)
            array[...] = 0 if gradient is None else gradient.numpy()
        return losses[0], losses[1]


class Learner:
    """A policy together with its optimiser: everything that one run trains.

    Args:
        policy: any module that the objective can be computed with.
        objective: default that of the configuration.

    Attributes:
        policy: the torch module.
        parameters: its flat parameters.
        optimizer: SGD, Adam or RMSprop.
    """

    def __init__(self, policy: nn.Module, config: PPOConfig, objective: Objective | None = None):
        self.policy, self.config = policy, config
        self.objective = objective or objective_of(config)
        self.parameters = FlatParameters(policy)
        self.optimizer = Optimizer(self.parameters, config)
        self.gradients = self.parameters.views(self.parameters.gradient)
        self._updates = 0

    def update(self, records: Records, epochs: Iterable[np.ndarray], weights: np.ndarray | None = None) -> int:
        """One round.

        Args:
            records: the round's buffer.
            epochs: record indices of each epoch, in order.
            weights: (n,) of each record of the buffer in the objective; None: 1.

        Returns:
            The number of optimisation steps.

        Raises:
            TrainingError: at the first loss or gradient that is not finite.
        """
        return sum(1 for _ in self.steps(records, epochs, weights))

    def steps(
        self, records: Records, epochs: Iterable[np.ndarray], weights: np.ndarray | None = None
    ) -> Iterator[Step]:
        """The round's optimisation steps: yields each with the parameters still before it, then takes it."""
        config, index = self.config, 0
        batch = records if weights is None else replaced(records, weights=weights)
        self.parameters.bind()
        accelerated = ByHand.supports(self.objective, self.policy)
        gradient_of = (ByHand if accelerated else Autograd)(self.objective, self.policy, batch, self.gradients)
        for order in epochs:
            for indices in minibatches(order, config.batch_size, drop_short=config.drop_short_minibatch):
                with np.errstate(over="ignore", invalid="ignore"):  # reported below, with the place
                    policy_loss, value_loss = gradient_of(indices)
                    norm = float(np.sqrt(self.parameters.gradient @ self.parameters.gradient))
                if not np.isfinite(policy_loss + value_loss + norm):
                    raise TrainingError(
                        f"update {index + 1}: policy loss {policy_loss:.4g}, value loss {value_loss:.4g}, "
                        f"gradient norm {norm:.4g}: not finite"
                    )
                self._updates += 1
                # the 1st, 2nd, 4th, 8th, ... update of this learner: at the first one no ratio is clipped
                if accelerated and self._updates & (self._updates - 1) == 0:
                    compare(self.objective, self.policy, batch, indices, self.gradients)
                yield Step(indices, self.optimizer.learning_rate, index, policy_loss, value_loss, norm)
                self.optimizer.step(norm)
                index += 1


def compare(
    objective: Objective, policy: nn.Module, records: Any, indices: np.ndarray, found: dict[str, np.ndarray]
) -> None:
    """Compares an accelerator's gradient of one mini-batch with autograd's.

    Raises:
        TrainingError: names a parameter whose gradient is further from that in float64 than rounding explains.
    """

    def autograd(policy: nn.Module) -> dict[str, np.ndarray]:
        gradients = {name: np.empty(tuple(p.shape), p.detach().numpy().dtype) for name, p in policy.named_parameters()}
        Autograd(objective, policy, records, gradients)(indices)
        return gradients

    norm, expected = np.linalg.norm, autograd(policy)
    floor = 1e-5 * max(norm(gradient) for gradient in expected.values())
    wrong = [name for name, g in expected.items() if not norm(found[name] - g) <= 1e-3 * norm(g) + floor]
    exact = autograd(copy.deepcopy(policy).double()) if wrong else {}
    for name in wrong:
        difference, rounding = norm(found[name] - exact[name]), norm(expected[name] - exact[name])
        if not difference <= 10 * rounding + 1e-3 * norm(exact[name]):
            raise TrainingError(
                f"the accelerator's gradient of {name} is {difference:.3g} away from autograd's, which is "
                f"{norm(exact[name]):.3g} long: {type(policy).__name__} is not what it was made for"
            )
