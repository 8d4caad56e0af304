"""Influence for Stable-Baselines3: score the rollout buffer of a PPO, or train one with IIF (section 5 of the paper).

    model = InfluenceFilteredPPO("MlpPolicy", "CartPole-v1", drop_percent=50).learn(100_000)

Vectorised environments are supported: records are numbered as Stable-Baselines3 flattens its buffer, environment by
environment. Dictionary observations are not. Clipping, schedules and losses are Stable-Baselines3's own, for its
`train` does the updates; it only sees fewer records.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from rl_influence.attribution import AttributionError, FReturn, Step, Target, influence_scores, tracin_scores
from rl_influence.ppo.learner import minibatches
from rl_influence.ppo.objective import ClippedPPO
from rl_influence.selection import drop_most_negative, normalize_in_minibatches

try:
    from stable_baselines3 import PPO
    from stable_baselines3.common.buffers import RolloutBuffer
    from stable_baselines3.common.policies import ActorCriticPolicy
except ImportError:
    raise ImportError(
        "rl_influence.integrations.sb3 needs Stable-Baselines3: pip install 'rl-influence[sb3]'"
    ) from None

ARRAYS = ("observations", "actions", "values", "log_probs", "advantages", "returns", "rewards", "episode_starts")
SAME_POLICY = 1e-3  # largest difference of log-probabilities that rounding explains


class SB3Policy(nn.Module):
    """A Stable-Baselines3 policy as attribution wants it. It shares the policy's parameters."""

    def __init__(self, policy: ActorCriticPolicy):
        super().__init__()
        self.policy = policy

    def log_prob(self, observations: Tensor, actions: Tensor) -> Tensor:
        """log pi(a|s), (n,), of raw actions."""
        return self.policy.get_distribution(observations).log_prob(actions)


@dataclass
class RolloutRecords:
    """The n = n_steps * n_envs records of a rollout buffer; record i is step i % n_steps of environment i //
    n_steps."""

    observations: np.ndarray  # (n, ...)
    actions: np.ndarray  # (n,) integers for Discrete, else (n, dims)
    values: np.ndarray  # (n,)
    log_probs: np.ndarray  # (n,)
    advantages: np.ndarray  # (n,) GAE, not normalised
    returns: np.ndarray  # (n,)
    rewards: np.ndarray  # (n,); Stable-Baselines3 adds the bootstrap value to the reward of a truncated step
    episode_starts: np.ndarray  # (n,) 1 for an episode's first record
    environments: np.ndarray  # (n,)
    steps: np.ndarray  # (n,) of the rollout

    def __len__(self) -> int:
        return len(self.rewards)

    def __getitem__(self, indices: np.ndarray) -> RolloutRecords:
        return RolloutRecords(**{name: array[indices] for name, array in vars(self).items()})


def rollout_records(buffer: RolloutBuffer) -> RolloutRecords:
    """The records of a full buffer, before or after Stable-Baselines3 has flattened it in place.

    Raises:
        AttributionError: for dictionary observations, or a buffer that is not full.
    """
    if isinstance(buffer.observation_space, gym.spaces.Dict):
        raise AttributionError("rollout buffer: dictionary observations are not supported; choices: Box, Discrete, ...")
    if not buffer.full:
        raise AttributionError(f"rollout buffer: only {buffer.pos} of {buffer.buffer_size} steps are collected")
    arrays = _flat_arrays(buffer)
    if isinstance(buffer.action_space, gym.spaces.Discrete):
        arrays["actions"] = arrays["actions"].reshape(-1).astype(np.int64)
    else:
        arrays["actions"] = arrays["actions"].astype(np.float32)  # as Stable-Baselines3 does before it trains
    for name in ARRAYS[2:]:
        arrays[name] = arrays[name].reshape(-1)
    environments, steps = np.divmod(np.arange(len(arrays["rewards"])), buffer.buffer_size)
    return RolloutRecords(**arrays, environments=environments, steps=steps)


def score_rollout(
    model: PPO, target: Target | None = None, *, advantages: np.ndarray | None = None, backend: str = "jvp"
) -> tuple[RolloutRecords, np.ndarray]:
    """Start-of-round influence of the records in `model.rollout_buffer`.

    Call it between collection and training: in a callback's `on_rollout_end`, or in an overridden `train`.

    Args:
        target: default f_return of the buffer.
        advantages: (n,) instead of the buffer's raw ones.
        backend: see `influence_scores`.

    Returns:
        The records and their scores (n,); positive helps.

    Raises:
        AttributionError: if the policy is not the one that collected the buffer, or cannot be scored.
    """
    records, policy = rollout_records(model.rollout_buffer), SB3Policy(model.policy)
    model.policy.set_training_mode(False)  # as during collection
    with torch.no_grad():
        inputs = (torch.as_tensor(x, device=model.device) for x in (records.observations, records.actions))
        moved = np.abs(policy.log_prob(*inputs).cpu().numpy() - records.log_probs).max()
    if moved > SAME_POLICY:
        raise AttributionError(
            f"rollout buffer: collected by another policy (log-probabilities differ by up to {moved:.2g}); "
            "score it before training, for instance in a callback's on_rollout_end"
        )
    target = target or FReturn(records)
    scores = influence_scores(policy, records, target, advantages=advantages, backend=backend)
    return records, scores.cpu().numpy()


def train_and_score(model: PPO, target: Target | None = None) -> tuple[RolloutRecords, np.ndarray]:
    """Runs `PPO.train` on the model's buffer and sums each record's influence over the optimisation steps (full
    TracIn).

    Returns:
        The records and their scores (n,).
    """
    records = rollout_records(model.rollout_buffer)
    rollout = _ScoredRollout(model, records, target or FReturn(records))
    _train_on(model, rollout)
    return records, rollout.scores


class InfluenceFilteredPPO(PPO):
    """PPO that trains each round without the records of most negative influence (IIF).

    Args:
        args, kwargs: of `stable_baselines3.PPO`.
        drop_percent: share p of the negative records to drop, in percent; above 0 and at most 100.
        drop_short_minibatch: leave out an epoch's short last mini-batch, unless it is the only one (Stable-Baselines3
            trains on it, which matters once the number of records is no multiple of the batch size).

    Attributes:
        influence: scores of the latest rollout, (n,); kept: the records that trained, ascending.

    Raises:
        ValueError: for a `drop_percent` out of range.
    """

    def __init__(self, *args, drop_percent: float = 50.0, drop_short_minibatch: bool = True, **kwargs):
        if not 0 < drop_percent <= 100:
            raise ValueError(f"drop_percent = {drop_percent}: above 0 and at most 100 is needed")
        self.drop_percent, self.drop_short_minibatch = float(drop_percent), bool(drop_short_minibatch)
        self.influence = self.kept = None
        super().__init__(*args, **kwargs)

    def train(self) -> None:
        """Scores, filters, and trains on what is left; without any record left, nothing is trained."""
        # a generator of its own: numpy's global one, which orders the mini-batches, draws as it would without scoring
        generator = np.random.default_rng([self.seed or 0, self.num_timesteps])
        advantages = rollout_records(self.rollout_buffer).advantages
        if self.normalize_advantage:
            advantages = normalize_in_minibatches(advantages, self.batch_size, generator)
        _, self.influence = score_rollout(self, advantages=advantages)
        self.kept = drop_most_negative(self.influence, self.drop_percent / 100)
        self.logger.record("train/records_kept", len(self.kept))
        if len(self.kept):
            _train_on(self, _Rollout(self.rollout_buffer, self.kept, self.drop_short_minibatch))


class _Rollout:
    """Some records of a rollout buffer, as `PPO.train` reads it."""

    def __init__(self, buffer: RolloutBuffer, kept: np.ndarray, drop_short: bool):
        self._kept, self._drop_short = kept, drop_short
        self._buffer = copy.copy(buffer)
        self._buffer.__dict__.update(_flat_arrays(buffer))
        self.values, self.returns = self._buffer.values[kept], self._buffer.returns[kept]

    def batches(self, batch_size: int | None) -> list[np.ndarray]:
        order = np.random.permutation(self._kept)  # numpy's global generator, as Stable-Baselines3
        return minibatches(order, batch_size or len(order), drop_short=self._drop_short)

    def get(self, batch_size: int | None = None) -> Iterator:
        for batch in self.batches(batch_size):
            yield self._buffer._get_samples(batch)


class _ScoredRollout(_Rollout):
    """All records of a buffer; scores each mini-batch before it is trained on."""

    def __init__(self, model: PPO, records: RolloutRecords, target: Target):
        super().__init__(model.rollout_buffer, np.arange(len(records)), drop_short=False)
        self._policy, self._records, self._target = SB3Policy(model.policy), records, target
        clip_range = model.clip_range(model._current_progress_remaining)
        self._objective = ClippedPPO(clip_range=clip_range, normalize=model.normalize_advantage)
        self.scores = np.zeros(len(records))

    def get(self, batch_size: int | None = None) -> Iterator:
        for batch in self.batches(batch_size):
            terms = tracin_scores(
                self._policy,
                self._records[batch],
                self._target,
                [Step(np.arange(len(batch)))],
                objective=self._objective,
            )
            yield self._buffer._get_samples(batch)
            # not reached if target_kl ends the round before this step
            self.scores[batch] += terms.cpu().numpy()


def _train_on(model: PPO, rollout: _Rollout) -> None:
    buffer = model.rollout_buffer
    model.rollout_buffer = rollout
    try:
        PPO.train(model)
    finally:
        model.rollout_buffer = buffer


def _flat_arrays(buffer: RolloutBuffer) -> dict[str, np.ndarray]:
    """The buffer's arrays with (n_steps, n_envs) flattened environment by environment."""
    arrays = {}
    for name in ARRAYS:
        array = getattr(buffer, name)
        # rewards and episode_starts are never flattened in place
        flattened = buffer.generator_ready and name not in ("rewards", "episode_starts")
        arrays[name] = array if flattened else buffer.swap_and_flatten(array)
    return arrays
