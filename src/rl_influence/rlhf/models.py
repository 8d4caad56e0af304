"""The language model of a study: frozen weights, a LoRA adapter, a value head, and what they say of sequences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from rl_influence import seeding
from rl_influence.config import ConfigError
from rl_influence.rlhf.settings import AdapterConfig, ModelConfig

NGRAM_SEQUENCES = 64  # n-grams repeat more in more text: shares are always of as many sequences


def load_pretrained(kind: str, name: str, **arguments: Any) -> Any:
    """A tokenizer, language model or classifier from a folder or a hub.

    Raises:
        ConfigError: one line that says what could not be fetched, and what to do instead.
    """
    import transformers

    loader = {
        "tokenizer": transformers.AutoTokenizer,
        "language_model": transformers.AutoModelForCausalLM,
        "classifier": transformers.AutoModelForSequenceClassification,
    }[kind]
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        return loader.from_pretrained(name, **arguments)
    except (OSError, ValueError, ImportError, KeyError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ConfigError(
            f"{kind.replace('_', ' ')} {name!r} is no folder here and could not be fetched ({reason}); fetch it where "
            "a model hub can be reached, save it with save_pretrained, and name the folder instead"
        ) from None


@dataclass(slots=True)
class Sequences:
    """Prompts with their generations, and what is known of them; everything is row by row.

    Attributes:
        tokens: (n, P + R), prompts padded on the left, generations on the right.
        attention: (n, P + R), whether a token is there.
        response: (n, R), whether a generated token is there.
        log_probs, reference, values: (n, R) at collection: the policy's, the start's, the value before each token.
        score: (n,) the reward of the text.
        advantages, returns: (n, R), advantages whitened.
    """

    tokens: Tensor
    attention: Tensor
    response: Tensor
    log_probs: Tensor | None = None
    reference: Tensor | None = None
    values: Tensor | None = None
    score: Tensor | None = None
    advantages: Tensor | None = None
    returns: Tensor | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: Any) -> Sequences:
        """Some of the sequences, without columns in which none of them has a token."""
        parts = {f.name: value[rows] for f in fields(self) if (value := getattr(self, f.name)) is not None}
        prompt = self.tokens.shape[1] - self.response.shape[1]
        used = parts["attention"].any(0).nonzero()
        first, length = int(used[0]), int(used[-1]) + 1 - prompt
        for name, value in parts.items():
            if name in ("tokens", "attention"):
                parts[name] = value[:, min(first, prompt - 1) : prompt + length]
            elif value.ndim == 2:
                parts[name] = value[:, :length]
        return Sequences(**parts)

    def to(self, device: torch.device) -> Sequences:
        """The same on another device."""
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        return Sequences(**{name: None if value is None else value.to(device) for name, value in parts.items()})

    @property
    def lengths(self) -> Tensor:
        """Generated tokens of each sequence, (n,)."""
        return self.response.sum(1)

    def chunks(self, max_tokens: int) -> Iterator[slice]:
        """Slices whose tokens, padding included, number at most `max_tokens` (at least one sequence)."""
        step = max(1, max_tokens // self.tokens.shape[1])
        return (slice(i, i + step) for i in range(0, len(self), step))


class SequencePolicy(nn.Module):
    """A language model with an adapter and a value head; only those two are trained.

    Its distribution is the one that is sampled: where an end token may not come, its probability is 0. Left in, it
    lowers the log-probabilities of the others, and PPO learns to raise it: the estimated KL fell to -8 nats.

    Args:
        model: a causal language model of transformers, wrapped by peft.
        end_token: ends a generation.
        min_new_tokens: generated tokens before an end token may come.
    """

    def __init__(self, model: nn.Module, end_token: int, min_new_tokens: int = 0):
        super().__init__()
        self.model, self.end_token, self.min_new_tokens = model, end_token, min_new_tokens
        base = model.get_base_model()
        like = next(p for p in model.parameters() if p.requires_grad)
        self.value_head = nn.Linear(base.config.hidden_size, 1, device=like.device, dtype=like.dtype)
        nn.init.normal_(self.value_head.weight, std=0.01)
        nn.init.zeros_(self.value_head.bias)
        self.eval()

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.value_head.weight.device

    @property
    def backbone(self) -> nn.Module:
        """The model without its output layer."""
        return self.model.get_base_model().get_decoder()

    def forward(self, batch: Sequences, values: bool = True) -> tuple[Tensor, Tensor | None]:
        """Log-probability of each generated token (0 where there is none) and the value before it, (n, R)."""
        length = batch.response.shape[1]
        positions = (batch.attention.cumsum(1) - 1).clamp_min(0)
        hidden = self.backbone(
            input_ids=batch.tokens, attention_mask=batch.attention.long(), position_ids=positions, use_cache=False
        ).last_hidden_state[:, -length - 1 : -1]
        logits, value = self.heads(hidden, values=values)
        chosen = batch.tokens[:, -length:].unsqueeze(2)
        log_probs = logits.gather(2, chosen).squeeze(2) - logits.logsumexp(2)
        return log_probs.masked_fill(~batch.response, 0), value

    def heads(self, hidden: Tensor, first: int = 0, values: bool = True) -> tuple[Tensor, Tensor | None]:
        """Logits (n, t, vocabulary) and values (n, t) of last hidden states (n, t, hidden), in the adapter's dtype.

        Args:
            first: generated tokens before the first of the t.
        """
        dtype = self.value_head.weight.dtype
        rows = hidden.flatten(0, 1)  # one matrix: a slice of a batch would be multiplied by slower kernels
        logits = self.model.get_base_model().get_output_embeddings()(rows).to(dtype).unflatten(0, hidden.shape[:2])
        logits[:, : max(0, self.min_new_tokens - first), self.end_token] = -torch.inf
        return logits, self.value_head(hidden.to(dtype)).squeeze(-1) if values else None

    @contextmanager
    def frozen_start(self) -> Iterator[None]:
        """The model as it was before training: without its adapter."""
        with self.model.disable_adapter():
            yield

    def adapter(self) -> dict[str, nn.Parameter]:
        """Trained parameters of the language model, those whose influence counts."""
        return {name: p for name, p in self.named_parameters() if p.requires_grad and not name.startswith("value_head")}


def distinct(sequences: Sequences, n: int) -> float:
    """Share of distinct n-grams of tokens among all of the first sequences'."""
    length = sequences.response.shape[1]
    rows = zip(sequences.tokens[:NGRAM_SEQUENCES, -length:].tolist(), sequences.lengths.tolist(), strict=False)
    grams = [tuple(tokens[i : i + n]) for tokens, used in rows for i in range(used - n + 1)]
    return len(set(grams)) / max(1, len(grams))


def load_policy(
    model: ModelConfig, adapter: AdapterConfig, seed: int, min_new_tokens: int = 0
) -> tuple[SequencePolicy, Any]:
    """The policy of a run's start and its tokenizer (padding on the left)."""
    from peft import LoraConfig, TaskType, get_peft_model

    tokenizer = load_pretrained("tokenizer", model.name)
    tokenizer.padding_side = "left"
    if tokenizer.eos_token_id is None:
        raise ConfigError(f"model.name = {model.name!r}: its tokenizer has no end token")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    arguments: dict[str, Any] = {"dtype": getattr(torch, model.dtype), "attn_implementation": "eager"}
    if model.quantization == "8bit":
        from transformers import BitsAndBytesConfig

        arguments |= {"quantization_config": BitsAndBytesConfig(load_in_8bit=True), "device_map": {"": model.device}}
    base = load_pretrained("language_model", model.name, **arguments)
    if model.quantization == "none":
        base = base.to(check_device(model.device))
    torch.manual_seed(seeding.integer(seeding.seed_sequence(seed, "weights")))
    lora = LoraConfig(
        task_type=TaskType.CAUSAL_LM, r=adapter.rank, lora_alpha=adapter.alpha, lora_dropout=adapter.dropout
    )
    return SequencePolicy(get_peft_model(base, lora), tokenizer.eos_token_id, min_new_tokens), tokenizer


def check_device(device: str) -> torch.device:
    """A device that is there.

    Raises:
        ConfigError: naming what is.
    """
    try:
        found = torch.device(device)
        torch.zeros(1, device=found)
        return found
    except (RuntimeError, AssertionError):
        there = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        raise ConfigError(f"model.device = {device!r} is not there; choices: {', '.join(there)}") from None
