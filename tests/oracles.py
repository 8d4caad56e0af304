"""Slow, obvious references that the tests compare the library with."""

from __future__ import annotations

import torch

# --- attribution -----------------------------------------------------------------------------------------------------


def gradient(policy, scalar):
    """Gradient of a scalar by all parameters as one vector; 0 where there is none."""
    parameters = list(policy.parameters())
    gradients = torch.autograd.grad(scalar, parameters, allow_unused=True)
    return torch.cat(
        [torch.zeros(p.numel()).to(p) if g is None else g.flatten() for p, g in zip(parameters, gradients, strict=True)]
    )


def log_prob_of(policy, records, i):
    """log pi(a_i|s_i), of record i alone."""
    return policy.log_prob(torch.as_tensor(records.observations[i])[None], torch.as_tensor(records.actions[i])[None])[0]


def f_return(policy, records):
    """Mean over records of log pi(a|s) A, one record after the other."""
    n = len(records.advantages)
    return sum(log_prob_of(policy, records, i) * float(records.advantages[i]) for i in range(n)) / n


def influence(policy, records, f, advantages=None):
    """<grad f, A_i grad log pi(a_i|s_i)> for each record."""
    advantages = records.advantages if advantages is None else advantages
    direction = gradient(policy, f(policy))
    products = [
        direction @ (float(a) * gradient(policy, log_prob_of(policy, records, i))) for i, a in enumerate(advantages)
    ]
    return torch.stack(products)


def clipped_objective(policy, records, i, advantage, clip_range):
    """PPO's clipped objective of one record."""
    ratio = (log_prob_of(policy, records, i) - float(records.log_probs[i])).exp()
    return torch.min(ratio * advantage, ratio.clamp(1 - clip_range, 1 + clip_range) * advantage)


def normalized(advantages):
    """Advantages of one mini-batch as Stable-Baselines3 normalises them, as floats."""
    n = len(advantages)
    if n < 2:
        return [float(a) for a in advantages]
    mean = sum(map(float, advantages)) / n
    std = (sum((float(a) - mean) ** 2 for a in advantages) / (n - 1)) ** 0.5
    return [(float(a) - mean) / (std + 1e-8) for a in advantages]


def tracin(policy, records, f, steps, *, clip_range=0.2, normalize=True, weight_by_learning_rate=False):
    """The double loop over steps and the records of each: products first, then their sum."""
    scores = torch.zeros(len(records.advantages), dtype=torch.float64)
    for step in steps:
        direction = gradient(policy, f(policy))
        advantages = [float(records.advantages[i]) for i in step.batch]
        advantages = normalized(advantages) if normalize else advantages
        for i, a in zip(step.batch, advantages, strict=True):
            objective = clipped_objective(policy, records, int(i), a, clip_range)
            term = float(direction @ gradient(policy, objective))
            scores[int(i)] += term * step.learning_rate if weight_by_learning_rate else term
    return scores
