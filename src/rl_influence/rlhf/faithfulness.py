"""Do a round's scores predict what leaving sequences out does? The datamodelling score, as of `analysis.faithfulness`.

Random halves of a round's batch are left out, the round is redone from its start, and two outcomes are measured: the
target on the round's validation set, and the mean reward of fresh generations of held-out prompts.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from rl_influence import seeding
from rl_influence.analysis.faithfulness import OUTCOMES, datamodelling_scores, random_subsets
from rl_influence.rlhf.objective import TARGETS, SequenceTarget
from rl_influence.rlhf.prompts import read_prompts, repeat, tokenize
from rl_influence.rlhf.settings import FaithfulnessConfig, RunSpec
from rl_influence.rlhf.trainer import Trainer
from rl_influence.runs.files import write_atomic
from rl_influence.selection import Selection


def faithfulness(spec: RunSpec, number: int, how: FaithfulnessConfig) -> pd.DataFrame:
    """Datamodelling scores of a round (`number`, from 1) of PPO with the settings of `spec`, whose target is scored.

    Returns:
        Rows with outcome (the target's name, or `reward`), scoring, spearman, low, high, sets, orders, reliability.
    """
    k = number - 1
    trainer = Trainer(spec.model_copy(update={"selection": spec.selection.model_copy(update={"kind": "all"})}))
    while trainer.round < k:
        trainer.train_round(lambda phase: nullcontext())
    trainer.start_round()
    batch, validation = trainer.batch, trainer.validation_set()
    scores = trainer.influence(batch, validation)
    target = SequenceTarget(validation, TARGETS[spec.selection.target])
    prompts = repeat(
        tokenize(read_prompts(spec.prompts.source, "test"), trainer.tokenizer, spec.prompts), how.generations
    )
    start, n = trainer.state(), len(batch)
    sets, baseline = (np.random.default_rng(s) for s in seeding.seed_sequence(spec.seed, "faithfulness", k).spawn(2))
    removed = random_subsets(n, how.subsets, 0.5, sets)
    rows = []
    orders = seeding.seed_sequence(spec.seed, "intervention", k).spawn(how.orders)
    for left_out, gone in enumerate(removed):
        kept = np.setdiff1d(np.arange(n), gone)
        for order, seed in enumerate(orders):
            trainer.restore(start)
            trainer.selection = Selection(kept, len(kept))
            trainer.update(np.random.default_rng(seed))
            with torch.no_grad():
                value = float(target(trainer.policy))
            made = trainer.judge(prompts, seeding.generator(spec.seed, "evaluation", k))
            rows.append((left_out, order, value, float(made.score.mean())))
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


def write(spec: RunSpec, number: int, how: FaithfulnessConfig, path: str | Path) -> None:
    """Writes a round's scores, with columns seed and round before the others."""
    table = faithfulness(spec, number, how)
    table.insert(0, "seed", spec.seed)
    table.insert(1, "round", number)
    write_atomic(Path(path), table.to_csv(index=False, lineterminator="\n").encode())
