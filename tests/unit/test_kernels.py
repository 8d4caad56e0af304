"""The gradient by hand against autograd of the objective, in float64, and what it is not used for."""

import dataclasses

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

import oracles
from rl_influence.config import PPOConfig
from rl_influence.ppo import learner as learners
from rl_influence.ppo.kernels import (
    ByHand,
    FlatParameters,
    Network,
    is_supported,
    log_prob_gradient,
    log_softmax,
    surrogate,
)
from rl_influence.ppo.learner import Autograd, Learner, compare
from rl_influence.ppo.networks import ActorCritic, Body, Flatten, LogStd, ScaledImage, make_policy
from rl_influence.ppo.objective import Batch, ClippedPPO, PolicyGradient
from rl_influence.ppo.records import Records, TrainingError

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


def random_records(policy, kind, n, generator, weights=False, observations=None):
    """Records with ratios far enough from 1 that some are clipped, and a fifth of the advantages exactly zero."""
    drawn, actions = batch(kind, n, generator)
    observations = drawn if observations is None else observations
    if generator.random() < 0.5 and kind != "one_hot":  # integers repeat by themselves
        observations = observations[generator.integers(max(1, n // 4), size=n)]
    with torch.no_grad():
        log_probs = policy.log_prob(torch.from_numpy(observations), torch.from_numpy(actions)).numpy()
    advantages = generator.standard_normal(n) * (generator.random(n) > 0.2)
    zeros, flags = np.zeros(n), np.zeros(n, bool)
    records = Records(
        observations=observations,
        actions=actions,
        rewards=zeros,
        terminated=flags,
        truncated=flags,
        log_probs=log_probs + 0.3 * generator.standard_normal(n),
        values=zeros,
        next_values=zeros,
        advantages=advantages,
        returns=generator.standard_normal(n),
    )
    return Batch(**vars(records), weights=generator.random(n)) if weights else records


def gradients(of, objective, policy, records, indices):
    out = {name: np.full(tuple(p.shape), np.nan) for name, p in policy.named_parameters()}
    return of(objective, policy, records, out)(indices), out


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("objective", [ClippedPPO, PolicyGradient])
@pytest.mark.parametrize("kind", SPACES)
def test_gradient_equals_autograd(kind, objective, weights):
    clipped_up = clipped_down = 0
    for seed in range(15):
        generator = np.random.default_rng(seed)
        policy, n = make(kind, generator), int(generator.integers(1, 70))
        records = random_records(policy, kind, n, generator, weights)
        settings = {
            "normalize": bool(generator.integers(2)),
            "value_coef": float(generator.choice([0.0, 0.5])),
            "entropy_coef": float(generator.choice([0.0, 0.01, 0.3])),
        }
        if objective is ClippedPPO:
            settings["clip_range"] = float(generator.choice([0.1, 0.2]))
        chosen = objective(**settings)
        assert ByHand.supports(chosen, policy)
        indices = generator.integers(n, size=int(generator.integers(1, n + 1)))
        losses, found = gradients(ByHand, chosen, policy, records, indices)
        expected_losses, expected = gradients(Autograd, chosen, policy, records, indices)
        assert losses[0] == pytest.approx(expected_losses[0], rel=1e-12, abs=1e-14)
        if chosen.value_coef or chosen.entropy_coef:
            assert losses[1] == pytest.approx(expected_losses[1], rel=1e-12, abs=1e-14)
        for name, gradient in expected.items():
            np.testing.assert_allclose(found[name], gradient, rtol=1e-10, atol=1e-13, err_msg=f"{name}, case {seed}")
        if objective is ClippedPPO:
            with torch.no_grad():
                inputs = torch.from_numpy(records.observations), torch.from_numpy(records.actions)
                ratio = np.exp(policy.log_prob(*inputs).numpy() - records.log_probs)
            clipped_up += ((ratio > 1 + chosen.clip_range) & (records.advantages > 0)).sum()
            clipped_down += ((ratio < 1 - chosen.clip_range) & (records.advantages < 0)).sum()
    assert min(clipped_up, clipped_down) > 30 or objective is PolicyGradient  # both branches were there to compare


@pytest.mark.parametrize("objective", [ClippedPPO(normalize=False), PolicyGradient()])
@pytest.mark.parametrize("kind", ["vector", "gaussian", "images"])
def test_autograd_equals_a_loop_over_records(kind, objective):
    """The mean of the oracle's terms, for a mini-batch with a record that was drawn twice."""
    generator = np.random.default_rng(3)
    policy = make(kind, generator)
    records = random_records(policy, kind, 9, generator)
    objective = dataclasses.replace(objective, value_coef=0.3, entropy_coef=0.2)
    indices = [0, 4, 4, 8]
    terms = [oracles.term(policy, records, i, float(records.advantages[i]), objective) for i in indices]
    expected = oracles.gradient(policy, -sum(terms) / len(indices))
    _, found = gradients(Autograd, objective, policy, records, np.array(indices))
    np.testing.assert_allclose(np.concatenate([g.ravel() for g in found.values()]), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("advantage, log_ratio", [(1.0, 0.19), (-1.0, -0.23)])
def test_clipped_records_do_not_move_the_policy(advantage, log_ratio):
    generator = np.random.default_rng(0)
    policy = make("vector", generator)
    records = random_records(policy, "vector", 20, generator)
    with torch.no_grad():
        inputs = torch.from_numpy(records.observations), torch.from_numpy(records.actions)
        records.log_probs = policy.log_prob(*inputs).numpy() - log_ratio
    records.advantages = np.full(20, advantage)
    objective = ClippedPPO(normalize=False, value_coef=0.5)
    losses, out = gradients(ByHand, objective, policy, records, np.arange(20))
    assert losses[0] == pytest.approx(-advantage * (1 + np.sign(log_ratio) * 0.2))
    assert all((out[name] == 0).all() for name in out if name.startswith(("policy_net", "action_head")))
    # the other way round the ratio is as far off, and the gradient is there
    records.advantages *= -1
    _, out = gradients(ByHand, objective, policy, records, np.arange(20))
    assert all((out[name] != 0).any() for name in out if name.startswith(("policy_net", "action_head")))


@pytest.mark.parametrize("kind", SPACES)
def test_log_probs_and_values_equal_the_modules(kind):
    generator = np.random.default_rng(3)
    policy = make(kind, generator)
    observations, actions = batch(kind, 30, generator)
    network = Network(policy)
    inputs = network.encode(observations)
    with torch.no_grad():
        tensor = torch.from_numpy(observations)
        outputs, values = policy.distribution_parameters(tensor), policy.values(tensor)
        expected = distribution(policy, outputs).log_prob(torch.from_numpy(actions))
        assert torch.allclose(policy.log_prob(tensor, torch.from_numpy(actions)), expected, rtol=1e-12)
        entropy = distribution(policy, outputs).entropy()
        assert torch.allclose(policy.evaluate(tensor, torch.from_numpy(actions))[2], entropy, rtol=1e-12)
    np.testing.assert_allclose(network.outputs(inputs), outputs, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(network.values(inputs), values, rtol=1e-12, atol=1e-13)
    found = log_prob_gradient(network.outputs(inputs), actions, network.log_std)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


# --- what is not its own ----------------------------------------------------------------------------------------------


def hooked(policy, register):
    getattr(policy.policy_net[0], register)(lambda *_: None)


CHANGES = {
    "forward hook": lambda p: hooked(p, "register_forward_hook"),
    "forward pre-hook": lambda p: hooked(p, "register_forward_pre_hook"),
    "backward hook": lambda p: hooked(p, "register_full_backward_hook"),
    "backward pre-hook": lambda p: hooked(p, "register_full_backward_pre_hook"),
    "hook of a parameter": lambda p: p.action_head.bias.register_hook(lambda g: 2 * g),
    "hook of the policy": lambda p: p.register_forward_hook(lambda *_: None),
    "replaced log_prob": lambda p: setattr(p, "log_prob", lambda observations, actions: None),
    "replaced forward": lambda p: setattr(p.value_head, "forward", lambda x: x),
    "parametrization": lambda p: nn.utils.parametrize.register_parametrization(
        p.policy_net[0], "weight", nn.Softplus()
    ),
    "activation": lambda p: p.policy_net.__setitem__(1, nn.ReLU()),
    "subclass of an activation": lambda p: p.value_net.__setitem__(1, type("Tanh", (nn.Tanh,), {})()),
    "shapes that do not fit": lambda p: p.policy_net.__setitem__(2, nn.Linear(64, 32).double()),
    "no bias": lambda p: setattr(p, "action_head", nn.Linear(64, 3, bias=False).double()),
    "one more layer": lambda p: setattr(p, "policy_net", nn.Sequential(*p.policy_net, nn.Linear(64, 64))),
    "frozen parameter": lambda p: p.policy_net[0].bias.requires_grad_(False),
    "tied weights": lambda p: setattr(p.value_net[2], "weight", p.policy_net[2].weight),
    "an extractor": lambda p: setattr(p, "features", nn.Sequential(nn.Linear(6, 6))),
    "another encoder": lambda p: setattr(p, "encode", type("Flatten", (Flatten,), {})()),
    "another log_std": lambda p: setattr(p, "log_std", type("LogStd", (LogStd,), {})(3)),
    "half precision": lambda p: p.bfloat16(),
    "another device": lambda p: p.to("meta"),
    "strides": lambda p: setattr(p.policy_net[2].weight, "data", p.policy_net[2].weight.data.t()),
    "another class": lambda p: setattr(p, "__class__", type("ActorCritic", (ActorCritic,), {})),
}


IMAGE_CHANGES = {
    "stride": lambda p: p.features.__setitem__(0, nn.Conv2d(3, 16, 3, stride=2).double()),
    "padding": lambda p: p.features.__setitem__(2, nn.Conv2d(16, 32, 3, padding=1).double()),
    "padding of another kind": lambda p: setattr(p.features[0], "padding_mode", "circular"),
    "dilation": lambda p: p.features.__setitem__(2, nn.Conv2d(16, 32, 3, dilation=2).double()),
    "groups": lambda p: p.features.__setitem__(2, nn.Conv2d(16, 32, 3, groups=2).double()),
    "convolution without bias": lambda p: p.features.__setitem__(0, nn.Conv2d(3, 16, 3, bias=False).double()),
    "activation of the extractor": lambda p: p.features.__setitem__(1, nn.Tanh()),
    "last activation of the extractor": lambda p: p.features.__setitem__(6, nn.Tanh()),
    "flattened otherwise": lambda p: p.features.__setitem__(4, nn.Flatten(2)),
    "extractor without its last layers": lambda p: setattr(p, "features", p.features[:5]),
    "hook in the extractor": lambda p: p.features[3].register_forward_hook(lambda *_: None),
    "vectors instead of images": lambda p: setattr(p, "encode", Flatten()),
}


@pytest.mark.parametrize("change", [*CHANGES, *IMAGE_CHANGES])
def test_what_it_does_not_support_is_left_to_autograd(change):
    policy = make("images" if change in IMAGE_CHANGES else "vector", np.random.default_rng(0))
    assert ByHand.supports(ClippedPPO(), policy) and ByHand.supports(PolicyGradient(), policy)
    (CHANGES | IMAGE_CHANGES)[change](policy)
    assert not is_supported(policy) and not ByHand.supports(ClippedPPO(), policy)


def test_objectives_that_it_does_not_know_are_left_to_autograd():
    policy = make("vector", np.random.default_rng(0))
    assert not ByHand.supports(type("Own", (ClippedPPO,), {})(), policy)
    assert not ByHand.supports(lambda policy, batch: None, policy)
    frames = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    assert not ByHand.supports(
        ClippedPPO(), make_policy("nature_cnn", frames, gym.spaces.Discrete(6), torch.Generator())
    )


@pytest.mark.parametrize("hidden", [(64, 64), (8,), (), (5, 7, 6)])
def test_tanh_networks_of_any_width_and_depth_are_supported(hidden):
    generator = np.random.default_rng(0)
    policy = ActorCritic(Body(Flatten(), 6, hidden=hidden), gym.spaces.Discrete(3), torch.Generator()).double()
    records = random_records(policy, "vector", 20, generator)
    objective = ClippedPPO(value_coef=0.5)
    assert ByHand.supports(objective, policy)
    _, found = gradients(ByHand, objective, policy, records, np.arange(20))
    _, expected = gradients(Autograd, objective, policy, records, np.arange(20))
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("convolutions", [[(3, 5, (2, 3))], [(3, 4, 3), (4, 6, 2), (6, 2, 1)]])
def test_small_convolutions_of_any_kind_are_supported(convolutions, channels_last):
    generator = np.random.default_rng(0)
    shape = (6, 7, 3) if channels_last else (3, 6, 7)
    layers = [part for a, b, size in convolutions for part in (nn.Conv2d(a, b, size), nn.ReLU())] + [nn.Flatten()]
    n_flat = nn.Sequential(*layers)(torch.zeros(1, 3, 6, 7)).shape[1]
    features = nn.Sequential(*layers, nn.Linear(n_flat, 9), nn.ReLU())
    body = Body(ScaledImage(channels_last), 9, features, hidden=(8,))
    policy = ActorCritic(body, gym.spaces.Discrete(3), torch.Generator()).double()
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.3 * torch.from_numpy(generator.standard_normal(tuple(parameter.shape)))
    observations = generator.integers(0, 256, (20, *shape)).astype(np.uint8)
    records = random_records(policy, "vector", 20, generator, observations=observations)
    objective = ClippedPPO(value_coef=0.5)
    assert ByHand.supports(objective, policy)
    _, found = gradients(ByHand, objective, policy, records, np.arange(20))
    _, expected = gradients(Autograd, objective, policy, records, np.arange(20))
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-9, atol=1e-12, err_msg=name)


# --- compared with autograd while it trains ---------------------------------------------------------------------------


def learner_and_records(kind="vector", n=256, **settings):
    generator = np.random.default_rng(0)
    policy = make(kind, generator).float()
    records = random_records(make(kind, generator), kind, n, generator)
    for name in ("log_probs", "advantages", "returns"):
        setattr(records, name, getattr(records, name).astype(np.float32))
    return Learner(policy, PPOConfig(**settings)), records


@pytest.mark.parametrize("wrong_from", [1, 2, 4, 8])
def test_a_wrong_accelerator_is_found_at_the_1st_2nd_4th_and_8th_update(wrong_from, monkeypatch):
    """At the first update no ratio may be clipped, so that it alone shows too little."""
    calls = []

    class Wrong(ByHand):
        def __call__(self, indices):
            losses = super().__call__(indices)
            calls.append(1)
            if len(calls) >= wrong_from:
                self.out["action_head.bias"] *= 1.05
            return losses

    monkeypatch.setattr(learners, "ByHand", Wrong)
    learner, records = learner_and_records()
    with pytest.raises(TrainingError, match="gradient of action_head.bias is .* away from autograd's") as error:
        learner.update(records, [np.arange(256)] * 4)
    assert len(calls) == wrong_from and "\n" not in str(error.value)


def test_a_new_learner_is_compared_again(monkeypatch):
    """As after a resume."""
    compared = []
    monkeypatch.setattr(learners, "compare", lambda *_: compared.append(1))
    learner, records = learner_and_records()
    learner.update(records, [np.arange(256)])
    learner.update(records, [np.arange(256)])
    assert len(compared) == 4  # updates 1, 2, 4, 8
    Learner(learner.policy, PPOConfig()).update(records, [np.arange(64)])
    assert len(compared) == 5


@pytest.mark.parametrize("scale", [1, 1e5])
def test_rounding_is_not_taken_for_a_mistake(scale):
    """Observations of any size: the tolerance follows autograd's own distance from float64."""
    for seed in range(5):
        learner, records = learner_and_records("gaussian")
        records.observations = (scale * records.observations).astype(np.float32)
        records.actions = records.actions * np.float32(scale)
        with np.errstate(over="ignore"):
            try:
                learner.update(records, [np.random.default_rng(seed).permutation(256)])
            except TrainingError as error:
                assert "not finite" in str(error)


def test_what_is_small_beside_the_largest_gradient_is_compared_with_that():
    """A critic that hardly counts: its gradients, 1e-9 long, may be off by 1e-5 of the actor's and by no more."""
    learner, records = learner_and_records(value_coef=1e-9)
    objective, policy, indices = learner.objective, learner.policy, np.arange(64)
    found = {name: np.empty(tuple(p.shape), np.float32) for name, p in policy.named_parameters()}
    Autograd(objective, policy, records, found)(indices)
    largest, right = max(map(np.linalg.norm, found.values())), found["value_head.bias"][0]
    found["value_head.bias"][0] = right + 0.5e-5 * largest
    compare(objective, policy, records, indices, found)
    found["value_head.bias"][0] = right + 2e-5 * largest
    with pytest.raises(TrainingError, match="gradient of value_head.bias"):
        compare(objective, policy, records, indices, found)


@pytest.mark.parametrize("kind", ["vector", "images"])
def test_frozen_parameters_stay_where_they_are(kind):
    for optimizer in ("sgd", "adam"):
        learner, records = learner_and_records(kind, optimizer=optimizer, learning_rate=0.01)
        frozen = learner.policy.policy_net[0].weight.requires_grad_(False)
        before, moving = frozen.clone(), learner.policy.policy_net[2].weight.detach().clone()
        learner.update(records, [np.arange(256)])
        assert torch.equal(frozen, before) and not torch.equal(learner.policy.policy_net[2].weight, moving)


def test_a_learner_trains_the_module_it_was_given_whatever_became_of_its_memory():
    straight, records = learner_and_records()
    straight.update(records, [np.arange(256)])
    learner, _ = learner_and_records()
    learner.policy.double()
    learner.policy.float()  # other memory with the same numbers
    learner.update(records, [np.arange(256)])
    np.testing.assert_array_equal(learner.parameters.vector, straight.parameters.vector)
    for parameter in learner.policy.parameters():
        assert np.shares_memory(parameter.detach().numpy(), learner.parameters.vector)
    second = Learner(learner.policy, PPOConfig())
    second.update(records, [np.arange(256)])
    straight.update(records, [np.arange(256)])
    found = nn.utils.parameters_to_vector(learner.policy.parameters()).detach().numpy()
    np.testing.assert_array_equal(found, straight.parameters.vector)
    learner.update(records, [np.arange(256)])  # goes on from where the second one got to
    straight.update(records, [np.arange(256)])
    np.testing.assert_array_equal(learner.parameters.vector, straight.parameters.vector)


def test_a_module_of_another_dtype_or_shape_needs_a_new_learner():
    for change in (lambda p: p.double(), lambda p: setattr(p, "value_head", nn.Linear(64, 2))):
        learner, records = learner_and_records()
        change(learner.policy)
        with pytest.raises(ValueError, match="make a new learner") as error:
            learner.update(records, [np.arange(256)])
        assert "\n" not in str(error.value)


def test_actions_of_another_shape_are_refused_everywhere():
    """(n,) actions of a one-dimensional Gaussian would be broadcast to (n, n), and floats cut to whole numbers."""
    box = gym.spaces.Box(-1, 1, (1,), np.float32)
    gaussian = make_policy("mlp", gym.spaces.Box(-1, 1, (6,), np.float32), box, torch.Generator())
    observations = torch.zeros(12, 6)
    for actions in (torch.zeros(12), torch.zeros(12, 2), torch.zeros(12, 12)):
        with pytest.raises(ValueError, match=r"real ones of shape \(12, 1\) are needed"):
            gaussian.log_prob(observations, actions)
        with pytest.raises(ValueError, match=r"actions of shape \(12, 1\) are needed"):
            log_prob_gradient(np.zeros((12, 1)), actions.numpy(), np.zeros(1))
    discrete = make("vector", np.random.default_rng(0)).float()
    for actions in (torch.full((12,), 1.7), torch.zeros(12, 1, dtype=int)):
        with pytest.raises(ValueError, match=r"integer ones of shape \(12,\) are needed"):
            discrete.log_prob(observations, actions)


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


def test_terms_are_torchs_also_where_ratios_overflow():
    log_probs, advantages = (x.ravel() for x in np.meshgrid([-900.0, 0.0, 0.1, 900.0], [-1.0, 0.0, 2.0]))
    batch = Batch(advantages=advantages, log_probs=np.zeros(12))
    with np.errstate(over="ignore", invalid="ignore"):
        terms, _ = surrogate(ClippedPPO(), log_probs, batch)
    np.testing.assert_allclose(terms, ClippedPPO().surrogate(torch.from_numpy(log_probs), batch).numpy(), rtol=1e-12)


def test_log_softmax_of_large_logits():
    np.testing.assert_allclose(log_softmax(np.array([[1000.0, 0.0, -1000.0]])), [[0, -1000, -2000]])
    np.testing.assert_allclose(log_softmax(np.log([0.1, 0.2, 0.7])), np.log([0.1, 0.2, 0.7]))
