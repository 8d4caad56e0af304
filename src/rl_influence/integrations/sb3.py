"""Influence for Stable-Baselines3: score a rollout, or train without its harmful records (section 5 of the paper).

    model = InfluenceFilteredPPO("MlpPolicy", "CartPole-v1", drop_fraction=0.5).learn(100_000)
    model = PPO("MlpPolicy", "CartPole-v1").learn(100_000, callback=InfluenceCallback(drop_fraction=0.5))

The two lines train alike. PPO, A2C and sb3-contrib's MaskablePPO, with any of their policies and spaces. Clipping,
schedules and losses are Stable-Baselines3's own, for its `train` does the updates; it only sees fewer records. Records
are numbered as Stable-Baselines3 flattens its buffer, environment by environment.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from rl_influence.attribution import FReturn, ScoringError, Target, influence_scores
from rl_influence.attribution.policies import check_policy, untouched
from rl_influence.attribution.targets import chunks
from rl_influence.integrations.records import RolloutRecords
from rl_influence.ppo.objective import Batch, ClippedPPO, Objective, PolicyGradient
from rl_influence.rules import drop_most_negative, if_percent
from rl_influence.selection import normalize_in_minibatches

try:
    from stable_baselines3 import A2C, PPO
    from stable_baselines3.common.buffers import RolloutBuffer
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.preprocessing import get_obs_shape

    from rl_influence.integrations.buffers import ARRAYS, PartialRollout, ScoredRollout, flat_arrays, progress
except ImportError:
    raise ImportError(
        "rl_influence.integrations.sb3 needs Stable-Baselines3: in the clone, pip install '.[sb3]'"
    ) from None

CHOICES = "PPO, A2C or MaskablePPO"
SAME_POLICY = 1e-3  # largest difference of log-probabilities that rounding explains


class SB3Policy(nn.Module):
    """A Stable-Baselines3 policy as attribution wants it. It shares the policy's parameters.

    Args:
        policy: `model.policy` of a PPO, A2C or MaskablePPO.

    Raises:
        ScoringError: for any other policy.
    """

    def __init__(self, policy: Any):
        super().__init__()
        if not hasattr(policy, "evaluate_actions") or _is_a("Recurrent", policy):
            raise ScoringError(f"SB3Policy({type(policy).__name__}): the policy of {CHOICES} is needed")
        self.policy = policy
        self.masks = _mask_size(policy.action_space) if _is_a("Maskable", policy) else 0
        shapes = get_obs_shape(policy.observation_space)
        self.keys = isinstance(shapes, dict)
        self.shapes = shapes if isinstance(shapes, dict) else {"": shapes}

    def log_prob(self, observations: Tensor, actions: Tensor) -> Tensor:
        """log pi(a|s), (n,), of raw actions and of observations as `encoded` gives them."""
        if not self.masks and not self.keys:
            return self.policy.get_distribution(observations).log_prob(actions)
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        masks, *parts = observations.split([self.masks, *sizes], dim=1)
        inputs = {key: x.reshape(-1, *shape) for (key, shape), x in zip(self.shapes.items(), parts, strict=True)}
        given = {"action_masks": masks} if self.masks else {}
        return self.policy.get_distribution(inputs if self.keys else inputs[""], **given).log_prob(actions)

    def encoded(self, records: RolloutRecords) -> Batch:
        """The records' arrays, with the observations as one, for targets, scores and objectives.

        Observations of a dictionary space are flattened and set side by side, after the action masks, which are part
        of log pi; others stay as they are.
        """
        arrays = {name: value for name, value in vars(records).items() if name != "action_masks"}
        if self.masks or self.keys:
            parts: list[Any] = [records.action_masks] if self.masks else []
            parts += [records.observations[key] if self.keys else records.observations for key in self.shapes]
            flat = [np.reshape(part, (len(records), -1)).astype(np.float32) for part in parts]
            arrays["observations"] = np.concatenate(flat, axis=1)
        return Batch(**arrays)


def rollout_records(buffer: RolloutBuffer) -> RolloutRecords:
    """The records of a full buffer, before or after Stable-Baselines3 has flattened it in place.

    Raises:
        ScoringError: for a recurrent policy's buffer, or one that is not full.
    """
    if not isinstance(buffer, RolloutBuffer) or _is_a("Recurrent", buffer):
        raise ScoringError(f"{type(buffer).__name__}: the rollout buffer of {CHOICES} is needed")
    if not buffer.full:
        raise ScoringError(f"rollout buffer: only {buffer.pos} of {buffer.buffer_size} steps are collected")
    arrays = flat_arrays(buffer)
    if isinstance(buffer.action_space, gym.spaces.Discrete):
        arrays["actions"] = arrays["actions"].reshape(-1).astype(np.int64)
    else:
        arrays["actions"] = arrays["actions"].astype(np.float32)  # as Stable-Baselines3 does before it trains
    for name in ARRAYS[1:]:
        arrays[name] = arrays[name].reshape(-1)
    environments, steps = np.divmod(np.arange(len(arrays["rewards"])), buffer.buffer_size)
    return RolloutRecords(**arrays, environments=environments, steps=steps)


def score_rollout(
    model: OnPolicyAlgorithm,
    target: Target | None = None,
    *,
    advantages: np.ndarray | None = None,
    backend: str | None = None,
) -> tuple[RolloutRecords, np.ndarray]:
    """Start-of-round influence of the records in `model.rollout_buffer`.

    Call it between collection and training: in a callback's `on_rollout_end`, or in an overridden `train`. Layers like
    BatchNorm and dropout are as in collection. The model is left as it was.

    Args:
        model: PPO, A2C or MaskablePPO.
        target: default f_return of the buffer; see also `SB3Policy.encoded`.
        advantages: (n,) instead of the buffer's raw ones.
        backend: see `influence_scores`.

    Returns:
        The records and their scores (n,); positive helps.

    Raises:
        ScoringError: if the model is of another kind, its policy is not the one that collected the buffer, or
            cannot be scored.
    """
    with _as_collected(model) as (records, policy, batch):
        target = FReturn(batch) if target is None else target
        scores = influence_scores(policy, batch, target, advantages=advantages, backend=backend)
    return records, scores.cpu().numpy()


def train_and_score(
    model: OnPolicyAlgorithm, target: Target | None = None, *, progress_bar: bool = False
) -> tuple[RolloutRecords, np.ndarray]:
    """Trains a round as PPO, A2C or MaskablePPO do, and sums each record's influence over its steps (full TracIn).

    It takes a gradient over the whole buffer before each step. A subclass's own `train` is not called: it may call
    this, and `InfluenceFilteredPPO` trains on all records here.

    Args:
        model, target: as for `score_rollout`.
        progress_bar: over the steps; with the package rich, else a line for every tenth of them.

    Returns:
        The records and their scores (n,).

    Raises:
        ScoringError: as for `score_rollout`, and if layers tie records together or are random while they train
            (BatchNorm, dropout). Nothing is trained then.
    """
    with _as_collected(model) as (records, policy, batch):
        objective = _objective(model)
        model.policy.set_training_mode(True)  # as `train` does
        try:
            check_policy(policy, objective, batch)
        except ScoringError as error:
            reason = str(error).partition(", so ")[0]
            raise ScoringError(
                f"train_and_score: {reason} while {type(model).__name__} trains, so records have no influence of their "
                "own over its steps; score_rollout scores them before, with the policy that collected them"
            ) from None
    steps = getattr(model, "n_epochs", 1) * -(-len(records) // (getattr(model, "batch_size", None) or len(records)))
    with progress("TracIn", steps, progress_bar) as advance:
        target = FReturn(batch) if target is None else target
        rollout = ScoredRollout(model, policy, batch, target, objective, advance)
        rollout.train(model, lambda: _algorithm(model).train(model))
    return records, rollout.scores


class InfluenceCallback(BaseCallback):
    """Scores every rollout, logs what the scores are like, and, if it is told to, leaves out the harmful records.

    Works on PPO, A2C and MaskablePPO. Logged: `influence/share_negative`, quantiles of the scores (`influence/q05` to
    `q95`), `influence/scoring_s` (seconds) and, if it filters, `influence/records_kept`.

    Args:
        drop_fraction: share p of the negative records to drop, in (0, 1]; None: drop nothing.
        target: default f_return of each rollout.
        drop_short_minibatch: as for `InfluenceFilteredPPO`; only where it filters.

    Attributes:
        records, scores: of the latest rollout; kept: indices of the records that train, ascending (all, if it drops
            nothing). None before the first rollout.

    Raises:
        ValueError: for a `drop_fraction` out of range.
        ScoringError: from `learn`, before its first step, for another kind of model.
    """

    def __init__(
        self,
        drop_fraction: float | None = None,
        *,
        target: Target | None = None,
        drop_short_minibatch: bool = True,
        verbose: int = 0,
    ):
        super().__init__(verbose)
        self.drop_fraction = None if drop_fraction is None else checked_fraction(drop_fraction)
        self.target, self.drop_short_minibatch = target, drop_short_minibatch
        self.records: Any = None
        self.scores: Any = None
        self.kept: Any = None

    def _init_callback(self) -> None:
        _algorithm(self.model)
        if self.drop_fraction is not None and isinstance(self.model, _Filtered):
            raise ScoringError(f"InfluenceCallback(drop_fraction=...): {type(self.model).__name__} filters already")

    def _on_rollout_end(self) -> None:
        self.records, self.scores, self.kept = _score_and_log(self.model, self.target, self.drop_fraction)
        if self.drop_fraction is not None:
            self.model.__dict__["train"] = self._train  # which `learn` calls next

    def _train(self) -> None:
        model: Any = self.model
        del model.__dict__["train"]  # the class's own again
        PartialRollout(model, self.kept, self.drop_short_minibatch).train(model, model.train)

    def _on_step(self) -> bool:
        return True


class _Filtered(OnPolicyAlgorithm):
    """What is common to the filtered algorithms."""

    def __init__(self, *args: Any, drop_fraction: float = 0.5, drop_short_minibatch: bool = True, **kwargs: Any):
        self.drop_fraction, self.drop_short_minibatch = drop_fraction, bool(drop_short_minibatch)
        self.influence: Any = None
        self.kept: Any = None
        super().__init__(*args, **kwargs)

    @property
    def drop_fraction(self) -> float:
        """Share p of the negative records that are dropped, in (0, 1]."""
        return self.__dict__["drop_fraction"]

    @drop_fraction.setter
    def drop_fraction(self, value: float) -> None:
        self.__dict__["drop_fraction"] = checked_fraction(value)

    def _setup_model(self) -> None:
        checked_fraction(self.drop_fraction)  # `load(..., drop_fraction=...)` writes past the setter
        super()._setup_model()

    def train(self) -> None:
        """Scores, filters, and trains on what is left; without any record left, nothing is trained."""
        _, self.influence, self.kept = _score_and_log(self, None, self.drop_fraction)
        PartialRollout(self, self.kept, self.drop_short_minibatch).train(self, super().train)


class InfluenceFilteredPPO(_Filtered, PPO):
    """PPO that trains each round without the records of most negative influence (IIF).

    Args:
        args, kwargs: of `stable_baselines3.PPO`.
        drop_fraction: share p of the negative records to drop, in (0, 1].
        drop_short_minibatch: leave out an epoch's short last mini-batch, unless it is the only one (Stable-Baselines3
            trains on it, which matters once the number of records is no multiple of the batch size).

    Attributes:
        influence: scores of the latest rollout, (n,); kept: indices of the records that trained, ascending.

    Raises:
        ValueError: for a `drop_fraction` out of range, wherever it is set.
    """


class InfluenceFilteredA2C(_Filtered, A2C):
    """A2C that takes each of its steps without the records of most negative influence.

    Arguments and attributes as for `InfluenceFilteredPPO`.
    """


def checked_fraction(value: float) -> float:
    """`drop_fraction`, in (0, 1]."""
    if not 0 < value <= 1:
        raise ValueError(f"drop_fraction = {value}: a fraction in (0, 1] is needed{if_percent(value)}")
    return float(value)


def _score_and_log(
    model: Any, target: Target | None, drop_fraction: float | None
) -> tuple[RolloutRecords, np.ndarray, np.ndarray]:
    """Records, scores, and indices of those to keep.

    Scores as the paper's public code takes them: with advantages normalised within mini-batches, where training
    normalises them.
    """
    start = time.perf_counter()
    advantages = None
    if model.normalize_advantage:
        # a generator of its own: numpy's global one, which orders the mini-batches, draws as it would without scoring
        generator = np.random.default_rng([model.seed or 0, model.num_timesteps])
        advantages = rollout_records(model.rollout_buffer).advantages
        batch_size = getattr(model, "batch_size", len(advantages))  # A2C takes all at once
        advantages = normalize_in_minibatches(advantages, batch_size, generator)
    records, scores = score_rollout(model, target, advantages=advantages)
    kept = drop_most_negative(scores, drop_fraction or 0)
    log = {"share_negative": float((scores < 0).mean())}
    log |= {f"q{percent:02}": float(np.percentile(scores, percent)) for percent in (5, 25, 50, 75, 95)}
    if drop_fraction is not None:
        log["records_kept"] = len(kept)
    log["scoring_s"] = time.perf_counter() - start
    for name, value in log.items():
        model.logger.record(f"influence/{name}", value)
    return records, scores, kept


def _algorithm(model: Any) -> Any:
    """PPO, A2C or MaskablePPO, whichever the model is.

    Raises:
        ScoringError: if it is none of them.
    """
    for cls in type(model).__mro__:
        if cls in (PPO, A2C) or cls.__name__ == "MaskablePPO":
            return cls
    reason = " (its records depend on hidden states, that is on all records before them)"
    name, known = type(model).__name__, reason if _is_a("RecurrentPPO", model) else ""
    raise ScoringError(f"{name}: {CHOICES} is needed{known}")


def _is_a(word: str, value: Any) -> bool:
    """Whether the name of its class, or of one it inherits from, has this word; sb3-contrib need not be installed."""
    return any(word in cls.__name__ for cls in type(value).__mro__)


def _objective(model: Any) -> Objective:
    """What the model's updates maximise, without value and entropy terms."""
    if not hasattr(model, "clip_range"):  # A2C
        return PolicyGradient(normalize=model.normalize_advantage)
    return ClippedPPO(
        normalize=model.normalize_advantage, clip_range=model.clip_range(model._current_progress_remaining)
    )


@contextmanager
def _as_collected(model: Any) -> Iterator[tuple[RolloutRecords, SB3Policy, Batch]]:
    """Records, policy and encoded records, with the policy's layers as they are in collection.

    Raises:
        ScoringError: if another policy than the model's has collected the buffer.
    """
    _algorithm(model)
    records, policy = rollout_records(model.rollout_buffer), SB3Policy(model.policy)
    batch = policy.encoded(records)
    with untouched(model.policy):
        model.policy.set_training_mode(False)
        moved = 0.0
        with torch.no_grad():
            for chunk in chunks(batch, None):
                inputs = (torch.as_tensor(x[chunk], device=model.device) for x in (batch.observations, batch.actions))
                log_probs = policy.log_prob(*inputs).cpu().numpy()
                moved = max(moved, float(np.abs(log_probs - batch.log_probs[chunk]).max()))
        if moved > SAME_POLICY:
            raise ScoringError(
                f"rollout buffer: collected by another policy (log-probabilities differ by up to {moved:.2g}); "
                "score it before training, for instance in a callback's on_rollout_end"
            )
        yield records, policy, batch


def _mask_size(space: gym.Space) -> int:
    """Entries of an action mask, as sb3-contrib lays it out."""
    if isinstance(space, gym.spaces.Discrete):
        return int(space.n)
    return int(sum(space.nvec)) if isinstance(space, gym.spaces.MultiDiscrete) else 2 * math.prod(space.shape or ())
