"""Do a round's scores predict what leaving sequences out does? The datamodelling score, as of `analysis.faithfulness`.

Random halves of a round's batch are left out, the round is redone from its start, and two outcomes are measured: the
target on the round's validation set, and the mean reward of fresh generations of held-out prompts.
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pandas as pd
import torch

from rl_influence import seeding
from rl_influence.analysis.faithfulness import OUTCOMES, datamodelling_scores, random_subsets
from rl_influence.rlhf.objective import TARGETS, SequenceTarget
from rl_influence.rlhf.prompts import read_prompts, repeat, tokenize
from rl_influence.rlhf.settings import RunSpec
from rl_influence.rlhf.trainer import Trainer
from rl_influence.selection import Selection


def faithfulness(spec: RunSpec, k: int, *, subsets: int = 24, orders: int = 2, fresh: int = 128) -> pd.DataFrame:
    """Datamodelling scores of round k + 1 of a run of PPO with the settings of `spec`, whose target is scored.

    Args:
        subsets: random halves that are left out.
        orders: mini-batch orders over which an outcome is averaged.
        fresh: generations whose mean reward is the second outcome.

    Returns:
        Rows with outcome (the target's name, or `reward`), scoring, spearman, low, high, sets, orders, reliability.
    """
    trainer = Trainer(spec.model_copy(update={"selection": spec.selection.model_copy(update={"kind": "all"})}))
    while trainer.round < k:
        trainer.train_round(lambda phase: nullcontext())
    trainer.start_round()
    batch, validation = trainer.batch, trainer.validation_set()
    scores = trainer.influence(batch, validation)
    target = SequenceTarget(validation, TARGETS[spec.selection.target])
    prompts = repeat(tokenize(read_prompts(spec.prompts.source, "test"), trainer.tokenizer, spec.prompts), fresh)
    start, n = trainer.state(), len(batch)
    sets, baseline = (np.random.default_rng(s) for s in seeding.seed_sequence(spec.seed, "faithfulness", k).spawn(2))
    removed = random_subsets(n, subsets, 0.5, sets)
    rows = []
    for number, gone in enumerate(removed):
        kept = np.setdiff1d(np.arange(n), gone)
        for order in range(orders):
            trainer.restore(start)
            trainer.selection = Selection(kept, len(kept))
            trainer.update(
                np.random.default_rng(seeding.seed_sequence(spec.seed, "intervention", k).spawn(orders)[order])
            )
            with torch.no_grad():
                value = float(target(trainer.policy))
            made = trainer.judge(prompts, seeding.generator(spec.seed, "evaluation", k))
            rows.append((number, order, value, float(made.score.mean())))
    outcomes = pd.DataFrame(rows, columns=["set", "order", *OUTCOMES])
    scorings = {
        spec.selection.target: scores,
        "reward of the sequence": batch.score.double().cpu().numpy(),
        "random": baseline.standard_normal(n),
    }
    found = datamodelling_scores(outcomes, removed, scorings, generator=baseline)
    return found.assign(
        outcome=found["outcome"].map(dict(zip(OUTCOMES, (spec.selection.target, "reward"), strict=True)))
    )
