"""What a policy writes for held-out prompts: reward, toxicity by several detectors, and whether it is still text."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rl_influence import seeding
from rl_influence.rlhf import rewards
from rl_influence.rlhf.detectors import load_detector
from rl_influence.rlhf.models import distinct
from rl_influence.rlhf.prompts import read_prompts, repeat, tokenize
from rl_influence.rlhf.sampling import generate, texts
from rl_influence.rlhf.trainer import Trainer

NAMES = {"tox_block", "hatesonar", "profanity"}


class Evaluator:
    """Held-out prompts and detectors of a run."""

    def __init__(self, trainer: Trainer):
        spec = trainer.spec
        self.trainer, self.config = trainer, spec.evaluation
        prompts = read_prompts(self.config.source or spec.prompts.source, "test")
        self.prompts = tokenize(prompts, trainer.tokenizer, spec.prompts)
        self.detectors: dict[str, Any] = {}
        for number, detector in enumerate(self.config.detectors):
            name = detector.name if detector.name in NAMES else f"classifier_{number}"
            self.detectors[name] = load_detector(detector, spec.model.device)

    def columns(self) -> list[str]:
        """Names of the numbers that an evaluation gives."""
        measured = [f"{name}{part}" for name in self.detectors for part in ("", "_se", "_over_half")]
        common = ("generations", "reward", "reward_se", "kl", "kl_se", "perplexity", "length")
        return [f"test_{name}" for name in (*common, "distinct_1", "distinct_2", "distinct_3", *measured)]

    def due(self, k: int) -> bool:
        """Whether round k is evaluated."""
        return k % self.config.every == 0 or k == self.trainer.spec.rounds

    def evaluate(self, k: int) -> dict[str, float]:
        """Generations of the policy after k rounds; the prompts are the same in every round."""
        trainer, spec = self.trainer, self.trainer.spec
        ends = k in (0, spec.rounds)
        number = self.config.end_generations if ends else self.config.generations
        generator = seeding.generator(spec.seed, "evaluation", k)
        sequences = generate(trainer.policy, repeat(self.prompts, number), spec.generation, generator, trainer.rows)
        sequences = rewards.judged(trainer.policy, sequences, trainer.tokenizer, trainer.reward, spec.model.max_tokens)
        kl = rewards.sequence_kl(sequences).double()
        lengths = sequences.lengths.double()
        surprise = -float(sequences.reference.double().sum() / lengths.sum())
        numbers = {
            "generations": number,
            **mean_and_se("reward", sequences.score.double().cpu().numpy()),
            **mean_and_se("kl", kl.cpu().numpy()),
            "perplexity": math.exp(min(surprise, 700)),
            "length": float(lengths.mean()),
            **{f"distinct_{n}": distinct(sequences, n) for n in (1, 2, 3)},
        }
        written = texts(sequences, trainer.tokenizer)
        for name, detector in self.detectors.items():
            toxicity = np.asarray(detector.toxicity(written))
            numbers |= mean_and_se(name, toxicity) | {f"{name}_over_half": float((toxicity > 0.5).mean())}
        return {f"test_{name}": value for name, value in numbers.items()}


def mean_and_se(name: str, values: np.ndarray) -> dict[str, float]:
    """A mean and its standard error, over generations."""
    return {name: float(values.mean()), f"{name}_se": float(values.std(ddof=1) / math.sqrt(len(values)))}
