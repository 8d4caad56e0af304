"""The full TracIn sum against a literal double loop in float64, for the torch path and the one by hand."""

import copy
import weakref

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

import oracles
from rl_influence.attribution import FAction, FReturn, ScoringError, Step, influence_scores, tracin_scores
from rl_influence.config import PPOConfig
from rl_influence.ppo.learner import Learner
from rl_influence.ppo.networks import make_policy
from rl_influence.ppo.objective import ClippedPPO
from rl_influence.ppo.records import Records

Box, Discrete = gym.spaces.Box, gym.spaces.Discrete
N = 12
RAW = ClippedPPO(normalize=False)


def make(action_space=None, observation_space=None, network="mlp", seed=0):
    """A float64 policy and the records that it would have collected, with log-probabilities of its own."""
    action_space, observation_space = action_space or Discrete(3), observation_space or Box(-9, 9, (5,), np.float64)
    rng = np.random.default_rng(seed)
    policy = make_policy(network, observation_space, action_space, torch.Generator().manual_seed(seed)).double()
    with torch.no_grad():
        policy.action_head.weight *= 30
    if isinstance(observation_space, Discrete):
        observations = rng.integers(0, observation_space.n, N)
    elif observation_space.dtype == np.uint8:
        observations = rng.integers(0, 11, (N, *observation_space.shape)).astype(np.uint8)
    else:
        observations = rng.standard_normal((N, *observation_space.shape))
    discrete = isinstance(action_space, Discrete)
    actions = rng.integers(0, action_space.n, N) if discrete else rng.standard_normal((N, *action_space.shape))
    with torch.no_grad():
        log_probs = policy.log_prob(torch.as_tensor(observations), torch.as_tensor(actions)).numpy()
    advantages, zeros, flags = rng.standard_normal(N), np.zeros(N), np.zeros(N, dtype=bool)
    return policy, Records(
        observations, actions, zeros, flags, flags, log_probs, zeros, zeros, advantages, rng.standard_normal(N)
    )


def sgd_steps(policy, records, batches, rates):
    """Plain ascent on the mean clipped objective: yields before each step and takes it when resumed."""
    for batch, rate in zip(batches, rates, strict=True):
        yield Step(batch, rate)
        if len(batch) == 0:
            continue
        advantages = oracles.normalized(records.advantages[batch])
        terms = [oracles.clipped_objective(policy, records, i, a, 0.2) for i, a in zip(batch, advantages, strict=True)]
        gradient = oracles.gradient(policy, sum(terms) / len(terms))
        vector = nn.utils.parameters_to_vector(policy.parameters()).detach() + rate * gradient
        nn.utils.vector_to_parameters(vector, policy.parameters())


# a repeated record, a single record, an empty batch, and record 11 never
BATCHES = [
    np.array(b, dtype=int) for b in ([0, 1, 2, 3], [4, 5, 4, 6], [7], [], [8, 9, 10, 0], [1, 2, 5, 7], [3, 0, 6, 9])
]
RATES = [0.3, 0.2, 0.2, 0.1, 0.1, 0.3, 0.1]


def assert_close(actual, expected, tolerance=1e-9):
    assert expected.abs().max() > 1e-6
    assert (actual - expected).abs().max() <= tolerance * expected.abs().max()


CASES = {
    "vectors": {},
    "integers": {"observation_space": Discrete(4), "action_space": Discrete(3)},
    "gaussian": {"action_space": Box(-1, 1, (2,))},
    "matrices": {"observation_space": Box(-9, 9, (2, 3), np.float64)},
    "minigrid": {"observation_space": Box(0, 255, (7, 7, 3), np.uint8), "network": "minigrid_cnn"},
}


@pytest.mark.parametrize("backend", [None, "jvp", "ghost", "per_record"])
@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_equals_the_double_loop(name, weight, backend):
    policy, records = make(**CASES[name])
    twin = copy.deepcopy(policy)
    scores = tracin_scores(
        policy,
        records,
        FReturn(records),
        sgd_steps(policy, records, BATCHES, RATES),
        weight_by_learning_rate=weight,
        backend=backend,
    )
    expected = oracles.tracin(
        twin,
        records,
        lambda p: oracles.f_return(p, records),
        sgd_steps(twin, records, BATCHES, RATES),
        weight_by_learning_rate=weight,
    )
    assert_close(scores, expected)
    assert scores[11] == 0


def test_clipped_terms_are_left_out():
    """Old log-probabilities far off on both sides: the oracle takes torch's own min and clamp."""
    policy, records = make()
    records.log_probs += np.linspace(-0.6, 0.6, N)
    for batch in (np.arange(N), np.arange(N)[::2]):
        scores = tracin_scores(policy, records, FReturn(records), [Step(batch)], objective=RAW)
        expected = oracles.tracin(
            policy, records, lambda p: oracles.f_return(p, records), [Step(batch)], normalize=False
        )
        assert_close(scores, expected)
        left_out = (scores[batch] == 0).numpy()
        ratio = np.exp(-np.linspace(-0.6, 0.6, N))[batch]
        assert (left_out == np.where(records.advantages[batch] > 0, ratio > 1.2, ratio < 0.8)).all()
        assert 0 < left_out.sum() < len(batch)


@pytest.mark.parametrize("kind", ["action", "own"])
def test_other_targets(kind):
    policy, records = make()
    if kind == "action":
        target = FAction(records.observations[3], records.actions[3], action_space=Discrete(3))
    else:

        def target(policy):
            return policy.policy_net[2].weight.pow(2).sum()

    twin = copy.deepcopy(policy)
    scores = tracin_scores(policy, records, target, sgd_steps(policy, records, BATCHES, RATES), chunk_size=3)
    f = target if kind == "own" else lambda p: oracles.log_prob_of(p, records, 3)
    assert_close(scores, oracles.tracin(twin, records, f, sgd_steps(twin, records, BATCHES, RATES)))


@pytest.mark.parametrize("backend", [None, "jvp"])
@pytest.mark.parametrize("space", [Discrete(3), Box(-1, 1, (2,))])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_follows_the_learner_of_ppo(space, optimizer, backend):
    """`Learner.steps` is an iterator of steps; that making the learner rebinds the parameters does not matter."""
    policy, records = make(space)
    config = PPOConfig(n_steps=N, batch_size=4, n_epochs=3, optimizer=optimizer, learning_rate=0.05)
    epochs = [np.random.default_rng(k).permutation(N) for k in range(3)]
    twin = copy.deepcopy(policy)

    def late(policy):
        yield from Learner(policy, config).steps(records, epochs)

    scores = tracin_scores(policy, records, FReturn(records), late(policy), backend=backend)
    assert_close(scores, oracles.tracin(twin, records, lambda p: oracles.f_return(p, records), late(twin)))
    undisturbed = make(space)[0]
    Learner(undisturbed, config).update(records, epochs)
    for scored, plain in zip(policy.parameters(), undisturbed.parameters(), strict=True):
        assert torch.equal(scored, plain)


def test_products_are_summed_and_not_multiplied_as_sums():
    """<sum_j grad f, sum_j grad L> has cross terms between steps, which the definition has not."""
    policy, records = make()
    f = FReturn(records)
    start = copy.deepcopy(policy)
    batches, rates = [np.array([0, 1]), np.array([0, 1])], [2.0, 2.0]
    scores = tracin_scores(policy, records, f, sgd_steps(policy, records, batches, rates))
    wrong_f, wrong_l = 0, 0
    for step in sgd_steps(start, records, batches, rates):
        wrong_f = wrong_f + oracles.gradient(start, f(start))
        a = oracles.normalized(records.advantages[step.batch])[0]
        wrong_l = wrong_l + oracles.gradient(start, oracles.clipped_objective(start, records, 0, a, 0.2))
    wrong = float(wrong_f @ wrong_l)
    assert abs(float(scores[0]) - wrong) > 0.2 * abs(wrong)


@pytest.mark.parametrize("backend", [None, "jvp", "ghost", "per_record"])
def test_batch_mates_do_not_matter(backend):
    """At equal parameters and without normalisation, a record's term is its own."""
    policy, records = make()
    alone, mates, others = ([np.array(b)] for b in ([2], [0, 2, 5, 7], [11, 10, 2]))
    scores = [
        float(tracin_scores(policy, records, FReturn(records), map(Step, b), objective=RAW, backend=backend)[2])
        for b in (alone, mates, others)
    ]
    assert scores[1] == pytest.approx(scores[0], rel=1e-12) and scores[2] == pytest.approx(scores[0], rel=1e-12)


def test_one_step_on_the_whole_buffer_is_the_start_of_round_score():
    policy, records = make(Box(-1, 1, (2,)))
    scores = tracin_scores(policy, records, FReturn(records), [Step(np.arange(N))], objective=RAW)
    assert_close(scores, influence_scores(policy, records, FReturn(records)))
    advantages = np.arange(N) - 3.5
    scores = tracin_scores(
        policy, records, FReturn(records), [Step(np.arange(N))], objective=RAW, advantages=advantages
    )
    assert_close(scores, influence_scores(policy, records, FReturn(records), advantages=advantages))


def test_zero_advantage_scores_zero():
    policy, records = make()
    records.advantages[5] = 0
    scores = tracin_scores(policy, records, FReturn(records), [Step(np.arange(N))], objective=RAW)
    assert scores[5] == 0 and (scores != 0).sum() == N - 1


def test_steps_are_streamed():
    """Each step is asked for after the one before it was scored and dropped."""
    policy, records = make()
    alive = []

    def steps():
        for k in range(50):
            batch = np.array([k % N, (k + 1) % N])
            alive.append(weakref.ref(batch))
            yield Step(batch)
            del batch
            assert sum(ref() is not None for ref in alive) <= 1

    tracin_scores(policy, records, FReturn(records), steps())
    assert len(alive) == 50


def test_bad_steps_and_records():
    policy, records = make()
    target = FReturn(records)
    with pytest.raises(ScoringError, match="step 1 names records 0 to 12, but there are 12"):
        tracin_scores(policy, records, target, [Step(np.array([0])), Step(np.array([0, 12]))])
    for batch in (np.arange(12) < 3, np.array([0.0, 1.0]), np.array([[0, 1]])):
        with pytest.raises(ScoringError, match="step 0: expected record indices"):
            tracin_scores(policy, records, target, [Step(batch)])
    with pytest.raises(ScoringError, match="step 0 names records -1 to 0"):
        tracin_scores(policy, records, target, [Step(np.array([0, -1]))])
    with pytest.raises(ScoringError, match="backend 'fast' is unknown"):
        tracin_scores(policy, records, target, [], backend="fast")
    records.log_probs[4] = np.nan
    with pytest.raises(ScoringError, match=r"log_probs\[4\] is nan"):
        tracin_scores(policy, records, target, [])
    records.log_probs[4], records.advantages[2] = -1, np.inf
    with pytest.raises(ScoringError, match=r"advantages\[2\] is inf"):
        tracin_scores(policy, records, target, [])
    records.advantages[2] = 1
    policy.value_net[0].bias.requires_grad_(False)
    refused = nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.5)).double()
    policy.features = refused
    with pytest.raises(ScoringError, match=r"layer 'features.1' \(Dropout\) is random"):
        tracin_scores(policy, records, target, [Step(np.arange(N))])
