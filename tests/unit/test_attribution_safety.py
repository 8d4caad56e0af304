"""Scoring a policy that one did not write: it is left exactly as it was, and what would be wrong is refused."""

import copy
import warnings
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import oracles
from rl_influence.attribution import FAction, FReturn, ScoringError, Step, influence_scores, tracin_scores
from rl_influence.attribution.by_hand import HandDerived
from rl_influence.attribution.policies import as_batch, untouched
from rl_influence.ppo.networks import OneHot, make_policy
from rl_influence.ppo.objective import ClippedPPO, PolicyGradient

BACKENDS = (None, "jvp", "ghost", "per_record")
N = 12


class Categorical(nn.Module):
    """log-softmax policy over what `logits` computes."""

    def log_prob(self, observations, actions):
        return self.logits(observations).log_softmax(-1).gather(-1, actions[:, None])[:, 0]


class Plain(Categorical):
    def __init__(self, *layers):
        super().__init__()
        self.net = nn.Sequential(*layers)

    def logits(self, observations):
        return self.net(observations)


class SharedExtractor(Categorical):
    """One extractor under three names, as policies of Stable-Baselines3 hold it."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(5, 8), nn.Tanh())
        self.pi_features, self.vf_features = self.features, self.features
        self.head = nn.Linear(8, 3)

    def logits(self, observations):
        return self.head(self.pi_features(observations))


class TwoSequentials(Categorical):
    """One trunk in two Sequentials, of which one is called."""

    def __init__(self):
        super().__init__()
        trunk = nn.Linear(5, 8)
        self.actor = nn.Sequential(trunk, nn.Tanh(), nn.Linear(8, 3))
        self.critic = nn.Sequential(trunk, nn.Tanh(), nn.Linear(8, 1))

    def logits(self, observations):
        return self.actor(observations)


class TiedWeights(Categorical):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.second.weight = self.first.weight

    def logits(self, observations):
        return self.head(self.second(self.first(observations).tanh()).tanh())


class Recurrent(Categorical):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(1, 4, batch_first=True), nn.Linear(4, 3)

    def logits(self, observations):
        return self.head(self.lstm(observations[:, :, None])[0][:, -1])


class Restless(Categorical):
    """Notes, counts, changes its mode and draws random numbers that it does not use."""

    def __init__(self):
        super().__init__()
        self.net, self.seen = nn.Linear(5, 3), []
        self.register_buffer("calls", torch.zeros(()))

    def logits(self, observations):
        self.calls += 1
        self.seen.append(len(observations))
        self.latest = self.net(observations)
        self.train(not self.training)
        return self.latest


def weight_normed():
    """The old kind, whose hook sets `weight` at each call."""
    with pytest.warns(FutureWarning):
        return Plain(nn.utils.weight_norm(nn.Linear(5, 4)), nn.Tanh(), nn.Linear(4, 3))


def parametrized():
    return Plain(nn.utils.parametrizations.spectral_norm(nn.Linear(5, 4)), nn.Tanh(), nn.Linear(4, 3)).eval()


POLICIES = {
    "shared extractor": SharedExtractor,
    "two sequentials": TwoSequentials,
    "tied weights": TiedWeights,
    "recurrent": Recurrent,
    "restless": Restless,
    "weight norm": weight_normed,
    "parametrized": parametrized,
    "frozen statistics": lambda: Plain(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3)).eval(),
}


REFUSED = {("ghost", name) for name in ("recurrent", "weight norm", "parametrized", "frozen statistics")}
REFUSED |= {(None, "weight norm"), ("jvp", "weight norm")}  # for which torch has no forward mode


def make(name, n=N):
    torch.manual_seed(1)
    policy = POLICIES[name]().double()
    rng = np.random.default_rng(0)
    records = SimpleNamespace(
        observations=rng.standard_normal((n, 5)),
        actions=rng.integers(3, size=n),
        advantages=rng.standard_normal(n),
        log_probs=-np.abs(rng.standard_normal(n)),
    )
    if not isinstance(policy, Restless):
        with torch.no_grad():
            policy.log_prob(torch.as_tensor(records.observations), torch.as_tensor(records.actions))
    policy.register_forward_hook(lambda *_: None)
    return policy, records


def state(policy):
    """All that a caller could see: objects by identity, contents by value."""
    described = []
    for name, module in policy.named_modules(remove_duplicate=False):
        for key, value in vars(module).items():
            if isinstance(value, dict):
                described.append((name, key, id(value), [(k, id(v)) for k, v in value.items()]))
            elif isinstance(value, list):
                described.append((name, key, id(value), [id(v) for v in value]))
            else:
                described.append((name, key, id(value)))
    tensors = [*policy.named_parameters(remove_duplicate=False), *policy.named_buffers(remove_duplicate=False)]
    described += [(name, id(x), type(x), x.tolist(), x.requires_grad, x.is_leaf, x.grad) for name, x in tensors]
    return described, torch.get_rng_state().tolist(), torch.is_grad_enabled()


def score(policy, records, how, backend):
    if how == "influence":
        return influence_scores(policy, records, FReturn(records), backend=backend)
    steps = [Step(np.arange(5)), Step(np.arange(3, len(records.actions)))]
    return tracin_scores(policy, records, FReturn(records), steps, backend=backend)


@pytest.mark.parametrize("how", ["influence", "tracin"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", POLICIES)
def test_the_policy_is_left_as_it_was_and_its_scores_are_right(name, backend, how):
    policy, records = make(name)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.1)
    before = state(policy)
    try:
        scores = score(policy, records, how, backend)
    except ScoringError:
        assert (backend, name) in REFUSED
        scores = None
    assert state(policy) == before
    if scores is not None and how == "influence":
        expected = oracles.influence(copy.deepcopy(policy), records, lambda p: oracles.f_return(p, records))
        assert (scores - expected).abs().max() <= 1e-9 * expected.abs().max()
    log_probs = policy.log_prob(torch.as_tensor(records.observations), torch.as_tensor(records.actions))
    log_probs.mean().backward()
    reached = [parameter for parameter in policy.parameters() if parameter.grad is not None]
    old = [parameter.detach().clone() for parameter in reached]
    optimizer.step()  # and it still trains all that it trained before
    assert reached and all(not torch.equal(a, b) for a, b in zip(reached, old, strict=True))


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["shared extractor", "two sequentials", "tied weights", "restless"])
def test_the_policy_is_left_as_it_was_wherever_scoring_is_interrupted(name, backend, error, monkeypatch):
    policy, records = make(name)
    log_prob, calls, limit = type(policy).log_prob, [], [10**9]

    def interrupted(self, observations, actions):
        calls.append(1)
        if len(calls) == limit[0]:
            torch.rand(3)
            raise error("stop")
        return log_prob(self, observations, actions)

    monkeypatch.setattr(type(policy), "log_prob", interrupted)
    before = state(policy)
    score(policy, records, "influence", backend)
    for k in range(1, len(calls) + 1):
        calls.clear()
        limit[0] = k
        with pytest.raises((error, ScoringError)):
            score(policy, records, "influence", backend)
        assert state(policy) == before
    assert k >= 6


@pytest.mark.parametrize("backend", BACKENDS)
def test_random_numbers_that_a_refused_policy_drew_are_put_back(backend):
    policy, records = make("shared extractor")
    policy.features[1] = nn.Tanh()
    policy.logits = lambda observations: policy.head(F.dropout(policy.features(observations), 0.5, True))
    before = torch.get_rng_state()
    with pytest.raises(ScoringError, match="draws random numbers"):
        influence_scores(policy, records, FReturn(records), backend=backend)
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(ScoringError, match="draws random numbers"):
        FAction(records.observations[0], records.actions[0])(policy)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_device_without_random_numbers_has_none_to_put_back():
    with untouched(Plain(nn.Linear(5, 3)).to("meta")):
        pass


# --- records that are tied together ----------------------------------------------------------------------------------


class Siamese(Categorical):
    """Both halves of an observation through one encoder, one after the other: rows that are not record by record."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.encoder, self.head = nn.Linear(5, 8), nn.Linear(16, 3)

    def logits(self, observations):
        both = self.encoder(torch.cat([observations[:, 0], observations[:, 1]])).tanh()
        return self.head(torch.cat(both.chunk(2), -1))


class Swapped(Categorical):
    """Rows change places in pairs on the way."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.net = nn.Linear(5, 3)

    def logits(self, observations):
        n = len(observations) // 2 * 2
        order = torch.cat([torch.arange(n).reshape(-1, 2).flip(1).flatten(), torch.arange(n, len(observations))])
        return self.net(observations)[order]


class FunctionalBatchNorm(Categorical):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.net, self.head = nn.Linear(5, 8), nn.Linear(8, 3)

    def logits(self, observations):
        hidden = self.net(observations)
        if len(hidden) > 1:  # torch refuses a single record
            hidden = F.batch_norm(hidden, None, None, training=True)
        return self.head(hidden.tanh())


def tied(kind, n, seed):
    policy, rng = kind(seed), np.random.default_rng(seed)
    shape = (n, 2, 5) if kind is Siamese else (n, 5)
    records = SimpleNamespace(
        observations=rng.standard_normal(shape).astype(np.float32),
        actions=rng.integers(3, size=n),
        advantages=rng.standard_normal(n).astype(np.float32),
        log_probs=-np.ones(n, np.float32),
    )
    return policy, records


@pytest.mark.parametrize("how", ["influence", "tracin"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n", [7, 64, 256])
@pytest.mark.parametrize("kind", [Swapped, FunctionalBatchNorm])
def test_records_that_are_tied_together_are_refused(kind, n, backend, how):
    for seed in range(20 if n < 20 else 4):
        policy, records = tied(kind, n, seed)
        with pytest.raises(ScoringError, match="ties records together"):
            score(policy, records, how, backend)


def test_records_of_a_policy_that_cannot_be_copied_are_refused_all_the_same():
    """In float32 a copy in float64 would tell whether rounding is to blame."""

    class Unique(Swapped):
        def __deepcopy__(self, memo):
            raise TypeError("cannot be copied")

    policy, records = tied(Unique, 16, 0)
    with pytest.raises(ScoringError, match="ties records together"):
        influence_scores(policy, records, FReturn(records))


@pytest.mark.parametrize("n", [2, 16, 64])
def test_rows_that_are_not_record_by_record_are_refused_by_ghost_and_right_otherwise(n):
    for seed in range(20):
        policy, records = tied(Siamese, n, seed)
        jvp, slow = (influence_scores(policy, records, FReturn(records), backend=name) for name in (None, "per_record"))
        torch.testing.assert_close(jvp, slow, rtol=1e-4, atol=1e-6)
        with pytest.raises(ScoringError, match="backend ghost gives .* backends that can: per_record"):
            influence_scores(policy, records, FReturn(records), backend="ghost")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_layer_that_is_called_on_something_else_than_the_records(backend):
    class Relative(Categorical):
        """Logits beside those of one fixed observation."""

        def __init__(self):
            super().__init__()
            self.net = nn.Linear(5, 3).double()

        def logits(self, observations):
            return self.net(observations) - self.net(torch.ones(1, 5).double()).tanh()

    policy, records = Relative(), make("tied weights")[1]
    if backend == "ghost":
        with pytest.raises(ScoringError, match=r"an output of shape \(1, 3\), not one row per record"):
            influence_scores(policy, records, FReturn(records), backend=backend)
    else:
        expected = oracles.influence(policy, records, lambda p: oracles.f_return(p, records))
        scores = influence_scores(policy, records, FReturn(records), backend=backend)
        assert (scores - expected).abs().max() <= 1e-9 * expected.abs().max()


def test_what_goes_wrong_only_once_ratios_are_clipped_is_found_at_a_later_step():
    """The comparison is made at the 1st, 2nd, 4th, 8th, ... step, since at the first one all ratios may be 1."""
    policy, records = tied(Swapped, 16, 0)
    net, honest = policy.net, type("Honest", (Categorical,), {"logits": lambda self, x: self.net(x)})()
    honest.net = net
    both = SimpleNamespace(step=0)

    class Turning(Categorical):
        def __init__(self):
            super().__init__()
            self.honest, self.swapped = honest, policy

        def logits(self, observations):
            return (self.swapped if both.step == 3 else self.honest).logits(observations)

    def steps():
        for both.step in range(6):
            yield Step(np.arange(16))

    with pytest.raises(ScoringError, match="ties records together"):
        tracin_scores(Turning(), records, FReturn(records), steps())
    assert both.step == 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_layers_that_would_change_or_tie_are_refused_by_name(backend):
    tokens = SimpleNamespace(
        observations=np.random.default_rng(0).integers(6, size=(7, 4)), actions=np.arange(7) % 3, advantages=np.ones(7)
    )
    refused = {
        "rescales its weights": nn.Embedding(6, 4, max_norm=0.1),
        "divides gradients": nn.Embedding(6, 4, scale_grad_by_freq=True),
    }
    for reason, layer in refused.items():
        before = layer.weight.tolist()
        policy = Plain(layer, nn.Flatten(), nn.Linear(16, 3))
        with pytest.raises(ScoringError, match=rf"layer 'net.0' \(Embedding\) {reason}"):
            influence_scores(policy, tokens, FReturn(tokens), backend=backend)
        assert layer.weight.tolist() == before
    vectors = make("tied weights")[1]
    running = nn.InstanceNorm1d(1, track_running_stats=True)
    policy = Plain(nn.Unflatten(1, (1, 5)), running, nn.Flatten(), nn.Linear(5, 3)).double()
    with pytest.raises(ScoringError, match=r"layer 'net.1' \(InstanceNorm1d\) updates running statistics"):
        influence_scores(policy, vectors, FReturn(vectors), backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_sparse_gradients_of_embeddings(backend):
    rng = np.random.default_rng(0)
    records = SimpleNamespace(
        observations=rng.integers(6, size=(9, 4)), actions=rng.integers(3, size=9), advantages=rng.standard_normal(9)
    )
    torch.manual_seed(0)
    dense = Plain(nn.Embedding(6, 4), nn.Flatten(), nn.Tanh(), nn.Linear(16, 3)).double()
    sparse = copy.deepcopy(dense)
    sparse.net[0] = nn.Embedding(6, 4, sparse=True, _weight=dense.net[0].weight.detach().clone())
    expected = oracles.influence(dense, records, lambda p: oracles.f_return(p, records))
    scores = influence_scores(sparse, records, FReturn(records), backend=backend)
    assert (scores - expected).abs().max() <= 1e-9 * expected.abs().max()


# --- scales ----------------------------------------------------------------------------------------------------------


def unnormalised(scale, log_std=None, seed=0, n=64):
    """A ReLU policy in float32 and observations of this size, as they come from an environment that nobody scaled."""
    rng = np.random.default_rng(seed)
    space = gym.spaces.Discrete(3) if log_std is None else gym.spaces.Box(-1, 1, (2,))
    policy = make_policy("mlp", gym.spaces.Box(-np.inf, np.inf, (5,)), space, torch.Generator().manual_seed(seed))
    policy.policy_net[1], policy.policy_net[3] = nn.ReLU(), nn.ReLU()
    observations = (scale * rng.standard_normal((n, 5))).astype(np.float32)
    if log_std is not None:
        nn.init.constant_(policy.log_std.weight, log_std)
    with torch.no_grad():
        outputs = policy.distribution_parameters(torch.from_numpy(observations)).numpy()
    if log_std is None:
        actions = rng.integers(3, size=n)
    else:
        actions = outputs + np.exp(log_std).astype(np.float32) * rng.standard_normal((n, 2)).astype(np.float32)
    advantages = rng.standard_normal(n).astype(np.float32)
    return policy, SimpleNamespace(observations=observations, actions=actions, advantages=advantages)


@pytest.mark.parametrize(("scale", "log_std"), [(1, None), (1e5, None), (1e6, 0.0), (1e4, -5.0)])
@pytest.mark.parametrize("backend", ["jvp", "ghost"])
def test_observations_of_any_size_are_scored(scale, log_std, backend):
    for seed in range(5):
        policy, records = unnormalised(scale, log_std, seed)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            scores = influence_scores(policy, records, FReturn(records), backend=backend)
        exact = influence_scores(copy.deepcopy(policy).double(), records, FReturn(records))
        assert (scores.double() - exact).abs().max() < (1e-6 if said else 1e-2) * exact.abs().max()


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_at_right_angles_are_no_sign_of_a_fault(backend, recwarn):
    """Their product is all rounding, and that follows their lengths."""
    for seed in range(10):
        torch.manual_seed(seed)
        policy = Plain(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
        records = SimpleNamespace(
            observations=torch.randn(1, 5), actions=torch.zeros(1, dtype=torch.long), advantages=torch.ones(1)
        )
        exact = copy.deepcopy(policy).double()
        own = oracles.gradient(exact, exact.log_prob(records.observations.double(), records.actions)[0])
        across = torch.randn(len(own)).double()
        across = (across - own * (own @ across) / (own @ own)).float()

        def target(policy, across=across):
            return torch.cat([parameter.flatten() for parameter in policy.parameters()]) @ across

        score = influence_scores(policy, records, target, backend=backend)
        assert abs(float(score)) < 1e-4
    assert not recwarn.list


def test_where_float32_is_exhausted_float64_scores_and_one_line_says_so():
    class Rough(Plain):
        """Rounds otherwise for one record than for many, as float32's sums do once their terms are large."""

        def logits(self, observations):
            logits = self.net(observations)
            return logits * (1 + 0.1 * (len(logits) == 1) * (logits.dtype == torch.float32))

    torch.manual_seed(0)
    policy, records = Rough(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3)), make("tied weights", 64)[1]
    with pytest.warns(UserWarning, match="^float32 is exhausted") as said:
        scores = influence_scores(policy, records, FReturn(records))
    assert len(said) == 1 and "\n" not in str(said[0].message) and scores.dtype == torch.float32
    exact = oracles.influence(copy.deepcopy(policy).double(), records, lambda p: oracles.f_return(p, records))
    torch.testing.assert_close(scores.double(), exact, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("backend", ["jvp", "per_record"])
def test_bfloat16(backend):
    policy, records = make("two sequentials")
    exact = influence_scores(policy, records, FReturn(records))
    half = SimpleNamespace(**{name: torch.as_tensor(x) for name, x in vars(records).items()})
    for name in ("observations", "advantages", "log_probs"):
        setattr(half, name, getattr(half, name).bfloat16())
    low = copy.deepcopy(policy).bfloat16()
    for scores in (
        influence_scores(low, half, FReturn(half), backend=backend),
        tracin_scores(low, half, FReturn(half), [Step(np.arange(N))], objective=PolicyGradient(), backend=backend),
    ):
        assert scores.dtype == torch.bfloat16
        assert (scores.double() - exact).abs().max() < 0.1 * exact.abs().max()


def test_one_hot_encodes_where_its_observations_are():
    encoded = OneHot(5)(torch.zeros(3, dtype=int, device="meta"), torch.float32)
    assert encoded.device.type == "meta" and encoded.shape == (3, 5)


# --- objectives ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "objective",
    [
        ClippedPPO(normalize=False, clip_range=0.1),
        ClippedPPO(normalize=True, clip_range=0.3),
        PolicyGradient(normalize=True),
        PolicyGradient(value_coef=0.7, entropy_coef=0.3),
        ClippedPPO(value_coef=0.5, entropy_coef=0.1),
    ],
    ids=str,
)
def test_any_objective_is_scored_record_by_record(objective, backend):
    """Value and entropy terms included, which reach features that policy and value function share."""
    rng = np.random.default_rng(0)
    policy = make_policy(
        "minigrid_cnn", gym.spaces.Box(0, 255, (7, 7, 3), np.uint8), gym.spaces.Discrete(3), torch.Generator()
    ).double()
    with torch.no_grad():
        policy.action_head.weight *= 30
    records = SimpleNamespace(
        observations=rng.integers(11, size=(N, 7, 7, 3)).astype(np.uint8),
        actions=rng.integers(3, size=N),
        advantages=rng.standard_normal(N),
        returns=rng.standard_normal(N),
        log_probs=np.log(1 / 3) + 0.3 * rng.standard_normal(N),
        weights=rng.random(N),
    )
    scores = influence_scores(policy, records, FReturn(records), objective=objective, backend=backend)
    direction = oracles.gradient(policy, oracles.f_return(policy, records))
    advantages = oracles.normalized(records.advantages) if objective.normalize else records.advantages
    terms = [oracles.term(policy, records, i, float(a), objective) for i, a in enumerate(advantages)]
    products = [direction @ oracles.gradient(policy, term) for term in terms]
    expected = torch.stack(products) * torch.from_numpy(records.weights)
    assert (scores - expected).abs().max() <= 1e-9 * expected.abs().max()


def test_an_objective_of_ones_own_over_sequences_of_tokens():
    """Records are sequences of different lengths, held in a list; their terms are sums over tokens."""

    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(7, 6), nn.Linear(6, 7)

        def token_log_probs(self, tokens):
            return self.head(self.embedding(tokens[:-1]).tanh()).log_softmax(-1).gather(-1, tokens[1:, None])[:, 0]

    def objective(policy, sequences):
        return torch.stack([policy.token_log_probs(tokens).sum() * reward for tokens, reward in sequences])

    def target(policy):
        return objective(policy, sequences).mean()

    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    policy = Language().double()
    sequences = [(torch.as_tensor(rng.integers(7, size=int(n))), float(rng.standard_normal())) for n in (3, 9, 5, 4, 7)]
    direction = oracles.gradient(policy, target(policy))
    expected = torch.stack([direction @ oracles.gradient(policy, objective(policy, [one])[0]) for one in sequences])
    for backend, chunk_size in ((None, None), ("jvp", 2), ("per_record", None)):
        scores = influence_scores(
            policy, sequences, target, objective=objective, backend=backend, chunk_size=chunk_size
        )
        assert (scores - expected).abs().max() <= 1e-9 * expected.abs().max()


def test_an_objective_of_another_shape_is_refused():
    policy, records = make("tied weights")
    with pytest.raises(ScoringError, match=r"an objective of 2 records must return a tensor \(2,\), not \(\)"):
        influence_scores(policy, records, FReturn(records), objective=lambda p, b: p.head.weight.sum())


# --- formulas by hand -------------------------------------------------------------------------------------------------


SPACES = {
    "one_hot": ("mlp", gym.spaces.Discrete(4), gym.spaces.Discrete(3)),
    "vector": ("mlp", gym.spaces.Box(-9, 9, (5,), np.float64), gym.spaces.Discrete(3)),
    "gaussian": ("mlp", gym.spaces.Box(-9, 9, (5,), np.float64), gym.spaces.Box(-1, 1, (2,))),
    "images": ("minigrid_cnn", gym.spaces.Box(0, 255, (7, 7, 3), np.uint8), gym.spaces.Discrete(3)),
}


def known(kind, n=40, seed=0):
    """A policy that formulas are known for, away from its initialisation, and records of it."""
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    policy = make_policy(*SPACES[kind], generator).double()
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    if kind == "one_hot":
        observations = rng.integers(4, size=n)
    elif kind == "images":
        observations = rng.integers(0, 3, (6, 7, 7, 3)).astype(np.uint8)[rng.integers(6, size=n)]
    else:
        observations = rng.standard_normal((n, 5))
    actions = rng.standard_normal((n, 2)) if kind == "gaussian" else rng.integers(3, size=n)
    with torch.no_grad():
        log_probs = policy.log_prob(torch.as_tensor(observations), torch.as_tensor(actions)).numpy()
    return policy, SimpleNamespace(
        observations=observations,
        actions=actions,
        advantages=rng.standard_normal(n),
        log_probs=log_probs + 0.2 * rng.standard_normal(n),
        weights=rng.random(n),
    )


@pytest.mark.filterwarnings("error:.*scored by jvp")
@pytest.mark.parametrize("objective", [PolicyGradient(), ClippedPPO(normalize=False, clip_range=0.1), ClippedPPO()])
@pytest.mark.parametrize("kind", SPACES)
def test_formulas_equal_every_backend(kind, objective):
    policy, records = known(kind)
    direction = {
        "f_return": FReturn(records),
        "f_action": FAction(records.observations[2], records.actions[2]),
        "own": lambda p: p.policy_net[0].weight.square().sum() + p.value_head.bias.sum(),
    }
    assert HandDerived.supports(objective, policy, as_batch(records))
    for target in direction.values():
        found = [influence_scores(policy, records, target, objective=objective, backend=b) for b in BACKENDS]
        for scores in found[:-1]:
            assert (scores - found[-1]).abs().max() <= 1e-9 * found[-1].abs().max()


@pytest.mark.parametrize("where", ["_gradient", "derivatives"])
def test_wrong_formulas_are_found_and_jvp_scores(where, monkeypatch):
    policy, records = known("vector")
    expected = influence_scores(policy, records, FReturn(records))
    method = getattr(HandDerived, where)

    def wrong(self, *arguments):
        found = method(self, *arguments)
        if where == "derivatives":
            return found[0], found[1] * 1.05
        return found | {"policy_net.0.weight": found["policy_net.0.weight"] * 1.5}

    monkeypatch.setattr(HandDerived, where, wrong)
    with pytest.warns(UserWarning, match="scored by jvp") as said:
        scores = influence_scores(policy, records, FReturn(records))
    assert len(said) == 1 and "\n" not in str(said[0].message)
    assert (scores - expected).abs().max() <= 1e-9 * expected.abs().max()


def test_gradients_that_cancel_are_not_taken_for_wrong_formulas(recwarn):
    """Two records that pull in opposite directions: the tolerance follows their lengths, not that of their sum."""
    for seed in range(10):
        policy, records = known("vector", n=2, seed=seed)
        policy.float()
        del records.weights
        records.observations = (records.observations[:1] * [[1], [1 + 1e-6]]).astype(np.float32)
        records.actions = np.zeros(2, np.int64)
        records.advantages = np.array([1, -1], np.float32)
        influence_scores(policy, records, FReturn(SimpleNamespace(**vars(records) | {"advantages": np.ones(2)})))
    assert not recwarn.list


def test_formulas_follow_a_policy_whose_memory_moves():
    policy, records = known("vector")
    twin = copy.deepcopy(policy)

    def steps(moving):
        for k in range(5):
            yield Step(np.arange(k, k + 20))
            for parameter in moving.parameters():
                parameter.data = parameter.data + 0.01 * torch.sign(parameter.data)  # other memory

    scores = tracin_scores(policy, records, FReturn(records), steps(policy))
    expected = tracin_scores(twin, records, FReturn(records), steps(twin), backend="per_record")
    assert (scores - expected).abs().max() <= 1e-9 * expected.abs().max()


def test_a_policy_that_was_changed_is_scored_as_it_is():
    """A hook that rescales logits, a method replaced on the instance, layers of other widths, a head without bias."""
    changes = {
        "hook": lambda p: p.action_head.register_forward_hook(lambda module, args, logits: 3 * logits),
        "method": lambda p: setattr(p, "log_prob", lambda o, a: type(p).log_prob(p, o, a) / 3),
        "widths": lambda p: [
            setattr(p, "policy_net", nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 64), nn.Tanh()).double())
        ],
        "bias": lambda p: setattr(p, "action_head", nn.Linear(64, 3, bias=False).double()),
    }
    for change in changes.values():
        policy, records = known("vector")
        del records.weights
        change(policy)
        expected = oracles.influence(policy, records, lambda p, r=records: oracles.f_return(p, r))
        for backend in BACKENDS:
            scores = influence_scores(policy, records, FReturn(records), backend=backend)
            assert (scores - expected).abs().max() <= 1e-9 * expected.abs().max()


@pytest.mark.parametrize("backend", BACKENDS)
def test_actions_of_another_shape_are_refused(backend):
    box = gym.spaces.Box(-1, 1, (1,))
    policy = make_policy("mlp", gym.spaces.Box(-9, 9, (5,)), box, torch.Generator()).double()
    rng = np.random.default_rng(0)
    for shape in ((12,), (12, 3)):
        records = SimpleNamespace(
            observations=rng.standard_normal((12, 5)),
            actions=rng.standard_normal(shape),
            advantages=rng.standard_normal(12),
        )
        with pytest.raises(ScoringError, match=r"real ones of shape \(2, 1\) are needed"):
            influence_scores(policy, records, FReturn(records), backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["one_hot", "vector"])
def test_actions_and_states_out_of_range_are_refused(kind, backend):
    """A negative action is not the last one, nor is a negative state."""
    for changed, value in (
        ("actions", -1),
        ("actions", 3),
        *([("observations", -1), ("observations", 4)] * (kind == "one_hot")),
    ):
        policy, records = known(kind)
        target = FReturn(records)
        getattr(records, changed)[0] = value
        with pytest.raises(ScoringError, match="log_prob of policy ActorCritic fails for observations of shape"):
            influence_scores(policy, records, target, backend=backend)
