"""Tabular models against forward enumeration written from the rules of the games, and against real episodes."""

import bisect
import copy

import gymnasium as gym
import minigrid  # noqa: F401  (registers its environments)
import numpy as np
import pytest
import torch
from minigrid.wrappers import FullyObsWrapper, ImgObsWrapper

from oracles import frozen_lake_return, minigrid_return
from rl_influence.config import ConfigError
from rl_influence.environments.tabular import (
    expected_return,
    policy_chain,
    policy_probabilities,
    tabular_model,
    values_by_step,
)
from rl_influence.ppo.networks import make_policy

MAP = ["SFFHF", "FHFFF", "FFFSF", "HFFFG"]  # not square, two starts
FROZEN_LAKES = {
    "4x4": {"map_name": "4x4", "is_slippery": False},
    "4x4 slippery": {"map_name": "4x4", "is_slippery": True},
    "8x8 slippery, cost per step": {"map_name": "8x8", "is_slippery": True, "reward_schedule": (2, -1, -0.01)},
    "own map, slippery": {"desc": MAP, "is_slippery": True, "success_rate": 0.8},
}
MINIGRIDS = ["Empty-5x5", "Empty-6x6", "Empty-8x8", "Empty-Random-5x5", "DistShift1"]


def frozen_lake(max_episode_steps=None, **kwargs):
    return gym.make("FrozenLake-v1", max_episode_steps=max_episode_steps, **kwargs)


def minigrid_env(name, **kwargs):
    return ImgObsWrapper(gym.make(f"MiniGrid-{name}-v0", **kwargs))


def random_policy(model, seed=0, sharpness=1.0):
    logits = sharpness * np.random.default_rng(seed).normal(size=model.shape)
    return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)


def network(env, sharpness=1.0, seed=0):
    """An actor-critic for the environment; `sharpness` makes the nearly uniform initial policy a decided one."""
    name = "mlp" if isinstance(env.observation_space, gym.spaces.Discrete) else "minigrid_cnn"
    policy = make_policy(name, env.observation_space, env.action_space, torch.Generator().manual_seed(seed))
    policy.action_head.weight.data *= sharpness
    return policy


def play(env, cumulative, episodes, seed, state_of):
    """Returns of real episodes; `cumulative` has each state's cumulative action probabilities."""
    random = np.random.default_rng(seed).random
    env.reset(seed=seed)
    returns = []
    for _ in range(episodes):
        env.reset()
        total, done = 0.0, False
        while not done:
            row = cumulative[state_of(env.unwrapped)]
            _, reward, terminated, truncated, _ = env.step(min(bisect.bisect(row, random()), len(row) - 1))
            total += reward
            done = terminated or truncated
        returns.append(total)
    return np.array(returns)


def assert_within(returns, expected):
    se = returns.std(ddof=1) / np.sqrt(len(returns))
    assert se > 0 and abs(returns.mean() - expected) < 4 * se, (returns.mean(), expected, se)


def cumulative_rows(pi):
    return pi.cumsum(1).tolist()


def pose_index(model):
    index = {tuple(label): s for s, label in enumerate(model.labels.tolist())}
    return lambda env: index[(int(env.agent_pos[0]), int(env.agent_pos[1]), int(env.agent_dir))]


# ---- the tables and the dynamic program against the twins


@pytest.mark.parametrize("kwargs", FROZEN_LAKES.values(), ids=FROZEN_LAKES)
@pytest.mark.parametrize("sharpness", [0, 1, 5])
def test_frozen_lake_return_equals_forward_enumeration(kwargs, sharpness):
    env = frozen_lake(**kwargs)
    model = tabular_model(env)
    pi = random_policy(model, sharpness=sharpness)
    oracle = frozen_lake_return(env, pi, env.spec.max_episode_steps)
    assert expected_return(model, pi) == pytest.approx(oracle, rel=0, abs=1e-10)
    assert oracle != 0


@pytest.mark.parametrize("name", MINIGRIDS)
@pytest.mark.parametrize("sharpness", [0, 3])
def test_minigrid_return_equals_forward_enumeration(name, sharpness):
    env = minigrid_env(name)
    model = tabular_model(env)
    pi = random_policy(model, sharpness=sharpness)
    env.reset(seed=0)
    starts = [(int(env.unwrapped.agent_pos[0]), int(env.unwrapped.agent_pos[1]), int(env.unwrapped.agent_dir))]
    if "Random" in name:
        starts = [(x, y, d) for x in (1, 2, 3) for y in (1, 2, 3) for d in range(4) if (x, y) != (3, 3)]
    pi_of_pose = {tuple(label): row for label, row in zip(model.labels.tolist(), pi, strict=True)}
    oracle = minigrid_return(env, pi_of_pose, starts, env.unwrapped.max_steps)
    assert expected_return(model, pi) == pytest.approx(oracle, rel=0, abs=1e-10)
    assert 0 < oracle < 1


def test_states_of_the_two_environments_of_the_paper():
    lake = tabular_model(frozen_lake(**FROZEN_LAKES["4x4"]))
    assert lake.shape == (16, 4) and lake.horizon == 100 and lake.reward_slope == 0
    assert lake.observations.tolist() == list(range(16)) and lake.labels[6].tolist() == [1, 2]
    empty = tabular_model(minigrid_env("Empty-8x8"))
    assert empty.shape == (144, 7) and empty.horizon == 256 and empty.reward_slope == -0.9 / 256
    assert empty.observations.shape == (144, 7, 7, 3) and empty.observations.dtype == np.uint8
    assert empty.labels[empty.start == 1].tolist() == [[1, 1, 0]]
    # one of them is entered by moving forward onto the goal: from the left, and from above
    entries = [label.tolist() for label in empty.labels[empty.terminated.any((1, 2))]]
    assert sorted(entries) == [[5, 6, 0], [6, 5, 1]]


@pytest.mark.parametrize("name", ["Empty-6x6", "DistShift1"])
def test_minigrid_steps_and_observations_equal_the_real_environment(name):
    env = minigrid_env(name)
    model = tabular_model(env)
    state_of, generator = pose_index(model), np.random.default_rng(1)
    observation, _ = env.reset(seed=1)
    ends = 0
    for _ in range(2000):
        state, action = state_of(env.unwrapped), int(generator.integers(7))
        assert np.array_equal(observation, model.observations[state])
        step = env.unwrapped.step_count + 1
        observation, reward, terminated, truncated, _ = env.step(action)
        assert state_of(env.unwrapped) == model.next_states[state, action, 0]
        assert terminated == model.terminated[state, action, 0] and truncated == (step >= model.horizon)
        assert reward == pytest.approx(model.rewards[state, action, 0] * model.reward_factor(step), abs=1e-12)
        if terminated or truncated:
            ends += 1
            observation, _ = env.reset()
    assert ends > 5


def test_observations_go_through_the_wrappers():
    full = tabular_model(ImgObsWrapper(FullyObsWrapper(gym.make("MiniGrid-Empty-5x5-v0"))))
    assert full.observations.shape == (36, 5, 5, 3)
    assert len(np.unique(full.observations.reshape(36, -1), axis=0)) == 36  # the whole grid tells every pose apart
    one_hot = tabular_model(gym.wrappers.FlattenObservation(frozen_lake(**FROZEN_LAKES["4x4"])))
    assert np.array_equal(one_hot.observations, np.eye(16))


def test_random_start_is_what_resets_give():
    env = minigrid_env("Empty-Random-5x5")
    model = tabular_model(env)
    state_of, counts = pose_index(model), np.zeros(model.shape[0])
    for seed in range(3200):
        env.unwrapped.reset(seed=seed)
        counts[state_of(env.unwrapped)] += 1
    assert np.array_equal(counts > 0, model.start > 0) and (model.start > 0).sum() == 32
    expected = 3200 * model.start[model.start > 0]
    assert ((counts[model.start > 0] - expected) ** 2 / expected).sum() < 69  # chi-squared, 31 dof, p = 1e-4


def test_building_leaves_the_environment_alone():
    for env in (frozen_lake(**FROZEN_LAKES["4x4 slippery"]), minigrid_env("Empty-Random-6x6")):
        env.reset(seed=3)
        for action in (2, 1, 2):
            env.step(action)
        twin = copy.deepcopy(env)
        tabular_model(env)
        for action in (2, 2, 1, 0, 1, 2) * 40:
            ours, theirs = env.step(action), twin.step(action)
            assert np.array_equal(ours[0], theirs[0]) and ours[1:4] == theirs[1:4]
            if ours[2] or ours[3]:
                assert np.array_equal(env.reset()[0], twin.reset()[0])


# ---- time limit, step-dependent reward: values by hand


def one_hot_policy(model, actions_of_label, default):
    pi = np.zeros(model.shape)
    pi[:, default] = 1
    for label, action in actions_of_label.items():
        s = model.labels.tolist().index(list(label))
        pi[s] = np.eye(model.shape[1])[action]
    return pi


def test_time_limit_of_frozen_lake():
    down, right = 1, 2
    # 6 steps to the goal
    path = {(0, 0): down, (1, 0): down, (2, 0): right, (2, 1): down, (3, 1): right, (3, 2): right}
    for limit, value in ((5, 0.0), (6, 1.0), (100, 1.0)):
        model = tabular_model(frozen_lake(limit, **FROZEN_LAKES["4x4"]))
        assert model.horizon == limit
        assert expected_return(model, one_hot_policy(model, path, default=0)) == value
    # the shorter of two limits counts
    assert tabular_model(gym.wrappers.TimeLimit(frozen_lake(9, **FROZEN_LAKES["4x4"]), 7)).horizon == 7


def test_reward_of_minigrid_falls_with_the_steps():
    path = {(1, 1, 0): 2, (2, 1, 0): 2, (3, 1, 0): 1, (3, 1, 1): 2, (3, 2, 1): 2}  # 5 steps from (1, 1) to (3, 3)
    for max_steps, value in ((4, 0.0), (5, 0.1), (100, 1 - 0.9 * 5 / 100)):
        model = tabular_model(minigrid_env("Empty-5x5", max_steps=max_steps))
        assert expected_return(model, one_hot_policy(model, path, default=6)) == pytest.approx(value, abs=1e-14)
    # a shorter limit of a wrapper cuts the episode, but the reward still counts in the environment's own
    wrapped = tabular_model(gym.wrappers.TimeLimit(minigrid_env("Empty-5x5"), 5))
    assert wrapped.horizon == 5
    assert expected_return(wrapped, one_hot_policy(wrapped, path, default=6)) == pytest.approx(0.955, abs=1e-14)
    # waits with probability 1/2 in the last pose before the goal, limit 7: 1/2 at step 5, 1/4 at 6, 1/8 at 7
    model = tabular_model(minigrid_env("Empty-5x5", max_steps=7))
    pi = one_hot_policy(model, path, default=6)
    pi[model.labels.tolist().index([3, 2, 1])] = [0, 0, 0.5, 0, 0, 0, 0.5]
    by_hand = (1 - 0.9 * 5 / 7) / 2 + (1 - 0.9 * 6 / 7) / 4 + 0.1 / 8
    assert expected_return(model, pi) == pytest.approx(by_hand, abs=1e-14)


def test_limit_matters_to_a_random_policy():
    returns = []
    for limit in (10, 30, 100, 1000):
        model = tabular_model(frozen_lake(limit, **FROZEN_LAKES["4x4"]))
        returns.append(expected_return(model, np.full(model.shape, 0.25)))
    assert returns[0] < returns[1] < returns[2] <= returns[3]
    # without a limit: the linear system of the absorbing chain
    chain, rewards = policy_chain(model, np.full(model.shape, 0.25))
    assert returns[3] == pytest.approx(np.linalg.solve(np.eye(16) - chain.toarray(), rewards)[0], abs=1e-12)


def test_values_by_step_with_discount_and_final_values():
    model = tabular_model(frozen_lake(3, **FROZEN_LAKES["4x4"]))
    pi, final = random_policy(model), np.arange(16.0)
    values = values_by_step(model, pi, gamma=0.5, final=final)
    assert values.shape == (4, 16) and np.array_equal(values[3], final)
    for t in range(3):
        for s in range(16):
            total = 0.0
            for a in range(4):
                for k in range(model.next_states.shape[2]):
                    following = 0 if model.terminated[s, a, k] else 0.5 * values[t + 1, model.next_states[s, a, k]]
                    total += pi[s, a] * model.probabilities[s, a, k] * (model.rewards[s, a, k] + following)
            assert values[t, s] == pytest.approx(total, abs=1e-12)


# ---- policies


@pytest.mark.parametrize("env", [frozen_lake(**FROZEN_LAKES["4x4"]), minigrid_env("Empty-5x5")], ids=str)
def test_policy_probabilities_are_those_of_log_prob(env):
    model, policy = tabular_model(env), network(env, sharpness=1000)
    pi = policy_probabilities(policy, model)
    n_states, n_actions = model.shape
    observations = torch.as_tensor(model.observations)
    for a in range(n_actions):
        log_probs = policy.log_prob(observations, torch.full((n_states,), a))
        np.testing.assert_allclose(pi[:, a], log_probs.exp().detach().numpy(), rtol=1e-5)
    assert pi.dtype == np.float64 and np.allclose(pi.sum(1), 1, rtol=0, atol=1e-12) and pi.std() > 0.01


def test_a_policy_that_is_none_is_refused():
    model = tabular_model(frozen_lake(**FROZEN_LAKES["4x4"]))
    good = np.full((16, 4), 0.25)
    for bad in (good * np.nan, good[:-1], good * 1.01, good + [[0.5, -0.5, 0, 0]]):
        with pytest.raises(ValueError, match="not 16 distributions over 4 actions"):
            expected_return(model, bad)


# ---- real episodes


def goal_seeking(model, greed):
    """Like a trained policy: mostly along a shortest path, the rest spread over all actions."""
    n_states, n_actions = model.shape
    value = np.zeros(n_states)
    for _ in range(200):
        following = 0.9 * value[model.next_states] * ~model.terminated
        action_values = (model.probabilities * (model.rewards + following)).sum(2)
        value = action_values.max(1)
    best = np.eye(n_actions)[action_values.argmax(1)]
    return greed * best + (1 - greed) / n_actions


@pytest.mark.parametrize("name", ["4x4", "own map, slippery"])
def test_exact_return_within_the_interval_of_frozen_lake_episodes(name):
    env = frozen_lake(12, **FROZEN_LAKES[name])  # a limit that cuts many episodes
    model = tabular_model(env)
    for pi in (policy_probabilities(network(env), model), goal_seeking(model, 0.7)):
        returns = play(env, cumulative_rows(pi), 2000, 5, lambda env: env.s)
        assert_within(returns, expected_return(model, pi))


def test_exact_return_within_the_interval_of_minigrid_episodes():
    env = minigrid_env("Empty-5x5", max_steps=40)
    model = tabular_model(env)
    for pi in (policy_probabilities(network(env), model), goal_seeking(model, 0.5)):
        returns = play(env, cumulative_rows(pi), 150, 5, pose_index(model))
        assert_within(returns, expected_return(model, pi))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["random", "trained"])
@pytest.mark.parametrize("name", ["frozenlake", "minigrid"])
def test_exact_return_within_the_interval_of_20000_episodes(name, kind):
    env = frozen_lake(**FROZEN_LAKES["4x4"]) if name == "frozenlake" else minigrid_env("Empty-8x8")
    model = tabular_model(env)
    pi = policy_probabilities(network(env), model) if kind == "random" else goal_seeking(model, 0.8)
    state_of = (lambda env: env.s) if name == "frozenlake" else pose_index(model)
    if name == "minigrid":
        env = env.unwrapped
        env.gen_obs = lambda: None  # the policy is looked up by pose; drawing images would take ten times as long
    returns = play(env, cumulative_rows(pi), 20_000, 7, state_of)
    assert_within(returns, expected_return(model, pi))


# ---- refusals


def without_start():
    with np.errstate(invalid="ignore"):
        return frozen_lake(desc=["FFFF", "FHFH", "FFFH", "HFFG"])


@pytest.mark.parametrize(
    ("env", "named"),
    [
        (lambda: minigrid_env("DoorKey-8x8"), ["MiniGrid-DoorKey-8x8-v0", "door, key"]),
        (lambda: minigrid_env("Dynamic-Obstacles-5x5"), ["MiniGrid-Dynamic-Obstacles-5x5-v0", "step of its own"]),
        (lambda: minigrid_env("FourRooms"), ["MiniGrid-FourRooms-v0", "anew at every reset"]),
        (lambda: minigrid_env("LavaGapS5"), ["MiniGrid-LavaGapS5-v0", "anew at every reset"]),
        (lambda: minigrid_env("Fetch-5x5-N2"), ["MiniGrid-Fetch-5x5-N2-v0", "of its own"]),
        (lambda: gym.make("MiniGrid-Empty-5x5-v0"), ["MiniGrid-Empty-5x5-v0", "Dict"]),
        (lambda: without_start(), ["FrozenLake-v1", "no state can be an episode's first: has the map a start?"]),
        (lambda: gym.make("Acrobot-v1"), ["Acrobot-v1", "AcrobotEnv has no transition table"]),
        (lambda: gym.make("FrozenLake-v1").unwrapped, ["FrozenLake-v1", "no time limit"]),
        (lambda: gym.wrappers.TransformReward(frozen_lake(), lambda r: -r), ["FrozenLake-v1", "TransformReward"]),
    ],
)
def test_other_environments_are_refused_by_name(env, named):
    with pytest.raises(ConfigError) as error:
        tabular_model(env())
    message = str(error.value)
    assert "\n" not in message and all(part in message for part in [*named, "'exact'", "'batched'", "'episodes'"])
