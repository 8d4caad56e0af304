"""The hand-derived passes against autograd with torch's own distributions, in float64."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_influence.ppo.kernels import FlatParameters, MLPKernel, log_softmax
from rl_influence.ppo.networks import make_policy

BOX = gym.spaces.Box
SPACES = {
    "one_hot": ("mlp", gym.spaces.Discrete(16), gym.spaces.Discrete(4)),
    "vector": ("mlp", BOX(-1, 1, (6,), np.float32), gym.spaces.Discrete(3)),
    "matrix": ("mlp", BOX(-1, 1, (5, 5), np.float32), gym.spaces.Discrete(5)),
    "gaussian": ("mlp", BOX(-1, 1, (8,), np.float32), BOX(-1, 1, (2,), np.float32)),
    "images": ("minigrid_cnn", BOX(0, 255, (7, 7, 3), np.uint8), gym.spaces.Discrete(7)),
}


def make(kind, generator):
    """A float64 policy away from its initialisation, whose action head is almost zero."""
    policy = make_policy(*SPACES[kind], torch.Generator().manual_seed(int(generator.integers(2**31)))).double()
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.3 * torch.from_numpy(generator.standard_normal(tuple(parameter.shape)))
    return policy


def batch(kind, n, generator):
    """Observations and actions as an environment of this kind gives and takes them."""
    _, observation_space, action_space = SPACES[kind]
    if kind == "one_hot":
        observations = generator.integers(observation_space.n, size=n)
    elif kind == "images":
        observations = generator.integers(0, 11, (n, 7, 7, 3)).astype(np.uint8)
    else:
        observations = generator.standard_normal((n, *observation_space.shape)).astype(np.float32)
    if kind == "gaussian":
        return observations, generator.standard_normal((n, 2))
    return observations, generator.integers(action_space.n, size=n)


def distribution(policy, outputs):
    if policy.discrete:
        return torch.distributions.Categorical(logits=outputs)
    return torch.distributions.Independent(torch.distributions.Normal(outputs, policy.log_std.weight.exp()), 1)


def autograd(policy, observations, actions, old_log_probs, advantages, returns, clip_range, value_coef, entropy_coef):
    """Losses, gradients by name, and ratios."""
    outputs, values = policy.heads(torch.from_numpy(observations))
    pi = distribution(policy, outputs)
    ratio = (pi.log_prob(torch.from_numpy(actions)) - torch.from_numpy(old_log_probs)).exp()
    a = torch.from_numpy(advantages)
    policy_loss = -torch.min(a * ratio, a * ratio.clamp(1 - clip_range, 1 + clip_range)).mean()
    value_loss = ((values - torch.from_numpy(returns)) ** 2).mean()
    loss = policy_loss + value_coef * value_loss - entropy_coef * pi.entropy().mean()
    names, parameters = zip(*policy.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, parameters)
    return policy_loss.item(), value_loss.item(), dict(zip(names, gradients, strict=True)), ratio.detach().numpy()


def case(kind, seed):
    generator = np.random.default_rng(seed)
    n = int(generator.integers(1, 70))
    policy = make(kind, generator)
    observations, actions = batch(kind, n, generator)
    with torch.no_grad():
        log_probs = policy.log_prob(torch.from_numpy(observations), torch.from_numpy(actions)).numpy()
    advantages = generator.standard_normal(n) * (generator.random(n) > 0.2)  # a fifth are exactly zero
    settings = {
        "clip_range": float(generator.choice([0.1, 0.2])),
        "value_coef": float(generator.choice([0.0, 0.5])),
        "entropy_coef": float(generator.choice([0.0, 0.01, 0.3])),
    }
    arrays = (actions, log_probs + 0.3 * generator.standard_normal(n), advantages, generator.standard_normal(n))
    return policy, observations, arrays, settings


@pytest.mark.parametrize("kind", ["one_hot", "vector", "matrix", "gaussian"])
@pytest.mark.parametrize("shared", [False, True])
def test_gradient_equals_autograd(kind, shared):
    clipped_up = clipped_down = 0
    for seed in range(25):
        policy, observations, arrays, settings = case(kind, seed)
        n = len(observations)
        if shared:  # every record's row is one of three
            rows = np.random.default_rng(seed).integers(3, size=n)
            some = observations[:3] if n >= 3 else np.repeat(observations[:1], 3, axis=0)
            observations = some[rows]
        policy_loss, value_loss, expected, ratio = autograd(policy, observations, *arrays, **settings)
        kernel = MLPKernel(policy)
        out = {name: np.full(tuple(p.shape), np.nan) for name, p in policy.named_parameters()}
        inputs = kernel.encode(some if shared else observations)
        got = kernel.ppo_gradient(inputs, rows if shared else None, *arrays, **settings, out=out)
        assert got[:2] == pytest.approx((policy_loss, value_loss), rel=1e-12, abs=1e-14)
        assert got[2] is None
        for name, gradient in expected.items():
            np.testing.assert_allclose(out[name], gradient, rtol=1e-10, atol=1e-13, err_msg=f"{name}, case {seed}")
        clipped_up += ((ratio > 1 + settings["clip_range"]) & (arrays[2] > 0)).sum()
        clipped_down += ((ratio < 1 - settings["clip_range"]) & (arrays[2] < 0)).sum()
    assert min(clipped_up, clipped_down) > 50  # both branches were there to compare


def test_gradient_by_the_features_of_images():
    for seed in range(5):
        policy, observations, arrays, settings = case("images", seed)
        _, _, expected, _ = autograd(policy, observations, *arrays, **settings)
        kernel = MLPKernel(policy)
        out = {name: np.zeros(tuple(p.shape)) for name, p in policy.named_parameters()}
        by_features = kernel.ppo_gradient(kernel.encode(observations), None, *arrays, **settings, out=out)[2]
        features = policy.features(policy.inputs(torch.from_numpy(observations)))
        extractor = [name for name in expected if name.startswith("features.")]
        parameters = dict(policy.named_parameters())
        gradients = torch.autograd.grad(features, [parameters[n] for n in extractor], torch.from_numpy(by_features))
        for name, gradient in zip(extractor, gradients, strict=True):
            np.testing.assert_allclose(gradient, expected[name], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("advantage, log_ratio", [(1.0, 0.19), (-1.0, -0.23)])
def test_clipped_records_do_not_move_the_policy(advantage, log_ratio):
    policy, observations, (actions, *_), _ = case("vector", 0)
    kernel, n = MLPKernel(policy), len(observations)
    inputs = kernel.encode(observations)
    log_probs = kernel.log_prob_gradient(kernel.outputs(inputs), actions)[0]
    out = {name: np.full(tuple(p.shape), np.nan) for name, p in policy.named_parameters()}
    settings = {"clip_range": 0.2, "value_coef": 0.5, "entropy_coef": 0.0, "out": out}
    advantages, returns = np.full(n, advantage), np.zeros(n)
    loss = kernel.ppo_gradient(inputs, None, actions, log_probs - log_ratio, advantages, returns, **settings)[0]
    assert loss == pytest.approx(-advantage * (1 + np.sign(log_ratio) * 0.2))
    assert all((out[name] == 0).all() for name in out if name.startswith(("policy", "action_head")))
    # the other way round the ratio is as far off, and the gradient is there
    kernel.ppo_gradient(inputs, None, actions, log_probs - log_ratio, -advantages, returns, **settings)
    assert all((out[name] != 0).any() for name in out if name.startswith(("policy", "action_head")))


@pytest.mark.parametrize("kind", SPACES)
def test_log_probs_and_values_equal_the_modules(kind):
    policy, observations, (actions, *_), _ = case(kind, 3)
    kernel = MLPKernel(policy)
    inputs = kernel.encode(observations)
    with torch.no_grad():
        outputs, values = policy.heads(torch.from_numpy(observations))
        expected = distribution(policy, outputs).log_prob(torch.from_numpy(actions))
    np.testing.assert_allclose(kernel.outputs(inputs), outputs, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(kernel.values(inputs), values, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(kernel.log_prob_gradient(kernel.outputs(inputs), actions)[0], expected, rtol=1e-12)


def test_images_are_encoded_in_chunks(monkeypatch):
    policy, observations, _, _ = case("images", 1)
    kernel = MLPKernel(policy)
    whole = kernel.encode(observations)
    monkeypatch.setattr("rl_influence.ppo.kernels.CHUNK", 7)
    assert len(observations) > 14
    np.testing.assert_allclose(kernel.encode(observations), whole, rtol=1e-12, atol=1e-14)


def test_kernel_reads_the_parameters_at_each_call():
    policy, observations, _, _ = case("vector", 2)
    FlatParameters(policy)
    kernel = MLPKernel(policy)
    before = kernel.values(kernel.encode(observations))
    with torch.no_grad():
        policy.value_head.bias += 1.5
    np.testing.assert_allclose(kernel.values(kernel.encode(observations)), before + 1.5)


@pytest.mark.parametrize("kind", ["gaussian", "images"])
def test_flat_parameters_are_the_modules_memory(kind):
    policy = make(kind, np.random.default_rng(0))
    before = {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}
    flat = FlatParameters(policy)
    assert flat.vector.size == flat.gradient.size == sum(p.numel() for p in before.values())
    np.testing.assert_array_equal(flat.vector, torch.cat([p.ravel() for p in before.values()]))
    for name, parameter in policy.named_parameters():
        assert torch.equal(parameter, before[name])
        assert np.shares_memory(parameter.detach().numpy(), flat.vector)
    flat.vector[:] = np.arange(flat.vector.size)
    start = 0
    for (name, parameter), view in zip(policy.named_parameters(), flat.views(flat.vector).values(), strict=True):
        expected = np.arange(start, start + parameter.numel()).reshape(tuple(parameter.shape))
        np.testing.assert_array_equal(parameter.detach(), expected, err_msg=name)
        np.testing.assert_array_equal(view, expected, err_msg=name)
        start += parameter.numel()
    with torch.no_grad():
        next(policy.parameters()).fill_(-1)
    assert (flat.vector[: next(policy.parameters()).numel()] == -1).all()


def test_log_softmax_of_large_logits():
    np.testing.assert_allclose(log_softmax(np.array([[1000.0, 0.0, -1000.0]])), [[0, -1000, -2000]])
    np.testing.assert_allclose(log_softmax(np.log([0.1, 0.2, 0.7])), np.log([0.1, 0.2, 0.7]))
