"""One round against plain loops over sequences and tokens, and scores against a backward pass for each sequence."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
import torch

from rl_influence import seeding
from rl_influence.rlhf import rewards
from rl_influence.rlhf.objective import TARGETS, SequencePPO, SequenceTarget
from rl_influence.rlhf.trainer import Trainer, sequence_influence
from rlhf import oracle


@contextlib.contextmanager
def no_clock(phase):
    yield


def moved(trainer: Trainer, size: float = 1.0, seed: int = 0) -> Trainer:
    """With random adapter and value head: at the start every gradient with respect to LoRA's A is 0."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in trainer.trained:
            parameter.add_(size * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return trainer


@pytest.mark.parametrize("whiten", [None, 3])
def test_a_round_is_the_oracles(make_spec, whiten):
    spec = make_spec(selection={"kind": "all"}, ppo={"whiten": whiten, "kl_coef": 0.3, "learning_rate": 0.2})
    trainer = moved(Trainer(spec))
    start = [p.detach().clone() for p in trainer.trained]
    row = trainer.train_round(no_clock)
    end = [p.detach().clone() for p in trainer.trained]
    with torch.no_grad():
        for p, q in zip(trainer.trained, start, strict=True):
            p.copy_(q)
    policy, batch, ppo = trainer.policy, trainer.batch, spec.ppo
    assert len({int(n) for n in batch.lengths}) > 1 and len(set(batch.attention.sum(1).tolist())) > 1
    rows = oracle.prepared(policy, batch, beta=ppo.kl_coef, gamma=ppo.gamma, lam=ppo.gae_lambda, whiten=whiten)
    for i, (log_probs, values, advantages, returns, _) in enumerate(rows):
        for name, expected in zip(("log_probs", "values", "advantages", "returns"),
                                  (log_probs, values, advantages, returns), strict=True):  # fmt: skip
            found = getattr(batch, name)[i][batch.response[i]]
            torch.testing.assert_close(found, torch.tensor(expected, dtype=found.dtype), rtol=1e-9, atol=1e-9)
            assert not getattr(batch, name)[i][~batch.response[i]].any(), name
    assert row["kl"] == pytest.approx(np.mean([r[4] for r in rows]), abs=1e-9)
    state: dict = {}
    epochs = seeding.generator(spec.seed, "minibatches", 0)
    losses = []
    for _ in range(ppo.n_epochs):
        order = epochs.permutation(ppo.batch_size)
        for first in range(0, len(order), ppo.minibatch_size):
            terms = [oracle.objective(policy, batch, i, rows[i]) for i in order[first : first + ppo.minibatch_size]]
            loss = -sum(terms) / len(terms)
            losses.append(float(loss.detach()))
            oracle.adam(
                trainer.trained, torch.autograd.grad(loss, trainer.trained), state, len(losses), ppo.learning_rate
            )
    assert row["updates"] == len(losses) == 6
    assert row["loss"] == pytest.approx(np.mean(losses), abs=1e-9)
    assert row["clip_fraction"] > 0
    for found, expected in zip(end, trainer.trained, strict=True):
        torch.testing.assert_close(found, expected.detach(), rtol=0, atol=1e-9)
    displacement = math.sqrt(sum(float(((a - b) ** 2).sum()) for a, b in zip(end, start, strict=True)))
    assert row["displacement"] == pytest.approx(displacement)


def test_the_kl_is_none_at_the_start_and_nothing_is_won_by_an_end_token_that_may_not_come(make_spec):
    trainer = Trainer(make_spec(generation={"new_tokens": [9, 9], "min_new_tokens": 6}))
    policy = trainer.policy
    batch = trainer.judge(trainer.prompts["train"] * 4, seeding.generator(0, "actions"), again=True)
    assert float(rewards.sequence_kl(batch).abs().max()) < 1e-9
    with torch.no_grad():
        base = policy.model.get_base_model()
        kept = base.lm_head.weight[policy.end_token].clone()
        base.lm_head.weight[policy.end_token] = 10 * base.lm_head.weight[1]
        changed = (policy(batch)[0] - batch.log_probs).abs().amax(0)
        base.lm_head.weight[policy.end_token] = kept
    assert float(changed[:6].max()) < 1e-12 and float(changed[6:].max()) > 1e-3
    moved(trainer)
    kl = rewards.sequence_kl(trainer.judge(trainer.prompts["train"] * 4, seeding.generator(1, "actions"), again=True))
    assert float(kl.mean()) > 2 * float(kl.std()) / math.sqrt(len(kl))


@pytest.mark.parametrize("value_coef", [0.0, 0.1])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("backend", ["jvp", "ghost", "per_record"])
def test_scores_are_brute_forces_with_clipping_away_from_the_start(make_spec, backend, target, value_coef):
    trainer = moved(Trainer(make_spec()))
    prompts = trainer.prompts["train"][:6]
    batch = trainer.judge(prompts, seeding.generator(0, "actions"))
    validation = trainer.judge(trainer.prompts["validation"][:5], seeding.generator(1, "actions"))
    moved(trainer, 0.5, seed=1)
    policy, adapter = trainer.policy, list(trainer.policy.adapter().values())
    ratios = SequencePPO().with_ratio(policy, batch)[1].detach()[batch.response]
    assert 0.2 < ((ratios - 1).abs() > 0.05).double().mean() < 1
    scores = sequence_influence(
        policy,
        batch,
        SequenceTarget(validation, TARGETS[target]),
        SequencePPO(clip_range=0.05, value_coef=value_coef),
        backend=backend,
        max_tokens=40,
    )

    def flat(value):
        found = torch.autograd.grad(value, adapter, allow_unused=True)
        return torch.cat(
            [(torch.zeros_like(p) if g is None else g).flatten() for g, p in zip(found, adapter, strict=True)]
        )

    total = 0.0
    for i in range(len(validation)):
        log_probs, _ = oracle.log_probs_and_values(policy, *oracle.sequence_of(validation, i))
        advantages = validation.advantages[i][validation.response[i]]
        if target == "f_seq":
            total = total + sum(log_probs) * advantages[-1]
        else:
            total = total + sum(p * a for p, a in zip(log_probs, advantages, strict=True)) / len(log_probs)
    direction = flat(total / len(validation))
    known = [
        [
            getattr(batch, name)[i][batch.response[i]].tolist()
            for name in ("log_probs", "values", "advantages", "returns")
        ]
        for i in range(len(batch))
    ]
    expected = [
        float(flat(oracle.objective(policy, batch, i, [*row, 0.0], clip=0.05, value_coef=value_coef)) @ direction)
        for i, row in enumerate(known)
    ]
    assert min(map(abs, expected)) > 1e-6
    np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-8, atol=1e-10)


def test_scores_do_not_depend_on_how_many_tokens_share_a_pass(make_spec):
    trainer = moved(Trainer(make_spec()))
    batch = trainer.judge(trainer.prompts["train"][:6], seeding.generator(0, "actions"))
    target = SequenceTarget(batch, TARGETS["f_seq"])
    scores = [
        sequence_influence(trainer.policy, batch, target, SequencePPO(), backend="jvp", max_tokens=tokens).numpy()
        for tokens in (1, 33, 10_000)
    ]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-9)
    np.testing.assert_allclose(scores[0], scores[2], rtol=1e-9)


def test_methods_keep_what_they_should(make_spec):
    runs = {}
    for name, selection in {
        "ppo": {"kind": "all"},
        "iif": {"kind": "influence"},
        "random": {"kind": "random"},
        "matched": {"kind": "all", "updates": "as_influence"},
    }.items():
        trainer = Trainer(make_spec(selection=selection, ppo={"minibatch_size": 1, "n_epochs": 3}))
        runs[name] = trainer, trainer.train_round(no_clock)
    assert (runs["ppo"][0].batch.tokens == runs["iif"][0].batch.tokens).all()  # methods of a seed are paired
    scores = runs["iif"][0].scores
    helpful = int((scores >= 0).sum())
    assert 0 < helpful < 6
    assert runs["iif"][0].selection.kept.tolist() == np.flatnonzero(scores >= 0).tolist()
    np.testing.assert_allclose(runs["random"][0].scores, scores, rtol=1e-12)
    assert len(runs["random"][0].selection.kept) == helpful
    kept = {name: row["sequences_kept"] for name, (_, row) in runs.items()}
    updates = {name: row["updates"] for name, (_, row) in runs.items()}
    assert kept == {"ppo": 6, "iif": helpful, "random": helpful, "matched": 6}
    assert updates == {"ppo": 18, "iif": 3 * helpful, "random": 3 * helpful, "matched": 3 * helpful}
    assert runs["ppo"][1]["validation_sequences"] == 0 and runs["iif"][1]["validation_sequences"] == 5


def test_the_own_batch_can_be_the_validation_set(make_spec):
    trainer = Trainer(make_spec(selection={"validation": "batch"}))
    row = trainer.train_round(no_clock)
    assert trainer.validation is trainer.batch and row["validation_sequences"] == 0


def test_beta_follows_the_kl(make_spec):
    config = make_spec(ppo={"kl_coef": 0.1, "kl_target": 2.0, "kl_horizon": 12}).ppo  # 6 of 12: half of each error
    assert rewards.next_beta(0.1, 2.2, config) == pytest.approx(0.1 * (1 + 0.5 * 0.1))
    assert rewards.next_beta(0.1, 50.0, config) == pytest.approx(0.11)
    assert rewards.next_beta(0.1, 0.0, config) == pytest.approx(0.09)
    assert rewards.next_beta(0.1, 50.0, config.model_copy(update={"kl_target": None})) == 0.1


def test_a_minibatch_whose_ratio_explodes_is_skipped(make_spec):
    trainer = Trainer(make_spec(selection={"kind": "all"}, ppo={"max_ratio": 1.0001, "minibatch_size": 1}))
    row = trainer.train_round(no_clock)
    assert row["skipped"] > 0 and row["skipped"] + row["updates"] == 12


@pytest.mark.parametrize("kind", ["gpt_neo", "llama"])
def test_a_frozen_model_in_bfloat16_trains_an_adapter_in_float32(make_spec, kind):
    trainer = Trainer(make_spec(kind, model={"dtype": "bfloat16"}))
    frozen = [p for p in trainer.policy.parameters() if not p.requires_grad]
    assert {p.dtype for p in frozen} == {torch.bfloat16} and {p.dtype for p in trainer.trained} == {torch.float32}
    moved(trainer, 0.1)
    row = trainer.train_round(no_clock)
    assert 0 < row["sequences_kept"] < 6 and row["displacement"] > 0
    reference = moved(Trainer(make_spec(kind)), 0.1)
    expected = reference.influence(trainer.batch, trainer.validation)
    assert np.corrcoef(trainer.scores, expected)[0, 1] > 0.9
