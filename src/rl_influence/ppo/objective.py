"""What training maximises, record by record: written once, and differentiated by everything else.

An objective is a torch function (policy, batch) -> (n,). Autograd trains any policy with the mean of its terms;
attribution differentiates each term; a kernel derived by hand (`kernels`) is compared with it. An algorithm of one's
own is one more such function: nothing here asks what a record is, so that it may be a sequence of tokens, a group of
generations, or whatever else `batch[indices]` and `len(batch)` can be asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from rl_influence.errors import ConfigError


class Objective(Protocol):
    """The terms (n,) of a batch's n records, to be maximised.

    A term depends on its own record and the policy alone, or the record has no influence of its own. What ties the
    records of a mini-batch together in training (normalised advantages) is a constant of the parameters: it goes into
    an optional method `prepare(batch) -> batch`, which is called once for each mini-batch, see `prepared`.
    """

    def __call__(self, policy: nn.Module, batch: Any) -> Tensor: ...


class Batch(SimpleNamespace):
    """Arrays or tensors of n records by name, as of `Records`."""

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def __getitem__(self, indices: Any) -> Batch:
        return Batch(**{name: values[indices] for name, values in vars(self).items()})


@dataclass(frozen=True)
class Step:
    """One optimisation step, just before it is taken: `tracin_scores` sums over them.

    Attributes:
        batch: (m,) indices of the mini-batch's records; one that is drawn twice counts twice.
        learning_rate: step size.
        index: of the step in its round.
        policy_loss, value_loss: means over the mini-batch; gradient_norm: before clipping.
    """

    batch: Any
    learning_rate: float = 1.0
    index: int = 0
    policy_loss: float = float("nan")
    value_loss: float = float("nan")
    gradient_norm: float = float("nan")


def prepared(objective: Objective, batch: Any) -> Any:
    """The batch as one mini-batch of training with this objective."""
    return objective.prepare(batch) if hasattr(objective, "prepare") else batch


def normalize(advantages: Any) -> Any:
    """(A - mean) / (std + 1e-8) over a mini-batch (n,), or over each row of (k, n), std with n - 1.

    A single record stays as it is.
    """
    n, rows = advantages.shape[-1], advantages.ndim > 1
    if n < 2:
        return advantages
    # written out: numpy's mean and std cost more than all of this
    centred = advantages - (advantages.sum(-1)[:, None] if rows else advantages.sum()) / n
    variance = (np.vecdot(centred, centred)[:, None] if rows else centred @ centred) / (n - 1)
    return centred / ((variance.sqrt() if isinstance(variance, Tensor) else np.sqrt(variance)) + 1e-8)


def log_prob(policy: Any, batch: Any) -> Tensor:
    """log pi(a_i|s_i), (n,), of a batch with `observations` and `actions`; an objective too.

    Real-valued inputs are cast to the dtype of the policy's parameters, integers left alone.
    """
    return _shaped("log_prob", policy.log_prob(*_inputs(policy, batch)), len(batch))


@dataclass(frozen=True)
class PolicyGradient:
    """A_i log pi(a_i|s_i), as in A2C and REINFORCE; the gradient of PPO's objective at a round's start.

    Args:
        normalize: advantages over each mini-batch; in `influence_scores`, over all of the records.
        value_coef: weight of -(V(s_i) - R_i)^2; with it or the next one the policy needs `evaluate(observations,
            actions) -> (log_prob, values, entropy)`, and a batch `returns`. Attribution leaves both out.
        entropy_coef: weight of the policy's entropy at s_i.

    Where a batch has `weights` (n,), terms are multiplied by them.
    """

    normalize: bool = False
    value_coef: float = 0.0
    entropy_coef: float = 0.0

    def prepare(self, batch: Any) -> Any:
        """With advantages as a mini-batch's update weighs them."""
        return replaced(batch, advantages=normalize(batch.advantages)) if self.normalize else batch

    def __call__(self, policy: nn.Module, batch: Any) -> Tensor:
        return self.weighed(*self.parts(policy, batch), batch)

    def parts(self, policy: Any, batch: Any) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The policy's terms, (V(s_i) - R_i)^2 and entropies, each (n,); the latter two where they count."""
        if not (self.value_coef or self.entropy_coef):
            return self.surrogate(log_prob(policy, batch), batch), None, None
        n, found = len(batch), policy.evaluate(*_inputs(policy, batch))
        names = ("log_prob", "values", "entropy")
        log_probs, values, entropy = (_shaped(name, x, n) for name, x in zip(names, found, strict=True))
        return self.surrogate(log_probs, batch), (values - _cast(batch.returns, values)) ** 2, entropy

    def weighed(self, terms: Tensor, error: Tensor | None, entropy: Tensor | None, batch: Any) -> Tensor:
        """The parts put together, (n,)."""
        if error is not None:
            terms = terms - self.value_coef * error
        if entropy is not None and self.entropy_coef:
            terms = terms + self.entropy_coef * entropy
        weights = getattr(batch, "weights", None)
        return terms if weights is None else terms * _cast(weights, terms)

    def surrogate(self, log_probs: Tensor, batch: Any) -> Tensor:
        """The policy's terms, (n,)."""
        return _cast(batch.advantages, log_probs) * log_probs


@dataclass(frozen=True)
class ClippedPPO(PolicyGradient):
    """min(r A, clip(r, 1 - clip_range, 1 + clip_range) A) with r = pi(a|s) / pi_old(a|s), of PPO (Schulman et al.
    2017); a batch has `log_probs` at collection.

    Args:
        clip_range: see above.
        normalize, value_coef, entropy_coef: as of `PolicyGradient`.
    """

    normalize: bool = True
    clip_range: float = 0.2

    def surrogate(self, log_probs: Tensor, batch: Any) -> Tensor:
        """The policy's terms, (n,)."""
        advantages = _cast(batch.advantages, log_probs)
        ratio = (log_probs - _cast(batch.log_probs, log_probs)).exp()
        return torch.min(ratio * advantages, ratio.clamp(1 - self.clip_range, 1 + self.clip_range) * advantages)


def replaced(batch: Any, **changes: Any) -> Batch:
    """A batch with some of its arrays replaced or added."""
    return Batch(**(vars(batch) | changes))


def tensor(values: Any) -> Tensor:
    """Array or tensor -> tensor; shares memory where torch can."""
    return (
        values.detach() if isinstance(values, Tensor) else torch.from_numpy(np.require(values, requirements=["C", "W"]))
    )


def _cast(values: Any, like: Tensor) -> Tensor:
    values = tensor(values)
    return values.to(like.device, like.dtype if values.is_floating_point() else None)


def _inputs(policy: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    like = next(policy.parameters())
    return _cast(batch.observations, like), _cast(batch.actions, like)


def _shaped(name: str, values: Tensor, n: int) -> Tensor:
    if values.shape != (n,):
        raise ValueError(f"{name} of {n} records has shape {tuple(values.shape)}; ({n},) is needed")
    return values


OBJECTIVES: dict[str, Callable[[Any], Objective]] = {}


def objective(make: Callable[[Any], Objective]) -> Callable[[Any], Objective]:
    """Registers an algorithm under its function's name, the `objective` of a `PPOConfig`, which it is made from."""
    OBJECTIVES[make.__name__] = make
    return make


@objective
def clipped_ppo(config: Any) -> ClippedPPO:
    """PPO."""
    return ClippedPPO(config.normalize_advantage, config.value_coef, config.entropy_coef, config.clip_range)


@objective
def policy_gradient(config: Any) -> PolicyGradient:
    """A2C, where an epoch is one mini-batch of the whole buffer and there is one epoch."""
    return PolicyGradient(config.normalize_advantage, config.value_coef, config.entropy_coef)


def objective_of(config: Any, *, policy_only: bool = False) -> Objective:
    """What training with these hyperparameters maximises; with `policy_only` without value and entropy terms.

    Raises:
        ConfigError: for an unknown objective.
    """
    if config.objective not in OBJECTIVES:
        raise ConfigError(f"ppo.objective {config.objective!r} is unknown; choices: {', '.join(OBJECTIVES)}")
    if policy_only:
        config = config.model_copy(update={"value_coef": 0.0, "entropy_coef": 0.0})
    return OBJECTIVES[config.objective](config)
