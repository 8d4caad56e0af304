"""Exact models of the environments that are finite Markov decision processes, and exact test returns on them.

The paper measures a policy by 1000 noisy test episodes (appendix B); where the environment is FrozenLake, or a MiniGrid
in which nothing but the agent's pose changes, the expectation itself is a small dynamic program. The policy sees only
the observation: states that look alike (MiniGrid poses with the same view) simply have the same action probabilities.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import gymnasium as gym
import numpy as np
import torch
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

from rl_influence.config import ConfigError

if TYPE_CHECKING:
    import scipy.sparse

# wrappers that leave the task alone (their time limit and their observations are read); any other is refused
WRAPPERS = (
    "FlattenObservation",
    "FullyObsWrapper",
    "ImgObsWrapper",
    "OrderEnforcing",
    "PassiveEnvChecker",
    "RecordEpisodeStatistics",
    "TimeLimit",
)


@dataclass(frozen=True)
class TabularModel:
    """A finite Markov decision process with S states, A actions and up to K outcomes of a state and action.

    Outcome k of action a in state s has probability `probabilities[s, a, k]`, leads to state `next_states[s, a, k]`,
    ends the episode if `terminated[s, a, k]`, and as the t-th step of an episode (t = 1, 2, ...) it is rewarded
    `rewards[s, a, k] * (1 + reward_slope * t)`. Step number `horizon` is an episode's last.
    """

    observations: np.ndarray  # (S, ...) as the environment gives them
    labels: np.ndarray  # (S, 2) row and column in FrozenLake, (S, 3) x, y and direction in MiniGrid
    next_states: np.ndarray  # (S, A, K) integers
    probabilities: np.ndarray  # (S, A, K)
    rewards: np.ndarray  # (S, A, K)
    terminated: np.ndarray  # (S, A, K) bool
    start: np.ndarray  # (S,) distribution of an episode's first state
    horizon: int  # steps after which an episode is truncated
    reward_slope: float = 0.0  # relative change of the reward per step of the episode

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of states and actions."""
        return self.next_states.shape[:2]

    def reward_factor(self, step: np.ndarray | int) -> np.ndarray | float:
        """What the t-th step of an episode multiplies `rewards` by; past the horizon it keeps its last value."""
        return 1 + self.reward_slope * np.minimum(step, self.horizon)


def tabular_model(env: gym.Env) -> TabularModel:
    """The exact model of an environment, read off the object, so that any map and any arguments work.

    `env` is neither stepped nor reset, and no random number of its is used up: FrozenLake's own tables are read, and a
    MiniGrid is copied, its agent placed on every pose and every action tried.

    Raises:
        ConfigError: one line that names the environment (or wrapper) and the reason, if kind 'exact' does not cover it.
    """
    wrappers, inner = [], env
    while isinstance(inner, gym.Wrapper):
        wrappers.append(inner)
        inner = inner.env
    for wrapper in wrappers:
        if type(wrapper).__name__ not in WRAPPERS:
            raise _refusal(inner, f"the wrapper {type(wrapper).__name__} may change the task")
    if not isinstance(env.observation_space, gym.spaces.Discrete | gym.spaces.Box):
        raise _refusal(inner, f"its observation space is {type(env.observation_space).__name__}, not Box or Discrete")
    limits = [wrapper._max_episode_steps for wrapper in wrappers if isinstance(wrapper, gym.wrappers.TimeLimit)]
    if type(inner).step is FrozenLakeEnv.step:
        model = _frozen_lake(inner, wrappers, limits)
    elif any(base.__name__ == "MiniGridEnv" for base in type(inner).__mro__):
        model = _minigrid(inner, wrappers, limits)
    else:
        raise _refusal(inner, f"{type(inner).__name__} has no transition table")
    if not is_distribution(model.start):
        raise _refusal(inner, "no state can be an episode's first: has the map a start?")
    return model


def is_distribution(probabilities: np.ndarray) -> bool:
    """Whether these are probabilities that sum to 1."""
    return bool((probabilities >= 0).all() and abs(probabilities.sum() - 1) < 1e-9)


def policy_probabilities(policy: torch.nn.Module, model: TabularModel) -> np.ndarray:
    """pi(a|s) in every state of the model, shape (S, A), float64.

    `policy.distribution_parameters(observations)` must give the logits of the actions (`networks.ActorCritic` does).
    """
    with torch.no_grad():
        logits = policy.distribution_parameters(torch.as_tensor(model.observations))
    return logits.double().softmax(-1).numpy()


def expected_return(model: TabularModel, action_probabilities: np.ndarray) -> float:
    """Exact expected undiscounted return of one episode, time limit included, of the stochastic policy pi.

    Args:
        action_probabilities: pi(a|s), shape (S, A).

    Raises:
        ValueError: if these are not S distributions over A actions (a policy that became NaN, for instance).
    """
    return float(model.start @ values_by_step(model, action_probabilities)[0])


def values_by_step(
    model: TabularModel, action_probabilities: np.ndarray, *, gamma: float = 1.0, final: np.ndarray | None = None
) -> np.ndarray:
    """V_t(s) by backward recursion: the expected discounted return from state s after t steps of an episode.

    Args:
        action_probabilities: pi(a|s), shape (S, A).
        gamma: discount factor.
        final: values (S,) at the time limit; zero by default.

    Returns:
        Array (horizon + 1, S), row t after t steps.
    """
    transitions, rewards = policy_chain(model, action_probabilities)
    values = np.zeros((model.horizon + 1, len(rewards)))
    if final is not None:
        values[-1] = final
    values[:-1] = np.outer(model.reward_factor(np.arange(1, model.horizon + 1)), rewards)
    transitions = gamma * transitions
    for t in range(model.horizon - 1, -1, -1):
        values[t] += transitions @ values[t + 1]
    return values


def policy_chain(model: TabularModel, action_probabilities: np.ndarray) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    """The Markov chain that a policy makes of the model.

    Returns:
        Probabilities (S, S), sparse, of going on from one state in another (rows sum to less than 1 where episodes may
        end), and the expected reward (S,) of a step, to be multiplied by `model.reward_factor`.
    """
    from scipy.sparse import coo_array  # not at the start of every run: it takes a fifth of a second

    pi = np.asarray(action_probabilities, dtype=float)
    if pi.shape != model.shape or not (pi >= 0).all() or not np.allclose(pi.sum(1), 1, rtol=0, atol=1e-6):
        raise ValueError(
            f"action_probabilities {pi.shape} are not {model.shape[0]} distributions over {model.shape[1]} actions"
        )
    joint = pi[:, :, None] * model.probabilities
    n = len(pi)
    sources = np.broadcast_to(np.arange(n)[:, None, None], joint.shape)
    weights = joint * ~model.terminated
    chain = coo_array((weights.ravel(), (sources.ravel(), model.next_states.ravel())), shape=(n, n))
    return chain.tocsr(), (joint * model.rewards).sum((1, 2))


def _refusal(env: gym.Env, reason: str) -> ConfigError:
    name = env.spec.id if env.spec else type(env).__name__
    return ConfigError(
        f"environment {name}: evaluation kind 'exact' is not available ({reason}); it needs FrozenLake with a time "
        "limit, or a MiniGrid of fixed layout with only walls, floor, goals and lava; choices: 'batched', 'episodes'"
    )


def _observe(observation, wrappers: list[gym.Wrapper]):
    """An observation of the unwrapped environment as the wrapped one shows it."""
    for wrapper in reversed(wrappers):
        if isinstance(wrapper, gym.ObservationWrapper):
            observation = wrapper.observation(observation)
    return observation


def _frozen_lake(env: FrozenLakeEnv, wrappers: list[gym.Wrapper], limits: list[int]) -> TabularModel:
    if not limits:
        raise _refusal(env, "it has no time limit")
    n_states, n_actions = len(env.P), len(env.P[0])
    shape = (n_states, n_actions, max(len(outcomes) for row in env.P.values() for outcomes in row.values()))
    next_states = np.zeros(shape, dtype=int)
    probabilities, rewards, terminated = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=bool)
    for s, row in env.P.items():
        for a, outcomes in row.items():
            for k, (probability, next_state, reward, ends) in enumerate(outcomes):
                next_states[s, a, k], probabilities[s, a, k] = next_state, probability
                rewards[s, a, k], terminated[s, a, k] = reward, ends
    return TabularModel(
        observations=np.array([_observe(s, wrappers) for s in range(n_states)]),
        labels=np.stack(np.divmod(np.arange(n_states), env.ncol), axis=1),
        next_states=next_states,
        probabilities=probabilities,
        rewards=rewards,
        terminated=terminated,
        start=np.array(env.initial_state_distrib, dtype=float),
        horizon=min(limits),
    )


def _minigrid(env: gym.Env, wrappers: list[gym.Wrapper], limits: list[int]) -> TabularModel:
    from minigrid.core.world_object import Floor, Goal, Lava, Wall
    from minigrid.envs import EmptyEnv
    from minigrid.minigrid_env import MiniGridEnv

    for method in ("step", "reset", "gen_obs", "gen_obs_grid", "_reward"):
        if getattr(type(env), method) is not getattr(MiniGridEnv, method):
            raise _refusal(env, f"{type(env).__name__} has a {method} of its own")
    env, wrappers = copy.deepcopy((env, wrappers))  # one copy, so that the wrappers belong to it
    before = env.np_random.bit_generator.state
    env.reset()
    others = sorted({tile.type for tile in env.grid.grid if tile and type(tile) not in (Floor, Goal, Lava, Wall)})
    if others:
        raise _refusal(env, f"{type(env).__name__} keeps track of more than the agent's pose: {', '.join(others)}")
    deterministic = env.np_random.bit_generator.state == before
    random_start = type(env)._gen_grid is EmptyEnv._gen_grid and env.agent_start_pos is None
    if not (deterministic or random_start):
        raise _refusal(env, f"{type(env).__name__} draws its layout or start anew at every reset")

    first = (*map(int, env.agent_pos), int(env.agent_dir))
    tiles = {(x, y): env.grid.get(x, y) for x in range(env.width) for y in range(env.height)}
    poses = [(x, y, d) for (x, y), tile in tiles.items() if tile is None or tile.can_overlap() for d in range(4)]
    index = {pose: s for s, pose in enumerate(poses)}
    shape = (len(poses), int(env.action_space.n), 1)
    next_states, rewards, terminated = np.zeros(shape, dtype=int), np.zeros(shape), np.zeros(shape, dtype=bool)
    observations = []
    for s, (x, y, direction) in enumerate(poses):
        for a in range(shape[1]):
            env.agent_pos, env.agent_dir, env.step_count = (x, y), direction, 0
            if a == 0:
                observations.append(np.array(_observe(env.gen_obs(), wrappers)))
            _, reward, terminated[s, a, 0], _, _ = env.step(a)
            next_states[s, a, 0] = index[(*map(int, env.agent_pos), int(env.agent_dir))]
            rewards[s, a, 0] = reward != 0  # 1 before the factor, see MiniGridEnv._reward
    if random_start:  # MiniGridEnv.place_agent: any empty cell, any direction
        start = np.array([tiles[x, y] is None for x, y, _ in poses], dtype=float)
    else:
        start = np.array([pose == first for pose in poses], dtype=float)
    return TabularModel(
        observations=np.array(observations),
        labels=np.array(poses),
        next_states=next_states,
        probabilities=np.ones(shape),
        rewards=rewards,
        terminated=terminated,
        start=start / max(start.sum(), 1),
        horizon=min([env.max_steps, *limits]),
        reward_slope=-0.9 / env.max_steps,
    )
