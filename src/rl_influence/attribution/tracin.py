"""Influence of a round's records on a target (sections 4.1 and 4.2 of the paper).

L_PPO is the *objective* (to be maximised), so a positive influence helps. Value and entropy terms are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rl_influence.attribution.backends import check_against_autograd, choose_backend
from rl_influence.attribution.mlp import HandDerived, is_by_hand
from rl_influence.attribution.policies import AttributionError, check_policy, finite, pairs
from rl_influence.attribution.targets import Target, chunks, target_gradient


def influence_scores(
    policy: nn.Module,
    records: Any,
    target: Target,
    *,
    advantages: Any = None,
    backend: str | None = None,
    chunk_size: int | None = None,
) -> Tensor:
    """Start-of-round influence I_i = <grad f(theta), A_i grad log pi_theta(a_i|s_i)>, as IIF uses it.

    At the parameters that collected the records the ratio is 1 and nothing is clipped, so A_i grad log pi is the
    gradient of L_PPO. One backward pass for the target, one pass of the backend over the records.

    Args:
        policy: any module with `log_prob(observations, actions) -> (n,)`; it is left as it is.
        records: anything with `observations` (n, ...), `actions` (n,) or (n, dims), and `advantages` (n,).
        target: `FReturn`, `FAction`, or a function policy -> scalar tensor.
        advantages: (n,) the A_i, if not `records.advantages` (those are raw; the paper's code scores with advantages
            normalised per mini-batch).
        backend: `jvp`, `ghost` or `per_record`, see `backends`; equal up to rounding. None takes the fastest: formulas
            written out for `FReturn` of the tanh MLPs (`mlp`), else `jvp`.
        chunk_size: records that share a pass; bounds memory, changes scores by rounding only. None: as many as make
            8 MB of observations, which splits images only.

    Returns:
        (n,) scores in the dtype of the policy's parameters: first-order change of the target per unit of step size.

    Raises:
        AttributionError: names what the policy, the records or the backend cannot do.
    """
    differentiate = choose_backend(backend or "jvp")
    observations, actions = pairs(records)
    n = len(actions)
    advantages = finite("advantages", records.advantages if advantages is None else advantages, n)
    derivatives = next(policy.parameters()).detach().new_zeros(n)
    if n == 0:
        return derivatives
    check_policy(policy, observations, actions)
    if backend is None and chunk_size is None and is_by_hand(policy, target):
        hand = HandDerived(policy, target, observations, actions)
        derivatives = torch.from_numpy(hand.derivatives(np.arange(n))[1])
    else:
        direction = target_gradient(policy, target, chunk_size)
        for chunk in chunks(observations, chunk_size):
            derivatives[chunk] = differentiate(policy, observations[chunk], actions[chunk], direction)[1]
        check_against_autograd(backend or "jvp", policy, observations, actions, direction, derivatives)
    return _finite_scores(advantages.to(derivatives) * derivatives)


class Step(NamedTuple):
    """One optimisation step that is about to be taken; `ppo.Step` serves as well."""

    batch: Any  # indices of the mini-batch's records; a record that is drawn twice counts twice
    learning_rate: float = 1.0


def tracin_scores(
    policy: nn.Module,
    records: Any,
    target: Target,
    steps: Iterable[Any],
    *,
    advantages: Any = None,
    clip_range: float = 0.2,
    normalize_advantage: bool = True,
    weight_by_learning_rate: bool = False,
    backend: str | None = None,
    chunk_size: int | None = None,
) -> Tensor:
    """TracIn over a whole round: I_i = sum over steps j with z_i in B_j of <grad f(theta_j), grad L_PPO(theta_j, z_i)>.

    Both gradients are taken at the step's own parameters. L_PPO is the clipped objective min(r A, clip(r) A), whose
    gradient is r A grad log pi, or 0 where the clipped branch is the smaller one.

    Args:
        policy: moves along the round as `steps` is iterated; not changed by the scoring.
        records: as for `influence_scores`, and `log_probs` (n,) at collection.
        target: as for `influence_scores`.
        steps: yields, before each optimisation step and with the policy's parameters still before it, an object with
            the record indices `batch` (and `learning_rate`, if weighted by it); takes the step when it is resumed.
            `ppo.Learner.steps` is such an iterator. Nothing is kept: memory does not grow with the number of steps.
        advantages: (n,) the A_i, if not `records.advantages`.
        clip_range: PPO's clip range.
        normalize_advantage: (A - mean) / (std + 1e-8) over each mini-batch, as in Stable-Baselines3.
        weight_by_learning_rate: multiplies each step's term by its learning rate. The paper's sum has no such factor,
            which changes no ranking while the rate is constant; where a schedule varies it, the sum needs it.
        backend: as for `influence_scores`; None takes the fastest.
        chunk_size: records that share a pass, as for `influence_scores`.

    Returns:
        (n,) scores; 0 for records that no mini-batch contains.

    Raises:
        AttributionError: names what the policy, the records or the backend cannot do.
    """
    differentiate = choose_backend(backend or "jvp")
    observations, actions = pairs(records)
    n = len(actions)
    advantages = finite("advantages", records.advantages if advantages is None else advantages, n).cpu().numpy()
    old_log_probs = finite("log_probs", records.log_probs, n).cpu().numpy()
    check_policy(policy, observations, actions)
    by_hand = backend is None and chunk_size is None and is_by_hand(policy, target)
    hand = HandDerived(policy, target, observations, actions) if by_hand else None
    scores, checked = np.zeros(n), False
    for number, step in enumerate(steps):
        batch = np.asarray(step.batch)
        if len(batch) == 0:
            continue
        if batch.dtype.kind not in "iu" or batch.ndim != 1:  # a mask would be taken for the records 0 and 1
            raise AttributionError(f"step {number}: expected record indices (n,), not {batch.dtype} {batch.shape}")
        if not 0 <= batch.min() <= batch.max() < n:
            raise AttributionError(f"step {number} names records {batch.min()} to {batch.max()}, but there are {n}")
        if hand:
            log_probs, derivatives = hand.derivatives(batch)
        else:
            drawn = observations[batch], actions[batch]
            direction = target_gradient(policy, target, chunk_size)
            parts = [differentiate(policy, drawn[0][c], drawn[1][c], direction) for c in chunks(drawn[0], chunk_size)]
            log_probs, derivatives = (torch.cat(part).double().cpu() for part in zip(*parts, strict=True))
            if not checked:
                check_against_autograd(backend or "jvp", policy, *drawn, direction, derivatives)
                checked = True
            log_probs, derivatives = log_probs.numpy(), derivatives.numpy()
        weights = advantages[batch]
        if normalize_advantage and len(batch) > 1:
            weights = (weights - weights.mean()) / (weights.std(ddof=1) + 1e-8)
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is named below
            ratio = np.exp(log_probs - old_log_probs[batch])
            clipped = np.where(weights > 0, ratio > 1 + clip_range, ratio < 1 - clip_range)
            terms = np.where(clipped, 0, ratio * weights * derivatives)
        np.add.at(scores, batch, terms * step.learning_rate if weight_by_learning_rate else terms)
    return _finite_scores(torch.from_numpy(scores).to(next(policy.parameters()).detach()))


def _finite_scores(scores: Tensor) -> Tensor:
    bad = (~scores.isfinite()).nonzero()
    if len(bad):
        raise AttributionError(
            f"the influence of record {int(bad[0])} is {float(scores[bad[0]])}: "
            "a parameter of the policy, an observation or the target is not finite"
        )
    return scores
