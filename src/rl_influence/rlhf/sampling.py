"""Generations of a policy: plain sampling with a key-value cache, from a seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_influence.rlhf.models import SequencePolicy, Sequences
from rl_influence.rlhf.settings import GenerationConfig


@torch.no_grad()
def generate(
    policy: SequencePolicy,
    prompts: list[list[int]],
    config: GenerationConfig,
    generator: np.random.Generator,
    rows: int = 256,
) -> Sequences:
    """One generation of each prompt, with the log-probability of each token and the value before it.

    An end token may come after the policy's `min_new_tokens`, belongs to the generation and is its last; a length drawn
    from `config.new_tokens` ends it otherwise. Randomness comes from the CPU: devices draw alike.

    Args:
        prompts: token ids.
        rows: prompts that share a pass.
    """
    fewest, most = config.new_tokens
    limits = torch.from_numpy(generator.integers(fewest, most + 1, len(prompts)))
    uniform = torch.from_numpy(generator.random((len(prompts), most)))
    width = max(map(len, prompts))
    tokens = torch.full((len(prompts), width), policy.end_token)
    there = torch.zeros(len(prompts), width, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        tokens[row, width - len(prompt) :] = torch.tensor(prompt)
        there[row, width - len(prompt) :] = True
    parts = [
        _generate(policy, *(part[i : i + rows] for part in (tokens, there, limits, uniform)), config.temperature)
        for i in range(0, len(prompts), rows)
    ]
    response, made, log_probs, values = (torch.cat(part) for part in zip(*parts, strict=True))
    sequences = Sequences(torch.cat([tokens, response], 1), torch.cat([there, made], 1), made)
    sequences.log_probs, sequences.values = log_probs.masked_fill(~made, 0), values.masked_fill(~made, 0)
    return sequences[:].to(policy.device)


def _generate(
    policy: SequencePolicy, tokens: Tensor, there: Tensor, limits: Tensor, uniform: Tensor, temperature: float
) -> tuple[Tensor, ...]:
    """Generated tokens, whether each is there, its log-probability and the value before it, (n, longest) each."""
    n, most = uniform.shape
    end_token = policy.end_token
    response, made = torch.full((n, most), end_token), torch.zeros(n, most, dtype=torch.bool)
    known = torch.zeros(2, n, most, dtype=policy.value_head.weight.dtype)
    attention, position = there.long(), there.sum(1, keepdim=True)
    inputs, positions, cache = tokens, (attention.cumsum(1) - 1).clamp_min(0), None
    alive = torch.ones(n, dtype=torch.bool)
    for step in range(most):
        output = policy.backbone(
            input_ids=inputs.to(policy.device),
            attention_mask=attention.to(policy.device),
            position_ids=positions.to(policy.device),
            past_key_values=cache,
            use_cache=True,
        )
        cache = output.past_key_values
        logits, values = (x[:, 0].cpu() for x in policy.heads(output.last_hidden_state[:, -1:], step))
        cumulative = (logits / temperature).softmax(1).double().cumsum(1)
        drawn = torch.searchsorted(cumulative, uniform[:, step : step + 1] * cumulative[:, -1:], right=True)
        drawn = drawn.clamp_max(logits.shape[1] - 1)
        known[:, :, step] = torch.stack([logits.gather(1, drawn)[:, 0] - logits.logsumexp(1), values])
        alive = alive & (step < limits)
        made[:, step] = alive
        response[:, step] = torch.where(alive, drawn[:, 0], end_token)
        alive = alive & (drawn[:, 0] != end_token)
        attention = torch.cat([attention, made[:, step : step + 1].long()], 1)
        inputs, positions, position = response[:, step : step + 1], position, position + 1
        if not alive.any():
            break
    return response, made, *known


def texts(sequences: Sequences, tokenizer: Any) -> list[str]:
    """The generated text of each sequence. It is scored and forgotten: never logged, never written."""
    length = sequences.response.shape[1]
    rows = zip(sequences.tokens[:, -length:].tolist(), sequences.response.tolist(), strict=True)
    kept = [[token for token, there in zip(*row, strict=True) if there] for row in rows]
    return tokenizer.batch_decode(kept, skip_special_tokens=True)
