"""Which records of a round's buffer train: the paper's filter and all that it is compared with (section 5, appendix B).

Every rule sees the buffer and the policy that collected it, and answers with the records that each epoch draws from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rl_influence.attribution import FReturn, influence_scores
from rl_influence.config import EXACT_HEURISTICS, PPOConfig, RunSpec
from rl_influence.evaluation.true_advantages import monte_carlo_advantages
from rl_influence.ppo.learner import minibatches
from rl_influence.ppo.networks import ActorCritic
from rl_influence.ppo.objective import normalize
from rl_influence.ppo.records import Records, distinct_observations


@dataclass(frozen=True)
class Selection:
    """The records a round trains on.

    Attributes:
        kept: indices into the buffer, ascending.
        records_per_epoch: how many records an epoch draws.
        probabilities: of each kept record, if it is drawn with replacement; None: every epoch is a permutation.
    """

    kept: np.ndarray
    records_per_epoch: int
    probabilities: np.ndarray | None = None

    def epochs(self, n_epochs: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
        """Record indices of each epoch in the order in which they train."""
        for _ in range(n_epochs):
            if self.probabilities is not None:
                yield generator.choice(self.kept, self.records_per_epoch, p=self.probabilities)
                continue
            order = generator.permutation(self.kept)
            while 0 < len(order) < self.records_per_epoch:  # more updates than the kept records give: go round again
                order = np.concatenate([order, generator.permutation(self.kept)])
            yield order[: self.records_per_epoch]


def needs_scores(spec: RunSpec) -> bool:
    """Whether a method computes influence in every round: to choose records, or to know how many IIF would drop."""
    kind, matched = spec.selection.kind, (spec.selection.updates, spec.selection.displacement)
    return kind in ("influence", "random", "difficulty") or "as_influence" in matched


def score(records: Records, policy: ActorCritic, config: PPOConfig, generator: np.random.Generator) -> np.ndarray:
    """Start-of-round influence on f_return as the public code computes it, (n,).

    Advantages are normalised within mini-batches of a random order, as in a first epoch; the target's are raw.
    """
    normalised = normalize_in_minibatches(records.advantages, config.batch_size, generator)
    # A score is the advantage times a slope that (s, a) alone decides. Each distinct (s, a) once: so equal records have
    # equal scores to the last bit, and which of them are dropped is decided by index, not by rounding.
    distinct, states = distinct_observations(records.observations)
    first = pair = np.arange(len(records))
    if len(distinct) < len(records) and records.actions.dtype.kind in "iu":
        keys = states * (records.actions.max() + 1) + records.actions
        _, first, pair = np.unique(keys, return_index=True, return_inverse=True)
    ones = np.ones(len(first), dtype=normalised.dtype)
    slopes = influence_scores(policy, records[first], FReturn(records), advantages=ones).numpy()
    return normalised * slopes[pair]


def normalize_in_minibatches(advantages: np.ndarray, batch_size: int, generator: np.random.Generator) -> np.ndarray:
    """Advantages normalised within the mini-batches of a random order, as in an epoch, (n,)."""
    normalised = np.empty_like(advantages)
    for batch in minibatches(generator.permutation(len(advantages)), batch_size, drop_short=False):
        normalised[batch] = normalize(advantages[batch])
    return normalised


def drop_most_negative(scores: np.ndarray, fraction: float) -> np.ndarray:
    """IIF's filter: drops the int(fraction * #negative) most negative records, ties by index.

    Args:
        scores: (n,) influence of each record.
        fraction: share of the negative records to drop, in [0, 1].

    Returns:
        Indices of the records that are kept, ascending.

    Raises:
        ValueError: for a fraction outside [0, 1], scores of another shape, or a score that is not a number.
    """
    scores = np.asarray(scores)
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction = {fraction}: a fraction in [0, 1] is needed{if_percent(fraction)}")
    if scores.ndim != 1 or scores.dtype.kind not in "fiu":
        raise ValueError(f"scores: expected real numbers of shape (n,), not {scores.dtype} of shape {scores.shape}")
    if np.isnan(scores).any():
        raise ValueError(f"scores: {int(np.isnan(scores).sum())} of {scores.size} are NaN")
    dropped = np.argsort(scores, kind="stable")[: number_dropped(scores, fraction)]
    return _without(len(scores), dropped)


def if_percent(value: float) -> str:
    """A hint for a value that should be a fraction and looks like a percentage, or nothing."""
    return f"; did you mean {value / 100:g}?" if 1 < value <= 100 else ""


def number_dropped(scores: np.ndarray, fraction: float) -> int:
    """How many records IIF drops of a buffer with these scores."""
    # the tiny addition keeps 0.07 * 100 = 7.000000000000001 and 0.29 * 100 = 28.999999999999996 on their side
    return int(fraction * int((scores < 0).sum()) + 1e-9)


def disagreeing(estimated: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Indices of the records whose estimated and true advantage have opposite signs."""
    return np.flatnonzero(np.sign(estimated) * np.sign(true) < 0)


def drop_by_advantage(estimated: np.ndarray, true: np.ndarray, fraction: float, *, heuristic: str) -> np.ndarray:
    """The paper's advantage heuristics, which look at records whose advantages disagree in sign only.

    `advantage_h1` drops the share with the largest |true - estimated|, `advantage_h2` that with the most negative
    product; ties by index.

    Returns:
        Indices of the records that are kept, ascending.
    """
    estimated, true = np.asarray(estimated), np.asarray(true)
    candidates = disagreeing(estimated, true)
    gap, product = np.abs(true - estimated), estimated * true
    badness = {"advantage_h1": -gap, "advantage_h2": product}[heuristic][candidates]
    worst_first = candidates[np.argsort(badness, kind="stable")]
    return _without(len(estimated), worst_first[: int(fraction * len(candidates) + 1e-9)])


def drop_extreme_rewards(rewards: np.ndarray, number: int, generator: np.random.Generator) -> np.ndarray:
    """Difficulty filter (appendix B.10): drops the records of highest and of lowest reward, half each, ties at random.

    Returns:
        Indices of the records that are kept, ascending.
    """
    shuffled = generator.permutation(len(rewards))
    order = shuffled[np.argsort(rewards[shuffled], kind="stable")]
    low = number // 2
    return _without(len(rewards), np.concatenate([order[:low], order[len(order) - (number - low) :]]))


def td_probabilities(records: Records, *, gamma: float, exponent: float) -> np.ndarray:
    """Rank-based prioritised sampling by TD error: priority 1 / rank of |delta|, probability ~ priority ** exponent."""
    delta = records.rewards + gamma * records.next_values * ~records.terminated - records.values
    rank = np.empty(len(delta))
    rank[np.argsort(-np.abs(delta), kind="stable")] = np.arange(1, len(delta) + 1)
    priority = rank**-exponent
    return priority / priority.sum()


def needs_true_advantages(spec: RunSpec) -> bool:
    """Whether a method computes exact true advantages in every round."""
    return spec.selection.kind in EXACT_HEURISTICS


def select(
    spec: RunSpec,
    records: Records,
    scores: np.ndarray | None,
    generator: np.random.Generator,
    true: np.ndarray | None = None,
) -> Selection:
    """Applies a run's method to one round's buffer.

    Args:
        scores: influence of each record, if `needs_scores(spec)`.
        generator: the method's own randomness.
        true: true advantage of each record, if `needs_true_advantages(spec)`.
    """
    kind, fraction, n = spec.selection.kind, spec.drop_fraction, len(records)
    probabilities = None
    if kind == "influence":
        kept = drop_most_negative(scores, fraction)
    elif kind == "random":
        kept = _without(n, generator.choice(n, number_dropped(scores, fraction), replace=False))
    elif kind == "difficulty":
        kept = drop_extreme_rewards(records.rewards, number_dropped(scores, fraction), generator)
    elif kind in ("advantage_h1", "advantage_h2"):
        true = monte_carlo_advantages(records, gamma=spec.ppo.gamma)
        kept = drop_by_advantage(records.advantages, true, fraction, heuristic=kind)
    elif kind in EXACT_HEURISTICS:
        kept = drop_by_advantage(records.advantages, true, fraction, heuristic=kind.removesuffix("_exact"))
    else:
        kept = np.arange(n)
        if kind == "td_error":
            probabilities = td_probabilities(records, gamma=spec.ppo.gamma, exponent=spec.selection.priority_exponent)
    per_epoch = {
        "own": lambda: len(kept),
        "as_all": lambda: n,
        "as_influence": lambda: n - number_dropped(scores, fraction),
    }[spec.selection.updates]()
    return Selection(kept, per_epoch, probabilities)


def _without(n: int, dropped: np.ndarray) -> np.ndarray:
    kept = np.ones(n, dtype=bool)
    kept[dropped] = False
    return np.flatnonzero(kept)
