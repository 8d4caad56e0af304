"""The advantage heuristics with exact true advantages: as an analysis finds them afterwards, and resumed."""

from dataclasses import fields

import numpy as np
import pytest

from rl_influence.analysis.diagnosis import true_advantages
from rl_influence.config import EXACT_HEURISTICS, Config, ConfigError, RunSpec, parse
from rl_influence.ppo.records import Records
from rl_influence.rules import drop_by_advantage
from rl_influence.runs import snapshots, training
from rl_influence.runs.check import check_environment
from rl_influence.runs.training import Clock, Trainer
from rl_influence.selection import select
from synthetic import CATALOGUE

CONFIG = Config(CATALOGUE / "config.yaml")


BY = {"advantage_h1_exact": "gap", "advantage_h2_exact": "product"}


def spec(environment: str, method: str, rounds: int = 3) -> RunSpec:
    """Buffers of 150 steps, so that most begin within an episode."""
    data = CONFIG.resolve(environment, method, 4).model_dump() | {"rounds": rounds}
    data["ppo"] |= {"n_steps": 150, "batch_size": 50, "n_epochs": 1}
    data["selection"]["drop_percent"] = 50
    return RunSpec(**data)


@pytest.mark.parametrize("environment", ["frozenlake", "minigrid"])
@pytest.mark.parametrize("method", EXACT_HEURISTICS)
def test_a_run_drops_what_an_analysis_of_its_snapshots_finds(environment, method, tmp_path):
    training.take_snapshots(spec(environment, method), range(3), tmp_path, log=lambda line: None)
    dropped, within_an_episode = 0, False
    for k in range(3):
        snapshot = snapshots.load(tmp_path, k)
        true = true_advantages(snapshot, "exact")
        expected = drop_by_advantage(snapshot.records.advantages, true, 0.5, by=BY[method])
        assert snapshot.selection.kept.tolist() == expected.tolist()
        dropped += len(true) - len(expected)
        within_an_episode |= len(snapshot.episode_actions) > 0
    assert dropped > 0 and within_an_episode


@pytest.mark.parametrize("environment", ["frozenlake", "minigrid"])
def test_continued_in_every_round_it_ends_with_the_same_bytes(environment):
    one = spec(environment, "advantage_h2_exact")
    straight, state = Trainer(one), None
    for _ in range(3):
        straight.train_round(Clock())
        resumed = Trainer(one)
        if state:
            resumed.restore(state)
        resumed.train_round(Clock())
        state = resumed.state()
        assert resumed.selection.kept.tolist() == straight.selection.kept.tolist()
    assert state["parameters"].tobytes() == straight.learner.parameters.vector.tobytes()


def test_other_methods_make_no_model():
    assert Trainer(spec("frozenlake", "advantage_h1")).mdp is None


def test_the_heuristics_see_the_advantages_they_are_given():
    estimated = np.array([1.0, -2.0, 3.0, -0.5])
    true = np.array([-1.0, 1.0, -0.1, -0.5])
    unused = dict.fromkeys((field.name for field in fields(Records)), np.zeros(4))
    records = Records(**unused | {"advantages": estimated})
    for method, kept in (("advantage_h1_exact", [0, 1, 3]), ("advantage_h2_exact", [0, 2, 3])):
        one = spec("frozenlake", method)  # of three candidates one is dropped
        assert select(one, records, None, np.random.default_rng(0), true).kept.tolist() == kept


@pytest.mark.parametrize("method", EXACT_HEURISTICS)
def test_without_a_discount_true_advantages_are_refused_with_the_configuration(method):
    data = spec("frozenlake", method).model_dump()
    with pytest.raises(ConfigError, match=f"selection {method} needs ppo.gamma below 1") as error:
        parse(RunSpec, data | {"ppo": data["ppo"] | {"gamma": 1}}, "test")
    assert "\n" not in str(error.value)
    parse(RunSpec, data | {"ppo": data["ppo"] | {"gamma": 0.999}}, "test")
    data["selection"] |= {"kind": method.removesuffix("_exact")}
    parse(RunSpec, data | {"ppo": data["ppo"] | {"gamma": 1}}, "test")


def test_a_random_start_that_the_image_does_not_tell_is_refused_before_the_first_job():
    random_start = spec("minigrid", "advantage_h1_exact").model_dump()
    random_start["environment"]["gym_id"] = "MiniGrid-Empty-Random-6x6-v0"
    one = RunSpec(**random_start)
    check_environment(one.environment)  # test returns are exact all the same
    for refused in (lambda: check_environment(one.environment, true_advantages=True), lambda: Trainer(one)):
        with pytest.raises(ConfigError, match="need every record's state; .* 64 states show 50 different"):
            refused()
    other = random_start | {"selection": random_start["selection"] | {"kind": "advantage_h1"}}
    Trainer(RunSpec(**other)).train_round(Clock())


def test_where_states_are_told_apart_chance_may_decide():
    for name in ("frozenlake", "minigrid"):
        check_environment(spec(name, "advantage_h1_exact").environment, true_advantages=True)
    slippery = spec("frozenlake", "advantage_h1_exact").environment.model_copy(update={"kwargs": {"is_slippery": True}})
    check_environment(slippery, true_advantages=True)


def test_an_environment_without_a_model_is_refused_before_the_sweep():
    grid = [{"environments": ["acrobot"], "methods": list(EXACT_HEURISTICS), "seeds": [0]}]
    with pytest.raises(ConfigError) as error:
        Config({"study": "made_up", "grid": grid}, CATALOGUE)
    line = "config: acrobot/advantage_h1_exact: selection advantage_h1_exact needs an environment with an exact model"
    assert str(error.value).startswith(line) and "not batched" in str(error.value) and "\n" not in str(error.value)
