"""Sampling against torch's distributions: probabilities, frequencies, and the two ways of drawing an action."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from scipy.stats import binom

from rl_influence.ppo.inference import Inference
from rl_influence.ppo.networks import make_policy
from rl_influence.ppo.records import is_repeatable

BOX = gym.spaces.Box
SPACES = {
    "one_hot": ("mlp", gym.spaces.Discrete(16), gym.spaces.Discrete(4)),
    "vector": ("mlp", BOX(-1, 1, (6,), np.float32), gym.spaces.Discrete(3)),
    "gaussian": ("mlp", BOX(-1, 1, (8,), np.float32), BOX(-1, 1, (2,), np.float32)),
    "images": ("minigrid_cnn", BOX(0, 255, (7, 7, 3), np.uint8), gym.spaces.Discrete(7)),
}


def make(kind, seed=0, double=True):
    """A policy away from its initialisation, whose action head is almost zero."""
    generator = torch.Generator().manual_seed(seed)
    policy = make_policy(*SPACES[kind], generator)
    policy = policy.double() if double else policy
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.15 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return policy


def observations_of(kind, n, seed=1):
    generator = np.random.default_rng(seed)
    if kind == "one_hot":
        return generator.integers(16, size=n)
    if kind == "images":
        return generator.integers(0, 11, (n, 7, 7, 3)).astype(np.uint8)
    return generator.standard_normal((n, *SPACES[kind][1].shape)).astype(np.float32)


def distribution(policy, observations):
    with torch.no_grad():
        outputs = policy.distribution_parameters(torch.from_numpy(observations))
    if policy.discrete:
        return torch.distributions.Categorical(logits=outputs)
    std = policy.log_std.weight.detach().exp()
    return torch.distributions.Independent(torch.distributions.Normal(outputs, std), 1)


@pytest.mark.parametrize("kind", SPACES)
def test_log_probs_and_values_equal_torchs(kind):
    policy, observations = make(kind), observations_of(kind, 50)
    actions = Inference(policy).act(observations, np.random.default_rng(0))
    inference = Inference(policy)
    log_probs, values = inference.log_probs(inference.outputs(observations), actions), inference.values(observations)
    expected = distribution(policy, observations).log_prob(torch.from_numpy(actions))
    np.testing.assert_allclose(log_probs, expected, rtol=1e-12)
    with torch.no_grad():
        np.testing.assert_allclose(values, policy.values(torch.from_numpy(observations)), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kind", SPACES)
def test_step_draws_what_act_draws(kind):
    policy, observations = make(kind), observations_of(kind, 300)
    inference = Inference(policy)
    noise = inference.noise(300, np.random.default_rng(2))
    one_by_one = np.array([inference.step(o, row) for o, row in zip(observations, noise, strict=True)])
    together = inference.act(observations, np.random.default_rng(2))
    np.testing.assert_allclose(one_by_one, together, rtol=1e-12, atol=1e-13)
    if policy.discrete:
        assert len(set(together.tolist())) == SPACES[kind][2].n


@pytest.mark.parametrize("kind", ["one_hot", "vector", "images"])
def test_frequencies_are_the_probabilities(kind):
    policy, n = make(kind), 20_000
    observation = observations_of(kind, 1)
    actions = Inference(policy).act(np.repeat(observation, n, axis=0), np.random.default_rng(3))
    probabilities = distribution(policy, observation).probs[0].numpy()
    counts = np.bincount(actions, minlength=len(probabilities))
    low, high = binom.interval(1 - 1e-5, n, probabilities)
    assert ((low <= counts) & (counts <= high)).all()
    low, high = binom.interval(1 - 1e-5, n, np.roll(probabilities, 1))
    assert not ((low <= counts) & (counts <= high)).all()  # the bounds would have told another distribution


def test_gaussian_actions_are_mean_plus_scaled_noise():
    policy, observations = make("gaussian"), observations_of("gaussian", 200)
    actions = Inference(policy).act(observations, np.random.default_rng(4))
    pi = distribution(policy, observations).base_dist
    noise = np.random.default_rng(4).standard_normal((200, 2))
    np.testing.assert_allclose((actions - pi.loc.numpy()) / pi.scale.numpy(), noise, rtol=1e-9, atol=1e-12)
    assert (np.abs(actions) > 1).any()  # raw, not clipped to the box


def test_impossible_actions_are_never_drawn():
    policy = make("one_hot")
    with torch.no_grad():
        policy.action_head.weight.zero_()
        policy.action_head.bias.copy_(torch.tensor([-1000.0, 0.0, -1000.0, -1000.0]))
    inference = Inference(policy)
    for noise in (0.0, 0.5, np.nextafter(1.0, 0.0)):
        assert inference.step(np.asarray(3), noise) == 1

    class Extremes:
        def random(self, n):
            return np.array([0.0, 0.5, np.nextafter(1.0, 0.0)])

    assert inference.act(np.array([3, 3, 3]), Extremes()).tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", ["one_hot", "images"])
def test_remembered_probabilities_equal_fresh_ones(kind):
    policy, observations = make(kind), observations_of(kind, 5)
    inference, noise = Inference(policy), np.random.default_rng(5).random(200)
    visits = np.random.default_rng(6).integers(5, size=200)
    for visit, u in zip(visits, noise, strict=True):
        assert inference.step(observations[visit], u) == Inference(policy).step(observations[visit], u)


def test_a_new_inference_sees_the_new_weights():
    policy = make("one_hot")
    assert {Inference(policy).step(np.asarray(2), u) for u in np.linspace(0, 0.999, 50)} == {0, 1, 2, 3}
    with torch.no_grad():
        policy.action_head.bias += torch.tensor([0.0, 0.0, 0.0, 500.0])
    assert {Inference(policy).step(np.asarray(2), u) for u in np.linspace(0.001, 0.999, 50)} == {3}


def test_what_is_worth_remembering():
    assert is_repeatable(np.asarray(3)) and is_repeatable(np.zeros((7, 7, 3), np.uint8))
    assert is_repeatable(np.zeros(1024, np.uint8)) and not is_repeatable(np.zeros(1025, np.uint8))
    assert not is_repeatable(np.zeros(4, np.float32)) and not is_repeatable(np.zeros((4, 84, 84), np.uint8))


def test_noise_does_not_depend_on_the_network():
    first, second = (Inference(make("vector", seed)) for seed in (0, 1))
    np.testing.assert_array_equal(first.noise(9, np.random.default_rng(7)), second.noise(9, np.random.default_rng(7)))
    assert Inference(make("gaussian")).noise(9, np.random.default_rng(7)).shape == (9, 2)


@pytest.mark.parametrize("kind", SPACES)
def test_outputs_keep_the_dtype_of_the_weights(kind):
    for double, dtype in ((True, np.float64), (False, np.float32)):
        inference, observations = Inference(make(kind, double=double)), observations_of(kind, 3)
        actions, outputs = inference.act(observations, np.random.default_rng(0)), inference.outputs(observations)
        found = (outputs, inference.log_probs(outputs, actions), inference.values(observations))
        assert all(array.dtype == dtype for array in found)
        if not inference.policy.discrete:
            assert actions.dtype == dtype
