"""What attribution asks of a policy and of its records, and the checks of both.

A policy is any torch module with `log_prob(observations, actions) -> (n,)`. Only parameters that `log_prob` reaches
count (the paper leaves the value head out), and of those only the ones that are trained (`requires_grad`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import batchnorm, dropout, instancenorm


class AttributionError(ValueError):
    """Why scores cannot be computed, in one line."""


def parameters(policy: nn.Module) -> dict[str, nn.Parameter]:
    """Trainable parameters by name, tied ones once."""
    found = {name: parameter for name, parameter in policy.named_parameters() if parameter.requires_grad}
    if not found:
        raise AttributionError(f"policy {type(policy).__name__} has no parameter that requires a gradient")
    return found


def gradients(policy: nn.Module, value: Tensor) -> dict[str, Tensor]:
    """Gradient of a scalar, parameter name -> gradient; parameters that it does not reach are left out."""
    if not value.requires_grad:
        return {}
    trained = parameters(policy)
    found = torch.autograd.grad(value, trained.values(), allow_unused=True)
    return {
        name: gradient.to_dense() if gradient.is_sparse else gradient
        for name, gradient in zip(trained, found, strict=True)
        if gradient is not None
    }


def pairs(records: Any) -> tuple[Tensor, Tensor]:
    """Observations (n, ...) and actions (n,) or (n, dims) of records, as tensors."""
    observations, actions = tensor(records.observations), tensor(records.actions)
    if len(observations) != len(actions):
        raise AttributionError(f"records have {len(observations)} observations but {len(actions)} actions")
    return observations, actions


def finite(name: str, values: Any, n: int) -> Tensor:
    """A tensor of n finite numbers."""
    values = tensor(values)
    if values.shape != (n,):
        raise AttributionError(f"{name} have shape {tuple(values.shape)}, but there are {n} records")
    bad = (~values.isfinite()).nonzero()
    if len(bad):
        raise AttributionError(f"{name}[{int(bad[0])}] is {float(values[bad[0]])}: {name} must be finite")
    return values


def tensor(values: Any) -> Tensor:
    """Array or tensor -> tensor; shares memory where torch can."""
    return values.detach() if isinstance(values, Tensor) else torch.from_numpy(np.require(values, requirements="CW"))


def log_prob(policy: nn.Module, observations: Tensor, actions: Tensor) -> Tensor:
    """log pi(a|s), (n,). Real-valued inputs are cast to the dtype of the policy's parameters, integers left alone."""
    like = next(policy.parameters())
    inputs = [x.to(like.device, like.dtype if x.is_floating_point() else None) for x in (observations, actions)]
    log_probs, n = policy.log_prob(*inputs), len(observations)
    if log_probs.shape != (n,):
        raise AttributionError(f"log_prob of {n} records has shape {tuple(log_probs.shape)}; ({n},) is needed")
    return log_probs


@torch.no_grad()
def check_policy(policy: nn.Module, observations: Tensor, actions: Tensor) -> None:
    """Evaluates a record or two. Refuses layers that tie records together, are random or change the policy.

    Layers that `log_prob` does not call may be anything.
    """

    def refuse(name: str, reason: str):
        def hook(module, args):
            raise AttributionError(
                f"layer {name!r} ({type(module).__name__}) {reason}, so records have no influence of their own; "
                "policy.eval() before scoring, or leave the layer out"
            )

        return hook

    handles = [
        module.register_forward_pre_hook(refuse(name, reason))
        for name, module in policy.named_modules()
        if (reason := _obstacle(module))
    ]
    random_state = torch.get_rng_state()
    try:
        log_prob(policy, observations[:2], actions[:2])
    except AttributionError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise AttributionError(
            f"log_prob of policy {type(policy).__name__} fails for observations of shape {tuple(observations.shape)} "
            f"and actions of shape {tuple(actions.shape)}: {first_line(error)}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
        moved = not torch.equal(torch.get_rng_state(), random_state)
        torch.set_rng_state(random_state)
    if moved:
        raise AttributionError(f"log_prob of policy {type(policy).__name__} draws random numbers; policy.eval() first")


def _obstacle(module: nn.Module) -> str | None:
    """Why a layer cannot be part of a scored policy, or None."""
    if isinstance(module, batchnorm._BatchNorm) and (module.training or module.running_mean is None):
        return "normalises over the records of a batch"
    if isinstance(module, instancenorm._InstanceNorm) and module.training and module.track_running_stats:
        return "updates running statistics"
    if isinstance(module, dropout._DropoutNd) and module.training and module.p > 0:
        return "is random"
    if isinstance(module, nn.Embedding) and module.max_norm is not None:
        return "rescales its weights when it is called"
    if isinstance(module, nn.Embedding) and module.scale_grad_by_freq:
        return "divides gradients by how often a batch has a token"
    return None


def first_line(error: Exception) -> str:
    """An error's message without what follows its first line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
