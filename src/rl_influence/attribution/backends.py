"""Three exact ways to differentiate log pi(a_i|s_i) of n records along one direction of parameter space.

With the direction grad f(theta) these derivatives are, up to the factor A_i, the influences of the records. No backend
holds a gradient per record, and all three give the same numbers:

- `jvp`: one forward-mode pass. Any architecture that torch can differentiate forwards.
- `ghost`: the paper's ghost dot product. With weight W, input x_i and output gradient delta_i of a layer,
  <grad_W f, delta_i x_i^T> = delta_i . (grad_W f) x_i, summed over calls and positions; all delta_i come from one
  backward pass. For layers that are linear in their parameters.
- `per_record`: a backward pass for each record. Slow, for anything; the other two are checked against it.

Each takes (policy, observations, actions, direction) and returns log pi(a_i|s_i) and its derivative, both (n,).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from rl_influence.attribution.policies import AttributionError, first_line, gradients, log_prob, parameters
from rl_influence.ppo.networks import LogStd

Direction = dict[str, Tensor]  # parameter name -> tensor of its shape; parameters that are missing stand still


class _LogProb(nn.Module):
    """`policy.log_prob` as a forward pass, which `functional_call` needs."""

    def __init__(self, policy: nn.Module):
        super().__init__()
        self.policy = policy

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        return log_prob(self.policy, observations, actions)


@torch.no_grad()
def jvp(policy: nn.Module, observations: Tensor, actions: Tensor, direction: Direction) -> tuple[Tensor, Tensor]:
    """One pass of `torch.func.jvp`."""
    module, trained = _LogProb(policy), parameters(policy)
    primals = {f"policy.{name}": trained[name].detach() for name in direction}
    tangents = {f"policy.{name}": tangent for name, tangent in direction.items()}

    def forward(values: Direction) -> Tensor:
        return torch.func.functional_call(module, values, (observations, actions))

    try:
        with sdpa_kernel(SDPBackend.MATH):  # torch's other attention kernels have no forward mode
            return torch.func.jvp(forward, (primals,), (tangents,))
    except AttributionError:
        raise
    except RuntimeError as error:  # NotImplementedError is one
        raise AttributionError(
            f"backend jvp cannot differentiate log_prob of {type(policy).__name__} forwards ({first_line(error)}); "
            "backends that can: per_record, and ghost if it knows the layers"
        ) from error


@torch.enable_grad()
def per_record(policy: nn.Module, observations: Tensor, actions: Tensor, direction: Direction) -> tuple[Tensor, Tensor]:
    """A loop of `autograd.grad`."""
    log_probs, derivatives = torch.empty(2, len(observations)).to(next(policy.parameters()).detach())
    for i in range(len(observations)):
        value = log_prob(policy, observations[i : i + 1], actions[i : i + 1])[0]
        log_probs[i] = value.detach()
        derivatives[i] = _product(gradients(policy, value), direction)
    return log_probs, derivatives


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
def ghost(policy: nn.Module, observations: Tensor, actions: Tensor, direction: Direction) -> tuple[Tensor, Tensor]:
    """Hooks add epsilon_i * (layer with the direction as its parameters) to the outputs that belong to record i.

    The gradient by epsilon, at 0, is the sum over layers, calls and positions of delta_i . (grad_f W) x_i. As autograd
    adds it up, layers that are called twice, tied weights and in-place activations need no care.
    """
    n = len(observations)
    names = {id(parameter): name for name, parameter in parameters(policy).items()}
    epsilon = next(iter(direction.values())).new_zeros(n, requires_grad=True)
    hooked: list[tuple[object, list[int]]] = []  # per call: its node in the autograd graph, ids of its parameters

    def hook(module: nn.Module, args: tuple, kwargs: dict, output: Tensor) -> Tensor:
        ids = [id(parameter) for parameter in module.parameters(recurse=False)]
        moved = [
            None if parameter is None else direction.get(names.get(id(parameter)), torch.zeros_like(parameter))
            for parameter in (module.weight, getattr(module, "bias", None))
        ]
        with torch.no_grad():
            shift = LINEAR_IN_PARAMETERS[type(module)](module, (*args, *kwargs.values())[0], *moved)
        if shift.ndim == 0 or len(shift) % n:
            raise _refusal(policy, ids[0], f"has an output of shape {tuple(shift.shape)}, not one row per record")
        scale = epsilon.repeat_interleave(len(shift) // n).reshape(-1, *[1] * (shift.ndim - 1))
        shifted = output + scale * shift
        hooked.append((shifted.grad_fn, ids))
        return shifted

    handles = [
        module.register_forward_hook(hook, with_kwargs=True)
        for module in policy.modules()
        if type(module) in LINEAR_IN_PARAMETERS
    ]
    try:
        log_probs = log_prob(policy, observations, actions)
    finally:
        for handle in handles:
            handle.remove()
    _refuse_unseen_parameters(policy, log_probs, hooked)
    (derivatives,) = torch.autograd.grad(log_probs.sum(), epsilon, allow_unused=True)
    return log_probs.detach(), torch.zeros_like(log_probs) if derivatives is None else derivatives


def _refuse_unseen_parameters(policy: nn.Module, log_probs: Tensor, hooked: list[tuple[object, list[int]]]) -> None:
    """Every use of a trained parameter in the graph of log pi must belong to a hooked call."""
    nodes, stack, uses = set(), [log_probs.grad_fn], Counter()
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


def _refusal(policy: nn.Module, key: int, reason: str) -> AttributionError:
    """Names the module that owns a parameter."""
    owner, module, name = next(
        (owner, module, name)
        for owner, module in policy.named_modules()
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False)
        if id(parameter) == key
    )
    known = ", ".join(layer.__name__ for layer in LINEAR_IN_PARAMETERS)
    return AttributionError(
        f"backend ghost cannot score {f'layer {owner!r}' if owner else 'the policy itself'} ({type(module).__name__}): "
        f"{name!r} {reason} ({known}); backends that can: jvp, per_record"
    )


BACKENDS = {"jvp": jvp, "ghost": ghost, "per_record": per_record}


def choose_backend(name: str) -> Callable[[nn.Module, Tensor, Tensor, Direction], tuple[Tensor, Tensor]]:
    """A backend by its name."""
    if name not in BACKENDS:
        raise AttributionError(f"backend {name!r} is unknown; choices: {', '.join(BACKENDS)}")
    return BACKENDS[name]


def check_against_autograd(
    backend: str, policy: nn.Module, observations: Tensor, actions: Tensor, direction: Direction, derivatives: Tensor
) -> None:
    """Compares a few of the buffer's derivatives with a backward pass over those records alone.

    Catches what cannot be read off a module: hand-written code that ties records together, and `torch.no_grad` inside
    `log_prob`, which forward mode does not see. The tolerance leaves room for a ReLU whose input rounds across 0.
    """
    few = max(1, min(8, len(observations) // 2))
    with torch.enable_grad():
        gradient = gradients(policy, log_prob(policy, observations[:few], actions[:few]).sum())
    expected, found, together = float(_product(gradient, direction)), derivatives[:few], float(derivatives[:few].sum())
    size = (float(_product(gradient, gradient)) * float(_product(direction, direction))) ** 0.5
    rounding = torch.finfo(next(policy.parameters()).dtype).eps ** 0.5 * size
    if abs(together - expected) > 0.05 * (float(found.abs().sum()) + abs(expected)) + rounding:
        raise AttributionError(
            f"backend {backend} gives {together:g} for the first {few} records, a backward pass over them alone "
            f"{expected:g}: log_prob of {type(policy).__name__} ties records together or stops gradients; "
            "backends that can: per_record"
        )


def _product(a: Direction, b: Direction) -> Tensor | float:
    return sum((a[name] * b[name]).sum() for name in a if name in b)
