"""Tiny random models in folders, and prompts that mean nothing: every test of the loop runs on these."""

from __future__ import annotations

import importlib.util
import json
import os
import random

import pytest
import torch

from rl_influence.rlhf.settings import RunSpec

os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported: tests wait for no network
if importlib.util.find_spec("peft"):
    import transformers

    from rl_influence.rlhf.pretrain import train_tokenizer
else:  # the branch has an environment of its own: make test-rlhf
    collect_ignore_glob = ["test_*.py"]

WORDS = "red green blue one two three river stone cloud bird tree house runs sings falls slow over under".split()


def sentences(number: int) -> list[str]:
    source = random.Random(0)
    return [" ".join(source.choices(WORDS, k=source.randint(9, 16))) for _ in range(number)]


def language_model(kind: str, vocabulary: int) -> torch.nn.Module:
    """A random causal language model of one of the classes in use."""
    torch.manual_seed(1)
    common = {"vocab_size": vocabulary, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    if kind == "gpt2":  # attention in float64 throughout, which the other two do not have
        dropout = {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}
        config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=96, **dropout, **common)
        return transformers.GPT2LMHeadModel(config)
    if kind == "gpt_neo":
        config = transformers.GPTNeoConfig(
            hidden_size=16, num_layers=2, num_heads=2, attention_types=[[["global", "local"], 1]], window_size=8,
            max_position_embeddings=96, **common
        )  # fmt: skip
        return transformers.GPTNeoForCausalLM(config)
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        max_position_embeddings=96, **common
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Models of three classes, a classifier with its tokenizer, and prompts, as a user would have them on disk."""
    root = tmp_path_factory.mktemp("models")
    tokenizer = train_tokenizer(sentences(300), 320)
    for kind in ("gpt2", "gpt_neo", "llama"):
        language_model(kind, len(tokenizer)).save_pretrained(root / kind)
        tokenizer.save_pretrained(root / kind)
    torch.manual_seed(2)
    config = transformers.RobertaConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=600, num_labels=2, pad_token_id=0
    )  # fmt: skip
    classifier = transformers.RobertaForSequenceClassification(config)
    with torch.no_grad():  # else its logits hardly differ between texts
        classifier.classifier.out_proj.weight.mul_(50)
    classifier.save_pretrained(root / "classifier")
    tokenizer.save_pretrained(root / "classifier")
    (root / "prompts").mkdir()
    for part, number in (("train", 30), ("validation", 10), ("test", 10)):
        lines = sentences(60)[: number + 10][10 * (part == "test") :][:number]
        (root / "prompts" / f"{part}.txt").write_text("\n".join(lines))
    return root


@pytest.fixture
def make_spec(folder):
    """A tiny run's spec; keyword arguments replace parts of it."""

    def make(kind: str = "gpt2", **changes) -> RunSpec:
        base = {
            "model": {"name": str(folder / kind), "dtype": "float64" if kind == "gpt2" else "float32"},
            "adapter": {"rank": 2, "alpha": 4},
            "prompts": {"source": str(folder / "prompts"), "tokens": [3, 7]},
            "generation": {"new_tokens": [5, 9], "min_new_tokens": 2},
            "reward": {"name": str(folder / "classifier"), "label": 0},
            "ppo": {"batch_size": 6, "minibatch_size": 2, "n_epochs": 2, "learning_rate": 0.01},
            "selection": {"kind": "influence", "validation": 5},
            "evaluation": {
                "every": 2, "generations": 4, "end_generations": 6,
                "detectors": [{"name": str(folder / "classifier"), "label": 0}],
            },
            "rounds": 3,
            "seed": 3,
        }  # fmt: skip
        base["model"]["max_tokens"] = 200
        for key, value in changes.items():
            base[key] = base[key] | value if isinstance(value, dict) else value
        return RunSpec.model_validate(json.loads(json.dumps(base)))

    return make
