"""Rollout buffers as Stable-Baselines3's `train` reads them: some of the records, or all, scored step by step."""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from torch import nn

from rl_influence.attribution import ScoringError, Step, Target, tracin_scores
from rl_influence.integrations.sb3_policy import is_theirs
from rl_influence.ppo.learner import minibatches
from rl_influence.ppo.objective import Batch, Objective

ARRAYS = ("actions", "values", "log_probs", "advantages", "returns", "rewards", "episode_starts")


def flat_arrays(buffer: RolloutBuffer) -> dict[str, Any]:
    """The buffer's arrays with (n_steps, n_envs) flattened environment by environment."""

    def flat(name: str, array: Any) -> Any:
        if isinstance(array, dict):
            return {key: flat(name, part) for key, part in array.items()}
        # rewards and episode_starts are never flattened in place
        flattened = buffer.generator_ready and name not in ("rewards", "episode_starts")
        return array if flattened else buffer.swap_and_flatten(array)

    names = ("observations", *ARRAYS, *(["action_masks"] if hasattr(buffer, "action_masks") else []))
    return {name: flat(name, getattr(buffer, name)) for name in names}


def refuse_own_get(model: Any, what: str) -> None:
    """Refuses a buffer class that draws its mini-batches itself, which a choice of records would pass by."""
    buffer = type(model.rollout_buffer)
    if not is_theirs(buffer.get):
        raise ScoringError(f"{what}: {buffer.__name__} has a get of its own, which would not be asked")


def _part(array: Any, kept: Any) -> Any:
    return {key: x[kept] for key, x in array.items()} if isinstance(array, dict) else array[kept]


class PartialRollout:
    """The kept records of a model's buffer.

    Attributes:
        buffer: one that holds them alone, which `train` may read and write.
    """

    def __init__(self, model: Any, kept: Any, drop_short: bool):
        self._drop_short = drop_short
        self.buffer = copy.copy(model.rollout_buffer)
        self.buffer.__dict__.update({name: _part(x, kept) for name, x in flat_arrays(model.rollout_buffer).items()})
        self.buffer.__dict__.update(buffer_size=len(kept), pos=len(kept), n_envs=1, generator_ready=True, get=self.get)
        self._n = len(kept)
        # only PPO itself leaves the advantage of a single record as it is; elsewhere it would become NaN
        self._smallest = 2 if model.normalize_advantage and not isinstance(model, PPO) else 1

    def train(self, model: Any, train: Callable[[], None]) -> None:
        """Calls `train` with these records in the model's buffer; nothing is trained without any."""
        if self._n < self._smallest:
            return
        buffer = model.rollout_buffer
        model.rollout_buffer = self.buffer
        try:
            train()
        finally:
            model.rollout_buffer = buffer

    def batches(self, batch_size: int | None) -> list[np.ndarray]:
        """Indices among these records of an epoch's mini-batches."""
        order = np.random.permutation(self._n)  # numpy's global generator, as Stable-Baselines3
        batches = minibatches(order, batch_size or len(order), drop_short=self._drop_short)
        return [batch for batch in batches if len(batch) >= self._smallest]

    def get(self, batch_size: int | None = None) -> Iterator[Any]:
        """The mini-batches of an epoch, as `RolloutBuffer.get`."""
        for batch in self.batches(batch_size):
            yield self.buffer._get_samples(batch)


class ScoredRollout(PartialRollout):
    """All records of a model's buffer; each mini-batch is scored before it trains.

    Attributes:
        scores: (n,) sums over the steps so far.
    """

    def __init__(
        self,
        model: Any,
        policy: nn.Module,
        batch: Batch,
        target: Target,
        objective: Objective,
        backend: str | None,
        advance: Callable[[], None],
    ):
        super().__init__(model, np.arange(len(batch)), drop_short=False)
        self._policy, self._batch, self._target = policy, batch, target
        self._objective, self._backend, self._advance = objective, backend, advance
        self.scores = np.zeros(len(batch))

    def get(self, batch_size: int | None = None) -> Iterator[Any]:
        for indices in self.batches(batch_size):
            step = [Step(np.arange(len(indices)))]
            terms = tracin_scores(
                self._policy,
                self._batch[indices],
                self._target,
                step,
                objective=self._objective,
                backend=self._backend,
            )
            yield self.buffer._get_samples(indices)
            # not reached if target_kl ends the round before this step
            self.scores[indices] += terms.cpu().numpy()
            self._advance()


@contextmanager
def progress(title: str, total: int, shown: bool) -> Iterator[Callable[[], None]]:
    """Yields a function to be called after each of `total` steps: a bar of the package rich, or else ten lines."""
    if not shown:
        yield lambda: None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        count = itertools.count(1)

        def advance() -> None:
            done = next(count)
            if done * 10 // total > (done - 1) * 10 // total:
                print(f"{title}: {done} of {total} steps", file=sys.stderr, flush=True)

        yield advance
        return
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)
