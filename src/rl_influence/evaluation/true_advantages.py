"""True advantages A(s, a) = Q(s, a) - V(s) of the policy that collected a buffer, beside the GAE estimates that train.

The paper (figures 3, 8 and 12) can only estimate them: by averages over the repeated visits in the buffer, or over
rollouts out of (s, a). Both are here, and so is the exact value wherever the environment has a tabular model. All are
discounted and see the task as PPO does: termination ends it, the time limit does not (the return goes on with a value).

What comes after the time limit is fiction, and the exact values need one: the task goes on, rewarded as the limit's
last step is. In FrozenLake that is the task without a limit. In MiniGrid, whose reward falls with the step count, it
avoids rewards that would become negative, and values fall continuously towards the limit. A state is the pose and the
number of steps taken; the policy and its value network see less, only the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from rl_influence.config import ConfigError
from rl_influence.environments.tabular import TabularModel, policy_chain, policy_probabilities, values_by_step
from rl_influence.ppo.records import Records
from rl_influence.ppo.rollout import gae

NEGLIGIBLE_DISCOUNT = 1e-6  # rollouts end where what follows is discounted by less


class RecordStates(NamedTuple):
    """Where in a tabular model the records of a buffer were, and where the next buffer begins."""

    states: np.ndarray  # (n,) state of each record
    steps: np.ndarray  # (n,) steps that its episode had taken before it
    next_state: int | None  # None if only the next observation can tell
    next_step: int


def record_states(
    model: TabularModel, records: Records, *, initial_state: int | None = None, initial_step: int = 0
) -> RecordStates:
    """The model's state of every record of a buffer of consecutive steps.

    A record's state is the one that shows its observation among those that may come next: after a reset, the states of
    the start distribution; after a step, the outcomes of its state and action. So states that look alike are told apart
    by replaying the actions.

    Args:
        initial_state: state of the first record, the previous buffer's `next_state`; None if its observation can tell.
        initial_step: steps that its episode had taken before it, the previous buffer's `next_step`; 0 after a reset.

    Raises:
        ValueError: naming the first record that fits none of these states, or more than one.
    """
    showing: dict[bytes, set[int]] = {}
    for state, observation in enumerate(model.observations):
        showing.setdefault(observation.tobytes(), set()).add(state)
    observations = np.asarray(records.observations, dtype=model.observations.dtype)
    starts = set(np.flatnonzero(model.start).tolist())
    goes_on = (model.probabilities > 0) & ~model.terminated
    ended = records.terminated | records.truncated

    states, steps = np.empty(len(records), dtype=int), np.empty(len(records), dtype=int)
    if initial_state is not None:
        possible = {int(initial_state)}
    else:
        possible = starts if initial_step == 0 else set(range(len(model.start)))
    step = initial_step
    for i, action in enumerate(records.actions.tolist()):
        fitting = possible & showing.get(observations[i].tobytes(), set())
        if len(fitting) != 1:
            raise ValueError(
                f"record {i}: its observation fits {len(fitting)} of the {len(possible)} states that may come there; "
                "exactly one is needed (are the records consecutive, and initial_state and initial_step right?)"
            )
        states[i], steps[i] = *fitting, step
        if ended[i]:
            possible, step = starts, 0
        else:
            outcomes = model.next_states[states[i], action]
            possible, step = set(outcomes[goes_on[states[i], action]].tolist()), step + 1
    return RecordStates(states, steps, next(iter(possible)) if len(possible) == 1 else None, step)


def check_observations(model: TabularModel) -> None:
    """Checks that the state of every record can be told: by replaying the actions, or by the observation alone.

    Raises:
        ConfigError: if chance decides where an episode begins or a step leads, and states look alike.
    """
    outcomes = ((model.probabilities > 0) & ~model.terminated).sum(-1)
    states, different = len(model.observations), len(np.unique(model.observations, axis=0))
    if ((model.start > 0).sum() > 1 or (outcomes > 1).any()) and different < states:
        raise ConfigError(
            "exact true advantages need every record's state; where chance decides it the observation must tell, but "
            f"{states} states show {different} different ones"
        )


def replay(model: TabularModel, actions: Sequence[int]) -> int | None:
    """The state that an episode is in after these actions; None if more than one is possible."""
    possible = set(np.flatnonzero(model.start).tolist())
    for action in actions:
        goes_on = (model.probabilities[:, action] > 0) & ~model.terminated[:, action]
        possible = {int(s) for state in possible for s in model.next_states[state, action][goes_on[state]]}
    return next(iter(possible)) if len(possible) == 1 else None


def exact_record_advantages(
    model: TabularModel, policy: torch.nn.Module, records: Records, episode_actions: Sequence[int], *, gamma: float
) -> np.ndarray:
    """`exact_advantages` of a buffer under the policy that collected it, (n,).

    Args:
        policy: as of `tabular.policy_probabilities`.
        episode_actions: actions of the first record's episode before that record.
    """
    first = replay(model, episode_actions)
    places = record_states(model, records, initial_state=first, initial_step=len(episode_actions))
    probabilities = policy_probabilities(policy, model)
    return exact_advantages(model, probabilities, places.states, records.actions, places.steps, gamma=gamma)


def exact_values(model: TabularModel, action_probabilities: np.ndarray, *, gamma: float) -> np.ndarray:
    """V_t(s), the discounted return expected from state s after t steps of an episode, shape (horizon + 1, S).

    The last row, at the time limit, is the fixed point of the task that goes on (see the module's description); the
    others follow by backward recursion.
    """
    _check_gamma(gamma)
    transitions, rewards = policy_chain(model, action_probabilities)
    equations = np.eye(len(rewards)) - gamma * transitions.toarray()
    final = np.linalg.solve(equations, rewards * model.reward_factor(model.horizon))
    return values_by_step(model, action_probabilities, gamma=gamma, final=final)


def exact_advantages(
    model: TabularModel,
    action_probabilities: np.ndarray,
    states: np.ndarray,
    actions: np.ndarray,
    steps: np.ndarray,
    *,
    gamma: float,
) -> np.ndarray:
    """The true advantage of each record under the policy pi.

    Args:
        action_probabilities: pi(a|s), shape (S, A); see `tabular.policy_probabilities`.
        states, actions, steps: (n,) integers; states and steps as `record_states` gives them.
        gamma: discount factor, below 1.

    Returns:
        Q_t(s, a) - V_t(s), shape (n,), float64.
    """
    states, actions, steps = _check_records(model, states, actions, steps)
    values = exact_values(model, action_probabilities, gamma=gamma)
    where = states, actions
    rewards = model.rewards[where] * model.reward_factor(steps + 1)[:, None]
    following = values[steps[:, None] + 1, model.next_states[where]] * ~model.terminated[where]
    return (model.probabilities[where] * (rewards + gamma * following)).sum(1) - values[steps, states]


def rollout_advantages(
    model: TabularModel,
    action_probabilities: np.ndarray,
    states: np.ndarray,
    actions: np.ndarray,
    steps: np.ndarray,
    *,
    gamma: float,
    rollouts: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """Monte-Carlo estimate of what `exact_advantages` computes, from fresh rollouts on the model.

    Q is the mean return of `rollouts` rollouts out of (s, a), V that of as many out of s; records in the same place
    share theirs. A rollout goes on past the time limit (as `exact_values` does) until it terminates or the discount
    falls below 1e-6. Arguments as of `exact_advantages`; shape (n,).
    """
    _check_gamma(gamma)
    states, actions, steps = _check_records(model, states, actions, steps)
    if rollouts < 1:
        raise ValueError(f"rollouts = {rollouts}: at least 1 is needed")
    if model.reward_slope == 0:
        steps = np.zeros_like(steps)  # the step count makes no difference
    policy = _cumulative(np.asarray(action_probabilities, dtype=float))
    outcomes = _cumulative(model.probabilities)

    def mean_return(states, steps, actions=None):
        states, steps = np.repeat(states, rollouts), np.repeat(steps, rollouts)
        actions = _draw(policy[states], generator) if actions is None else np.repeat(actions, rollouts)
        returns, running, discount = np.zeros(len(states)), np.arange(len(states)), 1.0
        while len(running) and discount > NEGLIGIBLE_DISCOUNT:
            outcome = states, actions, _draw(outcomes[states, actions], generator)
            returns[running] += discount * model.rewards[outcome] * model.reward_factor(steps + 1)
            goes_on = ~model.terminated[outcome]
            running, states, steps = running[goes_on], model.next_states[outcome][goes_on], steps[goes_on] + 1
            actions = _draw(policy[states], generator)
            discount *= gamma
        return returns.reshape(-1, rollouts).mean(1)

    (s, t, a), pairs = np.unique([states, steps, actions], axis=1, return_inverse=True)
    q = mean_return(s, t, a)[pairs]
    (s, t), places = np.unique([states, steps], axis=1, return_inverse=True)
    return q - mean_return(s, t)[places]


def monte_carlo_advantages(records: Records, *, gamma: float) -> np.ndarray:
    """The paper's estimate: mean return after (s, a) minus mean return after s, over all visits in the buffer.

    s is the observation, byte by byte. The return of a visit is discounted and runs to its episode's end; where the
    episode is truncated, or cut by the end of the buffer, the collected `next_values` stand for the rest.

    Returns:
        One estimate per record, shape (n,), float64; 0 where a state was visited with one action only.
    """
    cut = np.array(records.truncated)
    cut[-1] = True
    # GAE with lambda = 1 and values of zero is the Monte-Carlo return
    zero, rest = np.zeros(len(records)), records.next_values * cut
    returns = gae(records.rewards, zero, rest, records.terminated, records.truncated, gamma=gamma, gae_lambda=1.0)
    return _group_means(returns, records.observations, records.actions) - _group_means(returns, records.observations)


def _group_means(values: np.ndarray, *keys: np.ndarray) -> np.ndarray:
    """Mean of `values` over the records that share all keys, for each record."""
    rows = [np.ascontiguousarray(key).reshape(len(values), -1).view(np.uint8) for key in keys]
    joined = np.ascontiguousarray(np.concatenate(rows, axis=1))
    _, group = np.unique(joined.view(np.dtype((np.void, joined.shape[1]))).ravel(), return_inverse=True)
    return (np.bincount(group, weights=values) / np.bincount(group))[group]


def _cumulative(probabilities: np.ndarray) -> np.ndarray:
    """Cumulative distribution along the last axis, ending at exactly 1."""
    cumulative = probabilities.cumsum(-1)
    return cumulative / cumulative[..., -1:]


def _draw(cumulative: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """One index per row of cumulative distributions."""
    return (cumulative <= generator.random(len(cumulative))[:, None]).sum(1)


def _check_gamma(gamma: float) -> None:
    if not 0 <= gamma < 1:
        raise ValueError(f"gamma = {gamma}: true advantages need 0 <= gamma < 1 (the task goes on past its time limit)")


def _check_records(model: TabularModel, states, actions, steps) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    bounds = {"states": model.shape[0], "actions": model.shape[1], "steps": model.horizon}
    arrays = {"states": np.asarray(states), "actions": np.asarray(actions), "steps": np.asarray(steps)}
    for name, array in arrays.items():
        if array.shape != arrays["states"].shape or array.ndim != 1 or array.dtype.kind not in "iu":
            raise ValueError(f"{name} {array.dtype} {array.shape}: one integer per record is needed")
        if len(array) and not (0 <= array.min() and array.max() < bounds[name]):
            raise ValueError(f"{name} {array.min()} to {array.max()}: the model has 0 to {bounds[name] - 1}")
    return tuple(arrays.values())
