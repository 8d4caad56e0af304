"""Influence of a round's records on a target (sections 4.1 and 4.2 of the paper).

The objective is to be maximised, so a positive influence helps. By default value and entropy terms are left out, as in
the paper; an objective of one's own may hold them.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rl_influence.attribution.backends import choose_backend, disagreement
from rl_influence.attribution.by_hand import HandDerived
from rl_influence.attribution.policies import ScoringError, as_batch, check_policy, evaluated, untouched
from rl_influence.attribution.targets import FReturn, Target, chunks, shown, target_gradient
from rl_influence.ppo.objective import ClippedPPO, Objective, PolicyGradient, Step, prepared


def influence_scores(
    policy: nn.Module,
    records: Any,
    target: Target,
    *,
    objective: Objective | None = None,
    advantages: Any = None,
    backend: str | None = None,
    chunk_size: int | None = None,
) -> Tensor:
    """Influence `I_i = <grad f(theta), grad objective_i(theta)>` at the policy's present parameters, as IIF uses it.

    One backward pass for the target, one pass of the backend over the records, and a few records by themselves, which
    must agree.

    Args:
        policy: any module that objective and target can be computed with; it is left as it is. For the default ones
            it has `log_prob(observations, actions) -> (n,)`.
        records: anything with `observations` (n, ...), `actions` (n,) or (n, dims), `advantages` (n,) and what else
            the objective reads, as arrays or tensors; or anything with `len` and `records[slice]` that it reads.
        target: `FReturn`, `FAction`, or a function policy -> scalar tensor.
        objective: default A_i log pi(a_i|s_i), whose gradient is that of PPO's objective at a round's start, where the
            ratio is 1 and nothing is clipped. One that normalises advantages does so over all of the records.
        advantages: (n,) the A_i, if not `records.advantages` (those are raw; the paper's code scores with advantages
            normalised per mini-batch, see `selection.score`).
        backend: `jvp`, `ghost` or `per_record`, see `backends`; equal up to rounding. None takes the fastest: formulas
            for the networks and objectives that `by_hand` knows, else `jvp`.
        chunk_size: records that share a pass; bounds memory, changes scores by rounding only. None: as many as make
            8 MB of observations, which splits images only.

    Returns:
        (n,) scores in the dtype of the policy's parameters: first-order change of the target per unit of step size.

    Raises:
        ScoringError: names what the policy, the records or the backend cannot do.
    """
    objective = _checked(objective or PolicyGradient(), backend)
    batch = as_batch(records, advantages=advantages)
    if len(batch) == 0:
        return next(policy.parameters()).detach().new_zeros(0)
    batch = prepared(objective, batch)
    by_hand = backend is None and chunk_size is None and HandDerived.supports(objective, policy, batch)
    with contextlib.nullcontext() if by_hand and type(target) is FReturn else untouched(policy):
        hand = _formulas(policy, target, objective, batch) if by_hand else None
        if not hand:
            check_policy(policy, objective, batch)
        return products(policy, batch, target, objective, backend, chunk_size, hand=hand)


def tracin_scores(
    policy: nn.Module,
    records: Any,
    target: Target,
    steps: Iterable[Step],
    *,
    objective: Objective | None = None,
    advantages: Any = None,
    weight_by_learning_rate: bool = False,
    backend: str | None = None,
    chunk_size: int | None = None,
) -> Tensor:
    """TracIn over a whole round: `I_i = sum_j <grad f(theta_j), grad objective(theta_j, z_i)>` over the steps j whose
    mini-batch has the record z_i, both gradients at the step's own parameters.

    Args:
        policy: moves along the round as `steps` is iterated; not changed by the scoring.
        records: as for `influence_scores`; `ClippedPPO` reads `log_probs` (n,) at collection, too.
        target: as for `influence_scores`.
        steps: yields, before each optimisation step and with the policy's parameters still before it, a `Step` with
            the record indices `batch` (and `learning_rate`, if weighted by it); takes the step when it is resumed.
            `ppo.Learner.steps` is such an iterator. Nothing is kept: memory does not grow with the number of steps.
        objective: what the steps maximise; default `ClippedPPO()`, which normalises advantages over each mini-batch.
        advantages: (n,) the A_i, if not `records.advantages`.
        weight_by_learning_rate: multiplies each step's term by its learning rate. The paper's sum has no such factor,
            which changes no ranking while the rate is constant; where a schedule varies it, the sum needs it.
        backend, chunk_size: as for `influence_scores`.

    Returns:
        (n,) scores; 0 for records that no mini-batch contains.

    Raises:
        ScoringError: names what the policy, the records or the backend cannot do.
    """
    objective = _checked(objective or ClippedPPO(), backend)
    records = as_batch(records, advantages=advantages)
    n, hand = len(records), None
    scores, next_check = np.zeros(n), 1
    for number, step in enumerate(steps):
        indices = _indices(number, step, n)
        if len(indices) == 0:
            continue
        batch = prepared(objective, records[indices])
        check = number + 1 >= next_check  # the 1st, 2nd, 4th, 8th, ...: at the first no ratio is clipped
        with contextlib.nullcontext() if hand and type(target) is FReturn else untouched(policy):
            if check:
                by_hand = backend is None and chunk_size is None and HandDerived.supports(objective, policy, batch)
                hand = (hand or _formulas(policy, target, objective, records)) if by_hand else None
                if not hand:
                    check_policy(policy, objective, batch)
            terms = products(
                policy, batch, target, objective, backend, chunk_size, check=check, hand=hand, indices=indices
            )
        next_check = 2 * (number + 1) if check else next_check
        weight = step.learning_rate if weight_by_learning_rate else 1.0
        np.add.at(scores, indices, weight * terms.double().cpu().numpy())
    return torch.from_numpy(scores).to(next(policy.parameters()).detach())


def _formulas(policy: Any, target: Target, objective: Any, records: Any) -> HandDerived | None:
    """What computes a policy's scores by hand; None if the records do not fit it, which `check_policy` then says."""
    actions, n, k = records.actions, len(records), policy.action_head.out_features
    if policy.discrete:
        fits = actions.shape == (n,) and not actions.is_floating_point() and 0 <= actions.min() <= actions.max() < k
    else:
        fits = actions.shape == (n, k) and actions.is_floating_point()
    if not fits:
        return None
    try:
        return HandDerived(policy, target, objective, records)
    except (ValueError, RuntimeError):
        return None


def _checked(objective: Any, backend: str | None) -> Objective:
    """The objective; it and the backend are of their kind."""
    choose_backend(backend)
    if not callable(objective) or isinstance(objective, type):
        raise ScoringError(
            f"objective: a function (policy, batch) -> (n,) is needed, such as ClippedPPO(), not {shown(objective)}"
        )
    return objective


def _indices(number: int, step: Step, n: int) -> np.ndarray:
    """A step's record indices, (m,)."""
    if not hasattr(step, "batch"):
        raise ScoringError(f"step {number}: a Step(indices) is needed, not a {type(step).__name__}")
    indices = np.asarray(step.batch)
    if len(indices) == 0:
        return indices
    if indices.dtype.kind not in "iu" or indices.ndim != 1:  # a mask would be taken for the records 0 and 1
        raise ScoringError(f"step {number}: expected record indices (n,), not {indices.dtype} {indices.shape}")
    if not 0 <= indices.min() <= indices.max() < n:
        raise ScoringError(f"step {number} names records {indices.min()} to {indices.max()}, but there are {n}")
    return indices


def products(
    policy: nn.Module,
    batch: Any,
    target: Target,
    objective: Objective,
    backend: str | None,
    chunk_size: int | None,
    *,
    check: bool = True,
    hand: HandDerived | None = None,
    indices: Any = slice(None),
) -> Tensor:
    """`<grad f, grad objective_i>`, (n,), with or without the comparison with records alone.

    Where that fails in less than float64, a copy in float64 tells whether rounding is to blame, and if so scores.

    Args:
        hand: computes them, of the records with these `indices` among its own; None: the backend does.
    """
    if hand:  # of modules that are known: nothing in them ties records together, draws random numbers or needs watching
        direction = hand.direction()
        terms, scores = hand.derivatives(batch, indices, direction)
    else:
        direction, slices = target_gradient(policy, target, chunk_size), chunks(batch, chunk_size)
        differentiate = choose_backend(backend)
        parts = [differentiate(policy, objective, batch[chunk], direction) for chunk in slices]
        terms, scores = (torch.cat(part) for part in zip(*parts, strict=True))
        if check and backend == "per_record":  # whose terms are those of records alone
            with torch.no_grad():
                terms = torch.cat([evaluated(policy, objective, batch[chunk]) for chunk in slices])
    wrong = _not_finite(scores)
    if not wrong and check:
        of = (lambda few, hand=hand: hand.gradient(batch[few], np.arange(hand.n)[indices][few])) if hand else None
        name = "by hand" if hand else backend or "jvp"
        wrong = disagreement(name, policy, objective, batch, direction, (terms, scores), of)
    if not wrong:
        return scores
    if hand:
        found = products(policy, batch, target, objective, None, chunk_size)
        warnings.warn(f"{wrong}; scored by jvp", stacklevel=3)
        return found
    if scores.dtype == torch.float64:
        raise ScoringError(wrong)
    try:
        twin = copy.deepcopy(policy).double()
        found = products(twin, batch, target, objective, backend, chunk_size).to(scores.dtype)
    except ScoringError:
        raise
    except (RuntimeError, TypeError):  # it cannot be copied, or not be computed in float64
        raise ScoringError(wrong) from None
    warnings.warn(
        f"{str(scores.dtype).removeprefix('torch.')} is exhausted: its scores differ from float64's, which are taken; "
        "observations or parameters of moderate size would not need that",
        stacklevel=3,
    )
    return found


def _not_finite(scores: Tensor) -> str | None:
    bad = (~scores.isfinite()).nonzero()
    if not len(bad):
        return None
    return (
        f"the influence of record {int(bad[0])} is {float(scores[bad[0]])}: "
        "a parameter of the policy, an observation or the target is not finite"
    )
