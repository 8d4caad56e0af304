"""Generated text follows the committed results; estimates follow from settings and shapes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from rl_influence.rlhf import estimates, report, tables
from rl_influence.rlhf.settings import load_study
from rlhf.test_tables import CURVES

ROOT = Path(__file__).parents[2]
PAPER = load_study(ROOT / "config/rlhf_paper.yaml")


def test_the_pages_blocks_are_the_committed_results():
    page = (ROOT / "docs/rlhf.md").read_text()
    assert report.render(page, ROOT) == page, "python -m rl_influence.rlhf report"


def test_a_block_shows_what_the_tables_hold(tmp_path):
    study = load_study(ROOT / "config/rlhf_fast.yaml")
    assert report.results(study, tmp_path) == "GPT-Neo, 2.6M parameters: no run is committed yet."
    folder = tmp_path / "results/rlhf_fast/tables"
    folder.mkdir(parents=True)
    missing = CURVES[["method", "seed"]].drop_duplicates().assign(reason="not there")[:1]
    seeds = tables.per_seed(CURVES, "rlhf_fast")
    makers = (tables.table_6, tables.ends, tables.progress)
    names = ["round", "outcome", "scoring", "spearman", "low", "high", "n", "reliability"]
    predicted = pd.DataFrame([[3, "f_seq", "random", 0.25, -0.5, 1, 2, 0.9], [3, "reward", "random", 0, -1, 1, 2, 0.9]])
    made = [seeds, *(make(CURVES) for make in makers), predicted.set_axis(names, axis=1), missing]
    for name, table in zip(tables.TABLES[1:], made, strict=True):
        table.to_csv(folder / f"{name}.csv", index=False)
    text = report.results(study, tmp_path)
    assert "| PPO | 2 | 7.00 ± 0.00 | 0.200 ± 0.000 |" in text
    assert (
        "| IIF, f_seq | 50 % | 1.00 s (2.74) | 0.50 s | 0.25 s (2.15) | 2.00 s (40.39) | 3.25 s (45.28) | 3.75 s |"
        in text
    )
    # 3 of 4 rounds and 6 of 5; 11.25 of 20 s and 22.5 of 25
    assert "it takes 98 [" in text and " % of PPO's rounds and 73 [" in text
    assert " % of its seconds (1 of 2 never reach it and count with all of their own); its reward" in text
    assert "rises by at least 14.1 standard errors with each seed (2)" in text
    assert "| | round 3: f_seq | round 3: reward |" in text and "n = 2 seeds" in text
    assert "| random | 0.25 [-0.50, 1.00] | 0.00 [-1.00, 1.00] |" in text
    assert "1 of 25 runs are not there yet (PPO 1)." in text


def test_a_model_of_the_papers_shape_has_its_parameters():
    assert estimates.GPT_NEO_2_7B.parameters == pytest.approx(2.65e9, rel=0.005)
    assert estimates.GPT_NEO_2_7B.adapter(16) == 2 * 32 * (16 * 2560 + 2560 * 16)


def test_estimates_follow_the_settings():
    model, gpu = estimates.GPT_NEO_2_7B, estimates.GPUS[1]
    ppo, iif = PAPER.run_spec("ppo", 0), PAPER.run_spec("iif", 0)
    times = estimates.round_seconds(ppo, model, gpu)
    assert times["optimise_s"] == pytest.approx(85.56)  # the paper's own, which the floor is taken from
    assert times["validation_s"] == times["influence_s"] == 0
    half = estimates.round_seconds(iif, model, gpu, kept=0.5)
    assert half["optimise_s"] == pytest.approx(85.56 / 2) and half["validation_s"] > half["sampling_s"] > 0
    whole = ppo.model_copy(update={"model": ppo.model.model_copy(update={"quantization": "none"})})
    bytes_of_weights = (estimates.memory_gib(whole, model) - estimates.memory_gib(ppo, model)) * 2**30
    assert bytes_of_weights == pytest.approx(model.parameters)  # two bytes instead of one
