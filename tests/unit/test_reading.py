"""Environments of other hands: what they give is taken for what it means, or refused in one line, early."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
import yaml

from rl_influence.cli import main
from rl_influence.config import Config, ConfigError, EnvironmentConfig, RunSpec, check_environments, parse
from rl_influence.environments import EnvironmentFault, envpool_engine, make_batch, make_sampler
from rl_influence.environments.reading import Reader
from rl_influence.evaluation.returns import evaluate, play
from rl_influence.ppo.records import TrainingError
from rl_influence.ppo.rollout import collect
from rl_influence.runs.check import check_environment
from rl_influence.runs.checkpoints import pack, unpack
from rl_influence.runs.trainer import Clock, Trainer
from rl_influence.runs.training import run

ROOT = Path(__file__).parents[2]
METHODS = Config(ROOT / "config/smoke.yaml").methods
BOX, STATES = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32), gym.spaces.Discrete(5)
NAN = float("nan")


class Foreign(gym.Env):
    """Observation: (time, action); reward: the action (-1 to 1); an episode lasts 7 steps.

    Args:
        habit: what this environment does in its own way.
        when: the step of its life from which on it does.
    """

    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    observation_space = BOX

    def __init__(self, habit="", when=0):
        self.habit, self.when, self.life, self.clock = habit, when, 0, 0
        self.own = np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        self._now(0.0)
        return self.own if self.habit == "reuses its array" else self.own.copy(), {}

    def _now(self, action):
        self.own[:] = self.life, action

    def step(self, action):
        self.clock, self.life = self.clock + 1, self.life + 1
        habit = self.habit if self.life > self.when else ""
        reward, terminated = float(action[0]), self.clock == 7
        self._now(reward)
        if habit == "changes the action":
            action *= 0
        if habit == "has noise of its own":
            reward += np.random.random()
        if habit == "NaN in the observation":
            self.own[1] = NAN
        observation = self.own if habit == "reuses its array" else self.own.copy()
        reward = {"array": np.array([reward]), "two rewards": np.ones(2), "NaN in the reward": NAN}.get(habit, reward)
        if habit in FLAGS:
            terminated = FLAGS[habit](terminated)
        if habit == "four values":
            return observation, reward, terminated, {}
        return observation, reward, terminated, False, {}


class Old(Foreign):
    """Of the time before seeds were given to `reset`."""

    def reset(self):
        return super().reset()


class Lone(Foreign):
    """`reset` returns the observation alone."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


FLAGS = {
    "int": int,
    "np.bool_": np.bool_,
    "np.int64": np.int64,
    "array of one": lambda x: np.array([x]),
    "0-d array": np.array,
    "float flag": float,
    "none": lambda x: None,
}
for name, kind in (("Foreign", Foreign), ("Old", Old), ("Lone", Lone)):
    gym.register(f"{name}-v0", kind)


def environment(habit="", when=0, gym_id="Foreign-v0", **fields):
    defaults = {"id": "test", "label": "Test", "gym_id": gym_id, "kwargs": {"habit": habit, "when": when}}
    defaults |= {"rounds": 2, "drop_percent": 50, "evaluation": {"kind": "batched"}}
    return EnvironmentConfig(**defaults | fields)


def spec(config, method="ppo"):
    selection = METHODS[method].selection.model_dump()
    if selection["drop_percent"] == "chosen":
        selection["drop_percent"] = 50
    data = {"environment": config.model_dump(), "selection": selection, "rounds": 2, "seed": 0}
    ppo = {"n_steps": 64, "n_epochs": 1, "batch_size": 16}
    return parse(RunSpec, data | {"ppo": ppo, "evaluation": {"kind": "batched", "episodes": 4}}, "test")


# one value at a time


@pytest.mark.parametrize("value", [True, np.True_, 1, np.int64(1), np.uint8(1), np.array(True), np.array([1])])
def test_what_means_true_is_true_and_its_opposite_false(value):
    reader = Reader("test", BOX)
    assert reader.flag("terminated", value) is True
    assert reader.flag("terminated", type(value)(0) if not isinstance(value, np.ndarray) else value * 0) is False


@pytest.mark.parametrize("value", [2, -1, 1.0, 0.5, None, "yes", np.array([True, False]), [], {}])
def test_what_is_no_flag_is_refused(value):
    with pytest.raises(EnvironmentFault, match="environment test: truncated = .* at a reset: expected true or false"):
        Reader("test", BOX).flag("truncated", value)


@pytest.mark.parametrize(
    "value", [2, 2.0, np.float32(2), np.int8(2), np.array(2), np.array([[2.0]]), torch.tensor([2])]
)
def test_one_number_of_any_kind_is_a_reward(value):
    reward = Reader("test", BOX).reward(value)
    assert reward == 2.0 and type(reward) is float


@pytest.mark.parametrize("value", [NAN, -np.inf, np.array([NAN]), np.ones(2), None, "2", 2j, [], {"reward": 2}])
def test_what_is_no_reward_is_refused(value):
    with pytest.raises(EnvironmentFault, match="environment test: reward = .*: (not finite|expected one number)"):
        Reader("test", BOX).reward(value)


def test_observations_are_copies_of_the_spaces_shape():
    own = np.array([1.0, 2.0])
    seen = Reader("test", BOX).observation(own)
    own[0] = 9
    assert seen.tolist() == [1, 2] and seen.dtype == np.float64  # as it is given, not as the space has it
    for state in (3, np.uint8(3), np.array([3]), torch.tensor(3)):
        seen = Reader("test", STATES).observation(state)
        assert (seen, seen.shape, seen.dtype) == (3, (), np.int64)


@pytest.mark.parametrize(
    ("space", "value", "message"),
    [
        (BOX, [1.0], r"observation = \[1.0\] at a reset: expected numbers of shape \(2,\), found \(1,\)"),
        (BOX, [[1.0, 2.0]], r"found \(1, 2\)"),
        (BOX, [1.0, -np.inf], r"observation\[1\] = -inf at a reset: not finite"),
        (BOX, {"image": 1}, r"expected numbers of shape \(2,\)"),
        (BOX, [[1], [2, 3]], "not an array"),
        (BOX, ["a", "b"], "expected numbers"),
        (STATES, 5, "observation = 5 at a reset: expected a whole number from 0 to 4"),
        (STATES, -1, "from 0 to 4"),
        (STATES, 1.0, "expected a whole number"),
        (STATES, [1, 2], "expected a whole number"),
    ],
)
def test_what_is_no_observation_is_refused(space, value, message):
    with pytest.raises(EnvironmentFault, match=message) as error:
        Reader("test", space).observation(value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 200


# a buffer, test episodes


def test_an_environment_that_reuses_its_array_gives_as_many_observations_as_one_that_does_not():
    buffers = []
    for habit in ("", "reuses its array"):
        trainer = Trainer(spec(environment(habit)))
        trainer.train_round(Clock())
        buffers.append(trainer.records)
    for plain, reused in zip(*(records.arrays().values() for records in buffers), strict=True):
        np.testing.assert_array_equal(plain, reused)
    assert len(np.unique(buffers[1].observations, axis=0)) == 64


def test_a_sampler_that_reuses_its_array_is_copied_too():
    class Reusing:
        def __init__(self):
            self.sampler = make_sampler(environment(), 0)
            self.observation = self.sampler.observation.copy()

        def step(self, action):
            reward, observation, *flags = self.sampler.step(action)
            final = observation.copy()
            self.observation[:] = self.sampler.observation
            return reward, final, *flags

    trainer = Trainer(spec(environment()))
    found = [
        collect(sampler, trainer.policy, 64, np.random.default_rng(0), trainer.spec.ppo).observations
        for sampler in (make_sampler(environment(), 0), Reusing())
    ]
    np.testing.assert_array_equal(*found)


def test_copies_that_share_one_array_are_told_apart(monkeypatch):
    """An array of the class: the next copy's step overwrites what the last one gave."""
    batch, ids = make_batch(environment("reuses its array"), 3, 0), np.arange(3)
    shared = np.zeros(2, np.float32)
    for env in batch._envs:
        env.unwrapped.own = shared
    batch.reset(ids)
    observations, *_ = batch.step(ids, np.float32([[0.1], [0.2], [0.3]]))
    np.testing.assert_array_equal(observations[:, 1], np.float32([0.1, 0.2, 0.3]))


@pytest.mark.parametrize("habit", ["int", "np.bool_", "np.int64", "array of one", "0-d array", "array"])
def test_flags_and_rewards_mean_the_same_in_any_type(habit):
    def act(observations, generator):
        return generator.standard_normal((len(observations), 1))

    for copies in (1, 2, 10):
        expected, found = (play(act, environment(h), 20, 0, copies=copies) for h in ("", habit))
        assert len(found[0]) == 20 and found[1].tolist() == [7] * 20
        np.testing.assert_array_equal(expected[0], found[0])
    trainers = [Trainer(spec(environment(h), "iif_p50")) for h in ("", habit)]
    for trainer in trainers:
        trainer.train_round(Clock())
        assert trainer.records.terminated.sum() == 64 // 7
    assert trainers[0].learner.parameters.vector.tobytes() == trainers[1].learner.parameters.vector.tobytes()


def test_an_environment_that_changes_the_action_resumes_with_the_one_that_was_executed():
    one, another = (make_sampler(environment(habit), 0) for habit in ("", "changes the action"))
    for sampler in (one, another):
        for action in (0.5, -3.0, 0.25):
            sampler.step(np.float32([action]))
    assert one.state()["actions"].tolist() == another.state()["actions"].tolist() == [[0.5], [-1.0], [0.25]]
    continued = make_sampler(environment("changes the action"), 0)
    continued.restore(unpack(pack(another.state())))
    np.testing.assert_array_equal(continued.observation, another.observation)


def test_an_environment_with_noise_of_its_own_in_the_reward_is_not_resumed():
    """Its observations are equal: the return so far tells."""
    sampler = make_sampler(environment("has noise of its own"), 0)
    for _ in range(3):
        sampler.step(np.float32([0.5]))
    state = unpack(pack(sampler.state()))
    with pytest.raises(ValueError, match="test cannot be resumed: replaying 3 actions gives another return"):
        make_sampler(environment("has noise of its own"), 0).restore(state)


# what cannot be recorded: one line, early if a first try can show it


FAULTS = {
    "NaN in the reward": "reward = nan at step {}: not finite",
    "NaN in the observation": "observation[1] = nan at step {}: not finite",
    "two rewards": "reward = array([1., 1.]) at step {}: expected one number",
    "four values": "step = (array(",
    "float flag": "terminated = 0.0 at step {}: expected true or false",
    "none": "terminated = None at step {}: expected true or false",
}


@pytest.mark.parametrize("habit", FAULTS)
def test_a_first_try_finds_it(habit):
    with pytest.raises(ConfigError) as error:
        check_environment(environment(habit))
    assert str(error.value).startswith("environment test: " + FAULTS[habit].format("1 of an episode"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("gym_id", "message"),
    [("Old-v0", "TypeError: .*unexpected keyword argument 'seed'"), ("Lone-v0", "expected two values|of shape")],
)
def test_a_first_try_finds_an_old_reset(gym_id, message):
    with pytest.raises(ConfigError, match=f"environment test: .*{message}") as error:
        check_environment(environment(gym_id=gym_id))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("method", [m for m in METHODS if not m.endswith("_exact")])
@pytest.mark.parametrize("habit", ["NaN in the reward", "NaN in the observation"])
def test_every_method_stops_at_what_is_not_finite(method, habit, tmp_path):
    """In the second round; the first step of an episode is not the first of a round."""
    trainer = Trainer(spec(environment(habit, when=66), method))
    trainer.train_round(Clock())
    with pytest.raises(TrainingError) as error:
        trainer.train_round(Clock())
    assert str(error.value) == "round 2, environment test: " + FAULTS[habit].format("4 of an episode")  # 67 = 9 * 7 + 4


@pytest.mark.parametrize("habit", ["NaN in the reward", "NaN in the observation", "none"])
def test_test_episodes_stop_too(habit, tmp_path):
    """The test environments are new ones: the training's has not yet come to the place."""
    config = environment(habit, when=3)
    fault = "environment test: " + FAULTS[habit].format("4 of an episode")
    with pytest.raises(TrainingError) as error:
        run(spec(config), tmp_path, log=lambda line: None)
    assert str(error.value) == f"test episodes after round 0, {fault}"
    assert not (tmp_path / "curve.csv").exists()
    one_by_one = spec(config).evaluation.model_copy(update={"kind": "episodes"})
    with pytest.raises(ConfigError) as error:
        evaluate(Trainer(spec(config)).policy, config, one_by_one, 0)
    assert str(error.value) == fault


def test_what_is_not_finite_in_test_episodes_on_envpool_is_named(monkeypatch):
    pool, step = envpool_engine.Pool, envpool_engine.Pool.step

    def broken(self, ids, actions):
        observations, rewards, *flags = step(self, ids, actions)
        rewards = np.where(ids == 2, np.inf, rewards)
        return observations, rewards, *flags

    batch = make_batch(environment(gym_id="Acrobot-v1", kwargs={}, evaluation_engine="envpool"), 3, 0)
    ids, actions = np.arange(3), np.zeros(3, int)
    batch.reset(ids)
    batch.step(ids, actions)
    monkeypatch.setattr(pool, "step", broken)
    batch.step(ids[:2], actions[:2])
    with pytest.raises(EnvironmentFault, match="environment test: reward = inf at step 2 of an episode: not finite"):
        batch.step(ids, actions)


# through the doors


MODULE = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class Mine(CartPoleEnv):
    def __init__(self, bad=False):
        super().__init__()
        self.bad = bad

    def step(self, action):
        values = super().step(action)
        return values[:4] if self.bad else values


gymnasium.register("Mine-v0", Mine)
"""


@pytest.fixture
def study(tmp_path):
    """A study of one's own: its environment's module lies in a folder beside it."""
    folder = shutil.copytree(ROOT / "config", tmp_path / "config")
    (folder / "lab").mkdir()
    (folder / "lab/__init__.py").touch()
    (folder / "lab/envs.py").write_text(MODULE)
    yield folder
    gym.registry.pop("Mine-v0", None)
    for name in [name for name in sys.modules if name.split(".")[0] == "lab"]:
        del sys.modules[name]


def written(study, **fields):
    config = environment(gym_id="Mine-v0", package="lab.envs", **({"kwargs": {}} | fields))
    path = study / "environments/test.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json", exclude_defaults=True) | {"rounds": 1}))
    block = {"environments": ["test"], "methods": ["ppo"], "seeds": [0], "evaluation_episodes": 2}
    (study / "mine.yaml").write_text(yaml.safe_dump({"study": "mine", "grid": [block]}))
    return config


def arguments(study):
    options = {"config": study / "mine.yaml", "output": study / "out"}
    return ["run", "--environment=test", "--method=ppo", "--seed=0", *(f"--{k}={v}" for k, v in options.items())]


def line(capsys, study):
    with pytest.raises(SystemExit) as stopped:
        main(arguments(study))
    said = capsys.readouterr().err
    assert stopped.value.code == 1 and said.count("\n") == 1
    return said


def test_a_module_of_ones_own_with_a_dotted_name_trains(study, monkeypatch):
    written(study)
    monkeypatch.syspath_prepend(study)
    main(arguments(study))
    assert (study / "out/curve.csv").exists()


def test_a_module_that_is_not_found_is_named_with_what_helps(study, capsys):
    config = written(study)
    said = line(capsys, study)
    assert "environment test needs the package lab.envs: install it, or name the folder that holds it in" in said
    assert "PYTHONPATH" in said and "pip install" not in said
    with pytest.raises(ConfigError, match="needs the package lab.envs: install it, or name the folder"):
        check_environments([config])


@pytest.mark.slow
def test_what_helps_does_help_where_environments_are_tried(study, monkeypatch):
    """In a process of its own, which inherits the variable."""
    path = f"{study}:{':'.join(filter(None, sys.path))}"
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.syspath_prepend(study)
    with pytest.raises(ConfigError, match="environment test: step = "):  # it was found, made and tried
        check_environments([written(study, kwargs={"bad": True})])


def test_a_module_that_cannot_be_imported_says_why(study, monkeypatch, capsys):
    written(study)
    monkeypatch.syspath_prepend(study)
    (study / "lab/envs.py").write_text("import no_such_package\n")
    assert "package lab.envs cannot be imported: ModuleNotFoundError: No module named 'no_such_p" in line(capsys, study)
    (study / "lab/envs.py").write_text("def broken(:\n")
    assert "package lab.envs cannot be imported: SyntaxError: " in line(capsys, study)


def test_a_fault_at_the_command_line_is_one_line_before_anything_is_written(study, monkeypatch, capsys):
    written(study, kwargs={"bad": True})
    monkeypatch.syspath_prepend(study)
    assert "environment test: step = (array(" in line(capsys, study)
    assert not (study / "out").exists()
