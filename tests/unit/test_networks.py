"""Architectures, initialisation and log-probabilities against torch's own distributions."""

import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_influence.config import ConfigError
from rl_influence.ppo.networks import make_policy

BOX = gym.spaces.Box
CONTINUOUS = BOX(-1, 1, (4,), np.float32)
SPACES = {
    "one_hot": ("mlp", gym.spaces.Discrete(16), gym.spaces.Discrete(4)),
    "vector": ("mlp", BOX(-1, 1, (6,), np.float32), gym.spaces.Discrete(3)),
    "gaussian": ("mlp", BOX(-1, 1, (24,), np.float64), CONTINUOUS),
    "minigrid": ("minigrid_cnn", BOX(0, 255, (7, 7, 3), np.uint8), gym.spaces.Discrete(7)),
    "nature": ("nature_cnn", BOX(0, 255, (4, 84, 84), np.uint8), gym.spaces.Discrete(6)),
}


def make(kind, seed=0):
    return make_policy(*SPACES[kind], torch.Generator().manual_seed(seed))


def observations_of(kind, n):
    generator = np.random.default_rng(1)
    space = SPACES[kind][1]
    if kind == "one_hot":
        return torch.from_numpy(generator.integers(space.n, size=n))
    if space.dtype == np.uint8:
        return torch.from_numpy(generator.integers(0, 256, (n, *space.shape)).astype(np.uint8))
    return torch.from_numpy(generator.standard_normal((n, *space.shape)))


@pytest.mark.parametrize(
    "kind, parameters",
    [
        # two 64-64 networks with one output each, written out
        ("one_hot", 2 * (16 * 64 + 64 + 64 * 64 + 64) + (64 * 4 + 4) + (64 + 1)),
        ("gaussian", 2 * (24 * 64 + 64 + 64 * 64 + 64) + (64 * 4 + 4) + (64 + 1) + 4),
        # 7x7x3 -> 5x5x16 -> 3x3x32 = 288 -> 64
        ("minigrid", (27 * 16 + 16) + (144 * 32 + 32) + (288 * 64 + 64) + 4 * (64 * 64 + 64) + (64 * 7 + 7) + 65),
        # 84 -> 20 -> 9 -> 7: 64 * 49 = 3136 -> 512
        (
            "nature",
            (4 * 64 * 32 + 32) + (32 * 16 * 64 + 64) + (64 * 9 * 64 + 64) + (3136 * 512 + 512)
            + 2 * (512 * 64 + 64 + 64 * 64 + 64) + (64 * 6 + 6) + 65,
        ),
    ],
)  # fmt: skip
def test_sizes(kind, parameters):
    assert sum(p.numel() for p in make(kind).parameters()) == parameters


@pytest.mark.parametrize("kind", SPACES)
def test_initial_weights_are_orthogonal_with_the_gains_of_the_paper(kind):
    for name, parameter in make(kind).named_parameters():
        if name.endswith("bias") or name.startswith("log_std"):
            assert (parameter == 0).all(), name
            continue
        gain = {"action_head.weight": 0.01, "value_head.weight": 1.0}.get(name, math.sqrt(2))
        singular = torch.linalg.svdvals(parameter.detach().double().flatten(1))
        np.testing.assert_allclose(singular, gain, rtol=1e-5, err_msg=name)


def test_initial_weights_follow_the_generator():
    torch.manual_seed(0)
    first = make("minigrid", 5)
    torch.manual_seed(1)  # the global generator decides nothing
    again, other = make("minigrid", 5), make("minigrid", 6)
    for a, b, c in zip(first.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.count_nonzero() == 0 or not torch.equal(a, c)


def test_integers_are_one_hot():
    np.testing.assert_array_equal(make("one_hot").inputs(torch.tensor([3, 0, 15])), np.eye(16)[[3, 0, 15]])


def test_images_are_channels_first_and_divided_by_255():
    images = observations_of("minigrid", 3)
    inputs = make("minigrid").double().inputs(images)
    assert inputs.shape == (3, 3, 7, 7)
    for n, row, column, channel in ((0, 0, 0, 0), (1, 2, 5, 1), (2, 6, 3, 2)):
        assert inputs[n, channel, row, column] == images[n, row, column, channel].double() / 255
    frames = observations_of("nature", 2)
    assert torch.equal(make("nature").double().inputs(frames), frames.double() / 255)


@pytest.mark.parametrize("kind", SPACES)
def test_distributions_equal_torchs(kind):
    policy, observations = make(kind).double(), observations_of(kind, 8)
    with torch.no_grad():
        policy.action_head.weight *= 100
        if not policy.discrete:
            policy.log_std.weight += torch.linspace(-1, 0.5, 4)
        outputs = policy.distribution_parameters(observations)
        if policy.discrete:
            pi = torch.distributions.Categorical(logits=outputs)
        else:
            pi = torch.distributions.Independent(torch.distributions.Normal(outputs, policy.log_std.weight.exp()), 1)
        actions = pi.sample()
        log_probs, values, entropy = policy.evaluate(observations, actions)
        np.testing.assert_allclose(log_probs, pi.log_prob(actions), rtol=1e-12)
        np.testing.assert_allclose(policy.log_prob(observations, actions), log_probs, rtol=1e-12)
        np.testing.assert_allclose(entropy, pi.entropy(), rtol=1e-12)
        np.testing.assert_allclose(policy.values(observations), values, rtol=1e-12)
    assert log_probs.shape == values.shape == entropy.shape == (8,)


@pytest.mark.parametrize("kind", SPACES)
def test_outputs_follow_the_dtype_of_the_weights(kind):
    observations = observations_of(kind, 2)
    assert make(kind).values(observations).dtype == torch.float32
    assert make(kind).double().values(observations).dtype == torch.float64


def test_images_share_one_extractor():
    policy = make("minigrid").double()
    outputs, values, _ = policy.evaluate(observations_of("minigrid", 4), torch.zeros(4, dtype=int))
    first = policy.features[0].weight
    (by_policy,) = torch.autograd.grad(outputs.sum(), first, retain_graph=True)
    (by_value,) = torch.autograd.grad(values.sum(), first)
    assert by_policy.abs().max() > 0 and by_value.abs().max() > 0


@pytest.mark.parametrize(
    "network, observations, actions, words",
    [
        ("mlp", BOX(0, 255, (7, 7, 3), np.uint8), gym.spaces.Discrete(2), ["mlp", "uint8", "choices"]),
        ("minigrid_cnn", gym.spaces.Discrete(3), gym.spaces.Discrete(2), ["minigrid_cnn", "Discrete(3)", "uint8"]),
        ("nature_cnn", BOX(0, 1, (4, 84, 84), np.float32), gym.spaces.Discrete(2), ["nature_cnn", "uint8"]),
        ("mlp", gym.spaces.Discrete(3), gym.spaces.MultiDiscrete([2, 2]), ["MultiDiscrete", "choices", "Box"]),
        ("mlp", gym.spaces.Discrete(3), BOX(-1, 1, (2, 2), np.float32), ["(2, 2)", "one-dimensional"]),
    ],
)
def test_spaces_that_do_not_fit_are_refused_in_one_line(network, observations, actions, words):
    with pytest.raises(ConfigError) as error:
        make_policy(network, observations, actions, torch.Generator())
    assert all(word in str(error.value) for word in words) and "\n" not in str(error.value)
