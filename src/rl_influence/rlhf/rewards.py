"""From scored generations to advantages: per-token rewards, GAE, whitening, and the KL coefficient's controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_influence.rlhf.models import SequencePolicy, Sequences
from rl_influence.rlhf.sampling import texts
from rl_influence.rlhf.settings import PPOConfig


@torch.no_grad()
def judged(
    policy: SequencePolicy,
    sequences: Sequences,
    tokenizer: Any,
    reward: Callable[[list[str]], np.ndarray],
    max_tokens: int,
    *,
    again: bool = False,
) -> Sequences:
    """Fills in log-probabilities of the frozen start and the score of each text.

    Args:
        again: whether the policy's log-probabilities and values are computed once more, in the passes that training
            will use: those of sampling differ by rounding, and ratios should be 1 at the start.
    """
    passes: dict[str, list[Tensor]] = {"reference": []} | ({"log_probs": [], "values": []} if again else {})
    for rows in sequences.chunks(max_tokens):
        part = Sequences(sequences.tokens[rows], sequences.attention[rows], sequences.response[rows])
        with policy.frozen_start():
            known = {"reference": policy(part, values=False)[0]}
        if again:
            known |= dict(zip(("log_probs", "values"), policy(part), strict=True))
            known["values"] = known["values"].masked_fill(~part.response, 0)
        for name, values in passes.items():
            values.append(known[name])
    filled = {name: torch.cat(parts) for name, parts in passes.items()}
    score = torch.from_numpy(np.asarray(reward(texts(sequences, tokenizer)))).to(filled["reference"])
    return replace(sequences, **filled, score=score)


def with_advantages(sequences: Sequences, config: PPOConfig, beta: float) -> Sequences:
    """Fills in advantages, whitened, and returns.

    Rewards: -beta (log pi - log pi_start) at each token, and the score at the last. GAE along each sequence; nothing
    follows its last token. Returns are the raw advantages plus values.
    """
    mask = sequences.response
    rewards = -beta * (sequences.log_probs - sequences.reference)
    last = sequences.lengths.unsqueeze(1) - 1
    rewards = rewards.scatter_add(1, last, sequences.score.unsqueeze(1)) * mask
    advantages = torch.zeros_like(rewards)
    following = value_after = torch.zeros_like(sequences.score)
    for t in reversed(range(rewards.shape[1])):
        here = mask[:, t]
        delta = rewards[:, t] + config.gamma * value_after - sequences.values[:, t]
        following = torch.where(here, delta + config.gamma * config.gae_lambda * following, following)
        advantages[:, t] = torch.where(here, following, 0)
        value_after = torch.where(here, sequences.values[:, t], value_after)
    returns = advantages + sequences.values
    whitened = torch.zeros_like(advantages)
    step = config.whiten or len(sequences)
    for i in range(0, len(sequences), step):
        whitened[i : i + step] = whiten(advantages[i : i + step], mask[i : i + step])
    return replace(sequences, advantages=whitened, returns=returns * mask)


def whiten(values: Tensor, mask: Tensor) -> Tensor:
    """(x - mean) / sqrt(var + 1e-8) over all tokens that are there, var with n - 1; 0 elsewhere."""
    there = values[mask]
    variance = there.var() if len(there) > 1 else there.new_ones(())
    return ((values - there.mean()) * (variance + 1e-8).rsqrt()) * mask


def sequence_kl(sequences: Sequences) -> Tensor:
    """Log-ratio of each sequence to the frozen start, in nats, (n,): its mean estimates the KL."""
    return ((sequences.log_probs - sequences.reference) * sequences.response).sum(1)


def next_beta(beta: float, kl: float, config: PPOConfig) -> float:
    """The adaptive controller (Ziegler et al. 2019): proportional to the relative error, clipped to 20 %."""
    if config.kl_target is None:
        return beta
    error = min(max(kl / config.kl_target - 1, -0.2), 0.2)
    return beta * (1 + error * config.batch_size / config.kl_horizon)
