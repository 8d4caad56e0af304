"""Typed, closed configuration: YAML files -> environments, methods, a study's grid -> one resolved `RunSpec` per run.

Every model forbids unknown keys. Whatever is wrong is reported as a `ConfigError`, one line that names the file, the key,
the value and the choices. A `RunSpec` is fully resolved: nothing that training reads depends on anything but it.
"""

from __future__ import annotations

import difflib
import importlib.util
import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

Model = TypeVar("Model", bound=BaseModel)
CATALOGUE = Path("config")
IDENTIFIER = r"^[a-z][a-z0-9_]{0,63}$"
Identifier = Annotated[str, Field(pattern=IDENTIFIER)]
Percent = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class ConfigError(ValueError):
    """A configuration the user can mend; its message is one line."""


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PPOConfig(Closed):
    """Hyperparameters of PPO: Stable-Baselines3's defaults with the paper's optimiser (section 5 and appendix B)."""

    n_steps: int = Field(2048, ge=1, description="records collected per round, from one environment")
    batch_size: int = Field(64, ge=1, description="records per mini-batch")
    n_epochs: int = Field(10, ge=1, description="passes over the kept records per round")
    gamma: float = Field(0.99, ge=0, le=1, description="discount factor")
    gae_lambda: float = Field(0.95, ge=0, le=1, description="GAE's lambda")
    clip_range: float = Field(0.2, gt=0, allow_inf_nan=False, description="clip range of the probability ratio")
    entropy_coef: float = Field(0.0, ge=0, allow_inf_nan=False, description="weight of the entropy bonus")
    value_coef: float = Field(0.5, ge=0, allow_inf_nan=False, description="weight of the value loss")
    max_grad_norm: float | None = Field(0.5, gt=0, description="global gradient-norm clipping; null: none")
    normalize_advantage: bool = Field(True, description="normalise advantages within each mini-batch")
    optimizer: Literal["sgd", "adam"] = Field("sgd", description="SGD without momentum, or Adam (eps 1e-5, as in SB3)")
    learning_rate: float = Field(5e-3, gt=0, allow_inf_nan=False, description="step size")
    drop_short_minibatch: bool = Field(
        True, description="leave out an epoch's short last mini-batch, unless it is the epoch's only one"
    )

    @model_validator(mode="after")
    def _batch_fits(self) -> PPOConfig:
        if self.batch_size > self.n_steps:
            raise ValueError(f"batch_size {self.batch_size} is larger than the buffer (n_steps {self.n_steps})")
        return self


class EvaluationConfig(Closed):
    """How a policy's test return (undiscounted, stochastic policy) is measured."""

    kind: Literal["exact", "batched", "episodes"] = Field(
        description="exact: dynamic program over the environment's tables; batched: many copies at once; episodes: one by one"
    )
    episodes: int = Field(100, ge=2, description="test episodes per evaluation (not used by kind exact)")
    every: int = Field(1, ge=1, description="evaluate every this many rounds; round 0 and the last always")
    max_steps: int = Field(100_000, ge=1, description="steps after which an episode counts as unfinished")


class EnvironmentConfig(Closed):
    """One file `config/environments/<id>.yaml`."""

    id: Identifier
    label: str = Field(description="name in figures and tables")
    gym_id: str = Field(description="id in gymnasium's registry")
    kwargs: dict[str, Any] = Field(default_factory=dict, description="arguments of gymnasium.make")
    package: str = Field("gymnasium", description="Python package that registers gym_id")
    wrappers: tuple[Literal["image_only", "flatten", "atari"], ...] = Field((), description="applied in this order")
    network: Literal["mlp", "minigrid_cnn", "nature_cnn"] = "mlp"
    engine: Literal["gymnasium", "envpool"] = Field("gymnasium", description="simulator that training samples from")
    evaluation_engine: Literal["gymnasium", "envpool"] = Field("gymnasium", description="simulator of the test episodes")
    rounds: int = Field(ge=1, description="training rounds K; curves have K + 1 points")
    drop_percent: Percent = Field(description="the paper's p for this environment, in percent")
    ppo: PPOConfig = PPOConfig()
    evaluation: EvaluationConfig


class SelectionConfig(Closed):
    """Which records of a round's buffer train (section 5 and appendix B of the paper; facts of each kind in docs/method.md)."""

    kind: Literal["all", "influence", "random", "advantage_h1", "advantage_h2", "td_error", "difficulty"]
    drop_percent: Percent | Literal["chosen"] | None = Field(
        None, description="p in percent, or `chosen`: the environment's own"
    )
    priority_exponent: float | None = Field(None, ge=0, allow_inf_nan=False, description="td_error only")
    updates: Literal["own", "as_all", "as_influence"] = Field(
        "own", description="optimisation steps per epoch: what its records give, or as many as PPO / as IIF takes"
    )

    @model_validator(mode="after")
    def _arguments_fit(self) -> SelectionConfig:
        drops = self.kind in ("influence", "random", "advantage_h1", "advantage_h2", "difficulty")
        if drops != (self.drop_percent is not None) and self.updates != "as_influence":
            raise ValueError(f"selection {self.kind} {'needs' if drops else 'takes no'} drop_percent")
        if self.updates == "as_influence" and self.drop_percent is None:
            raise ValueError("updates as_influence needs drop_percent")
        if (self.kind == "td_error") != (self.priority_exponent is not None):
            raise ValueError("priority_exponent belongs to selection td_error, and only to it")
        return self


class PPOOverride(Closed):
    """What a method may change of PPO."""

    max_grad_norm: float | None = Field(0.5, gt=0)


class MethodConfig(Closed):
    """One entry of `config/methods.yaml`."""

    label: str = Field(description="name in figures and tables")
    selection: SelectionConfig
    ppo: PPOOverride = PPOOverride()


class GridBlock(Closed):
    """environments x methods x seeds, with optional overrides."""

    environments: tuple[Identifier, ...] = Field(min_length=1)
    methods: tuple[Identifier, ...] = Field(min_length=1)
    seeds: tuple[Seed, ...] = Field(min_length=1)
    rounds: int | None = Field(None, ge=1, description="instead of the environment's")
    evaluation_episodes: int | None = Field(None, ge=2, description="instead of the environment's")
    evaluation_every: int | None = Field(None, ge=1, description="instead of the environment's")

    @field_validator("environments", "methods", "seeds")
    @classmethod
    def _no_repeats(cls, value: tuple) -> tuple:
        repeated = sorted({x for x in value if value.count(x) > 1})
        if repeated:
            raise ValueError(f"repeated: {', '.join(map(str, repeated))}")
        return value


class StudyConfig(Closed):
    """A study's file, `config/<name>.yaml`: which runs, which figures and tables."""

    study: Identifier = Field(description="name of the results folder")
    grid: tuple[GridBlock, ...] = Field(min_length=1)
    figures: tuple[Identifier, ...] = Field((), description="figures to draw")
    tables: tuple[Identifier, ...] = Field((), description="tables to write")


class RunSpec(Closed):
    """Everything that decides a run's numbers. Its fingerprint (see `provenance`) names the run's folder."""

    environment: EnvironmentConfig
    selection: SelectionConfig
    ppo: PPOConfig
    rounds: int = Field(ge=1)
    evaluation: EvaluationConfig
    seed: Seed

    @property
    def drop_fraction(self) -> float:
        """p as a fraction; 0 where the method has none."""
        return (self.selection.drop_percent or 0.0) / 100

    def result_key(self) -> dict[str, Any]:
        """What the fingerprint covers: all but display names and values that are resolved elsewhere."""
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


class Config:
    """A study together with the catalogue of environments and methods.

    Args:
        study: the study's YAML file, or its content (as Snakemake has merged it).
        folder: holds `methods.yaml` and `environments/`; default: the file's folder.
    """

    def __init__(self, study: str | Path | dict[str, Any], folder: str | Path | None = None):
        data = study if isinstance(study, dict) else read_yaml(study)
        self.name = "config" if isinstance(study, dict) else str(study)
        self.folder = folder = Path(folder or (CATALOGUE if isinstance(study, dict) else Path(study).parent))
        self.study_config = parse(StudyConfig, data, self.name)
        if not (folder / "methods.yaml").exists():
            raise ConfigError(f"{folder}: holds no methods.yaml; it and environments/ lie beside the study's file")
        self.methods = load_methods(folder / "methods.yaml")
        self.environments = load_environments(folder / "environments")
        self.runs = self._runs()

    @property
    def study(self) -> str:
        return self.study_config.study

    def method(self, method: str) -> MethodConfig:
        return self.methods[choose("method", method, self.methods)]

    def environment(self, environment: str) -> EnvironmentConfig:
        return self.environments[choose("environment", environment, self.environments)]

    def _runs(self) -> tuple[Run, ...]:
        """Every run of the grid, in the grid's order."""
        runs: dict[tuple[str, str, int], Run] = {}
        for number, block in enumerate(self.study_config.grid, start=1):
            for environment in block.environments:
                for method in block.methods:
                    for seed in block.seeds:
                        key = (environment, method, seed)
                        if key in runs:
                            raise ConfigError(
                                f"{self.name}: grid block {number} repeats environment {environment}, "
                                f"method {method}, seed {seed}"
                            )
                        spec = self.resolve(environment, method, seed, block)
                        runs[key] = Run(environment=environment, method=method, seed=seed, spec=spec)
        return tuple(runs.values())

    def resolve(self, environment: str, method: str, seed: int, block: GridBlock | None = None) -> RunSpec:
        """One run's specification; `block` brings the study's overrides."""
        env, meth = self.environment(environment), self.method(method)
        selection = meth.selection
        if selection.drop_percent == "chosen":
            selection = selection.model_copy(update={"drop_percent": env.drop_percent})
        overrides = meth.ppo.model_dump(exclude_unset=True)
        evaluation = env.evaluation.model_dump()
        if block and block.evaluation_episodes:
            evaluation["episodes"] = block.evaluation_episodes
        if block and block.evaluation_every:
            evaluation["every"] = block.evaluation_every
        return parse(
            RunSpec,
            {
                "environment": env.model_dump(),
                "selection": selection.model_dump(),
                "ppo": env.ppo.model_dump() | overrides,
                "rounds": (block and block.rounds) or env.rounds,
                "evaluation": evaluation,
                "seed": seed,
            },
            f"{environment}/{method}/seed {seed}",
        )


def load_run_spec(*, environment: str, method: str, seed: int, config: str | Path = "config/config.yaml") -> RunSpec:
    """The specification of one run.

    Overrides of the study apply where the run is part of its grid; another environment, method or seed of the catalogue
    takes the environment's own settings.

    Raises:
        ConfigError: for anything wrong in the files or the arguments.
    """
    loaded = Config(config)
    loaded.environment(environment)
    loaded.method(method)
    if isinstance(seed, bool) or int(seed) != float(seed) or int(seed) < 0:
        raise ConfigError(f"seed {seed!r} is not a whole number of at least 0")
    for run in loaded.runs:
        if (run.environment, run.method, run.seed) == (environment, method, int(seed)):
            return run.spec
    for block in loaded.study_config.grid:
        if environment in block.environments:
            return loaded.resolve(environment, method, int(seed), block)
    return loaded.resolve(environment, method, int(seed))


def load_methods(path: Path) -> dict[str, MethodConfig]:
    """`methods.yaml`: id -> method. Two ids for one setting are refused, so that no setting is trained twice."""
    raw = read_yaml(path)
    methods = {key: parse(MethodConfig, value, f"{path}: {key}") for key, value in raw.items()}
    seen: dict[str, str] = {}
    for key, method in methods.items():
        if not re.fullmatch(IDENTIFIER, key):
            raise ConfigError(f"{path}: method id {key!r} is not made of a-z, 0-9 and _")
        setting = method.model_copy(update={"label": ""}).model_dump_json()
        if setting in seen:
            raise ConfigError(f"{path}: methods {seen[setting]} and {key} are the same setting; keep one id")
        seen[setting] = key
    return methods


def load_environments(folder: Path) -> dict[str, EnvironmentConfig]:
    """`environments/*.yaml`: id -> environment; the file's name is the id."""
    environments = {}
    for path in sorted(folder.glob("*.yaml")):
        environment = parse(EnvironmentConfig, read_yaml(path), path)
        if environment.id != path.stem:
            raise ConfigError(f"{path}: id {environment.id!r} differs from the file's name {path.stem!r}")
        environments[environment.id] = environment
    if not environments:
        raise ConfigError(f"{folder}: no environment files (*.yaml)")
    return environments


def check_environments(config: Config) -> None:
    """Fails before a sweep starts if the grid uses an environment whose package or gym id is missing."""
    for name in dict.fromkeys(run.environment for run in config.runs):
        environment = config.environments[name]
        extras = {"minigrid": "environments", "highway_env": "environments", "ale_py": "environments"}
        needed = [(environment.package, extras.get(environment.package, "environments"))]
        if "envpool" in (environment.engine, environment.evaluation_engine):
            needed.append(("envpool", "fast"))
        if environment.gym_id.startswith(("LunarLander", "BipedalWalker")):
            needed.append(("Box2D", "environments"))
        for package, extra in needed:
            if importlib.util.find_spec(package) is None:
                raise ConfigError(
                    f"environment {name} needs the package {package}: pip install 'rl-influence[{extra}]'"
                )


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A YAML mapping without repeated keys (PyYAML's safe loader keeps the last one silently)."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({_first_line(error)})") from None
    try:
        data = yaml.load(text, Loader=_StrictLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid YAML ({_first_line(error)})") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected a mapping of keys, found {type(data).__name__}")
    for key in data:
        if not isinstance(key, str):
            raise ConfigError(f"{path}: key {key!r} is not text")
    return data


def parse(model: type[Model], data: Any, where: str | Path) -> Model:
    """`data` as `model`, or a `ConfigError` of one line for the first thing that is wrong."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "value"
        value, kind = first["input"], first["type"]
        shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."
        if kind == "extra_forbidden":
            known = _fields_at(model, first["loc"][:-1])
            message = f"unknown key {key!r}{_did_you_mean(str(first['loc'][-1]), known)}"
        elif kind == "missing":
            message = f"key {key!r} is missing"
        else:
            text = first["msg"].removeprefix("Value error, ")
            message = f"{key} = {shown}: {text[0].lower() + text[1:]}"
        raise ConfigError(f"{where}: {message}") from None


def choose(kind: str, value: str, choices: Any) -> str:
    """`value`, if it is one of `choices`; else a `ConfigError` that lists them."""
    if value not in choices:
        raise ConfigError(f"unknown {kind} {value!r}{_did_you_mean(str(value), list(choices))}")
    return value


def _did_you_mean(value: str, choices: list[str]) -> str:
    close = difflib.get_close_matches(value, choices, n=1)
    hint = f", did you mean {close[0]!r}?" if close else ";"
    return f"{hint} choices: {', '.join(sorted(choices))}" if choices else ""


def _fields_at(model: Any, location: tuple) -> list[str]:
    """Names of the fields at a place inside a model, for the choices of an error message."""
    for part in location:
        if isinstance(part, int) or not hasattr(model, "model_fields") or part not in model.model_fields:
            continue
        annotation = model.model_fields[part].annotation
        while not hasattr(annotation, "model_fields"):
            arguments = [a for a in getattr(annotation, "__args__", ()) if a not in (type(None), Ellipsis)]
            if not arguments:
                return []
            annotation = arguments[0]
        model = annotation
    return list(getattr(model, "model_fields", {}))


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML that refuses repeated keys."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if isinstance(key, (list, dict)) or (isinstance(key, float) and math.isnan(key)):
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is not text", node.start_mark)
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is repeated", node.start_mark)
        return super().construct_mapping(node, deep)
