"""What a round's records are worth, and which of them train: influence scores of a buffer, and the rules on top.

Scoring needs the policy that collected the buffer; what is done with the scores is a rule's business (`rules`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from rl_influence.attribution import FReturn, influence_scores
from rl_influence.config import PPOConfig, RunSpec
from rl_influence.evaluation.true_advantages import monte_carlo_advantages
from rl_influence.ppo.networks import ActorCritic
from rl_influence.ppo.objective import normalize, objective_of
from rl_influence.ppo.records import Records
from rl_influence.rules import RULES, Buffer, Selection, drop_most_negative, number_dropped

__all__ = ["Selection", "drop_most_negative", "number_dropped", "score", "select"]


def needs_scores(spec: RunSpec) -> bool:
    """Whether a method computes influence in every round: to choose records, or to know how many IIF would drop."""
    asks = (spec.selection.updates, spec.selection.displacement)
    return RULES[spec.selection.kind].needs == "scores" or "as_influence" in asks


def needs_true_advantages(spec: RunSpec) -> bool:
    """Whether a method computes exact true advantages in every round."""
    return RULES[spec.selection.kind].needs == "exact_advantages"


def score(records: Records, policy: ActorCritic, config: PPOConfig, generator: np.random.Generator) -> np.ndarray:
    """Start-of-round influence on f_return as the public code computes it, (n,).

    Advantages are weighed as training weighs them: normalised within mini-batches of a random order, as in a first
    epoch, unless `normalize_advantage` is off. The target's are raw.
    """
    advantages = scoring_advantages(records.advantages, config, generator)
    # A score is the advantage times a slope that (s, a) alone decides. Each distinct (s, a) once: so equal records have
    # equal scores to the last bit, and which of them are dropped is decided by index, not by rounding.
    target = FReturn(records)
    ones = np.ones(len(target.first), dtype=advantages.dtype)
    slopes = influence_scores(policy, records[target.first], target, advantages=ones).numpy()
    return advantages * slopes[target.group]


def score_again(records: Records, policy: ActorCritic, config: PPOConfig, generator: np.random.Generator) -> np.ndarray:
    """The same within the round, (n,): at parameters that have moved, ratios and clipping count."""
    config_without = config.model_copy(update={"normalize_advantage": False})
    objective = objective_of(config_without, policy_only=True)
    advantages = scoring_advantages(records.advantages, config, generator)
    target = FReturn(records)
    return influence_scores(policy, records, target, objective=objective, advantages=advantages).numpy()


def scoring_advantages(advantages: np.ndarray, config: PPOConfig, generator: np.random.Generator) -> np.ndarray:
    """The advantages that scores are made with, (n,)."""
    if not config.normalize_advantage:
        return advantages
    return normalize_in_minibatches(advantages, config.batch_size, generator)


def normalize_in_minibatches(advantages: np.ndarray, batch_size: int, generator: np.random.Generator) -> np.ndarray:
    """Advantages normalised within the mini-batches of a random order, as in an epoch, (n,).

    A last mini-batch of one record joins the one before it: by itself it would keep its raw advantage, which does not
    compare with the others'.
    """
    normalised, order = np.empty_like(advantages), generator.permutation(len(advantages))
    whole, left = divmod(len(order), batch_size)
    if left == 1 < batch_size and whole:
        whole -= 1
    batches, last = order[: whole * batch_size].reshape(whole, batch_size), order[whole * batch_size :]
    normalised[batches] = normalize(advantages[batches])
    normalised[last] = normalize(advantages[last])
    return normalised


def select(
    spec: RunSpec,
    records: Records,
    scores: np.ndarray | None,
    generator: np.random.Generator,
    exact: np.ndarray | None = None,
    rescore: Callable[[], np.ndarray] | None = None,
) -> Selection:
    """Applies a run's method to one round's buffer.

    Args:
        scores: influence of each record, if `needs_scores(spec)`.
        generator: the method's own randomness.
        exact: exact true advantage of each record, if `needs_true_advantages(spec)`.
        rescore: gives the scores at the policy's present parameters, for rules that are asked again every epoch.
    """
    rule, fraction, n = RULES[spec.selection.kind], spec.drop_fraction, len(records)
    if rule.needs == "estimated_advantages":
        exact = monte_carlo_advantages(records, gamma=spec.ppo.gamma)
    buffer = Buffer(records, fraction, spec.ppo.gamma, generator, scores, exact)
    chosen = rule.choose(buffer, **spec.selection.rule_arguments)
    selection = chosen if isinstance(chosen, Selection) else Selection(chosen, len(chosen))
    if spec.selection.updates != "own":
        per_epoch = n - (number_dropped(buffer.scores, fraction) if spec.selection.updates == "as_influence" else 0)
        selection = dataclasses.replace(selection, records_per_epoch=per_epoch)
    if not (rule.every_epoch and rescore):
        return selection

    def again() -> Selection:
        return select(spec, records, rescore(), generator, exact)

    return dataclasses.replace(selection, again=again)
