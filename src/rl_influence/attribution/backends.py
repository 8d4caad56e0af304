"""Three exact ways to differentiate the objective's terms of n records along one direction of parameter space.

With the direction grad f(theta) these derivatives are the influences of the records. No backend holds a gradient per
record, and all three give the same numbers:

- `jvp`: one forward-mode pass. Any architecture that torch can differentiate forwards.
- `ghost`: the paper's ghost dot product. With weight W, input x_i and output gradient delta_i of a layer,
  `<grad_W f, delta_i x_i^T> = delta_i . (grad_W f) x_i`, summed over calls and positions; all delta_i come from one
  backward pass. For layers that are linear in their parameters.
- `per_record`: a backward pass for each record. Slow, for anything; the other two are checked against it.

Each takes (policy, objective, batch, direction) and returns the terms and their derivatives, both (n,).
"""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from rl_influence.attribution.policies import (
    ScoringError,
    evaluated,
    first_line,
    gradient_by,
    gradients,
    parameters,
)
from rl_influence.ppo.networks import LogStd
from rl_influence.ppo.objective import Objective

Direction = dict[str, Tensor]  # parameter name -> tensor of its shape; parameters that are missing stand still
Derivatives = tuple[Tensor, Tensor]


@torch.no_grad()
def jvp(policy: nn.Module, objective: Objective, batch: Any, direction: Direction) -> Derivatives:
    """One pass with dual numbers for parameters."""
    try:
        with warnings.catch_warnings():
            # torch's own call, where it enters forward mode for the first time
            warnings.filterwarnings("ignore", message=".torch.jit.script. is deprecated")
            # torch's other attention kernels have no forward mode
            with forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH), _slow_path(), _moving(policy, direction):
                terms, derivatives = forward_ad.unpack_dual(evaluated(policy, objective, batch))
    except ScoringError:
        raise
    except RuntimeError as error:  # NotImplementedError is one
        raise ScoringError(
            f"backend jvp cannot differentiate log_prob of {type(policy).__name__} forwards ({first_line(error)}); "
            "backends that can: per_record, and ghost if it knows the layers"
        ) from error
    return terms, torch.zeros_like(terms) if derivatives is None else derivatives


@contextlib.contextmanager
def _slow_path() -> Iterator[None]:
    """Transformer layers in evaluation mode as they are while they train: their fused kernels have no forward mode."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


@contextlib.contextmanager
def _moving(policy: nn.Module, direction: Direction) -> Iterator[None]:
    """Puts dual numbers in the places of the parameters that move.

    Not `torch.func.functional_call`, which leaves plain tensors behind where a module is reached by several names.
    """
    trained = parameters(policy)
    duals = {id(trained[name]): forward_ad.make_dual(trained[name].detach(), direction[name]) for name in direction}
    places = [
        (module._parameters, name, parameter)
        for module in policy.modules()
        for name, parameter in module._parameters.items()
        if id(parameter) in duals
    ]
    try:
        for place, name, parameter in places:
            place[name] = duals[id(parameter)]
        yield
    finally:
        for place, name, parameter in places:
            place[name] = parameter


@torch.enable_grad()
def per_record(policy: nn.Module, objective: Objective, batch: Any, direction: Direction) -> Derivatives:
    """A loop of `autograd.grad`."""
    terms, derivatives = torch.empty(2, len(batch)).to(next(policy.parameters()).detach())
    for i in range(len(batch)):
        (value,) = evaluated(policy, objective, batch[i : i + 1])
        terms[i] = value.detach()
        derivatives[i] = _product(gradients(policy, value), direction)
    return terms, derivatives


def _embedding(module: nn.Embedding, tokens: Tensor, weight: Tensor, bias: None) -> Tensor:
    rows = F.embedding(tokens, weight)
    # torch gives no gradient to the padding token
    return rows if module.padding_idx is None else rows.masked_fill((tokens == module.padding_idx).unsqueeze(-1), 0)


# Layer type -> its output for given parameters, which is linear in them. Exact types: a subclass may compute otherwise.
LINEAR_IN_PARAMETERS: dict[type[nn.Module], Callable] = {
    nn.Linear: lambda module, x, weight, bias: F.linear(x, weight, bias),
    nn.Conv2d: lambda module, x, weight, bias: module._conv_forward(x, weight, bias),
    nn.Embedding: _embedding,
    LogStd: lambda module, x, weight, bias: weight.expand_as(x),
}


@torch.enable_grad()
def ghost(policy: nn.Module, objective: Objective, batch: Any, direction: Direction) -> Derivatives:
    """Hooks add epsilon_i * (layer with the direction as its parameters) to the outputs that belong to record i.

    The gradient by epsilon, at 0, is the sum over layers, calls and positions of delta_i . (grad_f W) x_i. As autograd
    adds it up, layers that are called twice, tied weights and in-place activations need no care.
    """
    n = len(batch)
    names = {id(parameter): name for name, parameter in parameters(policy).items()}
    epsilon = next(iter(direction.values())).new_zeros(n, requires_grad=True)
    hooked: list[tuple[object, list[int]]] = []  # per call: its node in the autograd graph, ids of its parameters

    def hook(module: nn.Module, args: tuple, kwargs: dict, output: Tensor) -> Tensor:
        ids = [id(parameter) for parameter in module.parameters(recurse=False)]
        moved = [
            None if parameter is None else direction.get(names.get(id(parameter), ""), torch.zeros_like(parameter))
            for parameter in (getattr(module, name, None) for name in ("weight", "bias"))
        ]
        with torch.no_grad():
            shift = LINEAR_IN_PARAMETERS[type(module)](module, (*args, *kwargs.values())[0], *moved)
        if len(shift) % n:
            raise _refusal(policy, ids[0], f"has an output of shape {tuple(shift.shape)}, not one row per record")
        scale = epsilon.repeat_interleave(len(shift) // n).reshape(-1, *[1] * (shift.ndim - 1))
        shifted = output + scale * shift
        hooked.append((shifted.grad_fn, ids))
        return shifted

    handles = []
    try:
        for module in policy.modules():
            trained = any(id(parameter) in names for parameter in module.parameters(recurse=False))
            if trained and type(module) in LINEAR_IN_PARAMETERS:  # frozen layers need no second pass
                handles.append(module.register_forward_hook(hook, with_kwargs=True, prepend=True))
        terms = evaluated(policy, objective, batch)
    finally:
        for handle in handles:
            handle.remove()
    _refuse_unseen_parameters(policy, terms, hooked)
    (derivatives,) = torch.autograd.grad(terms.sum(), epsilon, allow_unused=True)
    return terms.detach(), torch.zeros_like(terms) if derivatives is None else derivatives


def _refuse_unseen_parameters(policy: nn.Module, terms: Tensor, hooked: list[tuple[object, list[int]]]) -> None:
    """Every use of a trained parameter in the graph of the terms must belong to a hooked call."""
    nodes: set[Any] = set()
    stack: list[Any] = [terms.grad_fn]
    uses: Counter[int] = Counter()
    while stack:
        node = stack.pop()
        if node is None or node in nodes:
            continue
        nodes.add(node)
        for child, _ in node.next_functions:
            if type(child).__name__ == "AccumulateGrad":
                uses[id(child.variable)] += 1
            else:
                stack.append(child)
    uses.subtract(key for node, ids in hooked if node in nodes for key in ids)
    for key in map(id, parameters(policy).values()):
        if uses[key] > 0:
            raise _refusal(policy, key, "enters log_prob otherwise than through a call of a layer that ghost knows")


def _refusal(policy: nn.Module, key: int, reason: str) -> ScoringError:
    """Names the module that owns a parameter."""
    owner, module, name = next(
        (owner, module, name)
        for owner, module in policy.named_modules()
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False)
        if id(parameter) == key
    )
    known = ", ".join(layer.__name__ for layer in LINEAR_IN_PARAMETERS)
    return ScoringError(
        f"backend ghost cannot score {f'layer {owner!r}' if owner else 'the policy itself'} ({type(module).__name__}): "
        f"{name!r} {reason} ({known}); backends that can: jvp, per_record"
    )


BACKENDS = {"jvp": jvp, "ghost": ghost, "per_record": per_record}


def choose_backend(name: str | None) -> Callable[[nn.Module, Objective, Any, Direction], Derivatives]:
    """A backend by its name; None: the fastest that any policy has."""
    name = name or "jvp"
    if name not in BACKENDS:
        raise ScoringError(f"backend {name!r} is unknown; choices: {', '.join(BACKENDS)}")
    return BACKENDS[name]


def disagreement(
    backend: str,
    policy: nn.Module,
    objective: Objective,
    batch: Any,
    direction: Direction,
    found: Derivatives,
    gradient_of: Callable[[np.ndarray], Direction] | None = None,
) -> str | None:
    """Compares some of the batch's records with a pass over each alone; what is wrong, or None.

    Catches what cannot be read off a module: code that ties records together or gives rows in another order, and
    `torch.no_grad` inside the objective, which forward mode does not see. Each record counts by itself, since errors of
    opposite signs vanish in a sum. The tolerance is a hundredth of the record's derivative; its floor follows the
    lengths of the two gradients whose product that is.

    Args:
        gradient_of: gives the gradient of the sum of some records' terms, where the direction was not autograd's.
    """
    who, (terms, derivatives) = f"log_prob of {type(policy).__name__}", found
    limits, n = torch.finfo(terms.dtype), len(terms)
    noise = limits.eps * float(derivatives.abs().max()) + limits.tiny  # of records that hardly matter
    largest = float(terms.abs().max())
    trained, along = parameters(policy), _flat(direction.values())
    length, together, lengths = float(along.norm()), torch.zeros_like(along), 0.0
    number = 2 if gradient_of else 4  # formulas are for modules that are known; code may do anything
    few = np.random.default_rng(n).choice(n, min(n, number), replace=False)
    with torch.enable_grad():  # nothing in known modules ties records together, so that theirs share a forward pass
        shared = evaluated(policy, objective, batch[few]) if gradient_of else None
    for place, i in enumerate(few.tolist()):
        with torch.enable_grad():
            term = evaluated(policy, objective, batch[i : i + 1])[0] if shared is None else shared[place]
            gradient = _flat(gradient_by(term, [trained[name] for name in direction], keep=shared is not None))
        among, value, alone = float(terms[i]), term.item(), float(gradient @ along)
        own_length = float(gradient.norm())
        together += gradient
        lengths += own_length
        if not abs(among - value) <= 0.01 * abs(value) + limits.eps**0.5 * largest:
            return f"{who} ties records together: record {i} has {among:g} among others, {value:g} alone"
        size = limits.eps**0.5 * own_length * length
        if not abs(float(derivatives[i]) - alone) <= 0.01 * abs(alone) + size + noise:
            return (
                f"backend {backend} gives {float(derivatives[i]):g} for record {i}, a backward pass over it alone "
                f"{alone:g}: {who} ties records together or stops gradients; backends that can: per_record"
            )
    if gradient_of:
        by_hand = gradient_of(few)  # of what the terms depend on
        summed = _flat(by_hand.get(name, torch.zeros_like(along)) for name, along in direction.items())
        distance = float((summed - together).norm())
        if not distance <= 0.01 * float(together.norm()) + limits.eps**0.5 * lengths:
            return (
                f"the formulas for {type(policy).__name__} are {distance:g} away from autograd; backends that can: jvp"
            )
    return None


def _product(a: Direction, b: Direction) -> Tensor | float:
    return sum((a[name] * b[name]).sum() for name in a if name in b)


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
