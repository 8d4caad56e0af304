"""Start models: the shipped one, a small one trained here, and the dequantised one."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from rl_influence.rlhf import pretrain
from rl_influence.rlhf.models import load_policy
from rl_influence.rlhf.settings import load_study
from rlhf.conftest import sentences

ROOT = Path(__file__).parents[2]


def perplexity(policy, tokenizer, text: str) -> float:
    tokens = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
    with torch.no_grad():
        return math.exp(float(policy.model(input_ids=tokens, labels=tokens).loss))


def test_the_shipped_model_is_small_and_knows_english_from_noise():
    spec = load_study(ROOT / "config/rlhf_fast.yaml").run_spec("ppo", 100)
    folder = ROOT / spec.model.name
    assert (folder / "model.safetensors").stat().st_size < 6e6
    policy, tokenizer = load_policy(spec.model.model_copy(update={"name": str(folder)}), spec.adapter, 0)
    ordered = perplexity(policy, tokenizer, "he said that it was one of the most important things in the world")
    shuffled = perplexity(policy, tokenizer, "the of world said was things it the most in that one important he")
    assert ordered < 100 and shuffled > 2 * ordered


def test_results_are_of_the_shipped_model():
    digest = hashlib.sha256((ROOT / "config/rlhf_fast_model/model.safetensors").read_bytes()).hexdigest()
    for path in sorted((ROOT / "results").glob("rlhf_fast/runs/*/*/manifest.json")):
        assert json.loads(path.read_text())["start_model_sha256"] == {"model.safetensors": digest}, path


def test_a_small_model_learns_its_corpus_and_comes_back(tmp_path, monkeypatch):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "doc-0.json").write_text(json.dumps(sentences(400)))
    detector = SimpleNamespace(toxicity=lambda texts: np.linspace(0, 1, len(texts)))
    monkeypatch.setattr(pretrain, "load_detector", lambda config: detector)
    monkeypatch.setattr(pretrain, "read_prompts", lambda source, part: sentences(20))
    lines: list[str] = []
    pretrain.make_small_model(corpus, tmp_path / "model", steps=12, log=lines.append)
    assert "warm start" in lines[-1] and lines[-1].endswith("on 340 texts")  # 280 above 0.3, and 3 times 20
    spec = load_study(ROOT / "config/rlhf_fast.yaml").run_spec("ppo", 100)
    policy, tokenizer = load_policy(spec.model.model_copy(update={"name": str(tmp_path / "model")}), spec.adapter, 0)
    assert tokenizer("red green river", add_special_tokens=False)["input_ids"]
    assert perplexity(policy, tokenizer, "red green blue one two three") < 0.5 * len(tokenizer)


def test_the_dequantised_model_is_one_that_knows_english(tmp_path):
    pretrain.make_study_model(tmp_path, epochs=0, log=lambda line: None)
    spec = load_study(ROOT / "config/rlhf_study.yaml").run_spec("ppo", 100)
    policy, tokenizer = load_policy(spec.model.model_copy(update={"name": str(tmp_path)}), spec.adapter, 0)
    assert perplexity(policy, tokenizer, "The capital of France is Paris, which lies on the river Seine.") < 30
