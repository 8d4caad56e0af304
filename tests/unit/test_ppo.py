"""GAE, one round's update and its corner cases, against slow obvious twins in float64."""

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch

import oracles
from rl_influence.config import PPOConfig
from rl_influence.ppo.inference import Inference
from rl_influence.ppo.kernels import FlatParameters
from rl_influence.ppo.learner import Learner, Optimizer, minibatches
from rl_influence.ppo.networks import make_policy
from rl_influence.ppo.objective import Step, normalize
from rl_influence.ppo.records import Records, TrainingError, distinct_observations
from rl_influence.ppo.rollout import collect, gae

BOX = gym.spaces.Box
SPACES = {
    "one_hot": ("mlp", gym.spaces.Discrete(16), gym.spaces.Discrete(4)),
    "vector": ("mlp", BOX(-1, 1, (6,), np.float32), gym.spaces.Discrete(3)),
    "gaussian": ("mlp", BOX(-1, 1, (8,), np.float32), BOX(-1, 1, (2,), np.float32)),
    "images": ("minigrid_cnn", BOX(0, 255, (7, 7, 3), np.uint8), gym.spaces.Discrete(7)),
}


# --- GAE ------------------------------------------------------------------------------------------------------------


def random_episodes(generator, *shape):
    rewards, values, next_values = generator.standard_normal((3, *shape))
    terminated, truncated = generator.random((2, *shape)) < 0.1  # now and then both at once
    return rewards, values, next_values, terminated, truncated


@pytest.mark.parametrize("gamma, gae_lambda", [(0.99, 0.95), (1.0, 1.0), (0.9, 0.0), (0.0, 0.5)])
def test_gae_is_its_definition(gamma, gae_lambda):
    for seed in range(10):
        arrays = random_episodes(np.random.default_rng(seed), 60)
        expected = oracles.gae(*arrays, gamma, gae_lambda)
        np.testing.assert_allclose(gae(*arrays, gamma=gamma, gae_lambda=gae_lambda), expected, rtol=0, atol=1e-12)


def test_gae_of_several_environments_is_gae_of_each():
    arrays = random_episodes(np.random.default_rng(0), 40, 3)
    together = gae(*arrays, gamma=0.99, gae_lambda=0.95)
    assert together.shape == (40, 3)
    for e in range(3):
        expected = oracles.gae(*(array[:, e] for array in arrays), 0.99, 0.95)
        np.testing.assert_allclose(together[:, e], expected, rtol=0, atol=1e-12)


def test_gae_bootstraps_a_truncated_step_from_its_last_observation():
    """An episode cut off by its time limit: not death, and not the value of the reset observation."""
    advantages = gae([1, 1], [2, 100], [10, 7], [False, False], [True, False], gamma=0.9, gae_lambda=0.95)
    assert advantages[0] == pytest.approx(8)


def test_gae_takes_the_end_of_an_episode_where_it_is():
    advantages = gae(
        [1, 1, 1], [5, 5, 100], [5, 100, 100], [False, True, False], [False] * 3, gamma=0.99, gae_lambda=0.95
    )
    np.testing.assert_allclose(advantages, [-2.812, -4, 0], rtol=0, atol=1e-12)


def test_gae_of_nothing_and_of_one_step():
    assert gae([], [], [], [], [], gamma=0.99, gae_lambda=0.95).shape == (0,)
    assert gae([1], [2], [3], [False], [False], gamma=0.5, gae_lambda=0.95).tolist() == [0.5]


def test_gae_is_float64_whatever_comes_in():
    arrays = [array.astype(np.float32) for array in random_episodes(np.random.default_rng(0), 20)]
    assert gae(*arrays, gamma=0.99, gae_lambda=0.95).dtype == np.float64


# --- mini-batches, normalisation, distinct observations -------------------------------------------------------------


@pytest.mark.parametrize(
    "n, batch_size, drop_short, sizes",
    [
        (128, 64, True, [64, 64]),
        (129, 64, True, [64, 64]),
        (129, 64, False, [64, 64, 1]),
        (63, 64, True, [63]),
        (1, 64, True, [1]),
        (3, 1, True, [1, 1, 1]),
        (0, 64, True, []),
        (0, 64, False, []),
    ],
)
def test_minibatches(n, batch_size, drop_short, sizes):
    order = np.random.default_rng(0).permutation(n)
    batches = minibatches(order, batch_size, drop_short=drop_short)
    assert [len(batch) for batch in batches] == sizes
    np.testing.assert_array_equal(np.concatenate([*batches, order[:0]]), order[: sum(sizes)])


def test_normalize_is_torchs():
    advantages = np.random.default_rng(0).normal(3, 5, 64)
    tensor = torch.from_numpy(advantages)
    np.testing.assert_allclose(normalize(advantages), (tensor - tensor.mean()) / (tensor.std() + 1e-8), rtol=1e-12)


@pytest.mark.parametrize("advantages", [[2.5], [], [0.0, 0.0], [7.0, 7.0, 7.0]])
def test_normalize_without_spread(advantages):
    expected = advantages if len(advantages) < 2 else np.zeros(len(advantages))
    np.testing.assert_array_equal(normalize(np.array(advantages)), expected)


@pytest.mark.parametrize("shape, dtype", [((), np.int64), ((7, 7, 3), np.uint8)])
def test_distinct_observations(shape, dtype):
    observations = np.random.default_rng(0).integers(0, 2, (12, *shape)).astype(dtype)
    observations = observations[np.random.default_rng(1).integers(12, size=200)]
    distinct, rows = distinct_observations(observations)
    assert len(distinct) == len(np.unique(observations, axis=0)) < 200
    np.testing.assert_array_equal(distinct[rows], observations)


@pytest.mark.parametrize(
    "observations", [np.zeros((5, 4), np.float32), np.zeros((5, 4, 84, 84), np.uint8), np.zeros(0, int)]
)
def test_observations_that_do_not_repeat_are_left_alone(observations):
    distinct, rows = distinct_observations(observations)
    assert distinct is observations
    np.testing.assert_array_equal(rows, np.arange(len(observations)))


# --- optimisers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_grad_norm", [None, 0.5])
@pytest.mark.parametrize("name", ["sgd", "adam", "rmsprop"])
def test_optimizers_are_torchs(name, max_grad_norm):
    module = torch.nn.Linear(5, 3).double()
    twin = torch.nn.Linear(5, 3).double()
    twin.load_state_dict(module.state_dict())
    flat = FlatParameters(module)
    config = PPOConfig(optimizer=name, learning_rate=0.01, max_grad_norm=max_grad_norm)
    ours = Optimizer(flat, config)
    torchs = {
        "sgd": lambda: torch.optim.SGD(twin.parameters(), lr=0.01),
        "adam": lambda: torch.optim.Adam(twin.parameters(), lr=0.01, eps=1e-5),
        "rmsprop": lambda: torch.optim.RMSprop(twin.parameters(), lr=0.01, alpha=0.99, eps=1e-5),
    }[name]()
    generator = np.random.default_rng(0)
    for step in range(60):
        gradient = generator.standard_normal(18) * 10.0 ** generator.integers(-4, 1)  # clipped and not clipped
        flat.gradient[:] = gradient
        ours.step(float(np.linalg.norm(gradient)))
        for parameter, part in zip(twin.parameters(), flat.views(gradient).values(), strict=True):
            parameter.grad = torch.from_numpy(part.copy())
        if max_grad_norm:
            torch.nn.utils.clip_grad_norm_(twin.parameters(), max_grad_norm)
        torchs.step()
        for a, b in zip(module.parameters(), twin.parameters(), strict=True):
            np.testing.assert_allclose(a.detach(), b.detach(), rtol=1e-12, atol=1e-14, err_msg=f"step {step}")


@pytest.mark.parametrize("name", ["sgd", "adam", "rmsprop"])
def test_optimizer_state_continues_exactly(name):
    def run(interrupted):
        flat = FlatParameters(torch.nn.Linear(5, 3))
        flat.vector[:] = 1
        config = PPOConfig(optimizer=name)
        optimizer, generator = Optimizer(flat, config), np.random.default_rng(0)
        for step in range(10):
            if interrupted and step == 5:
                saved = {key: value.copy() for key, value in optimizer.state().items()}
                optimizer = Optimizer(flat, config)
                optimizer.restore(saved)
            flat.gradient[:] = generator.standard_normal(18)
            optimizer.step(float(np.linalg.norm(flat.gradient)))
        return flat.vector

    np.testing.assert_array_equal(run(True), run(False))


# --- one round's update ---------------------------------------------------------------------------------------------


def make(kind, seed=0, double=True):
    policy = make_policy(*SPACES[kind], torch.Generator().manual_seed(seed))
    return policy.double() if double else policy


def make_records(kind, n, policy, seed=0):
    """Random records whose actions the policy drew; log-probabilities off enough that some ratios are clipped."""
    generator = np.random.default_rng(seed)
    dtype = next(policy.parameters()).detach().numpy().dtype
    if kind == "one_hot":
        observations = generator.integers(16, size=n)
    elif kind == "images":
        observations = generator.integers(0, 2, (40, 7, 7, 3)).astype(np.uint8)[generator.integers(40, size=n)]
    else:
        observations = generator.standard_normal((n, *SPACES[kind][1].shape)).astype(np.float32)
    inference = Inference(policy)
    actions = inference.act(observations, generator)
    log_probs, values = inference.log_probs(inference.outputs(observations), actions), inference.values(observations)
    advantages = generator.standard_normal(n).astype(dtype)
    return Records(
        observations=observations,
        actions=actions,
        rewards=np.zeros(n, dtype),
        terminated=np.zeros(n, bool),
        truncated=np.zeros(n, bool),
        log_probs=(log_probs + 0.15 * generator.standard_normal(n)).astype(dtype),
        values=values,
        next_values=values,
        advantages=advantages,
        returns=values + advantages,
    )


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize(
    "settings",
    [
        {"max_grad_norm": None},
        {"max_grad_norm": 0.1, "entropy_coef": 0.02, "drop_short_minibatch": False},
        {"optimizer": "adam", "learning_rate": 3e-4, "max_grad_norm": None, "normalize_advantage": False},
    ],
)
def test_a_round_equals_plain_torch(kind, settings):
    config = PPOConfig(**settings)
    learner, twin = Learner(make(kind), config), make(kind)
    records = make_records(kind, 330, twin)
    epochs = [np.random.default_rng(k).permutation(330) for k in range(3)]
    expected = oracles.plain_torch(twin, records, epochs, config)
    steps = 0
    for step in learner.steps(records, epochs):
        policy_loss, value_loss, gradient = next(expected)
        assert (step.policy_loss, step.value_loss) == pytest.approx((policy_loss, value_loss), rel=1e-10, abs=1e-12)
        assert step.gradient_norm == pytest.approx(np.linalg.norm(gradient), rel=1e-10)
        np.testing.assert_allclose(learner.parameters.gradient, gradient, rtol=1e-8, atol=1e-11)
        steps += 1
    assert next(expected, None) is None
    assert steps == 3 * (5 if config.drop_short_minibatch else 6)
    for a, b in zip(learner.policy.parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(a.detach(), b.detach(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize(
    "n, batch_size, drop_short, updates", [(129, 64, False, 3), (129, 64, True, 2), (5, 1, True, 5), (1, 64, True, 1)]
)
def test_small_batches_are_those_of_plain_torch(kind, n, batch_size, drop_short, updates):
    config = PPOConfig(batch_size=batch_size, drop_short_minibatch=drop_short)
    learner = Learner(make(kind), config)
    twin, records = copy.deepcopy(learner.policy), make_records(kind, n, learner.policy)
    assert learner.update(records, [np.arange(n)]) == updates
    assert sum(1 for _ in oracles.plain_torch(twin, records, [np.arange(n)], config)) == updates
    for a, b in zip(learner.policy.parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(a.detach(), b.detach(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", SPACES)
def test_no_records_no_step(kind):
    learner = Learner(make(kind, double=False), PPOConfig(optimizer="adam"))
    before = learner.parameters.vector.copy()
    records = make_records(kind, 10, learner.policy)
    assert learner.update(records, [np.arange(0)] * 10) == 0
    assert learner.update(records[np.arange(0)], [np.arange(0)] * 10) == 0
    np.testing.assert_array_equal(learner.parameters.vector, before)
    assert learner.optimizer.steps == 0


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize(
    "field, value", [("returns", np.nan), ("returns", np.inf), ("advantages", np.nan), ("log_probs", -np.inf)]
)
def test_a_loss_that_is_not_finite_stops_at_once_and_says_where(kind, field, value):
    learner = Learner(make(kind, double=False), PPOConfig())
    records = make_records(kind, 256, learner.policy)
    getattr(records, field)[130] = value  # in the third mini-batch
    if field == "log_probs":
        records.advantages[130] = -1e3  # a positive one would be clipped
    steps = []
    with pytest.raises(TrainingError, match=r"^update 3: .*not finite$"):
        for step in learner.steps(records, [np.arange(256)]):
            steps.append(step)
    assert len(steps) == 2
    assert np.isfinite(learner.parameters.vector).all()


def test_a_gradient_that_overflows_stops_as_well():
    learner = Learner(make("vector", double=False), PPOConfig(batch_size=1))
    records = make_records("vector", 2, learner.policy)
    records.returns[1] = 1.5e19  # the loss, its square, is still a float32
    with pytest.raises(TrainingError, match="^update 2: .*gradient norm inf"):
        learner.update(records, [np.arange(2)])
    assert np.isfinite(learner.parameters.vector).all()


def test_a_step_is_seen_with_its_gradient_and_the_old_parameters():
    learner = Learner(make("vector"), PPOConfig(learning_rate=0.1, max_grad_norm=None))
    records = make_records("vector", 128, learner.policy)
    seen = []
    for step in learner.steps(records, [np.arange(128)]):
        assert step.learning_rate == 0.1
        seen.append((step.index, step.batch, learner.parameters.vector.copy(), learner.parameters.gradient.copy()))
    (i, first_batch, start, gradient), (j, second_batch, middle, _) = seen
    assert (i, j) == (0, 1) and Step(first_batch).index == 0
    np.testing.assert_array_equal(np.concatenate([first_batch, second_batch]), np.arange(128))
    np.testing.assert_allclose(middle, start - 0.1 * gradient, rtol=0, atol=1e-15)


# --- collecting -----------------------------------------------------------------------------------------------------


class Script:
    """A sampler whose observations count up; episodes end at given steps. Everything it executed is kept."""

    def __init__(self, kind, ends):
        _, self.observation_space, self.action_space = SPACES[kind]
        self.ends, self.t, self.actions, self.generator = ends, 0, [], np.random.default_rng(0)
        self.observation = self._new()

    def _new(self):
        space = self.observation_space
        if isinstance(space, gym.spaces.Discrete):
            return int(self.generator.integers(space.n))
        if space.dtype == np.uint8:
            return self.generator.integers(0, 11, space.shape).astype(np.uint8)
        return self.generator.standard_normal(space.shape).astype(np.float32)

    def step(self, action):
        self.actions.append(action)
        reached, end = self._new(), self.ends.get(self.t, "")
        self.observation = self._new() if end else reached  # a reset observation is another one
        self.t += 1
        return float(self.t), reached, end == "terminated", end == "truncated"


@pytest.mark.parametrize("kind", SPACES)
def test_collect_records_what_happened(kind):
    ends, config, policy = {4: "terminated", 9: "truncated", 10: "truncated"}, PPOConfig(), make(kind)
    records = collect(Script(kind, ends), policy, 16, np.random.default_rng(1), config)
    # the same again, step by step
    sampler, inference = Script(kind, ends), Inference(policy)
    noise = inference.noise(16, np.random.default_rng(1))
    reached = []
    for t in range(16):
        observation = np.asarray(sampler.observation)
        np.testing.assert_array_equal(records.observations[t], observation)
        action = inference.step(observation, noise[t])
        np.testing.assert_array_equal(records.actions[t], action)
        reward, after, terminated, truncated = sampler.step(action)
        assert (records.rewards[t], records.terminated[t], records.truncated[t]) == (reward, terminated, truncated)
        reached.append(after)
    with torch.no_grad():
        observations, actions = torch.from_numpy(records.observations), torch.from_numpy(records.actions)
        log_probs, values, _ = policy.evaluate(observations, actions)
        next_values = policy.values(torch.from_numpy(np.stack(reached))).numpy()
    np.testing.assert_allclose(records.log_probs, log_probs, rtol=1e-12)
    np.testing.assert_allclose(records.values, values, rtol=0, atol=1e-12)
    np.testing.assert_allclose(records.next_values, next_values, rtol=0, atol=1e-12)
    ended = records.terminated, records.truncated
    expected = oracles.gae(records.rewards, values.numpy(), next_values, *ended, config.gamma, config.gae_lambda)
    np.testing.assert_allclose(records.advantages, expected, rtol=0, atol=1e-11)
    np.testing.assert_allclose(records.returns, records.advantages + records.values, rtol=0, atol=1e-12)
    assert len(records) == 16


def test_collect_goes_on_where_the_last_round_stopped():
    sampler, policy = Script("vector", {}), make("vector")
    first = collect(sampler, policy, 5, np.random.default_rng(0), PPOConfig())
    reached = sampler.observation
    second = collect(sampler, policy, 5, np.random.default_rng(1), PPOConfig())
    np.testing.assert_array_equal(second.observations[0], reached)
    np.testing.assert_allclose(first.next_values[-1], second.values[0], rtol=1e-12)


@pytest.mark.parametrize("kind", SPACES)
def test_ratio_is_one_before_the_first_update(kind):
    """Also of Gaussian actions outside of the box: they are stored raw, with their own log-probability."""
    policy = make(kind, double=False)
    records = collect(Script(kind, {7: "terminated"}), policy, 512, np.random.default_rng(0), PPOConfig())
    if kind == "gaussian":
        assert (np.abs(records.actions) > 1).mean() > 0.2
    with torch.no_grad():
        log_probs = policy.log_prob(torch.from_numpy(records.observations), torch.from_numpy(records.actions))
        ratio = (log_probs - torch.from_numpy(records.log_probs)).exp()
    assert records.log_probs.dtype == np.float32
    assert float((ratio - 1).abs().max()) < 1e-5


def test_a_raw_action_has_the_log_prob_of_the_raw_action():
    """N(0, 1), sampled 2.5, box [-1, 1]: -4.044, not the -1.419 of the clipped action."""
    spaces = BOX(-1, 1, (1,), np.float32), BOX(-1, 1, (1,), np.float32)
    policy = make_policy("mlp", *spaces, torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        policy.action_head.weight.zero_()
    script = Script("vector", {})
    script.observation_space, script.action_space = spaces
    script.observation = np.zeros(1, np.float32)

    class Noise:
        def standard_normal(self, shape):
            return np.full(shape, 2.5)

    records = collect(script, policy, 3, Noise(), PPOConfig(n_steps=3, batch_size=3))
    np.testing.assert_array_equal(records.actions, np.full((3, 1), 2.5))
    np.testing.assert_allclose(records.log_probs, -4.0439385, rtol=1e-7)
    assert [float(action[0]) for action in script.actions] == [2.5] * 3  # the sampler clips what it executes


@pytest.mark.parametrize("kind", SPACES)
def test_looking_at_a_policy_changes_nothing(kind):
    """Training with and without evaluation in between gives the same bytes."""

    def train(looking):
        learner, sampler = Learner(make(kind, double=False), PPOConfig()), Script(kind, {20: "terminated"})
        for k in range(2):
            records = collect(sampler, learner.policy, 128, np.random.default_rng(k), PPOConfig())
            if looking:
                Inference(learner.policy).act(records.observations, np.random.default_rng(99))
                learner.policy.log_prob(
                    torch.from_numpy(records.observations), torch.from_numpy(records.actions)
                ).sum().backward()
                torch.randn(3), np.random.rand(3)
            learner.update(records, [np.random.default_rng(k).permutation(128) for _ in range(2)])
        return learner.parameters.vector

    np.testing.assert_array_equal(train(True), train(False))
