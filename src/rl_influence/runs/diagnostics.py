"""What every PPO shows of a round: how far the policy moved, how steady the updates were, how well the critic fits.

`diagnostics.csv` has one row for each round that trained, from 1 on; a field is empty where there is nothing to say.

    episodes             episodes that ended in the round
    train_return         their mean undiscounted return
    train_length         their mean length in environment steps
    approx_kl            mean of (r - 1) - log r over the buffer, r = pi_after(a|s) / pi_before(a|s); nats
    clip_fraction        share of the buffer's records with |r - 1| > clip_range after the round
    entropy              mean over the buffer of the entropy of the policy that collected it; nats
    explained_variance   1 - var(returns - values) / var(returns), of the critic that collected the buffer
    policy_loss, value_loss, grad_norm    means over the round's updates; the norm before it is clipped
    grad_clipped_share   share of the updates whose gradient was clipped
    displacement         L2 norm of what the round moved the parameters that the policy loss reaches
    value_displacement   the same for those that the value loss reaches; a shared feature extractor is in both
    negative_share       share of the records with negative influence; empty for methods that compute none
    influence_q05 ...    quantiles of the records' influence
    step_scale           factor of the learning rate; only of methods with matched displacement, see `displacement`
    displacement_target  how far the other method's round would have moved the actor; only of these, too

Five significant digits. Nothing here draws a random number or changes one of the run's, and its time is in no column
of `timing.csv`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rl_influence.ppo.inference import Inference
from rl_influence.ppo.learner import Learner, Step
from rl_influence.ppo.records import Records, distinct_observations

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class Watch:
    """The diagnostics of a learner's rounds: told of each buffer and each update, asked when the round has trained."""

    def __init__(self, learner: Learner):
        self.learner = learner
        self._inference = Inference(learner.policy)  # for `outputs`, which reads the parameters at each call

    def begin(self, records: Records) -> None:
        """To be called before the round's first update."""
        self.records = records
        self._before = self.learner.parameters.vector.copy()
        self._distinct, self._rows = distinct_observations(records.observations)
        self._updates: list[tuple[float, float, float]] = []
        with torch.no_grad():
            self._entropy = float(self.learner.policy.entropy_of(self._outputs()).double().mean())

    def note(self, step: Step) -> None:
        """To be told of every update."""
        self._updates.append((step.policy_loss, step.value_loss, step.gradient_norm))

    @property
    def updates(self) -> int:
        """How many updates there were."""
        return len(self._updates)

    def row(
        self, episodes: Sequence[tuple[float, int]], scores: np.ndarray | None, matched: dict[str, float]
    ) -> dict[str, Any]:
        """The columns of `diagnostics.csv` but `round`.

        Args:
            episodes: (return, length) of those that ended in the round.
            scores: (n,) influence of each record, if the method computes it.
            matched: `step_scale` and `displacement_target`, if the round has them.
        """
        returns, lengths = np.array(episodes, dtype=np.float64).reshape(-1, 2).T
        losses = np.array(self._updates).reshape(-1, 3)
        policy_loss, value_loss, grad_norm = _means(losses)
        limit = self.learner.config.max_grad_norm
        clipped = losses[:, 2] > (np.inf if limit is None else limit)
        found = {"episodes": len(episodes)}
        found |= zip(("train_return", "train_length"), _means(np.stack([returns, lengths], axis=1)), strict=True)
        found |= self._change_of_policy() | {"entropy": self._entropy, "explained_variance": self._explained()}
        found |= {"policy_loss": policy_loss, "value_loss": value_loss, "grad_norm": grad_norm}
        found |= {"grad_clipped_share": clipped.mean() if self.updates else None}
        found |= self.displacements() | _of_influence(scores)
        found |= {"step_scale": None, "displacement_target": None} | matched
        return {name: "" if x is None else x if name == "episodes" else float(f"{x:.5g}") for name, x in found.items()}

    def displacements(self) -> dict[str, float]:
        """How far the parameters have moved since the buffer was collected: those of the actor and of the critic."""
        moved = (self.learner.parameters.vector.astype(np.float64) - self._before) ** 2
        return {name: float(np.sqrt(moved[reached].sum())) for name, reached in self._reached.items()}

    @functools.cached_property
    def _reached(self) -> dict[str, np.ndarray]:
        """Which parameters, as one flat vector, the policy and the value depend on, (p,) bool."""
        policy, first = self.learner.policy, self.records[:1]
        observation = torch.from_numpy(first.observations)
        outcomes = {
            "displacement": policy.log_prob(observation, torch.from_numpy(first.actions)),
            "value_displacement": policy.values(observation),
        }
        parameters = list(policy.parameters())
        found = {}
        for name, outcome in outcomes.items():
            gradients = torch.autograd.grad(outcome.sum(), parameters, allow_unused=True)
            found[name] = np.repeat([gradient is not None for gradient in gradients], [p.numel() for p in parameters])
        return found

    def _change_of_policy(self) -> dict[str, float]:
        with torch.no_grad():
            after = self.learner.policy.log_prob_of(self._outputs(), torch.from_numpy(self.records.actions)).numpy()
        log_ratio = after.astype(np.float64) - self.records.log_probs
        with np.errstate(over="ignore"):  # a policy that has gone far off: infinite
            change = np.expm1(log_ratio)
        clip_fraction = (np.abs(change) > self.learner.config.clip_range).mean()
        return {"approx_kl": (change - log_ratio).mean(), "clip_fraction": clip_fraction}

    def _explained(self) -> float | None:
        returns = self.records.returns.astype(np.float64)
        return 1 - (returns - self.records.values).var() / returns.var() if returns.var() > 0 else None

    def _outputs(self) -> torch.Tensor:
        """The distribution's parameters for each record, (n, k)."""
        return torch.from_numpy(self._inference.outputs(self._distinct)[self._rows])


def _of_influence(scores: np.ndarray | None) -> dict[str, float | None]:
    names = [f"influence_q{round(100 * q):02d}" for q in QUANTILES]
    if scores is None:
        return dict.fromkeys(["negative_share", *names])
    quantiles = np.quantile(scores.astype(np.float64), QUANTILES)
    return {"negative_share": (scores < 0).mean()} | dict(zip(names, quantiles, strict=True))


def _means(columns: np.ndarray) -> list[float | None]:
    return list(columns.mean(0)) if len(columns) else [None] * columns.shape[1]
