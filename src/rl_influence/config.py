"""Typed, closed configuration: YAML files -> environments, methods, a study's grid -> one resolved `RunSpec` per run.

Every model forbids unknown keys. Whatever is wrong is reported as a `ConfigError`, one line that names the file, the
key, the value and the choices. A `RunSpec` is fully resolved: nothing that training reads depends on anything but it.
"""

from __future__ import annotations

import difflib
import importlib.util
import itertools
import json
import re
import subprocess
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

Model = TypeVar("Model", bound=BaseModel)
CATALOGUE = Path("config")
EXPECTED = {  # kinds of pydantic's errors whose own words speak of Python
    "identifier": "expected a-z, 0-9 and _, a letter first, at most 64 of them",
    "model_type": "expected a mapping of keys",
    "dict_type": "expected a mapping of keys",
    "tuple_type": "expected a list",
    "too_short": "expected at least one entry",
    "string_too_short": "expected text that is not empty",
}
IDENTIFIER = r"^[a-z][a-z0-9_]{0,63}$"
Identifier = Annotated[str, Field(pattern=IDENTIFIER)]
Text = Annotated[str, Field(min_length=1)]
Percent = Annotated[float, Field(gt=0, le=100)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Episodes = Annotated[int, Field(ge=2, le=10**9)]  # one alone has no standard error
# Listed here, and not read off the modules that make them, so that a study is checked without importing these.
FigureName = Literal[
    "fig03_diagnosis",
    "fig04_highway",
    "fig05_interventions",
    "fig06_returns",
    "fig06_efficiency",
    "fig08_minigrid",
    "fig09_records",
    "fig10_acrobot",
    "fig12_heuristics",
    "fig13_td_error",
    "fig14_p_sweep",
    "fig15_adam",
    "fig_controls",
    "fig_faithfulness",
    "fig_claims",
]
TableName = Literal[
    "efficiency",
    "final_returns",
    "table_2",
    "table_3",
    "table_4",
    "table_5",
    "diagnosis_summary",
    "agreement_summary",
    "faithfulness_summary",
]
AnalysisName = Literal["diagnosis", "agreement", "behaviour", "interventions", "faithfulness"]


class ConfigError(ValueError):
    """A configuration the user can mend; its message is one line."""


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
    optimizer: Literal["sgd", "adam"] = Field("sgd", description="SGD without momentum, or Adam (eps 1e-5, as in SB3)")
    learning_rate: float = Field(5e-3, gt=0, le=1000, description="step size")
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
        "gymnasium", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="Python package that registers gym_id"
    )
    wrappers: tuple[Literal["image_only", "flatten", "atari"], ...] = Field((), description="applied in this order")
    network: Literal["mlp", "minigrid_cnn", "nature_cnn"] = Field("mlp", description="see docs/method.md")
    engine: Literal["gymnasium", "envpool"] = Field("gymnasium", description="simulator that training samples from")
    evaluation_engine: Literal["gymnasium", "envpool"] = Field("gymnasium", description="simulator of test episodes")
    rounds: Count = Field(description="training rounds K; curves have K + 1 points")
    drop_percent: Percent = Field(description="the paper's p for this environment, in percent")
    ppo: PPOConfig = Field(default_factory=PPOConfig, description="hyperparameters that differ from the defaults")
    evaluation: EvaluationConfig = Field(description="how test returns are measured")

    @field_validator("kwargs")
    @classmethod
    def _can_be_recorded(cls, value: dict) -> dict:
        json.dumps(value)  # a ValueError for an integer of thousands of digits
        for key in sorted({"id", "render_mode"} & {*value}):
            raise ValueError(f"{key} is not for an environment's file")
        return value


EXACT_HEURISTICS = ("advantage_h1_exact", "advantage_h2_exact")
COUNTED_BY_INFLUENCE = ("influence", "random", "difficulty")  # these drop as many records as IIF at their p


class SelectionConfig(Closed):
    """Which records of a round's buffer train (section 5 and appendix B of the paper; each kind: docs/method.md)."""

    kind: Literal[
        "all",
        "influence",
        "random",
        "advantage_h1",
        "advantage_h2",
        "advantage_h1_exact",
        "advantage_h2_exact",
        "td_error",
        "difficulty",
    ] = Field(
        description="all: none is dropped; influence: IIF; random: as many as IIF at its p, at random; advantage_h1, "
        "advantage_h2: by estimated against Monte-Carlo advantages, or, with _exact, against true ones, which need an "
        "exact model; td_error: all, drawn by priority; difficulty: as many as IIF, of highest and lowest reward"
    )
    drop_percent: Percent | Literal["chosen"] | None = Field(
        None, description="p in percent, or `chosen`: the environment's own"
    )
    priority_exponent: float | None = Field(
        None, ge=0, description="td_error only: sampling probability ~ priority to this power"
    )
    updates: Literal["own", "as_all", "as_influence"] = Field(
        "own", description="updates per epoch: what its records give (own), or as many as PPO or as IIF takes"
    )

    @field_validator("drop_percent", mode="wrap")
    @classmethod
    def _one_message(cls, value: Any, handler: Any) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise ValueError("expected a number above 0 and at most 100, or chosen") from None

    @model_validator(mode="after")
    def _arguments_fit(self) -> SelectionConfig:
        drops = self.kind not in ("all", "td_error")
        if drops != (self.drop_percent is not None) and self.updates != "as_influence":
            raise ValueError(f"selection {self.kind} {'needs' if drops else 'takes no'} drop_percent")
        if self.updates == "as_influence" and self.drop_percent is None:
            raise ValueError("updates as_influence needs drop_percent")
        if (self.kind == "td_error") != (self.priority_exponent is not None):
            raise ValueError("priority_exponent belongs to selection td_error, and only to it")
        as_it_is = {"all": "as_all", "td_error": "as_all"} | dict.fromkeys(COUNTED_BY_INFLUENCE, "as_influence")
        if self.updates == as_it_is.get(self.kind):
            raise ValueError(f"updates {self.updates} is what selection {self.kind} does anyway; leave it out")
        return self


class PPOOverride(Closed):
    """What a method may change of PPO; a key that is left out is the environment's."""

    max_grad_norm: float | None = Field(
        None,
        gt=0,
        description="instead of the environment's; null: no clipping",
        json_schema_extra=lambda schema: schema.pop("default"),  # only a value that is written down counts
    )


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
    seeds: tuple[Seed, ...] = Field(min_length=1, description="one run each")
    rounds: Count | None = Field(None, description="instead of the environment's rounds")
    evaluation_episodes: Episodes | None = Field(None, description="instead of the environment's episodes")
    evaluation_every: Count | None = Field(None, description="instead of the environment's every")

    _no_repeats = field_validator("environments", "methods", "seeds")(_no_repeats)


class AnalysisBlock(Closed):
    """An analysis of single rounds of some of the grid's runs. What a run is does not depend on it."""

    analysis: AnalysisName = Field(description="what is computed, see docs/method.md")
    environments: tuple[Identifier, ...] = Field(min_length=1, description="ids of files in environments/")
    methods: tuple[Identifier, ...] = Field(("ppo",), min_length=1, description="ids in methods.yaml")
    seeds: tuple[Seed, ...] = Field(min_length=1, description="one run each")
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
    figures: tuple[FigureName, ...] = Field((), description="figures to draw")
    tables: tuple[TableName, ...] = Field((), description="tables to print (LaTeX); as CSV all are written")


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


class Analysis(Closed):
    """An analysis of one run of a study.

    Attributes:
        rounds: the analysed rounds, rising.
    """

    name: AnalysisName
    run: Run
    rounds: tuple[int, ...]


class Config:
    """A study together with the catalogue of environments and methods.

    Args:
        study: the study's YAML file, or its content (as Snakemake has merged it).
        folder: holds `methods.yaml` and `environments/`; default: the file's folder.
        name: of the file that the content comes from, for error messages.
    """

    def __init__(
        self, study: str | Path | dict[str, Any], folder: str | Path | None = None, *, name: str | Path = "config"
    ):
        data = study if isinstance(study, dict) else read_yaml(study)
        self.name = str(name if isinstance(study, dict) else study)
        self.folder = folder = Path(folder or (CATALOGUE if isinstance(study, dict) else Path(study).parent))
        self.study_config = parse(StudyConfig, data, self.name)
        if not (folder / "methods.yaml").exists():
            raise ConfigError(f"{folder}: holds no methods.yaml; it and environments/ lie beside the study's file")
        self.methods = load_methods(folder / "methods.yaml")
        self.environments = load_environments(folder / "environments")
        self.runs = self._runs()
        self.analyses = self._analyses()

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
        settings: dict[str, str] = {}
        for number, block in enumerate(self.study_config.grid, start=1):
            where = f"{self.name}: grid block {number}: "
            for environment in block.environments:
                choose("environment", environment, self.environments, where)
                for method in block.methods:
                    choose("method", method, self.methods, where)
                    for seed in block.seeds:
                        key = (environment, method, seed)
                        if key in runs:
                            raise ConfigError(
                                f"{self.name}: grid block {number} repeats environment {environment}, "
                                f"method {method}, seed {seed}"
                            )
                        spec = self.resolve(environment, method, seed, block)
                        same = settings.setdefault(json.dumps(spec.result_key(), sort_keys=True), method)
                        if same != method:
                            raise ConfigError(
                                f"{self.name}: grid block {number}: methods {same} and {method} are the same setting "
                                f"in environment {environment}; keep one"
                            )
                        runs[key] = Run(environment=environment, method=method, seed=seed, spec=spec)
        return tuple(runs.values())

    def _analyses(self) -> tuple[Analysis, ...]:
        """Every analysis of every run, in the order of the study's blocks."""
        runs = {(run.environment, run.method, run.seed): run for run in self.runs}
        found: dict[tuple, Analysis] = {}
        for number, block in enumerate(self.study_config.analyses, start=1):
            for key in itertools.product(block.environments, block.methods, block.seeds):
                environment, method, seed = key
                where = f"{self.name}: analyses block {number} ({block.analysis}): "
                who = f"{where}environment {environment}, method {method}, seed {seed}"
                if key not in runs:
                    choose("environment", environment, self.environments, where)  # a misspelt name is said to be one
                    choose("method", method, self.methods, where)
                    raise ConfigError(f"{who} is not in the grid")
                if (block.analysis, key) in found:
                    raise ConfigError(f"{who} is repeated; put its rounds into one block")
                last = runs[key].spec.rounds - 1
                rounds = tuple(range(last + 1)) if block.rounds == "all" else tuple(sorted(block.rounds))
                if rounds[-1] > last:
                    raise ConfigError(f"{who}: round {rounds[-1]}: the run has rounds 0 (untrained policy) to {last}")
                found[block.analysis, key] = Analysis(name=block.analysis, run=runs[key], rounds=rounds)
        return tuple(found.values())

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
            f"{environment}/{method}",
        )


def load_run_spec(*, environment: str, method: str, seed: int, config: str | Path = "config/config.yaml") -> RunSpec:
    """The specification of one run.

    The study's overrides apply: those of the block that holds the run, or else of the first one with its environment.
    Without envpool gymnasium simulates, see `on_installed_engines`.

    Args:
        environment: id of a file in `environments/`.
        method: id in `methods.yaml`.
        seed: whole number of at least 0; also as text or as numpy's.
        config: the study's file.

    Raises:
        ConfigError: for anything wrong in the files or the arguments.
    """
    loaded = Config(config)
    spec = loaded.resolve(environment, method, seed)
    blocks = [block for block in loaded.study_config.grid if environment in block.environments]
    grid = [block for block in blocks if method in block.methods and spec.seed in block.seeds]
    spec = loaded.resolve(environment, method, spec.seed, next(iter(grid + blocks), None))
    return spec.model_copy(update={"environment": on_installed_engines(spec.environment)})


def load_methods(path: Path) -> dict[str, MethodConfig]:
    """`methods.yaml`: id -> method. Two ids for one setting are refused, so that no setting is trained twice."""
    raw = read_yaml(path)
    methods = {key: parse(MethodConfig, value, f"{path}: {key}") for key, value in raw.items()}
    seen: dict[str, str] = {}
    for key, method in methods.items():
        if not re.fullmatch(IDENTIFIER, key):
            raise ConfigError(f"{path}: method id {_shown(key)}: {EXPECTED['identifier']}")
        setting = repr((method.selection, method.ppo.model_dump(exclude_unset=True)))
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


def check_packages(environment: EnvironmentConfig) -> None:
    """Looks for the packages that an environment needs, without importing them.

    Raises:
        ConfigError: for one that is missing, with the command that installs it.
    """
    needed = [(environment.package, "environments")]
    if "envpool" in (environment.engine, environment.evaluation_engine):
        needed.append(("envpool", "fast"))
    if environment.gym_id.startswith(("LunarLander", "BipedalWalker")):
        needed.append(("Box2D", "environments"))
    if "atari" in environment.wrappers:
        needed.append(("cv2", "environments"))
    for package, extra in needed:
        if not _is_installed(package):
            slower = ", or set engine and evaluation_engine to gymnasium, which is slower" if extra == "fast" else ""
            raise ConfigError(
                f"environment {environment.id} needs the package {package}: pip install 'rl-influence[{extra}]'{slower}"
            )


def check_environments(environments: Iterable[EnvironmentConfig]) -> None:
    """Makes every environment as its runs will, so that what cannot work is known before the first of them starts.

    It takes a few seconds in a process of its own: the one that plans a sweep loads no simulator and no torch.

    Raises:
        ConfigError: for the first environment that cannot be made, or a package that is missing.
    """
    environments = list(environments)
    for environment in environments:
        check_packages(environment)
    if environments:
        data = json.dumps([environment.model_dump(mode="json") for environment in environments])
        command = [sys.executable, "-m", "rl_influence.environments"]
        done = subprocess.run(command, input=data, capture_output=True, text=True)
        if done.returncode:
            said = done.stderr.strip() or f"the check of the environments ended with code {done.returncode}"
            raise ConfigError(said.splitlines()[-1])


def on_installed_engines(environment: EnvironmentConfig) -> EnvironmentConfig:
    """The environment; on gymnasium, with a warning, if its configuration names envpool and that is not installed."""
    if "envpool" not in (environment.engine, environment.evaluation_engine) or _is_installed("envpool"):
        return environment
    warnings.warn(
        f"environment {environment.id}: envpool is not installed; gymnasium simulates instead, slower, and the run has "
        "another fingerprint; pip install 'rl-influence[fast]'",
        stacklevel=3,
    )
    return environment.model_copy(update={"engine": "gymnasium", "evaluation_engine": "gymnasium"})


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # what a broken installation, or a stand-in without a specification, raises
        return False


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A YAML mapping without repeated keys (PyYAML's safe loader keeps the last one silently)."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read ({_first_line(error)})") from None
    try:
        data = yaml.load(text, Loader=_StrictLoader)
    except Exception as error:  # PyYAML also lets IndexError, KeyError, AttributeError and more out of malformed tags
        raise ConfigError(f"{path}: not valid YAML ({_first_line(error)})") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected a mapping of keys, found {type(data).__name__}")
    return data


def parse(model: type[Model], data: Any, where: str | Path) -> Model:
    """`data` as `model`, or a `ConfigError` of one line for the first thing that is wrong."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        kind, value = first["type"], first["input"]
        if kind == "extra_forbidden":
            known = _fields_at(model, first["loc"][:-1])
            message = f"unknown key {_shown(key)}{_did_you_mean(str(first['loc'][-1]), known)}"
        elif kind == "missing":
            message = f"key {key!r} is missing"
        else:
            text = EXPECTED.get(kind, first["msg"].removeprefix("Value error, "))
            if first.get("ctx", {}).get("pattern") == IDENTIFIER:
                text = EXPECTED["identifier"]
            about_a_model = kind == "value_error" and isinstance(value, dict)  # the text names the keys that do not fit
            place = key if about_a_model else f"{key or 'value'} = {_shown(value)}"
            message = f"{place}: {text[0].lower() + text[1:]}".removeprefix(": ")
        raise ConfigError(f"{where}: {message}") from None


def choose(kind: str, value: str, choices: Any, where: str = "") -> str:
    """`value`, if it is one of `choices`; else a `ConfigError` that lists them."""
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(f"{where}unknown {kind} {_shown(value)}{_did_you_mean(str(value), list(choices))}")
    return value


def _shown(value: Any) -> str:
    """A value in an error message: one line, at most 60 characters."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return f"a {type(value).__name__} too long to show"
    return text if len(text) <= 60 else text[:57] + "..."


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
    """Safe YAML that refuses repeated keys, and aliases, with which a file of ten lines can mean gigabytes."""

    def compose_node(self, parent, index):
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise _refusal(f"alias *{event.anchor}: write it out", event)
        return super().compose_node(parent, index)

    def construct_yaml_int(self, node):
        text = self.construct_scalar(node)
        if not re.fullmatch(r"[-+]?(0|[1-9][0-9]*)", text):  # YAML reads 010 as 8 and 1:30 as 90
            raise _refusal(f"number {_shown(text)}: write whole numbers with decimal digits only", node)
        return super().construct_yaml_int(node)

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key in [self.construct_object(key, deep=True) for key, _ in node.value]:
            if not isinstance(key, str):
                raise _refusal(f"key {_shown(key)} is not text", node)
            if key in seen:
                raise _refusal(f"key {_shown(key)} is repeated", node)
            seen.add(key)
        return super().construct_mapping(node, deep)


_StrictLoader.add_constructor("tag:yaml.org,2002:int", _StrictLoader.construct_yaml_int)


def _refusal(text: str, place: Any) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, text, place.start_mark)
