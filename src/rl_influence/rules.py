"""Which records of a round's buffer train: the paper's filter and all that it is compared with (section 5, appendix B).

A rule is one function with the decorator `rule`; its name is the `kind` of a method's selection in `methods.yaml`. It
sees a `Buffer` and answers with the indices of the records that train, or with a `Selection`. Numpy is all that rules
need: their names are known before anything heavy is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Selection:
    """The records a round trains on.

    Attributes:
        kept: indices into the buffer, ascending.
        records_per_epoch: how many records an epoch draws.
        probabilities: of each kept record, if it is drawn with replacement; None: every epoch is a permutation.
        weights: (n,) of each record of the buffer in the objective; None: 1.
        again: asked before every epoch but the first for that epoch's selection; None: all epochs share this one.
    """

    kept: np.ndarray
    records_per_epoch: int
    probabilities: np.ndarray | None = None
    weights: np.ndarray | None = None
    again: Callable[[], Selection] | None = None

    def epochs(self, n_epochs: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
        """Record indices of each epoch in the order in which they train."""
        for epoch in range(n_epochs):
            current = self.again() if self.again and epoch else self
            if current.weights is not None and self.weights is not None:
                self.weights[:] = current.weights  # what the round's updates read
            yield current.order(generator)

    def order(self, generator: np.random.Generator) -> np.ndarray:
        """Record indices of one epoch."""
        if self.probabilities is not None:
            return generator.choice(self.kept, self.records_per_epoch, p=self.probabilities)
        order = generator.permutation(self.kept)
        while 0 < len(order) < self.records_per_epoch:  # more updates than the kept records give: go round again
            order = np.concatenate([order, generator.permutation(self.kept)])
        return order[: self.records_per_epoch]


@dataclass(frozen=True)
class Buffer:
    """What a rule sees of a round.

    Attributes:
        records: the buffer, `ppo.Records`.
        fraction: p of the method's `drop_percent`, in [0, 1].
        gamma: discount factor.
        generator: the method's own randomness.
        scores: (n,) influence of each record; only rules that need it have it.
        advantages: (n,) true advantage of each record; likewise.
    """

    records: Any
    fraction: float
    gamma: float
    generator: np.random.Generator
    scores: Any = None
    advantages: Any = None


@dataclass(frozen=True)
class Rule:
    """A rule and what must be known of it before it is called; arguments as of `rule`.

    Attributes:
        arguments: names of what it takes beside the buffer (keyword-only parameters), keys of a method's selection.
    """

    choose: Callable[..., np.ndarray | Selection]
    needs: str | None
    drops: bool
    updates: str
    every_epoch: bool

    @property
    def arguments(self) -> tuple[str, ...]:
        parameters = inspect.signature(self.choose).parameters.values()
        return tuple(parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY)


RULES: dict[str, Rule] = {}
NEEDS = (None, "scores", "estimated_advantages", "exact_advantages")


def rule(
    *, needs: str | None = None, drops: bool = True, updates: str = "own", every_epoch: bool = False
) -> Callable[[Callable], Callable]:
    """Registers a rule under its function's name (less a last underscore).

    Args:
        needs: what is computed for it in every round: `scores` (influence), `estimated_advantages` (by averages over
            repeated visits) or `exact_advantages` (of an exact model).
        drops: whether it takes a `drop_percent`.
        updates: what its number of updates is anyway: `as_all` (PPO's), `as_influence` (IIF's at its p), or its `own`.
        every_epoch: whether it is asked again before every epoch, with scores at the parameters of that moment.
    """
    assert needs in NEEDS, needs

    def register(choose: Callable) -> Callable:
        RULES[choose.__name__.removesuffix("_")] = Rule(choose, needs, drops, updates, every_epoch)
        return choose

    return register


@rule(drops=False, updates="as_all")
def all_(buffer: Buffer) -> np.ndarray:
    """Standard PPO."""
    return np.arange(len(buffer.records))


@rule(needs="scores", updates="as_influence")
def influence(buffer: Buffer) -> np.ndarray:
    """IIF: without the share p of the negative records that is most negative."""
    return drop_most_negative(buffer.scores, buffer.fraction)


@rule(needs="scores", updates="as_influence")
def random(buffer: Buffer) -> np.ndarray:
    """Without as many as IIF drops, at random."""
    n = len(buffer.records)
    return without(n, buffer.generator.choice(n, number_dropped(buffer.scores, buffer.fraction), replace=False))


@rule(needs="scores", updates="as_influence")
def difficulty(buffer: Buffer) -> np.ndarray:
    """Without as many as IIF drops, of highest and of lowest reward (appendix B.10)."""
    number = number_dropped(buffer.scores, buffer.fraction)
    return drop_extreme_rewards(buffer.records.rewards, number, buffer.generator)


@rule(needs="estimated_advantages")
def advantage_h1(buffer: Buffer) -> np.ndarray:
    """Without the share p of the records of wrong sign whose advantage is furthest from the true one."""
    return drop_by_advantage(buffer.records.advantages, buffer.advantages, buffer.fraction, by="gap")


@rule(needs="estimated_advantages")
def advantage_h2(buffer: Buffer) -> np.ndarray:
    """Without the share p of the records of wrong sign whose product with the true advantage is most negative."""
    return drop_by_advantage(buffer.records.advantages, buffer.advantages, buffer.fraction, by="product")


@rule(needs="exact_advantages")
def advantage_h1_exact(buffer: Buffer) -> np.ndarray:
    """The same with exact true advantages."""
    return advantage_h1(buffer)


@rule(needs="exact_advantages")
def advantage_h2_exact(buffer: Buffer) -> np.ndarray:
    """The same with exact true advantages."""
    return advantage_h2(buffer)


@rule(drops=False, updates="as_all")
def td_error(buffer: Buffer, *, priority_exponent: float) -> Selection:
    """All, drawn by the rank of their TD error."""
    n = len(buffer.records)
    priorities = td_probabilities(buffer.records, gamma=buffer.gamma, exponent=priority_exponent)
    return Selection(np.arange(n), n, priorities)


def drop_most_negative(scores: np.ndarray, fraction: float) -> np.ndarray:
    """IIF's filter: drops the int(fraction * #negative) most negative records, ties by index.

    Args:
        scores: (n,) influence of each record, an array or a tensor.
        fraction: share of the negative records to drop, in [0, 1].

    Returns:
        Indices of the records that are kept, ascending.

    Raises:
        ValueError: for a fraction outside [0, 1], scores of another shape, or a score that is not a number.
    """
    scores, fraction = as_array(scores), checked_fraction("fraction", fraction, none=True)
    if scores.ndim != 1 or scores.dtype.kind not in "fiu":
        raise ValueError(f"scores: expected real numbers of shape (n,), not {scores.dtype} of shape {scores.shape}")
    if np.isnan(scores).any():
        raise ValueError(f"scores: {int(np.isnan(scores).sum())} of {scores.size} are NaN")
    dropped = np.argsort(scores, kind="stable")[: number_dropped(scores, fraction)]
    return without(len(scores), dropped)


def checked_fraction(name: str, value: Any, *, none: bool = False) -> float:
    """A fraction in (0, 1], or, where `none` of the records may be meant, in [0, 1].

    Raises:
        ValueError: for anything else; names the fraction that a percentage must have meant.
    """
    try:  # a string or a switch is no number, whatever float() makes of it
        number = float("nan") if isinstance(value, (str, bytes, bool)) else float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if 0 < number <= 1 or (none and number == 0):
        return number
    hint = f"; did you mean {number / 100:g}?" if 1 < number <= 100 else ""
    raise ValueError(f"{name} = {value!r}: a fraction in {'[' if none else '('}0, 1] is needed{hint}")


def as_array(values: Any) -> np.ndarray:
    """An array, or a tensor of any device and type, as an array."""
    return values.detach().cpu().double().numpy() if hasattr(values, "detach") else np.asarray(values)


def number_dropped(scores: np.ndarray, fraction: float) -> int:
    """How many records IIF drops of a buffer with these scores."""
    # the tiny addition keeps 0.07 * 100 = 7.000000000000001 and 0.29 * 100 = 28.999999999999996 on their side
    return int(fraction * int((scores < 0).sum()) + 1e-9)


def drop_by_advantage(estimated: np.ndarray, true: np.ndarray, fraction: float, *, by: str) -> np.ndarray:
    """The paper's advantage heuristics, which look at records whose advantages disagree in sign only.

    By `gap`, H1, the share with the largest |true - estimated| goes, by `product`, H2, that with the most negative
    product; ties by index.

    Returns:
        Indices of the records that are kept, ascending.

    Raises:
        ValueError: for a fraction outside [0, 1].
    """
    fraction = checked_fraction("fraction", fraction, none=True)
    estimated, true = np.asarray(estimated), np.asarray(true)
    candidates = np.flatnonzero(np.sign(estimated) * np.sign(true) < 0)
    badness = {"gap": -np.abs(true - estimated), "product": estimated * true}[by][candidates]
    worst_first = candidates[np.argsort(badness, kind="stable")]
    return without(len(estimated), worst_first[: int(fraction * len(candidates) + 1e-9)])


def drop_extreme_rewards(rewards: np.ndarray, number: int, generator: np.random.Generator) -> np.ndarray:
    """Drops the records of highest and of lowest reward, half each, ties at random.

    Returns:
        Indices of the records that are kept, ascending.
    """
    shuffled = generator.permutation(len(rewards))
    order = shuffled[np.argsort(rewards[shuffled], kind="stable")]
    low = number // 2
    return without(len(rewards), np.concatenate([order[:low], order[len(order) - (number - low) :]]))


def td_probabilities(records: Any, *, gamma: float, exponent: float) -> np.ndarray:
    """Rank-based prioritised sampling by TD error: priority 1 / rank of |delta|, probability ~ priority ** exponent."""
    delta = records.rewards + gamma * records.next_values * ~records.terminated - records.values
    rank = np.empty(len(delta))
    rank[np.argsort(-np.abs(delta), kind="stable")] = np.arange(1, len(delta) + 1)
    priority = rank**-exponent
    return priority / priority.sum()


def without(n: int, dropped: np.ndarray) -> np.ndarray:
    """Indices of n records but these, ascending."""
    kept = np.ones(n, dtype=bool)
    kept[dropped] = False
    return np.flatnonzero(kept)
