"""Whole training runs on FrozenLake: learning curves of Stable-Baselines3 and ours, statistically alike.

Each seed has one pair of runs from the same initial weights, with random streams of their own, so that the differences
of a pair are chance alone. Short rounds and a high learning rate show the whole rise in little time.
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from scipy.stats import t as student

from benchmarks.sb3 import sb3_ppo
from rl_influence import seeding
from rl_influence.config import PPOConfig, load_environments
from rl_influence.environments import make_env, make_sampler, tabular
from rl_influence.ppo.learner import Learner
from rl_influence.ppo.networks import make_policy
from rl_influence.ppo.rollout import collect

FROZENLAKE = load_environments(Path(__file__).parents[2] / "config" / "environments")["frozenlake"]
ROUNDS, SEEDS = 12, range(5)
CONFIG = PPOConfig(n_steps=512, learning_rate=0.03)
NAMES = {
    "policy_net": "mlp_extractor.policy_net",
    "value_net": "mlp_extractor.value_net",
    "action_head": "action_net",
    "value_head": "value_net",
}


def initial_policy(seed):
    return make_policy("mlp", gym.spaces.Discrete(16), gym.spaces.Discrete(4), seeding.torch_generator(seed, "weights"))


def our_curve(seed, model, config):
    """Exact expected return after each round."""
    sampler, learner = make_sampler(FROZENLAKE, seed), Learner(initial_policy(seed), config)
    curve = []
    for k in range(ROUNDS):
        records = collect(sampler, learner.policy, config.n_steps, seeding.generator(seed, "actions", k), config)
        generator = seeding.generator(seed, "minibatches", k)
        learner.update(records, [generator.permutation(config.n_steps) for _ in range(config.n_epochs)])
        curve.append(tabular.expected_return(model, tabular.policy_probabilities(learner.policy, model)))
    return curve


def sb3_curve(seed, model):
    ppo = sb3_ppo("mlp", make_env(FROZENLAKE), CONFIG, seed=seed)
    theirs = ppo.policy.state_dict()
    for name, value in initial_policy(seed).state_dict().items():
        module, rest = name.split(".", 1)
        theirs[f"{NAMES[module]}.{rest}"].copy_(value)
    curve = []
    for _ in range(ROUNDS):
        ppo.learn(ppo.n_steps, reset_num_timesteps=False)
        with torch.no_grad():
            pi = ppo.policy.get_distribution(torch.arange(16)).distribution.probs.double().numpy()
        curve.append(tabular.expected_return(model, pi))
    return curve


def interval(differences):
    """95 % t interval of the mean, n = the number of seeds."""
    n = len(differences)
    half = student.ppf(0.975, n - 1) * differences.std(ddof=1) / np.sqrt(n)
    return differences.mean() - half, differences.mean() + half


@pytest.mark.slow
def test_learning_curves_are_alike():
    model = tabular.tabular_model(make_env(FROZENLAKE))
    half_the_rate = CONFIG.model_copy(update={"learning_rate": CONFIG.learning_rate / 2})
    ours, theirs, slower = (
        np.array([curve(seed) for seed in SEEDS])
        for curve in (
            lambda seed: our_curve(seed, model, CONFIG),
            lambda seed: sb3_curve(seed, model),
            lambda seed: our_curve(seed, model, half_the_rate),
        )
    )
    low, high = interval((ours - theirs).mean(1))
    assert low < 0 < high, f"area under the curve differs by {low:.3f} to {high:.3f}"
    # the test has power: both learn, and another learning rate is told apart
    assert ours[:, -1].mean() > 0.5 and theirs[:, -1].mean() > 0.5
    low, high = interval((slower - theirs).mean(1))
    assert high < 0, f"area under the curve at half the rate differs by {low:.3f} to {high:.3f}"
