"""What PPO maximises for one sequence, and the targets of attribution: functions of (policy, sequences).

A record is a prompt with its generation, y its tokens. All three are differentiated by the common backends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from rl_influence.rlhf.models import SequencePolicy, Sequences


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over each row's tokens that are there, (n,)."""
    return (values * mask).sum(1) / mask.sum(1)


@dataclass(frozen=True)
class SequencePPO:
    """Clipped PPO of a sequence, (n,): the mean over its tokens of min(r A, clip(r) A), less the clipped value loss.

    Args:
        clip_range: of the ratio r.
        value_clip: how far a value may move from the one at collection.
        value_coef: weight of the value loss; 0: the value head is not evaluated.
    """

    clip_range: float = 0.2
    value_clip: float = 0.2
    value_coef: float = 0.0

    def __call__(self, policy: SequencePolicy, batch: Sequences) -> Tensor:
        """Each sequence's objective."""
        return self.with_ratio(policy, batch)[0]

    def with_ratio(self, policy: SequencePolicy, batch: Sequences) -> tuple[Tensor, Tensor]:
        """Each sequence's objective, and the ratio of each token (n, R; 1 where there is none)."""
        mask = batch.response
        log_probs, values = policy(batch, values=self.value_coef > 0)
        ratio = (log_probs - batch.log_probs).exp()
        low, high = 1 - self.clip_range, 1 + self.clip_range
        surrogate = (ratio * batch.advantages).minimum(ratio.clamp(low, high) * batch.advantages)
        objective = masked_mean(surrogate, mask)
        if self.value_coef:
            near = values.clamp(batch.values - self.value_clip, batch.values + self.value_clip)
            loss = ((values - batch.returns) ** 2).maximum((near - batch.returns) ** 2)
            objective = objective - self.value_coef * 0.5 * masked_mean(loss, mask)
        return objective, ratio


class SequenceTarget:
    """A mean over validation sequences, as a target of attribution: policy -> scalar.

    Args:
        sequences: with advantages.
        term: (log_probs, sequences) -> (n,).
    """

    def __init__(self, sequences: Sequences, term: Callable[[Tensor, Sequences], Tensor]):
        self.sequences, self.term = sequences, term

    def __call__(self, policy: SequencePolicy) -> Tensor:
        return self._part(slice(None), policy)

    def parts(self, chunk_size: int | None) -> Iterator[Callable[[SequencePolicy], Tensor]]:
        """Targets that sum to this one, each over at most `chunk_size` sequences."""
        step = chunk_size or len(self.sequences)
        return (partial(self._part, slice(i, i + step)) for i in range(0, len(self.sequences), step))

    def _part(self, rows: slice, policy: SequencePolicy) -> Tensor:
        part = self.sequences[rows]
        return self.term(policy(part, values=False)[0], part).sum() / len(self.sequences)


def last_advantage(batch: Sequences) -> Tensor:
    """Advantage at each sequence's last token, (n,)."""
    return batch.advantages.gather(1, batch.lengths.unsqueeze(1) - 1).squeeze(1)


def f_seq(log_probs: Tensor, batch: Sequences) -> Tensor:
    """log pi(y|x) times the advantage of the last token, (n,): the paper's target for sequences."""
    return (log_probs * batch.response).sum(1) * last_advantage(batch)


def f_token(log_probs: Tensor, batch: Sequences) -> Tensor:
    """Mean over tokens of log pi(y_t) A_t, (n,): f_return token by token."""
    return masked_mean(log_probs * batch.advantages, batch.response)


TARGETS = {"f_seq": f_seq, "f_token": f_token}
