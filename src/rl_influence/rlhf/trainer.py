"""One round of PPO on a language model, with the methods' choice of sequences. No files here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from rl_influence import seeding
from rl_influence.attribution import influence_scores
from rl_influence.ppo.records import TrainingError
from rl_influence.rlhf import rewards
from rl_influence.rlhf.detectors import reward_function
from rl_influence.rlhf.models import SequencePolicy, Sequences, distinct, load_policy
from rl_influence.rlhf.objective import TARGETS, SequencePPO, SequenceTarget
from rl_influence.rlhf.prompts import draw, read_prompts, repeat, tokenize
from rl_influence.rlhf.sampling import generate
from rl_influence.rlhf.settings import RunSpec
from rl_influence.selection import Selection, drop_most_negative, number_dropped


class Trainer:
    """The state of a run and its rounds.

    Attributes:
        round: rounds trained so far.
        beta: coefficient of the KL penalty.
        batch, validation, scores, selection: of the latest round.
    """

    def __init__(self, spec: RunSpec, reward: Callable[[list[str]], np.ndarray] | None = None):
        self.spec, self.round, self.beta = spec, 0, spec.ppo.kl_coef
        self.policy, self.tokenizer = load_policy(spec.model, spec.adapter, spec.seed, spec.generation.min_new_tokens)
        self.reward = reward or reward_function(spec.reward, spec.model.device)
        self.prompts = {
            part: tokenize(read_prompts(spec.prompts.source, part), self.tokenizer, spec.prompts)
            for part in ("train", "validation")
        }
        self.trained = [p for p in self.policy.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(self.trained, lr=spec.ppo.learning_rate, fused=True)
        self.batch = self.validation = self.scores = self.selection = None

    def train_round(self, clock: Callable[[str], Any]) -> dict[str, float]:
        """Generates, scores, selects, trains; the round's numbers.

        Raises:
            TrainingError: naming the round, for the first value that is not finite.
        """
        spec, k = self.spec, self.round
        with clock("sampling_s"):
            self.start_round()
        self.validation = self.scores = None
        if spec.needs_scores:
            with clock("validation_s"):
                self.validation = self.validation_set()
            with clock("influence_s"):
                self.scores = self.influence(self.batch, self.validation)
        with clock("optimise_s"):
            self.selection = select(spec, self.scores, seeding.generator(spec.seed, "selection", k))
            before = [p.detach().clone() for p in self.trained]
            numbers = self.update(seeding.generator(spec.seed, "minibatches", k))
        kl = float(rewards.sequence_kl(self.batch).mean())
        moved = [(p.detach(), q) for p, q in zip(self.trained, before, strict=True)]
        displacement = math.sqrt(sum(float(((p - q) ** 2).sum()) for p, q in moved))
        if not math.isfinite(displacement + float(self.batch.score.sum())):
            raise TrainingError(f"round {k + 1}: rewards or parameters are not finite")
        row = {
            "reward": float(self.batch.score.mean()),
            "reward_se": float(self.batch.score.std()) / math.sqrt(len(self.batch)),
            "kl": kl,
            "beta": self.beta,
            "length": float(self.batch.lengths.double().mean()),
            "distinct_2": distinct(self.batch, 2),
            "validation_sequences": 0 if self.validation is None or self.own_batch else len(self.validation),
            "sequences_kept": len(self.selection.kept),
            **numbers,
            "displacement": displacement,
        }
        self.beta = rewards.next_beta(self.beta, kl, spec.ppo)
        self.round += 1
        return row

    def start_round(self) -> None:
        """Draws the round's prompts and generates its batch."""
        spec, k = self.spec, self.round
        prompts = draw(self.prompts["train"], spec.ppo.batch_size, seeding.generator(spec.seed, "environment", k))
        self.batch = self.judge(prompts, seeding.generator(spec.seed, "actions", k), again=True)

    @property
    def rows(self) -> int:
        """Sequences that are generated together."""
        return max(1, self.spec.model.max_tokens // (self.spec.prompts.tokens[1] + self.spec.generation.new_tokens[1]))

    @property
    def own_batch(self) -> bool:
        """Whether the round's own batch stands in for a validation set."""
        return self.spec.selection.validation == "batch"

    def judge(self, prompts: list[list[int]], generator: np.random.Generator, *, again: bool = False) -> Sequences:
        """Generations of prompts with their scores, log-probabilities, values and advantages; again: see `judged`."""
        spec = self.spec
        sequences = generate(self.policy, prompts, spec.generation, generator, self.rows)
        sequences = rewards.judged(
            self.policy, sequences, self.tokenizer, self.reward, spec.model.max_tokens, again=again
        )
        return rewards.with_advantages(sequences, spec.ppo, self.beta)

    def validation_set(self) -> Sequences:
        """The round's validation sequences: the same prompts every round, generated by the current policy."""
        if self.own_batch:
            return self.batch
        prompts = repeat(self.prompts["validation"], self.spec.selection.validation)
        return self.judge(prompts, seeding.generator(self.spec.seed, "scoring", self.round))

    def influence(self, batch: Sequences, validation: Sequences) -> np.ndarray:
        """Influence of each sequence at the round's start, (n,)."""
        ppo, selection = self.spec.ppo, self.spec.selection
        objective = SequencePPO(ppo.clip_range, ppo.value_clip, ppo.value_coef if selection.value_loss else 0.0)
        target, tokens = SequenceTarget(validation, TARGETS[selection.target]), self.spec.model.max_tokens
        return (
            sequence_influence(self.policy, batch, target, objective, selection.backend, tokens).double().cpu().numpy()
        )

    def update(self, generator: np.random.Generator) -> dict[str, float]:
        """Adam on the selected sequences; means over the steps."""
        ppo, totals, updates, skipped = self.spec.ppo, np.zeros(3), 0, 0
        objective = SequencePPO(ppo.clip_range, ppo.value_clip, ppo.value_coef)
        for rows in self.minibatches(generator):
            part = self.batch[rows]
            terms, ratio = objective.with_ratio(self.policy, part)
            mask = part.response
            mean_ratio = float(ratio.detach()[mask].mean())
            if mean_ratio > ppo.max_ratio:
                skipped += 1
                continue
            loss = -terms.mean()
            if not torch.isfinite(loss):
                raise TrainingError(f"round {self.round + 1}, update {updates + 1}: the loss is {float(loss)}")
            self.optimizer.zero_grad()
            loss.backward()
            if ppo.max_grad_norm is not None:
                torch.nn.utils.clip_grad_norm_(self.trained, ppo.max_grad_norm)
            self.optimizer.step()
            outside = (ratio.detach()[mask] - 1).abs() > ppo.clip_range
            totals += float(loss.detach()), mean_ratio, float(outside.double().mean())
            updates += 1
        loss, ratio, clipped = (totals / max(updates, 1)).tolist()
        return {"updates": updates, "skipped": skipped, "loss": loss, "ratio": ratio, "clip_fraction": clipped}

    def minibatches(self, generator: np.random.Generator) -> Iterator[np.ndarray]:
        """Sequences of each step: epochs over the selected ones; a short last mini-batch trains too."""
        size = self.spec.ppo.minibatch_size
        for order in self.selection.epochs(self.spec.ppo.n_epochs, generator):
            yield from (order[i : i + size] for i in range(0, len(order), size))

    def state(self) -> dict[str, Any]:
        """All that the following rounds depend on."""
        state: dict[str, Any] = {"round": self.round, "beta": self.beta}
        for i, parameter in enumerate(self.trained):
            state[f"parameter/{i}"] = parameter.detach().cpu().numpy().copy()
            for name, value in self.optimizer.state.get(parameter, {}).items():
                state[f"adam/{i}/{name}"] = value.cpu().numpy().copy()
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from `state`."""
        self.round, self.beta = state["round"], state["beta"]
        with torch.no_grad():
            for i, parameter in enumerate(self.trained):
                parameter.copy_(torch.from_numpy(state[f"parameter/{i}"]))
                names = [name for name in state if name.startswith(f"adam/{i}/")]
                if names:
                    self.optimizer.state[parameter] = {
                        name.rpartition("/")[2]: torch.from_numpy(state[name].copy()).to(parameter.device)
                        for name in names
                    }


def sequence_influence(
    policy: SequencePolicy,
    batch: Sequences,
    target: SequenceTarget,
    objective: SequencePPO,
    backend: str,
    max_tokens: int,
) -> torch.Tensor:
    """`<grad target, grad objective_i>` over the adapter's parameters, (n,), in passes of up to `max_tokens` tokens."""
    width = max(batch.tokens.shape[1], target.sequences.tokens.shape[1])
    chunk_size = max(1, max_tokens // width)
    return influence_scores(policy, batch, target, objective=objective, backend=backend, chunk_size=chunk_size)


def select(spec: RunSpec, scores: np.ndarray | None, generator: np.random.Generator) -> Selection:
    """The sequences that train: all, those without negative influence, or as many drawn at random."""
    n = spec.ppo.batch_size
    kept = np.arange(n)
    if scores is not None and not np.isfinite(scores).all():
        raise TrainingError("influence scores are not finite")
    if spec.selection.kind == "influence":
        kept = drop_most_negative(scores, 1.0)
    elif spec.selection.kind == "random":
        kept = np.sort(generator.choice(n, n - number_dropped(scores, 1.0), replace=False))
    few = spec.selection.updates == "as_influence"
    return Selection(kept, n - number_dropped(scores, 1.0) if few else len(kept))
