"""What a round's row of diagnostics.csv says, against slow twins in float64, and its picture."""

from __future__ import annotations

import copy
import json
import math

import gymnasium as gym
import numpy as np
import pytest
import torch

import oracles
from rl_influence.cli import main
from rl_influence.config import PPOConfig
from rl_influence.ppo import Learner, Records, make_policy
from rl_influence.runs.columns import DIAGNOSTICS_COLUMNS
from rl_influence.runs.diagnostics import QUANTILES, Watch
from rl_influence.runs.store import ResultError, check_run, diagnostics
from rl_influence.runs.training import Clock, Trainer, run
from short_runs import influence, silent, spec

IMAGE = gym.spaces.Box(0, 255, (7, 7, 3), np.uint8)
CASES = {
    "states": (gym.spaces.Discrete(5), gym.spaces.Discrete(3), "mlp"),
    "vectors": (gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(3), "mlp"),
    "continuous": (gym.spaces.Box(-1, 1, (4,)), gym.spaces.Box(-1, 1, (2,)), "mlp"),
    "images": (IMAGE, gym.spaces.Discrete(3), "minigrid_cnn"),
}
ACTOR = {name: ("policy", "action_head", "log_std") for name in CASES} | {
    "images": ("features", "policy", "action_head")
}
CRITIC = {name: ("value",) for name in CASES} | {"images": ("features", "value")}
CONFIG = PPOConfig(n_steps=64, batch_size=16, learning_rate=0.3, entropy_coef=0.01, clip_range=0.03, max_grad_norm=0.5)


def made(case: str, n: int = 40) -> tuple[Learner, Records]:
    """A policy in float64 that has moved a little since it collected the records, as it would in a round."""
    observation_space, action_space, network = CASES[case]
    torch.manual_seed(0)
    policy = make_policy(network, observation_space, action_space, torch.Generator().manual_seed(0)).double()
    learner = Learner(policy, CONFIG)
    rng = np.random.default_rng(1)
    learner.parameters.vector += 0.1 * rng.standard_normal(len(learner.parameters.vector))
    observation_space.seed(2)
    observations = np.stack([np.asarray(observation_space.sample()) for _ in range(n)])
    discrete = isinstance(action_space, gym.spaces.Discrete)
    actions = rng.integers(3, size=n) if discrete else rng.standard_normal((n, 2))
    values, advantages = rng.standard_normal(n), rng.standard_normal(n)
    records = Records(
        observations=observations,
        actions=actions,
        rewards=rng.standard_normal(n),
        terminated=np.zeros(n, bool),
        truncated=np.zeros(n, bool),
        log_probs=np.zeros(n),
        values=values,
        next_values=values,
        advantages=advantages,
        returns=values + advantages,
    )
    records.log_probs[:] = oracles.log_probs(policy, records)
    return learner, records


def begun(learner: Learner, records: Records) -> Watch:
    watch = Watch(learner)
    watch.begin(records)
    return watch


@pytest.mark.parametrize("case", CASES)
def test_every_quantity_is_its_slow_twins(case):
    learner, records = made(case)
    before = copy.deepcopy(learner.policy)
    orders = [np.random.default_rng(k).permutation(len(records)) for k in range(2)]
    scores = np.random.default_rng(3).standard_normal(len(records))
    watch, expected = begun(learner, records), []
    for step in learner.steps(records, orders):
        settings = {"clip_range": 0.03, "entropy_coef": 0.01, "value_coef": 0.5}
        expected.append(oracles.ppo_losses(learner.policy, records, step.batch, **settings))
        watch.note(step)
    found = watch.row([(1.0, 10), (4.0, 30)], scores, {"step_scale": 1.5, "displacement_target": 0.1})
    old, new = list(records.log_probs), oracles.log_probs(learner.policy, records)
    weights = [{name: p.detach() for name, p in policy.named_parameters()} for policy in (before, learner.policy)]
    policy_losses, value_losses, norms = zip(*expected, strict=True)
    assert watch.updates == len(norms) == 4  # 40 records: two mini-batches of 16, the short one left out
    assert found == pytest.approx(
        {
            "episodes": 2,
            "train_return": 2.5,
            "train_length": 20,
            "approx_kl": oracles.approx_kl(old, new),
            "clip_fraction": oracles.clip_fraction(old, new, 0.03),
            "entropy": oracles.mean_entropy(before, records.observations),
            "explained_variance": oracles.explained_variance(records.values, records.returns),
            "policy_loss": sum(policy_losses) / 4,
            "value_loss": sum(value_losses) / 4,
            "grad_norm": sum(norms) / 4,
            "grad_clipped_share": sum(norm > 0.5 for norm in norms) / 4,
            "displacement": oracles.displacement(*weights, ACTOR[case]),
            "value_displacement": oracles.displacement(*weights, CRITIC[case]),
            "negative_share": sum(score < 0 for score in scores) / 40,
            **{f"influence_q{100 * q:02.0f}": oracles.quantile(scores, q) for q in QUANTILES},
            "step_scale": 1.5,
            "displacement_target": 0.1,
        },
        rel=1e-4,  # five digits are kept
    )
    assert tuple(found) == DIAGNOSTICS_COLUMNS[1:]
    assert 0 < found["clip_fraction"] < 1 and 0 < found["grad_clipped_share"] <= 1 and found["displacement"] > 0.01


def test_a_round_without_episodes_updates_or_scores_has_empty_fields():
    learner, records = made("states")
    records.returns[:] = 1.0  # constant: nothing to explain
    found = begun(learner, records).row([], None, {})
    empty = {name for name, value in found.items() if value == ""}
    assert empty == {
        *("train_return", "train_length", "explained_variance", "policy_loss", "value_loss", "grad_norm"),
        *("grad_clipped_share", "negative_share", "step_scale", "displacement_target"),
        *(f"influence_q{100 * q:02.0f}" for q in QUANTILES),
    }
    assert found["displacement"] == found["clip_fraction"] == found["episodes"] == 0
    assert found["approx_kl"] == pytest.approx(0, abs=1e-15)


def test_without_a_limit_no_update_is_clipped():
    learner, records = made("vectors")
    learner.config = CONFIG.model_copy(update={"max_grad_norm": None})
    watch = begun(learner, records)
    for step in learner.steps(records, [np.arange(32)]):
        watch.note(step)
    assert watch.row([], None, {})["grad_clipped_share"] == 0 < watch.row([], None, {})["grad_norm"]


def test_a_policy_that_has_gone_far_off_is_infinitely_far():
    learner, records = made("vectors")
    records.log_probs[:] = -800.0
    assert begun(learner, records).row([], None, {})["approx_kl"] == math.inf


def test_episodes_are_those_of_the_round():
    """Every episode's return and length once, in the round in which it ended."""
    trainer, seen, rewards, ends = Trainer(spec()), [], [], []
    for _ in range(4):
        trainer.train_round(Clock())
        seen.append(trainer.diagnostics)
        rewards += trainer.records.rewards.tolist()
        ends += (trainer.records.terminated | trainer.records.truncated).tolist()
        assert trainer.sampler.episode_returns == []  # nothing that grows is left for the saved states
    episodes, start = [[] for _ in seen], 0
    for t, ended in enumerate(ends):
        if ended:
            episodes[t // 256].append((sum(rewards[start : t + 1]), t + 1 - start))
            start = t + 1
    assert [row["episodes"] for row in seen] == [len(found) for found in episodes]
    for row, found in zip(seen, episodes, strict=True):
        returns, lengths = zip(*found, strict=True)
        assert row["train_return"] == pytest.approx(sum(returns) / len(found), rel=1e-4)
        assert row["train_length"] == pytest.approx(sum(lengths) / len(found), rel=1e-4)


def test_a_runs_file(tmp_path):
    one = spec(rounds=3, selection=influence(50))
    said: list[str] = []
    run(one, tmp_path, log=said.append)
    table = diagnostics(tmp_path)
    assert tuple(table) == DIAGNOSTICS_COLUMNS and table["round"].tolist() == [1, 2, 3]
    assert (table["influence_q05"] < table["influence_q95"]).all() and (table["episodes"] > 0).all()
    entropy, clipped = table["entropy"][0], 100 * table["clip_fraction"][0]
    assert f"KL {table['approx_kl'][0]:.2g}, {clipped:.2g} % clipped, entropy {entropy:.3g}, " in said[1]
    assert f"train return {table['train_return'][0]:.4g}, " in said[1] and "KL" not in said[0]
    assert entropy == pytest.approx(math.log(4), rel=1e-3)  # nearly uniform over four actions
    assert "diagnostics.csv" in check_run(tmp_path, one)["files_sha256"]


def older(folder) -> None:
    """A run as it was written before there were diagnostics."""
    (folder / "diagnostics.csv").unlink()
    path = folder / "manifest.json"
    record = json.loads(path.read_text())
    del record["files_sha256"]["diagnostics.csv"]
    path.write_text(json.dumps(record))


def test_an_older_run_without_diagnostics_is_whole(tmp_path):
    one = spec(rounds=1)
    run(one, tmp_path, log=silent)
    older(tmp_path)
    check_run(tmp_path, one)
    assert diagnostics(tmp_path) is None
    said: list[str] = []
    run(one, tmp_path, log=said.append)
    assert said == [f"{tmp_path}: already trained"]


@pytest.mark.parametrize("content", [None, b"", b"round\n1\n", b"round,episodes\n1\n", b"\xff", b"round\nx\n"])
def test_diagnostics_that_are_damaged_are_named(content, tmp_path):
    one = spec(rounds=1)
    run(one, tmp_path, log=silent)
    (tmp_path / "diagnostics.csv").unlink()
    if content is not None:
        (tmp_path / "diagnostics.csv").write_bytes(content)
        with pytest.raises(ResultError, match="diagnostics.csv: "):
            diagnostics(tmp_path)
    with pytest.raises(ResultError, match="diagnostics.csv: (missing|differs)"):
        check_run(tmp_path, one)


@pytest.mark.slow
@pytest.mark.parametrize("selection", [influence(50), {"kind": "all"}])
def test_a_run_is_drawn(selection, tmp_path, capsys):
    run(spec(rounds=2, selection=selection), tmp_path, log=silent)
    main(["show", str(tmp_path)])
    assert capsys.readouterr().out == f"{tmp_path / 'run.png'}\n"
    png = (tmp_path / "run.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    main(["show", str(tmp_path), "--output", str(tmp_path / "again.png")])
    assert (tmp_path / "again.png").read_bytes() == png
    older(tmp_path)
    main(["show", str(tmp_path), "--output", str(tmp_path / "curve.png")])
    assert (tmp_path / "curve.png").read_bytes() not in (png, b"")


@pytest.mark.parametrize("damage", ["no folder", "manifest", "curve", "spec"])
def test_a_folder_that_cannot_be_drawn_is_one_line(damage, tmp_path, capsys):
    folder = tmp_path / "run"
    if damage != "no folder":
        run(spec(rounds=1), folder, log=silent)
        name = "curve.csv" if damage == "curve" else "manifest.json"
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace('"gamma"', '"gama"') if damage == "spec" else text[:-9])
    with pytest.raises(SystemExit) as stopped:
        main(["show", str(folder)])
    error = capsys.readouterr().err
    assert stopped.value.code == 1 and error.count("\n") == 1 and str(folder) in error
    assert not (folder / "run.png").exists()
