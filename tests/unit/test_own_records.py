"""Records, targets and shares as users hold them: what can be meant is read alike, the rest is refused in a line."""

from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from rl_influence import (
    ClippedPPO,
    FReturn,
    PolicyGradient,
    ScoringError,
    Step,
    drop_most_negative,
    influence_scores,
    plot_scores,
    tracin_scores,
)
from rl_influence.rules import drop_by_advantage

N = 12
torch.manual_seed(0)
OBSERVATIONS, ACTIONS, ADVANTAGES = torch.randn(N, 4), torch.randint(2, (N,)), torch.randn(N)
HELD = {"observations": OBSERVATIONS, "actions": ACTIONS, "advantages": ADVANTAGES}
Named = namedtuple("Named", HELD)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.logits = nn.Linear(4, 2)

    def log_prob(self, observations, actions):
        return torch.distributions.Categorical(logits=self.logits(observations)).log_prob(actions)


POLICY = Policy()
EXPECTED = influence_scores(POLICY, SimpleNamespace(**HELD), FReturn(SimpleNamespace(**HELD)))


@dataclass(slots=True)
class Slots:
    observations: torch.Tensor
    actions: torch.Tensor
    advantages: torch.Tensor


class Properties:
    observations = property(lambda self: OBSERVATIONS)
    actions = property(lambda self: ACTIONS)
    advantages = property(lambda self: ADVANTAGES.numpy())


class OfTheClass:
    observations, actions, advantages = HELD.values()


RECORDS = {
    "mapping": HELD,
    "named tuple": Named(**HELD),
    "slots": Slots(**HELD),
    "properties": Properties(),
    "of the class": OfTheClass(),
    "lists": SimpleNamespace(**{name: values.tolist() for name, values in HELD.items()}),
    "one list": SimpleNamespace(**HELD | {"advantages": ADVANTAGES.tolist()}),
    "objects": SimpleNamespace(**HELD | {"advantages": ADVANTAGES.numpy().astype(object)}),
    "names beside them": SimpleNamespace(**HELD, names=np.array(["a"] * N), lengths=[3, 4]),
}


@pytest.mark.parametrize("kind", RECORDS)
def test_records_are_read_however_they_hold_their_arrays(kind):
    records = RECORDS[kind]
    torch.testing.assert_close(influence_scores(POLICY, records, FReturn(records)), EXPECTED)
    steps = [Step(np.arange(N))]
    summed = tracin_scores(POLICY, records, FReturn(records), steps, objective=PolicyGradient())
    torch.testing.assert_close(summed, EXPECTED)


def test_what_records_lack_is_named():
    target, records = FReturn(SimpleNamespace(**HELD)), SimpleNamespace(observations=OBSERVATIONS, actions=ACTIONS)
    by_key = SimpleNamespace(**HELD | {"observations": {"place": OBSERVATIONS}})
    for call, message in (
        (
            lambda: influence_scores(POLICY, records, target),
            "records have no advantages, which the objective reads; they have observations, actions",
        ),
        (
            lambda: tracin_scores(POLICY, HELD, target, [Step(np.arange(N))]),
            "records have no log_probs, which the objective reads; they have observations, actions, advantages",
        ),
        (lambda: FReturn(records), "records: SimpleNamespace has no advantages, as an array or tensor"),
        (lambda: FReturn({}), "records: dict has no observations, as an array or tensor"),
        (
            lambda: influence_scores(POLICY, {}, target),
            "records: dict holds no arrays or tensors, and is no sequence either",
        ),
        (
            lambda: influence_scores(POLICY, None, target),
            "records: NoneType holds no arrays or tensors, and is no sequence either",
        ),
        (
            lambda: influence_scores(POLICY, by_key, target),
            "observations are a dictionary; of Stable-Baselines3: SB3Policy(...).encoded(records)",
        ),
    ):
        with pytest.raises(ScoringError) as refusal:
            call()
        assert str(refusal.value) == message


def test_arguments_of_another_kind_are_named():
    target = FReturn(HELD)
    for call, message in (
        (lambda: influence_scores(POLICY, HELD, None), r"^target: FReturn\(records\), .* is needed, not a NoneType$"),
        (lambda: influence_scores(POLICY, HELD, FReturn), "is needed, not the class FReturn$"),
        (
            lambda: influence_scores(POLICY, HELD, target, objective=ClippedPPO),
            r"^objective: a function \(policy, batch\) -> \(n,\) is needed, such as ClippedPPO\(\), not the class",
        ),
        (lambda: influence_scores(POLICY, HELD, target, chunk_size=1.5), "^chunk_size is 1.5; at least 1, or None"),
        (lambda: tracin_scores(POLICY, HELD, target, [np.arange(N)]), r"^step 0: a Step\(indices\) is needed, not a n"),
    ):
        with pytest.raises(ScoringError, match=message):
            call()


@pytest.mark.parametrize("value", ["0.5", True, None, [0.5], 0.5j, -0.1, float("nan"), 50])
def test_a_fraction_is_a_number(value):
    hint = r"; did you mean 0.5\?" if value == 50 else ""
    ones = np.ones(N)
    for door in (lambda: drop_most_negative(EXPECTED, value), lambda: drop_by_advantage(ones, -ones, value, by="gap")):
        with pytest.raises(ValueError, match=rf"^fraction = .*: a fraction in \[0, 1\] is needed{hint}$"):
            door()


def test_scores_are_filtered_and_drawn_as_arrays_and_as_tensors_of_any_type():
    scores = torch.tensor([-1.0, 2.0, -3.0, 0.5], requires_grad=True)
    for given in (scores, scores.bfloat16(), scores.detach().numpy(), scores.tolist()):
        np.testing.assert_array_equal(drop_most_negative(given, 0.5), [0, 1, 3])
        plot_scores(SimpleNamespace(advantages=scores), given)


def test_dropped_records_are_crossed_out_by_index_and_by_mask():
    mask = np.ones(N, bool)
    mask[3] = False
    for kept in (mask, np.flatnonzero(mask), np.flatnonzero(mask).tolist()):
        against = plot_scores(SimpleNamespace(**HELD), EXPECTED, kept=kept).axes[1]
        (crosses,) = [marks for marks in against.collections if marks.get_label() == "dropped"]
        np.testing.assert_allclose(crosses.get_offsets(), [[ADVANTAGES[3], EXPECTED[3]]], rtol=1e-6)
        assert against.get_legend().get_title().get_text() == "1 record"
    for wrong in ([N], mask[:3], [[1]]):
        with pytest.raises(ValueError, match="^kept: indices of the 12 records are needed, or a mask of them$"):
            plot_scores(SimpleNamespace(**HELD), EXPECTED, kept=wrong)


class Attention(nn.Module):
    """Whose layer torch computes by kernels without a forward mode, once it is in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Linear(1, 8), nn.Linear(8, 2)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)

    def log_prob(self, observations, actions):
        features = self.layer(self.enter(observations[..., None]))[:, 0]
        return torch.distributions.Categorical(logits=self.leave(features)).log_prob(actions)


def test_transformers_in_evaluation_mode_are_scored_forwards():
    policy, enabled = Attention().eval(), torch.backends.mha.get_fastpath_enabled()
    slow = influence_scores(policy, HELD, FReturn(HELD), backend="per_record")
    torch.testing.assert_close(influence_scores(policy, HELD, FReturn(HELD)), slow, rtol=1e-3, atol=1e-5)
    assert torch.backends.mha.get_fastpath_enabled() is enabled and float(slow.abs().max()) > 0
