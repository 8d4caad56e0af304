"""Test returns: three ways of measuring one expectation, against a slow loop and against exact values."""

import random
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

import oracles
from rl_influence import seeding
from rl_influence.config import ConfigError, EnvironmentConfig, EvaluationConfig, load_environments
from rl_influence.environments import make_env, tabular
from rl_influence.evaluation.returns import evaluate, play
from rl_influence.ppo.networks import make_policy

ENVIRONMENTS = load_environments(Path(__file__).parents[2] / "config/environments")


class Lasts(gym.Env):
    """Reward 1 a step; an episode lasts 1 or 20 steps (drawn at the reset), or for ever. Observation: the length."""

    observation_space = gym.spaces.Box(0, np.inf, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, forever=False):
        self.forever = forever

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length, self.count = (1, 20)[self.np_random.integers(2)], 0
        return np.float32([self.length]), {}

    def step(self, action):
        self.count += 1
        return np.float32([self.length]), 1.0, not self.forever and self.count == self.length, False, {}


gym.register("Lasts-v0", Lasts)


def environment(gym_id="Lasts-v0", **fields):
    defaults = {"id": "test", "label": "Test", "rounds": 1, "drop_percent": 50, "evaluation": {"kind": "batched"}}
    return EnvironmentConfig(**(defaults | {"gym_id": gym_id} | fields))


def budget(kind="batched", **fields):
    return EvaluationConfig(kind=kind, **fields)


def zeros(observations, generator):
    return np.zeros(len(observations), int)


def policy_of(config, scale=1.0, seed=0):
    """An untrained policy, or with scaled-up weights a sharper one."""
    env = make_env(config)
    policy = make_policy(
        config.network, env.observation_space, env.action_space, seeding.torch_generator(seed, "weights")
    )
    with torch.no_grad():
        policy.action_head.weight *= scale
    return policy


@pytest.mark.parametrize(("episodes", "copies"), [(40, 10), (43, 10), (7, 7), (5, 1)])
def test_every_copy_plays_its_quota(episodes, copies):
    returns, lengths, unfinished = play(zeros, environment(), episodes, 3, copies=copies)
    assert sorted(returns) == sorted(oracles.returns_of_copies(environment(), episodes, copies, 3))
    assert returns.tolist() == lengths.tolist()  # rewarded 1 a step, and every step was counted once
    assert unfinished == 0


def test_short_episodes_are_not_over_represented():
    """Half of the episodes last 1 step, half 20: the mean is 10.5. The first 100 to end would all be of 1 step."""
    returns, _, _ = play(zeros, environment(), 100, 0, copies=100)
    assert abs(returns.mean() - 10.5) < 2.576 * 9.5 / 100**0.5


@pytest.mark.parametrize("kind", ["batched", "episodes"])
def test_mean_and_standard_error(kind):
    config = environment()
    result = evaluate(policy_of(config), config, budget(kind, episodes=12), 5)
    returns, _, _ = play(zeros, config, 12, 5, copies=12 if kind == "batched" else 1)
    mean = sum(returns) / 12
    se = (sum((r - mean) ** 2 for r in returns) / 11 / 12) ** 0.5
    assert (result.mean, result.episodes, result.unfinished) == (pytest.approx(mean), 12, 0)
    assert result.se == pytest.approx(se, rel=1e-12)


@pytest.mark.parametrize("kind", ["batched", "episodes"])
def test_episodes_that_do_not_end_are_counted_and_named(kind):
    config = environment(kwargs={"forever": True})
    with pytest.warns(UserWarning, match="environment test: 4 of 4 test episodes did not end within max_steps 50"):
        result = evaluate(policy_of(config), config, budget(kind, episodes=4, max_steps=50), 0)
    assert (result.mean, result.episodes, result.unfinished) == (50.0, 4, 4)  # the return that they had reached


def test_some_episodes_do_not_end():
    returns, lengths, unfinished = play(zeros, environment(), 60, 1, copies=9, max_steps=5)
    assert set(returns) == {1.0, 5.0}
    assert unfinished == (lengths == 5).sum() > 0


def test_envpool_is_cut_too():
    config = ENVIRONMENTS["acrobot"]
    returns, lengths, unfinished = play(zeros, config, 5, 0, copies=3, max_steps=40)
    assert (returns.tolist(), lengths.tolist(), unfinished) == ([-40.0] * 5, [40] * 5, 5)
    returns, lengths, unfinished = play(zeros, config, 5, 0, copies=3, max_steps=500)
    assert (returns.tolist(), unfinished) == ([-500.0] * 5, 0)  # its own time limit ends an episode


@pytest.mark.parametrize("kind", ["batched", "episodes"])
@pytest.mark.parametrize(("slippery", "scale"), [(True, 1), (True, 300), (False, 300)])
def test_episodes_agree_with_the_exact_value(kind, slippery, scale):
    """Within the 99.9 % interval, for a nearly uniform and a nearly deterministic policy."""
    config = ENVIRONMENTS["frozenlake"].model_copy(update={"kwargs": {"map_name": "4x4", "is_slippery": slippery}})
    policy = policy_of(config, scale, seed=1)
    exact = evaluate(policy, config, budget("exact"), 0)
    episodes = 3000 if kind == "batched" else 800
    measured = evaluate(policy, config, budget(kind, episodes=episodes), 1)
    assert measured.episodes == episodes
    p = exact.mean
    assert abs(measured.mean - p) <= 3.3 * (p * (1 - p) / episodes) ** 0.5 + 1e-12


def test_exact_values_are_the_models():
    for name in ("frozenlake", "minigrid"):
        config = ENVIRONMENTS[name]
        policy = policy_of(config)
        model = tabular.tabular_model(make_env(config))
        expected = tabular.expected_return(model, tabular.policy_probabilities(policy, model))
        result = evaluate(policy, config, config.evaluation, 0)
        assert (result.mean, result.se, result.episodes, result.unfinished) == (expected, 0.0, 0, 0)


def test_another_map_is_another_model():
    policy = policy_of(ENVIRONMENTS["frozenlake"], scale=100)
    returns = [
        evaluate(policy, ENVIRONMENTS["frozenlake"].model_copy(update={"kwargs": kwargs}), budget("exact"), 0).mean
        for kwargs in ({"is_slippery": False}, {"is_slippery": True}, {"is_slippery": False})
    ]
    assert returns[0] != returns[1]
    assert returns[0] == returns[2]


def test_exact_is_refused_where_there_is_no_model():
    config = environment()
    with pytest.raises(ConfigError, match="'exact' is not available"):
        evaluate(policy_of(config), config, budget("exact"), 0)


def test_the_policy_is_stochastic():
    """Two actions of equal probability: over an episode of Lasts both must occur."""
    seen = []

    def uniform(observations, generator):
        seen.extend((actions := generator.integers(2, size=len(observations))).tolist())
        return actions

    play(uniform, environment(), 10, 0)
    assert set(seen) == {0, 1}
    config = ENVIRONMENTS["frozenlake"]
    result = evaluate(policy_of(config), config, budget(episodes=1000), 2)
    assert 0 < result.mean < 0.1  # a greedy untrained policy gets exactly 0 or 1


@pytest.mark.parametrize("name", ["acrobot", "bipedalwalker"])
def test_an_evaluation_follows_from_its_seed_and_touches_nothing_else(name):
    config = ENVIRONMENTS[name]
    policy = policy_of(config)
    few = budget(episodes=4, max_steps=100)
    parameters = [p.clone() for p in policy.parameters()]
    streams = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    with pytest.warns(UserWarning, match="did not end"):
        first, again, other = (evaluate(policy, config, few, seed) for seed in (1, 1, 2))
    assert first == again
    assert name == "acrobot" or first.mean != other.mean
    assert all(torch.equal(p, q) and p.grad is None for p, q in zip(policy.parameters(), parameters, strict=True))
    assert random.getstate() == streams[0]
    assert np.array_equal(np.random.get_state()[1], streams[1])
    assert torch.equal(torch.get_rng_state(), streams[2])
