"""Influence for Stable-Baselines3: score a rollout, or train without its harmful records (section 5 of the paper).

    model = InfluenceFilteredPPO("MlpPolicy", "CartPole-v1", drop_fraction=0.5).learn(100_000)
    model = PPO("MlpPolicy", "CartPole-v1").learn(100_000, callback=InfluenceCallback(drop_fraction=0.5))

The two lines train alike. PPO, A2C and sb3-contrib's MaskablePPO, with any of their policies and spaces. Clipping,
schedules and losses are Stable-Baselines3's own, for its `train` does the updates; it only sees fewer records. Records
are numbered as Stable-Baselines3 flattens its buffer, environment by environment.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from rl_influence.attribution import FReturn, ScoringError, Target, influence_scores
from rl_influence.attribution.backends import choose_backend
from rl_influence.attribution.policies import check_policy, first_line, untouched
from rl_influence.attribution.targets import check_target, chunks
from rl_influence.integrations.records import RolloutRecords
from rl_influence.ppo.objective import Batch, ClippedPPO, Objective, PolicyGradient
from rl_influence.rules import checked_fraction, drop_most_negative
from rl_influence.selection import normalize_in_minibatches

try:
    from stable_baselines3 import A2C, PPO
    from stable_baselines3.common.buffers import RolloutBuffer
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

    from rl_influence.integrations.buffers import (
        ARRAYS,
        PartialRollout,
        ScoredRollout,
        flat_arrays,
        progress,
        refuse_own_get,
    )
    from rl_influence.integrations.sb3_policy import CHOICES, SB3Policy, is_a
except ImportError:
    raise ImportError(
        "rl_influence.integrations.sb3 needs Stable-Baselines3: in the clone, pip install '.[sb3]'"
    ) from None

HOOK = ("train", "_excluded_save_params")  # methods that a callback takes the place of until the records have trained
SAME_POLICY = 1e-3  # largest difference of log-probabilities that rounding explains


def rollout_records(buffer: RolloutBuffer) -> RolloutRecords:
    """The records of a full buffer, before or after Stable-Baselines3 has flattened it in place.

    Raises:
        ScoringError: for a recurrent policy's buffer, or one that is not full.
    """
    if not isinstance(buffer, RolloutBuffer) or is_a("Recurrent", buffer):
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
    model: OnPolicyAlgorithm, target: Target | None = None, *, backend: str | None = None, progress_bar: bool = False
) -> tuple[RolloutRecords, np.ndarray]:
    """Trains a round as PPO, A2C or MaskablePPO do, and sums each record's influence over its steps (full TracIn).

    It takes a gradient over the whole buffer before each step. A subclass's own `train` is not called: it may call
    this, and `InfluenceFilteredPPO` trains on all records here.

    Args:
        model, target, backend: as for `score_rollout`.
        progress_bar: over the steps; with the package rich, else a line for every tenth of them.

    Returns:
        The records and their scores (n,).

    Raises:
        ScoringError: as for `score_rollout`, and if layers tie records together or are random while they train
            (BatchNorm, dropout). Nothing is trained then.
    """
    with _as_collected(model) as (records, policy, batch):
        refuse_own_get(model, "train_and_score")
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
        rollout = ScoredRollout(model, policy, batch, target, objective, backend, advance)
        rollout.train(model, lambda: _algorithm(model).train(model))
    return records, rollout.scores


class InfluenceCallback(BaseCallback):
    """Scores every rollout, logs what the scores are like, and, if it is told to, leaves out the harmful records.

    Works on PPO, A2C and MaskablePPO. Logged: `influence/share_negative`, quantiles of the scores (`influence/q05` to
    `q95`), `influence/scoring_s` (seconds) and, if it filters, `influence/records_kept`.

    Args:
        drop_fraction: share p of the negative records to drop, in (0, 1]; None: drop nothing.
        target, backend: as for `score_rollout`, of each rollout.
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
        backend: str | None = None,
        drop_short_minibatch: bool = True,
        verbose: int = 0,
    ):
        super().__init__(verbose)
        choose_backend(backend)
        if target is not None:
            check_target(target)
        self.drop_fraction = None if drop_fraction is None else checked_fraction("drop_fraction", drop_fraction)
        self.target, self.backend, self.drop_short_minibatch = target, backend, drop_short_minibatch
        self.records: Any = None
        self.scores: Any = None
        self.kept: Any = None

    def _init_callback(self) -> None:
        _algorithm(self.model)
        if self.drop_fraction is not None:
            if isinstance(self.model, _Filtered):
                raise ScoringError(f"InfluenceCallback(drop_fraction=...): {type(self.model).__name__} filters already")
            refuse_own_get(self.model, "InfluenceCallback(drop_fraction=...)")

    def _on_training_start(self) -> None:
        self._restore(self.model)  # an earlier `learn` may have been stopped between scoring and training

    def _on_rollout_end(self) -> None:
        model: Any = self.model
        if self.drop_fraction is not None and HOOK[0] in vars(model):
            self._restore(model)
            raise ScoringError("InfluenceCallback(drop_fraction=...): another callback filters these records already")
        self.records, self.scores, self.kept = _score_and_log(model, self.target, self.drop_fraction, self.backend)
        self._scored = model.rollout_buffer.advantages  # an array of each rollout's own
        if self.drop_fraction is not None:
            # what `learn` calls next; a model that is saved before is saved without
            not_saved = [*model._excluded_save_params(), *HOOK]
            vars(model).update(zip(HOOK, (self._train, lambda: not_saved), strict=True))

    def _train(self) -> None:
        model: Any = self.model
        self._restore(model)
        if model.rollout_buffer.advantages is not self._scored:  # `learn` was stopped, and goes on without us
            model.train()
        else:
            PartialRollout(model, self.kept, self.drop_short_minibatch).train(model, model.train)

    @staticmethod
    def _restore(model: Any) -> None:
        """The class's own methods again."""
        for name in HOOK:
            vars(model).pop(name, None)

    def _on_step(self) -> bool:
        return True


class _Filtered(OnPolicyAlgorithm):
    """What is common to the filtered algorithms."""

    def __init__(
        self,
        *args: Any,
        drop_fraction: float = 0.5,
        drop_short_minibatch: bool = True,
        backend: str | None = None,
        **kwargs: Any,
    ):
        choose_backend(backend)
        self.drop_fraction, self.drop_short_minibatch, self.backend = drop_fraction, bool(drop_short_minibatch), backend
        self.influence: Any = None
        self.kept: Any = None
        super().__init__(*args, **kwargs)

    @property
    def drop_fraction(self) -> float:
        """Share p of the negative records that are dropped, in (0, 1]."""
        return self.__dict__["drop_fraction"]

    @drop_fraction.setter
    def drop_fraction(self, value: float) -> None:
        self.__dict__["drop_fraction"] = checked_fraction("drop_fraction", value)

    def _setup_model(self) -> None:
        checked_fraction("drop_fraction", self.drop_fraction)  # `load(..., drop_fraction=...)` writes past the setter
        super()._setup_model()
        refuse_own_get(self, type(self).__name__)

    def train(self) -> None:
        """Scores, filters, and trains on what is left; without any record left, nothing is trained."""
        _, self.influence, self.kept = _score_and_log(self, None, self.drop_fraction, self.backend)
        PartialRollout(self, self.kept, self.drop_short_minibatch).train(self, super().train)


class InfluenceFilteredPPO(_Filtered, PPO):
    """PPO that trains each round without the records of most negative influence (IIF).

    Args:
        args, kwargs: of `stable_baselines3.PPO`.
        drop_fraction: share p of the negative records to drop, in (0, 1].
        drop_short_minibatch: leave out an epoch's short last mini-batch, unless it is the only one (Stable-Baselines3
            trains on it, which matters once the number of records is no multiple of the batch size).
        backend: as for `score_rollout`.

    Attributes:
        influence: scores of the latest rollout, (n,); kept: indices of the records that trained, ascending.

    Raises:
        ValueError: for a `drop_fraction` out of range, wherever it is set.
    """


class InfluenceFilteredA2C(_Filtered, A2C):
    """A2C that takes each of its steps without the records of most negative influence.

    Arguments and attributes as for `InfluenceFilteredPPO`.
    """


def _score_and_log(
    model: Any, target: Target | None, drop_fraction: float | None, backend: str | None
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
    records, scores = score_rollout(model, target, advantages=advantages, backend=backend)
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
    name, known = type(model).__name__, reason if is_a("RecurrentPPO", model) else ""
    raise ScoringError(f"{name}: {CHOICES} is needed{known}")


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
        moved = _moved(model, policy, batch)
        if moved > SAME_POLICY:
            raise ScoringError(
                f"rollout buffer: collected by another policy (log-probabilities differ by up to {moved:.2g}); "
                "score it before training, for instance in a callback's on_rollout_end"
            )
        yield records, policy, batch


@torch.no_grad()
def _moved(model: Any, policy: SB3Policy, batch: Batch) -> float:
    """Largest difference of log pi from what it was at collection."""
    moved = 0.0
    for chunk in chunks(batch, None):
        inputs = (torch.as_tensor(x[chunk], device=model.device) for x in (batch.observations, batch.actions))
        try:
            log_probs = policy.log_prob(*inputs).cpu().numpy()
        except (RuntimeError, ValueError) as error:  # torch's go on for as many lines as there are records
            raise ScoringError(f"rollout buffer: {type(model.policy).__name__} fails, {first_line(error)}") from error
        moved = max(moved, float(np.abs(log_probs - batch.log_probs[chunk]).max()))
    return moved
