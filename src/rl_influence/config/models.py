"""Closed models of the configuration: environments, methods, a study, and one resolved `RunSpec` per run.

Every model forbids unknown keys. A `RunSpec` is fully resolved: nothing that training reads depends on anything but it.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from rl_influence.config.loading import IDENTIFIER, usable
from rl_influence.config.seeds import Seed, Seeds
from rl_influence.rules import RULES

Identifier = Annotated[str, Field(pattern=IDENTIFIER), AfterValidator(usable)]
Text = Annotated[str, Field(min_length=1)]
Percent = Annotated[float, Field(ge=1, le=100)]  # below 1 only a fraction can be meant
Count = Annotated[int, Field(ge=1, le=10**9)]
Episodes = Annotated[int, Field(ge=2, le=10**9)]  # one alone has no standard error


def added(default: Any, **arguments: Any) -> Any:
    """A field that came after results were committed: where it is at its default, it enters no fingerprint."""
    return Field(default, exclude_if=lambda value: value == default, **arguments)


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default")  # only a value that is written down counts


class Closed(BaseModel):
    """Refuses unknown keys, NaN and infinity, and what pydantic would take for something else."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _as_written(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, (set, frozenset)):  # its order changes from process to process
            raise ValueError("expected a list")
        booleans = cls.model_fields[info.field_name].annotation is bool
        if not booleans and any(isinstance(x, bool) for x in (value if isinstance(value, (list, tuple)) else [value])):
            raise ValueError("expected no boolean (true, false, yes, no, on, off)")
        return value


def _in_percent(expected: str) -> Any:
    """One message for any other `drop_percent`, with the percentage that a fraction must have meant."""

    def validate(cls: type[BaseModel], value: Any, handler: Any) -> Any:
        try:
            return handler(value)
        except ValidationError:
            hint = f"; did you mean {100 * value:g}?" if isinstance(value, float) and 0 < value < 1 else ""
            raise ValueError(f"expected {expected}{hint}") from None

    return field_validator("drop_percent", mode="wrap")(validate)


class PPOConfig(Closed):
    """Hyperparameters of PPO: Stable-Baselines3's defaults with the paper's optimiser (section 5 and appendix B)."""

    n_steps: Count = Field(2048, description="records collected per round, from one environment")
    batch_size: Count = Field(64, description="records per mini-batch")
    n_epochs: Count = Field(10, description="passes over the kept records per round")
    gamma: float = Field(0.99, ge=0, le=1, description="discount factor")
    gae_lambda: float = Field(0.95, ge=0, le=1, description="GAE's lambda")
    clip_range: float = Field(0.2, gt=0, description="clip range of the probability ratio")
    entropy_coef: float = Field(0.0, ge=0, description="weight of the entropy bonus")
    value_coef: float = Field(0.5, ge=0, description="weight of the value loss")
    max_grad_norm: float | None = Field(0.5, gt=0, description="clip range of the gradient's global norm; null: none")
    normalize_advantage: bool = Field(True, description="normalise advantages within each mini-batch")
    optimizer: Literal["sgd", "adam", "rmsprop"] = Field(
        "sgd", description="SGD without momentum; Adam as in Stable-Baselines3's PPO, RMSprop as in its A2C"
    )
    learning_rate: float = Field(5e-3, gt=0, le=1000, description="step size")
    drop_short_minibatch: bool = Field(
        True, description="leave out an epoch's short last mini-batch, unless it is the epoch's only one"
    )

    objective: Identifier = added("clipped_ppo", description="clipped_ppo, policy_gradient (A2C), or one's own")

    @model_validator(mode="after")
    def _batch_fits(self) -> PPOConfig:
        if self.batch_size > self.n_steps:
            raise ValueError(f"batch_size {self.batch_size} is larger than the buffer (n_steps {self.n_steps})")
        return self


class PPOChanges(PPOConfig):
    """Hyperparameters that a block of a study changes; a key that is left out is the environment's."""

    model_config = ConfigDict(json_schema_extra=lambda schema: [*map(_without_default, schema["properties"].values())])

    @model_validator(mode="after")
    def _batch_fits(self) -> PPOChanges:
        return self  # what is changed and what is not are checked together, in the run's specification

    @model_serializer
    def _changes(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}


class EvaluationConfig(Closed):
    """How a policy's test return (undiscounted, stochastic policy) is measured."""

    kind: Literal["exact", "batched", "episodes"] = Field(
        description="exact: dynamic program over the model; batched: many copies at once; episodes: one by one"
    )
    episodes: Episodes = Field(100, description="test episodes per evaluation (not used by kind exact)")
    every: Count = Field(1, description="evaluate every this many rounds; round 0 and the last always")
    max_steps: Count = Field(100_000, description="steps after which an episode counts as unfinished")


class EnvironmentConfig(Closed):
    """A task, the network for it and the settings that the paper gives it."""

    id: Identifier = Field(description="the file's name without .yaml")
    label: Text = Field(description="name in figures and tables")
    gym_id: Text = Field(description="id in gymnasium's registry")
    kwargs: dict[str, JsonValue] = Field(default_factory=dict, description="arguments of gymnasium.make")
    package: str = Field(
        "gymnasium",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$",
        description="Python package or module that registers gym_id",
    )
    wrappers: tuple[Literal["image_only", "flatten", "atari"], ...] = Field((), description="applied in this order")
    network: Identifier = Field("mlp", description="mlp, minigrid_cnn, nature_cnn, or one's own, see docs/extending.md")
    engine: Literal["gymnasium", "envpool"] = Field("gymnasium", description="simulator that training samples from")
    evaluation_engine: Literal["gymnasium", "envpool"] = Field("gymnasium", description="simulator of test episodes")
    rounds: Count = Field(description="training rounds K; curves have K + 1 points")
    drop_percent: Percent = Field(description="the paper's p for this environment, in percent")
    ppo: PPOConfig = Field(default_factory=PPOConfig, description="hyperparameters that differ from the defaults")
    evaluation: EvaluationConfig = Field(description="how test returns are measured")

    _one_message = _in_percent("a percentage from 1 to 100")

    @field_validator("kwargs")
    @classmethod
    def _can_be_recorded(cls, value: dict) -> dict:
        json.dumps(value)  # a ValueError for an integer of thousands of digits
        for key in sorted({"id", "render_mode"} & {*value}):
            raise ValueError(f"{key} is not for an environment's file")
        return value


EXACT_HEURISTICS = tuple(kind for kind, rule in RULES.items() if rule.needs == "exact_advantages")


def _known_kind(kind: str) -> str:
    if kind not in RULES:
        raise ValueError(f"expected {', '.join(map(repr, list(RULES)[:-1]))} or {list(RULES)[-1]!r}")
    return kind


class SelectionConfig(Closed):
    """Which records of a round's buffer train (section 5 and appendix B of the paper; each kind: docs/method.md)."""

    kind: Annotated[str, AfterValidator(_known_kind)] = Field(
        json_schema_extra=lambda schema: schema.update(enum=list(RULES)),
        description="all: none is dropped; influence: IIF; random: as many as IIF at its p, at random; advantage_h1, "
        "advantage_h2: by estimated against Monte-Carlo advantages, or, with _exact, against true ones, which need an "
        "exact model; td_error: all, drawn by priority; difficulty: as many as IIF, of highest and lowest reward",
    )
    drop_percent: Percent | Literal["chosen"] | None = Field(
        None, description="p in percent, or `chosen`: the environment's own"
    )
    priority_exponent: float | None = Field(
        None, ge=0, description="td_error only: sampling probability ~ priority to this power"
    )
    arguments: dict[str, float] = added({}, description="of rules of one's own: name and number of what they take")
    updates: Literal["own", "as_all", "as_influence"] = Field(
        "own", description="updates per epoch: what its records give (own), or as many as PPO or as IIF takes"
    )
    displacement: Literal["own", "as_all", "as_influence"] = added(
        "own",
        description="learning rate of a round: the method's (own), or scaled so that the round moves the actor's "
        "parameters as far (L2 norm, within 1 %) as PPO's or IIF's round from there would",
    )

    _one_message = _in_percent("a percentage from 1 to 100, or chosen")

    @model_validator(mode="after")
    def _arguments_fit(self) -> SelectionConfig:
        rule = RULES[self.kind]
        asks = {key for key in ("updates", "displacement") if getattr(self, key) == "as_influence"}
        if rule.drops != (self.drop_percent is not None) and not asks:
            raise ValueError(f"selection {self.kind} {'needs' if rule.drops else 'takes no'} drop_percent")
        if asks and self.drop_percent is None:
            raise ValueError(f"{min(asks)} as_influence needs drop_percent")
        for name in sorted({*rule.arguments} ^ {*self.rule_arguments}):
            raise ValueError(f"selection {self.kind} {'needs' if name in rule.arguments else 'takes no'} {name}")
        if rule.every_epoch and self.displacement != "own":
            raise ValueError(f"displacement {self.displacement}: selection {self.kind} is made anew every epoch")
        if self.updates == rule.updates != "own":
            raise ValueError(f"updates {self.updates} is what selection {self.kind} does anyway; leave it out")
        if self.updates == "own" and self.displacement == f"as_{self.kind}":
            raise ValueError(f"displacement as_{self.kind} is what selection {self.kind} does anyway; leave it out")
        return self

    def matched(self) -> SelectionConfig | None:
        """The selection whose round sets how far a round of this one moves the actor; None: its own."""
        return {
            "own": lambda: None,
            "as_all": lambda: SelectionConfig(kind="all"),
            "as_influence": lambda: SelectionConfig(kind="influence", drop_percent=self.drop_percent),
        }[self.displacement]()

    @property
    def rule_arguments(self) -> dict[str, float]:
        """What the rule takes beside the buffer."""
        known = {} if self.priority_exponent is None else {"priority_exponent": self.priority_exponent}
        return known | self.arguments


class PPOOverride(PPOChanges):
    """What a method changes of PPO; a key that is left out is the environment's."""

    learning_rate_factor: float = Field(
        1,
        gt=0,
        le=1000,
        description="the environment's learning rate is multiplied by it",
    )

    @field_validator("learning_rate_factor")
    @classmethod
    def _changes_something(cls, value: float) -> float:
        if value == 1:
            raise ValueError("1 changes nothing; leave it out")
        return value

    def applied(self, ppo: dict[str, Any]) -> dict[str, Any]:
        """An environment's hyperparameters with the method's changes."""
        changes = self.model_dump(exclude_unset=True)
        factor = changes.pop("learning_rate_factor", 1)
        changed = ppo | changes
        return changed | {"learning_rate": changed["learning_rate"] * factor}


class MethodConfig(Closed):
    """How a method departs from standard PPO."""

    label: Text = Field(description="name in figures and tables")
    selection: SelectionConfig = Field(description="which records train")
    ppo: PPOOverride = Field(default_factory=PPOOverride, description="what the method changes of PPO")


def _no_repeats(value: tuple) -> tuple:
    repeated = sorted({x for x in value if value.count(x) > 1})
    if repeated:
        raise ValueError(f"repeated: {', '.join(map(str, repeated))}")
    return value


class GridBlock(Closed):
    """environments x methods x seeds, all combined, with optional overrides."""

    environments: tuple[Identifier, ...] = Field(min_length=1, description="ids of files in environments/")
    methods: tuple[Identifier, ...] = Field(min_length=1, description="ids in methods.yaml")
    seeds: Seeds = Field(min_length=1, description="one run each; 0..9 is short for 0, 1, ..., 9")
    rounds: Count | None = Field(None, description="instead of the environment's rounds")
    evaluation_episodes: Episodes | None = Field(None, description="instead of the environment's episodes")
    evaluation_every: Count | None = Field(None, description="instead of the environment's every")
    ppo: PPOChanges = Field(default_factory=PPOChanges, description="instead of the environment's hyperparameters")

    _no_repeats = field_validator("environments", "methods", "seeds")(_no_repeats)


class AnalysisBlock(Closed):
    """An analysis of single rounds of some of the grid's runs. What a run is does not depend on it."""

    analysis: Identifier = Field(description="what is computed, see docs/method.md")
    environments: tuple[Identifier, ...] = Field(min_length=1, description="ids of files in environments/")
    methods: tuple[Identifier, ...] = Field(("ppo",), min_length=1, description="ids in methods.yaml")
    seeds: Seeds = Field(min_length=1, description="one run each; 0..9 is short for 0, 1, ..., 9")
    rounds: tuple[Annotated[int, Field(ge=0, le=10**9)], ...] | Literal["all"] = Field(
        description="rounds, 0 being the first, which the untrained policy collects; or `all`"
    )

    _no_repeats = field_validator("environments", "methods", "seeds")(_no_repeats)

    @field_validator("rounds", mode="wrap")
    @classmethod
    def _some_rounds(cls, value: Any, handler: Any) -> Any:
        try:
            rounds = handler(value)
        except ValidationError:
            rounds = ()
        if not rounds or (rounds != "all" and len(set(rounds)) < len(rounds)):
            raise ValueError("expected a list of different rounds from 0 on, or all")
        return rounds


class StudyConfig(Closed):
    """Which runs, and which figures and tables are made of them."""

    study: Identifier = Field(description="name of the results folder")
    grid: tuple[GridBlock, ...] = Field(min_length=1, description="blocks of runs; no run may be in two of them")
    analyses: tuple[AnalysisBlock, ...] = Field((), description="analyses of single rounds of these runs")
    timings: tuple[Identifier, ...] = Field(
        (), description="environments in which rounds of PPO and IIF are timed in turn, see docs/method.md"
    )
    figures: tuple[Identifier, ...] = Field((), description="figures to draw, see `rl_influence/figures/`")
    tables: tuple[Identifier, ...] = Field((), description="tables to print (LaTeX); as CSV all are written")


class RunSpec(Closed):
    """Everything that decides a run's numbers. Its fingerprint (see `provenance`) names the run's folder."""

    environment: EnvironmentConfig
    selection: SelectionConfig
    ppo: PPOConfig
    rounds: Count
    evaluation: EvaluationConfig
    seed: Seed

    @model_validator(mode="after")
    def _has_a_model(self) -> RunSpec:
        if self.selection.kind in EXACT_HEURISTICS and self.evaluation.kind != "exact":
            raise ValueError(
                f"selection {self.selection.kind} needs an environment with an exact model (evaluation kind exact, "
                f"and not {self.evaluation.kind})"
            )
        if self.selection.kind in EXACT_HEURISTICS and self.ppo.gamma == 1:
            raise ValueError(f"selection {self.selection.kind} needs ppo.gamma below 1: its task goes on for ever")
        return self

    @model_validator(mode="after")
    def _resolved(self) -> RunSpec:
        if self.selection.drop_percent == "chosen":
            raise ValueError("drop_percent chosen is not resolved, see Config.resolve")
        return self

    @property
    def drop_fraction(self) -> float:
        """p as a fraction; 0 where the method has none."""
        return (self.selection.drop_percent or 0.0) / 100

    def result_key(self) -> dict[str, Any]:
        """What the fingerprint covers: all but display names, values that are resolved elsewhere, and keys that were
        `added` and are at their default."""
        data = self.model_dump(mode="json")
        for unused in ("label", "ppo", "rounds", "drop_percent", "evaluation"):
            del data["environment"][unused]
        return data


class Run(Closed):
    """A run's place in a study."""

    environment: Identifier
    method: Identifier
    seed: Seed
    spec: RunSpec

    @property
    def name(self) -> str:
        """`frozenlake iif_p50 seed 3`."""
        return f"{self.environment} {self.method} seed {self.seed}"


class Analysis(Closed):
    """An analysis of one run of a study.

    Attributes:
        rounds: the analysed rounds, rising.
    """

    name: Identifier
    run: Run
    rounds: tuple[int, ...]
