"""Start-of-round influence: three backends against a loop of autograd in float64, refusals, and an untouched policy."""

import copy
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import oracles
from rl_influence.attribution import FAction, FReturn, ScoringError, influence_scores, target_gradient, targets
from rl_influence.ppo.networks import LogStd, make_policy
from rl_influence.ppo.objective import Batch

BACKENDS = (None, "jvp", "ghost", "per_record")
Box, Discrete = gym.spaces.Box, gym.spaces.Discrete


class Categorical(nn.Module):
    """log-softmax policy over what `net` computes."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def logits(self, observations):
        return self.net(observations)

    def log_prob(self, observations, actions):
        return self.logits(observations).log_softmax(-1).gather(-1, actions[:, None])[:, 0]


class SharedExtractor(Categorical):
    """One encoder, and two heads that log_prob multiplies."""

    def __init__(self):
        super().__init__(nn.Sequential(nn.Linear(5, 8), nn.Tanh()))
        self.left, self.right = nn.Linear(8, 3), nn.Linear(8, 3)

    def logits(self, observations):
        features = self.net(observations)
        return self.left(features) + self.right(features) ** 2


class LinearTwice(Categorical):
    def __init__(self):
        super().__init__(nn.Linear(5, 5))
        self.head = nn.Linear(5, 3)

    def logits(self, observations):
        return self.head(self.net(self.net(observations).tanh()).tanh())


class Tied(Categorical):
    """Token embedding and output layer share a matrix; so do two hidden layers."""

    def __init__(self):
        super().__init__(nn.Embedding(6, 4))
        self.first, self.second, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 6, bias=False)
        self.second.weight, self.head.weight = self.first.weight, self.net.weight

    def logits(self, observations):
        return self.head(self.second(self.first(self.net(observations).sum(1)).tanh()).tanh())


class ByKeyword(Categorical):
    """Layers called by keyword, over positions, on rows that are merged with the batch, and one that is not used."""

    def __init__(self):
        super().__init__(nn.Linear(5, 4))
        self.head = nn.Linear(4, 3)

    def logits(self, observations):
        n = len(observations)
        self.head(torch.zeros(7, 4).to(observations))
        positions = self.net(input=observations.reshape(n * 3, 5)).tanh()
        return self.head(positions.reshape(n, 3, 4)).sum(1)


def image_net(*convolutions):
    return Categorical(nn.Sequential(*convolutions, nn.Flatten(), nn.LazyLinear(3)))


def random_records(observations, actions, seed=0):
    rng = np.random.default_rng(seed)
    n = len(actions)
    log_probs = -np.abs(rng.standard_normal(n))
    return SimpleNamespace(
        observations=observations, actions=actions, advantages=rng.standard_normal(n), log_probs=log_probs
    )


def case(name, n=7):
    """A float64 policy and n records for it."""
    rng, generator = np.random.default_rng(1), torch.Generator().manual_seed(1)
    torch.manual_seed(1)
    vectors, images = rng.standard_normal((n, 5)), rng.standard_normal((n, 4, 6, 7))
    tokens, three = rng.integers(0, 6, (n, 5)), rng.integers(0, 3, n)

    def conv(outputs, kernel, **arguments):
        return nn.Conv2d(4, outputs, kernel, **arguments)

    cases = {
        "mlp integer observations": lambda: (
            make_policy("mlp", Discrete(16), Discrete(4), generator),
            rng.integers(0, 16, n),
            rng.integers(0, 4, n),
        ),
        "mlp": lambda: (make_policy("mlp", Box(-9, 9, (5,)), Discrete(3), generator), vectors, three),
        "gaussian": lambda: (
            make_policy("mlp", Box(-9, 9, (5,)), Box(-1, 1, (2,)), generator),
            vectors,
            rng.standard_normal((n, 2)),
        ),
        "minigrid cnn": lambda: (
            make_policy("minigrid_cnn", Box(0, 255, (7, 7, 3), np.uint8), Discrete(7), generator),
            rng.integers(0, 11, (n, 7, 7, 3)).astype(np.uint8),
            rng.integers(0, 7, n),
        ),
        "nature cnn": lambda: (
            make_policy("nature_cnn", Box(0, 255, (4, 84, 84), np.uint8), Discrete(6), generator),
            rng.integers(0, 256, (n, 4, 84, 84)).astype(np.uint8),
            rng.integers(0, 6, n),
        ),
        "shared extractor": lambda: (SharedExtractor(), vectors, three),
        "linear twice": lambda: (LinearTwice(), vectors, three),
        "tied": lambda: (Tied(), tokens, rng.integers(0, 6, n)),
        "keyword, positions": lambda: (ByKeyword(), rng.standard_normal((n, 3, 5)), three),
        "inplace relu": lambda: (
            Categorical(
                nn.Sequential(nn.Linear(5, 8), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.ReLU(True), nn.Linear(8, 3))
            ),
            vectors,
            three,
        ),
        "inplace relu on positions": lambda: (
            Categorical(nn.Sequential(nn.Linear(7, 8), nn.ReLU(True), nn.Flatten(), nn.Linear(192, 3))),
            images[:, 0:4],
            three,
        ),
        "conv stride, padding": lambda: (image_net(conv(6, 3, stride=2, padding=1), nn.Tanh()), images, three),
        "conv dilation, groups": lambda: (image_net(conv(8, 2, dilation=2, groups=2), nn.Tanh()), images, three),
        "conv same": lambda: (image_net(conv(4, (2, 3), padding="same"), nn.Tanh()), images, three),
        "conv circular, no bias": lambda: (
            image_net(conv(4, 3, padding=1, padding_mode="circular", bias=False), nn.Tanh()),
            images,
            three,
        ),
        "embedding": lambda: (
            Categorical(nn.Sequential(nn.Embedding(6, 4, padding_idx=2), nn.Flatten(), nn.Linear(20, 3))),
            tokens,
            three,
        ),
        "batchnorm in eval mode": lambda: (
            Categorical(
                nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, affine=False), nn.Tanh(), nn.Linear(4, 3))
            ).eval(),
            vectors,
            three,
        ),
    }
    if name is None:
        return list(cases)
    policy, observations, actions = cases[name]()
    policy = policy.double()
    records = random_records(observations, actions)
    with torch.no_grad():
        policy.log_prob(torch.as_tensor(observations), torch.as_tensor(actions))  # lazy layers take their shape
        for parameter in policy.parameters():  # away from zero biases and from the action head's tiny weights
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return policy, records


def assert_close(actual, expected, tolerance=1e-9):
    assert expected.abs().max() > 1e-6  # or the comparison says nothing
    assert (actual - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", case(None))
def test_backends_equal_a_loop_of_autograd(name, backend):
    policy, records = case(name, n=3 if name == "nature cnn" else 7)
    scores = influence_scores(policy, records, FReturn(records), backend=backend)
    assert scores.dtype == torch.float64 and not scores.requires_grad
    assert_close(scores, oracles.influence(policy, records, lambda p: oracles.f_return(p, records)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_hand_values(backend):
    """One state, two actions, logits 0: grad log pi is (1/2, -1/2) or its negative; grad f_return is (-1/4, 1/4)."""
    policy = Categorical(nn.Linear(1, 2, bias=False)).double()
    nn.init.zeros_(policy.net.weight)
    records = SimpleNamespace(observations=np.ones((2, 1)), actions=np.array([0, 1]), advantages=np.array([1.0, 2.0]))
    assert influence_scores(policy, records, FReturn(records), backend=backend).tolist() == [-0.25, 0.5]


@pytest.mark.parametrize("backend", BACKENDS)
def test_other_targets_and_advantages(backend):
    policy, records = case("mlp")
    pair = records.observations[2], records.actions[2]
    advantages = np.linspace(-1, 1, 7)
    expected = oracles.influence(policy, records, lambda p: oracles.log_prob_of(p, records, 2), advantages)
    scores = influence_scores(policy, records, FAction(*pair), advantages=advantages, backend=backend)
    assert_close(scores, expected)

    def f(policy):  # a target that has a parameter log_prob does not reach, and leaves out some that it does
        return policy.policy_net[0].weight.square().sum() + policy.value_head.bias.sum() * 3

    assert_close(influence_scores(policy, records, f, backend=backend), oracles.influence(policy, records, f))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_target_outside_log_prob_scores_zero(backend):
    policy, records = case("mlp")
    scores = influence_scores(policy, records, lambda p: p.value_head.weight.sum(), backend=backend)
    assert scores.tolist() == [0.0] * 7


@pytest.mark.parametrize("backend", BACKENDS)
def test_frozen_parameters_do_not_count(backend):
    policy, records = case("mlp")
    policy.policy_net[0].weight.requires_grad_(False)
    policy.action_head.requires_grad_(False)
    scores = influence_scores(policy, records, FReturn(records), backend=backend)
    everything = oracles.influence(policy.requires_grad_(True), records, lambda p: oracles.f_return(p, records))
    frozen = copy.deepcopy(policy)
    frozen.policy_net[0].weight.requires_grad_(False)
    frozen.action_head.requires_grad_(False)
    kept = [p for p in frozen.parameters() if p.requires_grad]
    direction = torch.autograd.grad(oracles.f_return(frozen, records), kept, allow_unused=True)
    expected = []
    for i, advantage in enumerate(records.advantages):
        gradients = torch.autograd.grad(oracles.log_prob_of(frozen, records, i), kept, allow_unused=True)
        expected.append(
            advantage * sum((g * d).sum() for g, d in zip(gradients, direction, strict=True) if g is not None)
        )
    assert_close(scores, torch.stack(expected))
    assert (scores - everything).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["minigrid cnn", "gaussian", "tied", "mlp integer observations"])
@pytest.mark.parametrize("backend", ["jvp", "ghost"])
def test_scores_do_not_depend_on_the_chunk_size(name, backend):
    policy, records = case(name)
    whole = influence_scores(policy, records, FReturn(records), backend=backend)
    for chunk_size in (1, 2, 3, 7, 100):
        chunked = influence_scores(policy, records, FReturn(records), backend=backend, chunk_size=chunk_size)
        assert_close(chunked, whole, 1e-12)


@pytest.mark.parametrize("backend", [None, "ghost"])
def test_images_are_scored_in_chunks_of_so_many_bytes(backend, monkeypatch):
    """However many frames pass NatureCNN together: the same scores, alone and as IIF uses them."""
    rng, frames = np.random.default_rng(0), Box(0, 255, (4, 84, 84), np.uint8)
    policy = make_policy("nature_cnn", frames, Discrete(6), torch.Generator().manual_seed(0)).double()
    records = random_records(rng.integers(0, 256, (6, 4, 84, 84)).astype(np.uint8), rng.integers(0, 6, 6))
    together = []
    policy.features.register_forward_pre_hook(lambda module, inputs: together.append(len(inputs[0])))
    found = {}
    for size in (1, 4, 100):
        together.clear()
        monkeypatch.setattr(targets, "CHUNK_BYTES", size * 4 * 84 * 84)
        found[size] = influence_scores(policy, records, FReturn(records), backend=backend)
        assert max(together) == max(min(size, 6), 2)  # the first look at the policy takes 2 at once
        assert_close(found[size], found[1], 1e-12)
    assert found[1].abs().max() > 0


def test_vectors_and_grids_are_scored_in_one_chunk():
    for observations in (torch.zeros(2048, dtype=int), torch.zeros(2048, 24), torch.zeros(2048, 7, 7, 3).byte()):
        [chunk] = targets.chunks(Batch(observations=observations), None)
        assert len(observations[chunk]) == 2048
    assert targets.chunks(Batch(observations=torch.zeros(0, 3)), None) == []
    frames = torch.zeros(2048, dtype=torch.uint8).as_strided((2048, 4, 84, 84), (1, 0, 0, 0))
    assert [len(frames[chunk]) for chunk in targets.chunks(Batch(observations=frames), None)] == [297] * 6 + [266]


@pytest.mark.parametrize("backend", BACKENDS)
def test_float32_policies_score_in_float32(backend):
    policy, records = case("minigrid cnn")
    scores = influence_scores(copy.deepcopy(policy).float(), records, FReturn(records), backend=backend)
    assert scores.dtype == torch.float32
    assert_close(scores.double(), influence_scores(policy, records, FReturn(records)), 1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_zero_advantage_scores_exactly_zero(backend):
    policy, records = case("gaussian")
    records.advantages[[1, 4]] = 0
    scores = influence_scores(policy, records, FReturn(records), backend=backend)
    assert (scores == 0).nonzero().flatten().tolist() == [1, 4]


def test_the_value_head_does_not_matter():
    policy, records = case("minigrid cnn")
    before = influence_scores(policy, records, FReturn(records))
    with torch.no_grad():
        for parameter in [*policy.value_net.parameters(), *policy.value_head.parameters()]:
            parameter.normal_()
    assert torch.equal(influence_scores(policy, records, FReturn(records)), before)


def test_a_step_along_a_records_gradient_changes_the_target_by_its_influence():
    """f(theta + eta sum_i A_i grad log pi_i) - f(theta) = eta sum_i I_i + O(eta^2)."""
    policy, records = case("gaussian")
    target = FReturn(records)
    chosen = [0, 3, 4]
    predicted = float(influence_scores(policy, records, target)[chosen].sum())
    direction = sum(
        records.advantages[i] * oracles.gradient(policy, oracles.log_prob_of(policy, records, i)) for i in chosen
    )
    errors = []
    for eta in (1e-4, 0.5e-4):
        moved = copy.deepcopy(policy)
        vector = nn.utils.parameters_to_vector(moved.parameters()) + eta * direction
        nn.utils.vector_to_parameters(vector, moved.parameters())
        change = (target(moved) - target(policy)).item()
        assert change == pytest.approx(eta * predicted, rel=1e-2)
        errors.append(change - eta * predicted)
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.05)


# --- targets ---------------------------------------------------------------------------------------------------------


def test_f_return_merges_equal_pairs_exactly():
    rng = np.random.default_rng(0)
    policy = make_policy("mlp", Discrete(16), Discrete(4), torch.Generator().manual_seed(0)).double()
    records = random_records(rng.integers(0, 3, 200), rng.integers(0, 4, 200))
    target = FReturn(records)
    assert len(target.actions) == 12
    assert target(policy).item() == pytest.approx(oracles.f_return(policy, records).item(), rel=1e-12)
    expected = oracles.gradient(policy, oracles.f_return(policy, records))
    gradients = target_gradient(policy, target, chunk_size=5)
    assert not any(name.startswith("value") for name in gradients)
    assert_close(
        torch.cat([g.flatten() for g in gradients.values()]), expected[: sum(g.numel() for g in gradients.values())]
    )


def test_f_action_is_the_log_probability():
    policy, records = case("gaussian")
    target = FAction(records.observations[1], records.actions[1])
    assert target(policy).item() == pytest.approx(oracles.log_prob_of(policy, records, 1).item(), rel=1e-12)
    far = FAction([0.0] * 5, [9.0, 0.0], action_space=Box(-1, 1, (2,)))  # raw actions may lie outside the bounds
    assert far(policy).isfinite()


@pytest.mark.parametrize(
    "observation, action, message",
    [
        ([0.0, 0.0], 0, r"target observation has shape \(2,\); the observation space needs \(3,\)"),
        ([0.0, 0.0, 2.0], 0, "target observation .* outside the bounds"),
        ([0.0, 0.0, np.nan], 0, "target observation .* finite"),
        ([0.0, 0.0, 0.0], 4, "target action 4 is not in the action space; choices: integers from 0 to 3"),
        ([0.0, 0.0, 0.0], -1, "target action -1 is not in the action space"),
        ([0.0, 0.0, 0.0], 0.5, "target action 0.5 is not in the action space"),
        ([0.0, 0.0, 0.0], [1, 1], "target action .* is not in the action space"),
        ([0.0, 0.0, 0.0], "left", "target action left is not made of finite numbers"),
    ],
)
def test_f_action_checks_its_pair(observation, action, message):
    with pytest.raises(ScoringError, match=message) as error:
        FAction(observation, action, observation_space=Box(-1, 1, (3,)), action_space=Discrete(4))
    assert "\n" not in str(error.value)


def test_f_action_that_the_policy_cannot_evaluate():
    policy, records = case("mlp")
    with pytest.raises(ScoringError, match=r"log_prob of policy ActorCritic fails for observations of shape \(1, 3\)"):
        influence_scores(policy, records, FAction(np.zeros(3), 0))
    with pytest.raises(ScoringError, match="log_prob of policy ActorCritic fails"):
        influence_scores(policy, records, FAction(np.zeros(5), 3))
    with pytest.raises(ScoringError, match=r"actions: integer ones of shape \(1,\) are needed, not torch.float64"):
        influence_scores(policy, records, FAction(np.zeros(5), 1.7))
    grid = make_policy("mlp", gym.spaces.Discrete(16), gym.spaces.Discrete(4), torch.Generator())
    states = SimpleNamespace(observations=np.arange(8), actions=np.arange(8) % 4, advantages=np.ones(8, np.float32))
    with pytest.raises(ScoringError, match="log_prob of policy ActorCritic fails for observations of shape"):
        influence_scores(grid, states, FAction(99, 0))


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "layer, reason",
    [
        (nn.BatchNorm1d(4), "normalises over the records"),
        (nn.BatchNorm1d(4, track_running_stats=False).eval(), "normalises over the records"),
        (nn.Dropout(0.5), "is random"),
        (nn.AlphaDropout(0.1), "is random"),
    ],
)
def test_layers_that_tie_records_together_are_refused_by_name(layer, reason, backend):
    policy = Categorical(nn.Sequential(nn.Linear(5, 4), layer, nn.Linear(4, 3))).double()
    _, records = case("mlp")
    state = copy.deepcopy(policy.state_dict())
    with pytest.raises(ScoringError, match=rf"layer 'net.1' \({type(layer).__name__}\) {reason}"):
        influence_scores(policy, records, FReturn(records), backend=backend)
    assert all(torch.equal(value, state[name]) for name, value in policy.state_dict().items())


@pytest.mark.parametrize("backend", BACKENDS)
def test_layers_that_log_prob_does_not_call_may_be_anything(backend):
    policy, records = case("mlp")
    expected = influence_scores(policy, records, FReturn(records))
    policy.value_net = nn.Sequential(nn.BatchNorm1d(5), nn.Dropout(0.5))
    assert_close(influence_scores(policy, records, FReturn(records), backend=backend), expected)


class FunctionalDropout(Categorical):
    def logits(self, observations):
        return F.dropout(self.net(observations), 0.5, self.training)


class BareParameter(Categorical):
    def __init__(self):
        super().__init__(nn.Linear(5, 3))
        self.temperature = nn.Parameter(torch.ones(()))

    def logits(self, observations):
        return self.net(observations) * self.temperature


class FunctionalTie(Categorical):
    """A known layer's weight that is also used by hand."""

    def logits(self, observations):
        return F.linear(self.net(observations).tanh(), self.net.weight.T)[:, :3]


class PositionsFirst(Categorical):
    """A sequence layer that is fed (time, records, features)."""

    def logits(self, observations):
        return self.net(observations.transpose(0, 1)).tanh().sum(0)


class Centred(Categorical):
    """Ties records together in code, not in a layer."""

    def logits(self, observations):
        logits = self.net(observations)
        return (logits - logits.mean(0)) * logits.std(0)


class Detached(Categorical):
    """Stops a gradient with no_grad, which forward mode does not follow."""

    def logits(self, observations):
        with torch.no_grad():
            scale = self.net(observations)
        return self.net(observations) * scale


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class NoForwardMode(Categorical):
    def logits(self, observations):
        return Straight.apply(self.net(observations)) + self.net(observations)


class WrongShape(Categorical):
    def log_prob(self, observations, actions):
        return super().log_prob(observations, actions)[:, None]


class Attention(Categorical):
    def __init__(self):
        super().__init__(nn.MultiheadAttention(4, 2, batch_first=True))
        self.head = nn.Linear(4, 3)

    def logits(self, observations):
        return self.head(self.net(observations, observations, observations)[0].sum(1))


REFUSED = {
    # policy, observations' shape, refusing backends, message
    "functional dropout": (FunctionalDropout(nn.Linear(5, 3)), (7, 5), BACKENDS, "draws random numbers"),
    "log_prob (n, 1)": (WrongShape(nn.Linear(5, 3)), (7, 5), BACKENDS, r"has shape \(2, 1\); \(2,\) is needed"),
    "layer norm": (
        Categorical(nn.Sequential(nn.Linear(5, 3), nn.LayerNorm(3))),
        (7, 5),
        ["ghost"],
        r"cannot score layer 'net.1' \(LayerNorm\).*backends that can: jvp, per_record",
    ),
    "bare parameter": (BareParameter(), (7, 5), ["ghost"], r"the policy itself \(BareParameter\): 'temperature'"),
    "weight used by hand": (FunctionalTie(nn.Linear(5, 5)), (7, 5), ["ghost"], r"layer 'net' \(Linear\): 'weight'"),
    "attention": (Attention(), (7, 2, 4), ["ghost"], r"layer 'net' \(MultiheadAttention\)"),
    "positions first": (PositionsFirst(nn.Linear(5, 3)), (7, 2, 5), ["ghost"], r"layer 'net'.* shape \(2, 7, 3\)"),
    "as many positions": (PositionsFirst(nn.Linear(5, 3)), (7, 7, 5), ["ghost"], "ties records together"),
    "records tied in code": (Centred(nn.Linear(5, 3)), (7, 5), ["jvp", "ghost"], "ties records together"),
    "no_grad inside": (Detached(nn.Linear(5, 3)), (7, 5), ["jvp"], "stops gradients"),
    "no forward mode": (NoForwardMode(nn.Linear(5, 3)), (7, 5), ["jvp"], "backends that can: per_record, and ghost"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_backend_cannot_do_is_refused_and_the_others_are_right(name):
    policy, shape, refusing, message = REFUSED[name]
    policy = policy.double()
    rng = np.random.default_rng(0)
    records = random_records(rng.standard_normal(shape), rng.integers(0, 3, 7))
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in policy.modules()]
    for backend in BACKENDS[1:]:
        if backend in refusing:
            with pytest.raises(ScoringError, match=message) as error:
                influence_scores(policy, records, FReturn(records), backend=backend)
            assert "\n" not in str(error.value)
        elif name != "records tied in code":
            scores = influence_scores(policy, records, FReturn(records), backend=backend)
            assert_close(scores, oracles.influence(policy, records, lambda p: oracles.f_return(p, records)))
    assert hooks == [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in policy.modules()]


def test_bad_records_and_arguments():
    policy, records = case("mlp")
    target = FReturn(records)

    def refused(message, f=target, **changes):
        arguments = {key: changes.pop(key) for key in ("backend", "chunk_size", "advantages") if key in changes}
        with pytest.raises(ScoringError, match=message) as error:
            influence_scores(policy, SimpleNamespace(**(vars(records) | changes)), f, **arguments)
        assert "\n" not in str(error.value)

    bad = records.advantages.copy()
    bad[3] = np.nan
    refused(r"advantages\[3\] is nan", advantages=bad)
    refused("7 observations but 6 actions", actions=records.actions[:6])
    refused(r"advantages have shape \(6,\), but there are 7 records", advantages=bad[:6])
    refused("backend 'fast' is unknown; choices: jvp, ghost, per_record", backend="fast")
    refused("chunk_size is 0", chunk_size=0)
    refused("target must return a scalar tensor, not a tensor of shape", f=lambda p: p.action_head.weight)
    refused("target must return a scalar tensor, not a float", f=lambda p: 1.0)
    refused("does not depend on any trained parameter", f=lambda p: torch.zeros(()))
    refused("does not depend on any trained parameter", f=lambda p: torch.zeros((), requires_grad=True))
    infinite = records.observations.copy()
    infinite[2] = np.inf
    refused("the influence of record 2 is nan", observations=infinite)
    with pytest.raises(ScoringError, match=r"advantages\[3\] is nan"):
        FReturn(SimpleNamespace(**(vars(records) | {"advantages": bad})))
    with pytest.raises(ScoringError, match="no records"):
        FReturn(random_records(np.zeros((0, 5)), np.zeros(0, dtype=int)))
    with pytest.raises(ScoringError, match="no parameter that requires a gradient"):
        influence_scores(copy.deepcopy(policy).requires_grad_(False), records, target)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fails", [False, True])
def test_the_policy_is_left_as_it_was(backend, fails):
    policy, records = case("gaussian")
    if fails:
        policy.log_std = BareLogStd(2).double()
    calls = []
    policy.action_head.register_forward_hook(lambda *_: calls.append(1))
    policy.eval()
    policy.value_net.train()
    policy.policy_net[0].bias.requires_grad_(False)
    for parameter in policy.parameters():
        parameter.grad = torch.ones_like(parameter)

    def snapshot():
        return (
            [p.detach().clone().tolist() for p in policy.parameters()],
            [p.grad.tolist() for p in policy.parameters()],
            [p.requires_grad for p in policy.parameters()],
            [(m.training, len(m._forward_hooks), len(m._forward_pre_hooks)) for m in policy.modules()],
            [id(p) for p in policy.parameters()],
            torch.get_rng_state().tolist(),
        )

    before = snapshot()
    with torch.no_grad():  # and it does not matter in which mode the caller is
        if fails and backend == "ghost":
            with pytest.raises(ScoringError, match=r"layer 'log_std' \(BareLogStd\)"):
                influence_scores(policy, records, FReturn(records), backend=backend)
        else:
            influence_scores(policy, records, FReturn(records), backend=backend)
        assert not torch.is_grad_enabled()
    assert snapshot() == before and calls


class BareLogStd(LogStd):
    """A subclass may compute something else, so that ghost does not take it for a LogStd."""


def test_layers_put_in_place_of_the_usual_ones_are_respected():
    policy, records = case("mlp")
    policy.policy_net[1] = nn.ReLU()
    scores = influence_scores(policy, records, FReturn(records))
    assert_close(scores, oracles.influence(policy, records, lambda p: oracles.f_return(p, records)))
    policy.policy_net[1] = nn.Tanh()
    nn.utils.parametrize.register_parametrization(policy.policy_net[0], "weight", nn.Softplus())
    scores = influence_scores(policy, records, FReturn(records))
    assert_close(scores, oracles.influence(policy, records, lambda p: oracles.f_return(p, records)))


def test_no_records_no_scores():
    policy, records = case("mlp")
    empty = random_records(np.zeros((0, 5)), np.zeros(0, dtype=int))
    assert influence_scores(policy, empty, FReturn(records)).shape == (0,)
