"""One round of PPO on sequences with plain loops, in float64: slow, obvious, and written from the paper's settings."""

from __future__ import annotations

import math

import torch


def sequence_of(batch, i: int) -> tuple[list[int], list[int]]:
    """Prompt and generation of one record, without padding."""
    length = batch.response.shape[1]
    prompt = [int(t) for t, a in zip(batch.tokens[i, :-length], batch.attention[i, :-length], strict=True) if a]
    made = [int(t) for t, a in zip(batch.tokens[i, -length:], batch.response[i], strict=True) if a]
    return prompt, made


def log_probs_and_values(policy, prompt: list[int], made: list[int], start: bool = False):
    """log pi(y_t | x, y_<t) and V(x, y_<t) of each token, from one sequence alone, as lists of scalars."""

    def logits_and_hidden():
        out = policy.model(input_ids=torch.tensor([[*prompt, *made]]), output_hidden_states=True)
        return out.logits[0], out.hidden_states[-1][0]

    if start:
        with policy.model.disable_adapter(), torch.no_grad():
            logits, hidden = logits_and_hidden()
    else:
        logits, hidden = logits_and_hidden()
    log_probs, values = [], []
    for t, token in enumerate(made):
        row = logits[len(prompt) + t - 1]
        if t < policy.min_new_tokens:  # an end token may not come: the others share its probability
            row = torch.cat([row[: policy.end_token], row.new_tensor([-math.inf]), row[policy.end_token + 1 :]])
        log_probs.append(torch.log_softmax(row, 0)[token])
        values.append((hidden[len(prompt) + t - 1] * policy.value_head.weight[0]).sum() + policy.value_head.bias[0])
    return log_probs, values


def prepared(policy, batch, *, beta, gamma, lam, whiten=None):
    """(log_probs, values, advantages, returns, kl) of each sequence, as lists of lists of floats."""
    rows = []
    for i in range(len(batch)):
        prompt, made = sequence_of(batch, i)
        with torch.no_grad():
            log_probs, values = log_probs_and_values(policy, prompt, made)
            start, _ = log_probs_and_values(policy, prompt, made, start=True)
        log_probs, values, start = ([float(x) for x in xs] for xs in (log_probs, values, start))
        rewards = [-beta * (log_probs[t] - start[t]) for t in range(len(made))]
        rewards[-1] += float(batch.score[i])
        advantages = []
        for t in range(len(made)):  # the sum that GAE stands for
            total = 0.0
            for later in range(t, len(made)):
                after = values[later + 1] if later + 1 < len(made) else 0.0
                total += (gamma * lam) ** (later - t) * (rewards[later] + gamma * after - values[later])
            advantages.append(total)
        returns = [a + v for a, v in zip(advantages, values, strict=True)]
        rows.append([log_probs, values, advantages, returns, sum(a - b for a, b in zip(log_probs, start, strict=True))])
    step = whiten or len(rows)
    for first in range(0, len(rows), step):
        chunk = rows[first : first + step]
        together = [a for row in chunk for a in row[2]]
        mean = sum(together) / len(together)
        variance = sum((a - mean) ** 2 for a in together) / (len(together) - 1)
        for row in chunk:
            row[2] = [(a - mean) / math.sqrt(variance + 1e-8) for a in row[2]]
    return rows


def objective(policy, batch, i, row, *, clip=0.2, value_clip=0.2, value_coef=0.1):
    """One sequence's PPO objective, token by token."""
    old, old_values, advantages, returns, _ = row
    log_probs, values = log_probs_and_values(policy, *sequence_of(batch, i))
    total = 0.0
    for t, log_prob in enumerate(log_probs):
        ratio = torch.exp(log_prob - old[t])
        clipped = torch.clamp(ratio, 1 - clip, 1 + clip)
        total = total + torch.min(ratio * advantages[t], clipped * advantages[t])
        near = torch.clamp(values[t], old_values[t] - value_clip, old_values[t] + value_clip)
        total = total - value_coef * 0.5 * torch.max((values[t] - returns[t]) ** 2, (near - returns[t]) ** 2)
    return total / len(log_probs)


def adam(parameters, gradients, state, step, lr):
    """One step of Adam (Kingma and Ba), in place."""
    with torch.no_grad():
        for p, g in zip(parameters, gradients, strict=True):
            m, v = state.setdefault(id(p), (torch.zeros_like(p), torch.zeros_like(p)))
            m.mul_(0.9).add_(0.1 * g)
            v.mul_(0.999).add_(0.001 * g * g)
            p.sub_(lr * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8))
