"""The datamodelling score of a round, redone by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from rl_influence import seeding
from rl_influence.analysis.faithfulness import random_subsets
from rl_influence.analysis.statistics import spearman
from rl_influence.rlhf.__main__ import main
from rl_influence.rlhf.faithfulness import faithfulness
from rl_influence.rlhf.objective import TARGETS, SequenceTarget
from rl_influence.rlhf.settings import FaithfulnessConfig, load_study
from rl_influence.rlhf.trainer import Trainer
from rl_influence.selection import Selection


def test_halves_are_left_out_and_the_round_redone(make_spec):
    spec = make_spec(ppo={"learning_rate": 0.002, "minibatch_size": 6, "n_epochs": 1})
    how = FaithfulnessConfig(rounds=[1], subsets=6, orders=1, generations=4)
    found = faithfulness(spec, 1, how).set_index(["outcome", "scoring"])
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
    expected = spearman(np.array(predicted), np.array(measured))
    assert found.loc[("f_seq", "f_seq"), "spearman"] == pytest.approx(expected)
    assert set(found.index.get_level_values("outcome")) == {"f_seq", "reward"}


def test_a_rounds_file_is_the_studys_own(make_spec, tmp_path, monkeypatch, capsys):
    """From a study's file to a round's, through the command; another seed or round is refused in one line."""
    monkeypatch.chdir(tmp_path)
    base = make_spec(ppo={"minibatch_size": 6, "n_epochs": 1}).model_dump(mode="json", exclude={"seed"})
    methods = {"ppo": {"label": "PPO", "selection": {"kind": "all"}}, "iif": {"label": "IIF"}}
    removals = {"rounds": [2], "subsets": 4, "orders": 2, "generations": 4}
    study = {"study": "rlhf_x", "label": "x", "seeds": [3], "methods": methods, "faithfulness": removals}
    Path("study.yaml").write_text(json.dumps(base | study))
    main(["faithfulness", "--config", "study.yaml", "--seed", "3", "--round", "2"])
    (path,) = load_study("study.yaml").removals()
    table = pd.read_csv(path)
    assert {*table["seed"]} == {3} and {*table["round"]} == {2} and {*table["sets"]} == {4}
    with pytest.raises(SystemExit):
        main(["faithfulness", "--config", "study.yaml", "--seed", "3", "--round", "1"])
    assert "no faithfulness of seed and round 3 1; there: 3 2" in capsys.readouterr().err
