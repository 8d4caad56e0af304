"""True advantages against literal recursions over dictionaries, rollouts, and records of the real environments."""

from itertools import pairwise

import gymnasium as gym
import minigrid  # noqa: F401  (registers its environments)
import numpy as np
import pytest
from minigrid.wrappers import ImgObsWrapper

from oracles import frozen_lake_values, minigrid_values, monte_carlo_advantages_slowly
from rl_influence.environments.tabular import tabular_model
from rl_influence.evaluation.true_advantages import (
    exact_advantages,
    exact_values,
    monte_carlo_advantages,
    record_states,
    rollout_advantages,
)
from rl_influence.ppo.records import Records

GAMMA = 0.9


def frozen_lake(limit=None, **kwargs):
    return gym.make("FrozenLake-v1", max_episode_steps=limit, **({"map_name": "4x4", "is_slippery": False} | kwargs))


def minigrid_env(name="Empty-5x5", **kwargs):
    return ImgObsWrapper(gym.make(f"MiniGrid-{name}-v0", **kwargs))


def random_policy(model, seed=0):
    logits = np.random.default_rng(seed).normal(size=model.shape)
    return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)


def everywhere(model, steps):
    """Every state and action at the given steps of an episode: three flat arrays."""
    grids = np.meshgrid(np.arange(model.shape[0]), np.arange(model.shape[1]), steps, indexing="ij")
    return [grid.ravel() for grid in grids]


def make_records(observations, actions, rewards, terminated, truncated, values=None, next_values=None):
    n = len(rewards)
    zeros = np.zeros(n)
    return Records(
        observations=np.asarray(observations),
        actions=np.asarray(actions),
        rewards=np.asarray(rewards, dtype=float),
        terminated=np.asarray(terminated, dtype=bool),
        truncated=np.asarray(truncated, dtype=bool),
        log_probs=zeros,
        values=zeros if values is None else values,
        next_values=zeros if next_values is None else next_values,
        advantages=zeros,
        returns=zeros,
    )


def collect(env, n, seed, read):
    """n steps with random actions: records, and what `read(env.unwrapped)` says before each and after the last."""
    generator = np.random.default_rng(seed)
    observation, _ = env.reset(seed=seed)
    rows, truth, step = [], [], 0
    n_actions = int(env.action_space.n)
    p = [0.25] * 4 if n_actions == 4 else [0.15, 0.2, 0.45] + [0.05] * 4
    for _ in range(n):
        truth.append((read(env.unwrapped), step))
        action = int(generator.choice(n_actions, p=p))
        following, reward, terminated, truncated, _ = env.step(action)
        rows.append((observation, action, reward, terminated, truncated))
        observation, step = following, step + 1
        if terminated or truncated:
            (observation, _), step = env.reset(), 0
    truth.append((read(env.unwrapped), step))
    return make_records(*zip(*rows, strict=True)), truth


def pose_reader(model):
    index = {tuple(label): s for s, label in enumerate(model.labels.tolist())}
    return lambda env: index[(int(env.agent_pos[0]), int(env.agent_pos[1]), int(env.agent_dir))]


# ---- exact advantages


@pytest.mark.parametrize(
    "kwargs",
    [{}, {"is_slippery": True}, {"map_name": "8x8", "is_slippery": True, "reward_schedule": (2, -1, -0.1)}],
)
def test_frozen_lake_advantages_equal_value_iteration(kwargs):
    env = frozen_lake(20, **kwargs)
    model = tabular_model(env)
    pi = random_policy(model)
    q, v = frozen_lake_values(env, pi, GAMMA)
    states, actions, steps = everywhere(model, [0, 7, 19])  # the step makes no difference: the limit is bootstrapped
    expected = [q[s, a] - v[s] for s, a in zip(states, actions, strict=True)]
    ours = exact_advantages(model, pi, states, actions, steps, gamma=GAMMA)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-10)
    assert np.abs(ours).max() > 0.1


def test_minigrid_advantages_equal_recursion_over_steps_and_poses():
    model = tabular_model(minigrid_env(max_steps=12))
    pi = random_policy(model)
    poses = [tuple(label) for label in model.labels.tolist()]
    q, v = minigrid_values(5, 12, dict(zip(poses, pi, strict=True)), GAMMA)
    states, actions, steps = everywhere(model, range(12))
    expected = [q[t, poses[s], a] - v[t][poses[s]] for s, a, t in zip(states, actions, steps, strict=True)]
    ours = exact_advantages(model, pi, states, actions, steps, gamma=GAMMA)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-10)
    values = exact_values(model, pi, gamma=GAMMA)
    assert values.shape == (13, 36)
    np.testing.assert_allclose(values[12], [v[12][pose] for pose in poses], rtol=0, atol=1e-10)


@pytest.mark.parametrize("env", [frozen_lake(is_slippery=True), minigrid_env("Empty-8x8"), minigrid_env("DistShift1")])
def test_policy_weighted_mean_over_actions_is_zero(env):
    model = tabular_model(env)
    pi = random_policy(model)
    states, actions, steps = everywhere(model, [0, model.horizon // 2, model.horizon - 1])
    advantages = exact_advantages(model, pi, states, actions, steps, gamma=0.99)
    means = np.zeros((model.shape[0], 3))
    np.add.at(means, (states, np.tile([0, 1, 2], model.shape[0] * model.shape[1])), pi[states, actions] * advantages)
    assert np.abs(means).max() < 1e-12 < 0.01 < np.abs(advantages).max()


def test_advantages_by_hand():
    model = tabular_model(frozen_lake())
    pi = np.zeros(model.shape)
    pi[:, 2] = 1  # always right
    pi[13] = pi[14] = [0.5, 0, 0.5, 0]  # 13 and 14 on the way to goal 15: left or right
    # V(14) = (g V(13) + 1) / 2; V(13) = (g V(12) + g V(14)) / 2, where 12 is a hole: V(12) would not count
    v14 = 0.5 / (1 - GAMMA**2 / 4)
    v13 = GAMMA * v14 / 2
    ours = exact_advantages(model, pi, [14, 14, 13], [2, 0, 2], [0, 99, 5], gamma=GAMMA)
    np.testing.assert_allclose(ours, [1 - v14, GAMMA * v13 - v14, GAMMA * v14 - v13], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "env",
    [frozen_lake(is_slippery=True, reward_schedule=(1, -0.5, -0.01)), minigrid_env(max_steps=15)],
    ids=["frozenlake", "minigrid"],
)
def test_exact_advantages_agree_with_rollouts(env):
    model = tabular_model(env)
    pi = random_policy(model, seed=3)
    generator = np.random.default_rng(4)
    states, actions, steps = (generator.integers(n, size=40) for n in (*model.shape, model.horizon))
    arguments = model, pi, states, actions, steps
    exact = exact_advantages(*arguments, gamma=GAMMA)
    batches = np.array(
        [rollout_advantages(*arguments, gamma=GAMMA, rollouts=100, generator=generator) for _ in range(30)]
    )
    se = batches.std(0, ddof=1) / np.sqrt(len(batches))
    deterministic = se < 1e-9
    z = (batches.mean(0) - exact)[~deterministic] / se[~deterministic]
    assert np.abs(z).max() < 4.5 and 0.6 < z.std() < 1.5
    np.testing.assert_allclose(batches.mean(0)[deterministic], exact[deterministic], rtol=0, atol=1e-5)
    assert (~deterministic).sum() > 20 and np.abs(exact / np.maximum(se, 1e-9)).max() > 8


def test_rollouts_of_equal_records_are_shared_and_reproducible():
    model = tabular_model(minigrid_env(max_steps=15))
    pi = random_policy(model)
    states, actions, steps = np.array([3, 3, 3, 8]), np.array([2, 2, 1, 2]), np.array([4, 4, 4, 0])

    def run(seed):
        generator = np.random.default_rng(seed)
        return rollout_advantages(model, pi, states, actions, steps, gamma=GAMMA, rollouts=5, generator=generator)

    first = run(1)
    assert first[0] == first[1] and np.array_equal(first, run(1)) and not np.array_equal(first, run(2))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"gamma": 1.0}, "gamma = 1.0"),
        ({"states": [16]}, "states 16 to 16"),
        ({"actions": [-1]}, "actions -1 to -1"),
        ({"steps": [100]}, "steps 100 to 100"),
        ({"steps": [1, 2]}, "steps"),
        ({"actions": [0.5]}, "actions float64"),
    ],
)
def test_bad_arguments_are_named(change, named):
    model = tabular_model(frozen_lake())
    arguments = {"states": [0], "actions": [0], "steps": [0], "gamma": GAMMA} | change
    with pytest.raises(ValueError, match=named):
        exact_advantages(model, random_policy(model), **arguments)
    with pytest.raises(ValueError, match=named):
        rollout_advantages(model, random_policy(model), **arguments, rollouts=1, generator=np.random.default_rng(0))


# ---- states of records


@pytest.mark.parametrize(
    "make",
    [
        lambda: frozen_lake(15),
        lambda: frozen_lake(15, is_slippery=True),
        lambda: minigrid_env(max_steps=30),
        lambda: minigrid_env("Empty-6x6"),
        lambda: minigrid_env("DistShift1", max_steps=40),
    ],
)
def test_record_states_follow_the_real_environment_over_buffers(make):
    env = make()
    model = tabular_model(env)
    lake = env.action_space.n == 4
    records, truth = collect(env, 900, 2, (lambda env: int(env.s)) if lake else pose_reader(model))
    states, steps = np.array(truth).T
    assert records.terminated.any() and records.truncated.any()
    state, step = None, 0
    for start, end in pairwise([0, 1, 333, 600, 601, 900]):  # episodes go on from one buffer to the next
        traced = record_states(model, records[np.arange(start, end)], initial_state=state, initial_step=step)
        assert np.array_equal(traced.states, states[start:end]) and np.array_equal(traced.steps, steps[start:end])
        state, step = traced.next_state, traced.next_step
        assert step == steps[end] and state in (states[end], None if lake else states[end])


def test_records_that_do_not_fit_are_named():
    env = minigrid_env("Empty-6x6")
    model = tabular_model(env)
    records, truth = collect(env, 60, 2, pose_reader(model))
    wrong = (truth[0][0] + 1) % model.shape[0]
    with pytest.raises(ValueError, match="record 0: its observation fits 0 of the 1 states"):
        record_states(model, records, initial_state=wrong)
    turn = int(np.flatnonzero(records.actions < 2)[5])
    skipped = records[np.delete(np.arange(60), turn)]  # after the missing turn everything looks different
    with pytest.raises(ValueError, match=f"record {turn}: its observation fits 0"):
        record_states(model, skipped)
    # in the middle of an episode, with an image that several poses show
    empty = tabular_model(minigrid_env("Empty-8x8"))
    images = empty.observations.reshape(144, -1)
    twins = np.flatnonzero((images == images[0]).all(1))
    assert len(twins) > 1
    lost = make_records(empty.observations[:1], [0], [0], [False], [False])
    with pytest.raises(ValueError, match=f"record 0: its observation fits {len(twins)} of the 144 states"):
        record_states(empty, lost, initial_step=3)


def test_a_random_start_that_the_image_does_not_tell_is_refused():
    env = minigrid_env("Empty-Random-6x6", agent_view_size=3)
    model = tabular_model(env)
    records, _ = collect(env, 400, 2, pose_reader(model))
    with pytest.raises(ValueError, match="exactly one is needed"):
        record_states(model, records)


# ---- Monte-Carlo averages of the buffer


@pytest.mark.parametrize("kind", ["integers", "images", "vectors"])
def test_monte_carlo_advantages_equal_a_double_loop(kind):
    generator = np.random.default_rng(6)
    n = 150
    codes = generator.integers(8, size=n)
    table = {
        "integers": np.arange(8),
        "images": generator.integers(11, size=(8, 7, 7, 3)).astype(np.uint8),
        "vectors": generator.normal(size=(8, 5)).astype(np.float32),
    }[kind]
    ends = generator.random(n)
    records = make_records(
        table[codes],
        generator.integers(3, size=n),
        generator.normal(size=n),
        ends < 0.1,
        (ends > 0.85) | (ends < 0.03),  # now and then both at once: then it is a termination
        values=generator.normal(size=n).astype(np.float32),
        next_values=generator.normal(size=n).astype(np.float32),
    )
    assert not (records.terminated | records.truncated)[-1]  # the buffer cuts an episode
    ours = monte_carlo_advantages(records, gamma=0.97)
    np.testing.assert_allclose(ours, monte_carlo_advantages_slowly(records, 0.97), rtol=0, atol=1e-12)
    assert ours.std() > 0.1
    # what the value network says elsewhere than at a cut plays no part
    cut = records.truncated.copy()
    cut[-1] = True
    other = records.arrays() | {
        "values": generator.normal(size=n),
        "next_values": np.where(cut, records.next_values, generator.normal(size=n)),
    }
    np.testing.assert_allclose(monte_carlo_advantages(Records(**other), gamma=0.97), ours, rtol=0, atol=1e-12)


def test_monte_carlo_advantages_by_hand():
    # state 5: action 0 then a reward of 1 after another step (return 0.9), action 1 ends with 0; state 6 has one action
    records = make_records([5, 6, 5], [0, 2, 1], [0, 1, 0], [False, True, True], [False] * 3)
    np.testing.assert_allclose(monte_carlo_advantages(records, gamma=0.9), [0.45, 0, -0.45], rtol=0, atol=1e-15)
    # truncation and the buffer's end both go on with the next value: returns 0.9 * 10 and 2 + 0.9 * 20
    records = make_records([5, 5], [0, 1], [0, 2], [False] * 2, [True, False], next_values=np.array([10.0, 20.0]))
    np.testing.assert_allclose(monte_carlo_advantages(records, gamma=0.9), [-5.5, 5.5], rtol=0, atol=1e-14)


def test_monte_carlo_advantage_of_a_state_with_one_action_is_exactly_zero():
    generator = np.random.default_rng(7)
    codes = generator.integers(5, size=200)
    # a difference of 1e-17 would count as a sign in the heuristics that compare it with GAE
    records = make_records(codes, codes % 3, generator.normal(size=200), generator.random(200) < 0.1, [False] * 200)
    assert np.array_equal(monte_carlo_advantages(records, gamma=0.99), np.zeros(200))
