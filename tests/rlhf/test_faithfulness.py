"""The datamodelling score of a round, redone by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rl_influence import seeding
from rl_influence.analysis.faithfulness import random_subsets
from rl_influence.analysis.statistics import spearman
from rl_influence.rlhf.faithfulness import faithfulness
from rl_influence.rlhf.objective import TARGETS, SequenceTarget
from rl_influence.rlhf.trainer import Trainer
from rl_influence.selection import Selection


def test_halves_are_left_out_and_the_round_redone(make_spec):
    spec = make_spec(ppo={"learning_rate": 0.002, "minibatch_size": 6, "n_epochs": 1})
    found = faithfulness(spec, 0, subsets=6, orders=1, fresh=4).set_index(["outcome", "scoring"])
    trainer = Trainer(spec)
    trainer.start_round()
    batch, validation = trainer.batch, trainer.validation_set()
    target, start = SequenceTarget(validation, TARGETS["f_seq"]), trainer.state()
    scores = trainer.influence(batch, validation)
    sets, _ = (np.random.default_rng(s) for s in seeding.seed_sequence(spec.seed, "faithfulness", 0).spawn(2))
    predicted, measured = [], []
    for gone in random_subsets(6, 6, 0.5, sets):
        trainer.restore(start)
        kept = np.setdiff1d(np.arange(6), gone)
        trainer.selection = Selection(kept, 3)
        trainer.update(np.random.default_rng(seeding.seed_sequence(spec.seed, "intervention", 0).spawn(1)[0]))
        predicted.append(-scores[gone].sum())
        with torch.no_grad():
            measured.append(float(target(trainer.policy)))
    expected, _ = spearman(np.array(predicted), np.array(measured))
    assert found.loc[("f_seq", "f_seq"), "spearman"] == pytest.approx(expected)
    assert set(found.index.get_level_values("outcome")) == {"f_seq", "reward"}
