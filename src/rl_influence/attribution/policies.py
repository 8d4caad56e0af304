"""What attribution asks of a policy and of its records, the checks of both, and leaving them as they were.

A policy is any torch module that the objective and the target can be computed with. Only parameters that both reach
count (the paper leaves the value head out), and of those only the ones that are trained (`requires_grad`).
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import batchnorm, dropout, instancenorm

from rl_influence.ppo.objective import Batch, Objective, tensor


class ScoringError(ValueError):
    """Why scores cannot be computed, in one line."""


def parameters(policy: nn.Module) -> dict[str, nn.Parameter]:
    """Trainable parameters by name, tied ones once."""
    found = {name: parameter for name, parameter in policy.named_parameters() if parameter.requires_grad}
    if not found:
        raise ScoringError(f"policy {type(policy).__name__} has no parameter that requires a gradient")
    return found


def gradients(policy: nn.Module, value: Tensor) -> dict[str, Tensor]:
    """Gradient of a scalar, parameter name -> gradient; parameters that it does not reach are left out."""
    if not value.requires_grad:
        return {}
    trained = parameters(policy)
    found = torch.autograd.grad(value, list(trained.values()), allow_unused=True)
    return {name: _dense(gradient) for name, gradient in zip(trained, found, strict=True) if gradient is not None}


def gradient_by(value: Tensor, parameters: list[nn.Parameter], keep: bool = False) -> list[Tensor]:
    """Gradient of a scalar by some parameters; zeros where it does not reach. `keep`: the graph, for another one."""
    if not value.requires_grad:
        return [torch.zeros_like(parameter) for parameter in parameters]
    found = torch.autograd.grad(value, parameters, allow_unused=True, retain_graph=keep)
    return [torch.zeros_like(p) if g is None else _dense(g) for p, g in zip(parameters, found, strict=True)]


def _dense(gradient: Tensor) -> Tensor:
    return gradient.to_dense() if gradient.is_sparse else gradient


NAMES = ("observations", "actions", "advantages", "log_probs", "returns", "weights")  # that our objectives read


def named(records: Any) -> dict[str, Any]:
    """The arrays and tensors that records hold by name: attributes, keys, or fields of a named tuple.

    Of records that cannot be indexed, what our objectives read may also be properties, or lists of numbers.
    """
    if isinstance(records, Mapping) or hasattr(records, "_asdict"):
        held = dict(records) if isinstance(records, Mapping) else records._asdict()
    else:
        held = dict(getattr(records, "__dict__", {}))
        if hasattr(records, "__getitem__"):
            return {name: value for name, value in held.items() if _is_numbers(value)}
        held |= {name: getattr(records, name) for name in NAMES if name not in held and hasattr(records, name)}
    held |= {name: _numbers(name, held[name]) for name in NAMES if name in held}
    return {name: value for name, value in held.items() if _is_numbers(value)}


def _is_numbers(value: Any) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.dtype.kind in "biuf")


def _numbers(name: str, value: Any) -> Any:
    """A list, or whatever numpy knows, as an array, if it is one of numbers."""
    if isinstance(value, Mapping):
        raise ScoringError(f"{name} are a dictionary; of Stable-Baselines3: SB3Policy(...).encoded(records)")
    if isinstance(value, Tensor) or not (isinstance(value, list) or hasattr(value, "__array__")):
        return value
    try:
        array = np.asarray(value)
        return array.astype(float) if array.dtype == object else array
    except (TypeError, ValueError):  # no numbers, or rows of several lengths
        return value


def as_batch(records: Any, **replaced: Any) -> Any:
    """Records as tensors by name, or, if they hold neither arrays nor tensors, as they are.

    Args:
        replaced: values for some of the names.
    """
    arrays = named(records) | {name: value for name, value in replaced.items() if value is not None}
    if not arrays:
        if isinstance(records, Mapping) or not (hasattr(records, "__len__") and hasattr(records, "__getitem__")):
            raise ScoringError(
                f"records: {type(records).__name__} holds no arrays or tensors, and is no sequence either"
            )
        return records
    batch = Batch(**{name: tensor(values) for name, values in arrays.items()})
    n, first = len(batch), next(iter(arrays))
    for name, values in vars(batch).items():
        if name in ("advantages", "log_probs", "weights"):
            finite(name, values, n)
        elif values.ndim == 0 or len(values) != n:
            count = len(values) if values.ndim else "one number as"
            raise ScoringError(f"records have {n} {first} but {count} {name}")
    return batch


def weighted_pairs(records: Any) -> tuple[Tensor, Tensor, Any]:
    """Observations (n, ...) and actions (n,) or (n, dims) of records, as tensors, and the advantages that they have."""
    held = named(records)
    for name in ("observations", "actions", "advantages"):
        if name not in held:
            raise ScoringError(f"records: {type(records).__name__} has no {name}, as an array or tensor")
    observations, actions = tensor(held["observations"]), tensor(held["actions"])
    if len(observations) != len(actions):
        raise ScoringError(f"records have {len(observations)} observations but {len(actions)} actions")
    return observations, actions, held["advantages"]


def finite(name: str, values: Any, n: int) -> Tensor:
    """A tensor of n finite numbers."""
    values = tensor(values)
    if values.shape != (n,):
        raise ScoringError(f"{name} have shape {tuple(values.shape)}, but there are {n} records")
    bad = (~values.isfinite()).nonzero()
    if len(bad):
        raise ScoringError(f"{name}[{int(bad[0])}] is {float(values[bad[0]])}: {name} must be finite")
    return values


def evaluated(policy: nn.Module, objective: Objective, batch: Any) -> Tensor:
    """The objective's terms, (n,)."""
    terms, n = objective(policy, batch), len(batch)
    if not isinstance(terms, Tensor) or terms.shape != (n,):
        shown = tuple(terms.shape) if isinstance(terms, Tensor) else type(terms).__name__
        raise ScoringError(f"an objective of {n} records must return a tensor ({n},), not {shown}")
    return terms


@contextlib.contextmanager
def untouched(policy: nn.Module) -> Iterator[None]:
    """Whatever happens inside, and however it ends: afterwards the policy's modules have the attributes, parameters,
    buffers, hooks and modes that they had, and torch's random generators the states."""
    if not isinstance(policy, nn.Module):
        raise ScoringError(f"policy: a torch module is needed, not {type(policy).__name__}{_sb3(policy)}")
    states = [(generator, generator.get_state()) for generator in _generators(policy)]
    modules = [(vars(module), dict(vars(module))) for module in policy.modules()]
    held = [value for _, attributes in modules for value in attributes.values()]
    containers: list[tuple[Any, Any]] = [
        (value, value.copy() if value else ()) for value in held if type(value) in CONTAINERS
    ]
    buffers = [(buffer, buffer.clone()) for buffer in policy.buffers()]
    flags = [(parameter, parameter.requires_grad) for parameter in policy.parameters()]
    try:
        yield
    finally:
        for now, before in modules:
            now.update(before)
            for name in now.keys() - before.keys():
                del now[name]
        for container, contents in containers:
            if container or contents:
                container.clear()  # hooks are called, and parameters counted, in the order of their dictionary
                container.extend(contents) if isinstance(container, list) else container.update(contents)
        with torch.no_grad():
            for buffer, kept in buffers:
                if not torch.equal(buffer, kept):
                    buffer.copy_(kept)
        for parameter, flag in flags:
            parameter.requires_grad_(flag)
        for generator, state in states:
            generator.set_state(state)


CONTAINERS = (dict, OrderedDict, set, list)


def _generators(policy: nn.Module) -> list[torch.Generator]:
    """The generators that random layers on the policy's devices draw from."""
    found = [torch.default_generator]
    for device in {parameter.device for parameter in policy.parameters()}:
        if device.type == "cuda":
            found.append(torch.cuda.default_generators[device.index or 0])
        elif device.type != "cpu" and hasattr(getattr(torch, device.type, None), "default_generator"):
            found.append(getattr(torch, device.type).default_generator)
    return found


@torch.no_grad()
def check_policy(policy: nn.Module, objective: Objective, batch: Any) -> None:
    """Evaluates a record or two. Refuses layers that tie records together, are random or change the policy.

    Layers that the objective does not call may be anything.
    """

    def refuse(name: str, reason: str):
        def hook(module, args):
            raise ScoringError(
                f"layer {name!r} ({type(module).__name__}) {reason}, so records have no influence of their own; "
                "policy.eval() before scoring, or leave the layer out"
            )

        return hook

    generators = _generators(policy)
    before, handles = [generator.get_state() for generator in generators], []
    try:
        for name, module in policy.named_modules():
            if reason := _obstacle(module):
                handles.append(module.register_forward_pre_hook(refuse(name, reason)))
        evaluated(policy, objective, batch[:2])
        moved = any(not torch.equal(g.get_state(), state) for g, state in zip(generators, before, strict=True))
    except ScoringError:
        raise
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
        if isinstance(error, AttributeError) and isinstance(error.obj, Batch):
            has = ", ".join(vars(error.obj))
            raise ScoringError(f"records have no {error.name}, which the objective reads; they have {has}") from error
        if isinstance(error, AttributeError) and not hasattr(policy, "log_prob"):
            raise ScoringError(
                f"policy {type(policy).__name__} has no log_prob(observations, actions) -> (n,){_sb3(policy)}"
            ) from error
        shapes = " and ".join(
            f"{name} of shape {tuple(getattr(batch, name).shape)}"
            for name in ("observations", "actions")
            if hasattr(batch, name)
        )
        raise ScoringError(
            f"log_prob of policy {type(policy).__name__} fails for {shapes or 'its records'}: {first_line(error)}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)
    if moved:
        raise ScoringError(f"log_prob of policy {type(policy).__name__} draws random numbers; policy.eval() first")


def _sb3(policy: Any) -> str:
    """A hint, if it is Stable-Baselines3's policy or algorithm."""
    of_a_model = hasattr(policy, "get_distribution") or hasattr(getattr(policy, "policy", None), "get_distribution")
    return "; of Stable-Baselines3: rl_influence.SB3Policy(model.policy)" if of_a_model else ""


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
