"""A study's grid: YAML files -> environments, methods, one resolved `RunSpec` per run."""

from __future__ import annotations

import functools
import itertools
import json
import warnings
from pathlib import Path
from typing import Any

from rl_influence.config.installed import on_installed_engines
from rl_influence.config.loading import ConfigError, choose, identifier, parse, read_yaml
from rl_influence.config.models import (
    Analysis,
    EnvironmentConfig,
    GridBlock,
    MethodConfig,
    Run,
    RunSpec,
    StudyConfig,
)

CATALOGUE = Path("config")


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

    @functools.cached_property
    def labels(self) -> dict[str, str]:
        """Environment -> label; claims also name studies of language models (`rlhf_*.yaml`), which have their own."""
        models = (read_yaml(path) for path in sorted(self.folder.glob("rlhf_*.yaml")))
        labels = {str(model.get("study")): str(model.get("label")) for model in models}
        return labels | {name: environment.label for name, environment in self.environments.items()}

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
        ppo = env.ppo.model_dump() | (block.ppo.model_dump() if block else {})
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
                "ppo": meth.ppo.applied(ppo),
                "rounds": (block and block.rounds) or env.rounds,
                "evaluation": evaluation,
                "seed": seed,
            },
            f"{self.name}: {environment}/{method}",
        )


def load_run_spec(*, environment: str, method: str, seed: int, config: str | Path = "config/config.yaml") -> RunSpec:
    """The specification of one run.

    The overrides of the study's block that holds the run apply. A run that no block holds has its environment's own
    settings; if that is not what the study's other runs of the environment have, a warning says so. Without envpool
    gymnasium simulates, see `on_installed_engines`.

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
    own = next((block for block in blocks if method in block.methods and spec.seed in block.seeds), None)
    if own:
        spec = loaded.resolve(environment, method, spec.seed, own)
    elif any(loaded.resolve(environment, method, spec.seed, block) != spec for block in blocks):
        run = f"environment {environment}, method {method}, seed {spec.seed}"
        warnings.warn(
            f"{config}: no block has {run}: it takes the environment's own settings, which the study changes",
            stacklevel=2,
        )
    return spec.model_copy(update={"environment": on_installed_engines(spec.environment)})


def load_methods(path: Path) -> dict[str, MethodConfig]:
    """`methods.yaml`: id -> method. Two ids for one setting are refused, so that no setting is trained twice."""
    methods = {key: parse(MethodConfig, value, f"{path}: {key}") for key, value in read_yaml(path).items()}
    seen: dict[str, str] = {}
    for key, method in methods.items():
        identifier(key, f"{path}: method id")
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
