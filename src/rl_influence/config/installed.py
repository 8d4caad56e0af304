"""What a study needs that may not be installed: packages, engines, environments."""

from __future__ import annotations

import importlib.util
import json
import platform
import subprocess
import sys
import warnings
from collections.abc import Collection, Iterable

from rl_influence.config.loading import ConfigError
from rl_influence.config.models import EnvironmentConfig

OURS = ("gymnasium", "minigrid", "highway_env", "ale_py", "Box2D", "cv2", "envpool")  # what our extras install


def missing_package(environment: str, package: str) -> str:
    """What to say of a package that an environment needs and that is not there."""
    extra = "fast" if package == "envpool" else "environments"
    mend = f"in the clone, pip install '.[{extra}]'"
    if package == "envpool":
        mend += ", or set engine and evaluation_engine to gymnasium, which is slower"
    elif package == "Box2D" and sys.platform == "linux" and platform.machine() == "aarch64":
        mend = "it has no build for Linux on aarch64; use another machine for this environment"
    elif package not in OURS:
        mend = "install it, or name the folder that holds it in the variable PYTHONPATH"
    return f"environment {environment} needs the package {package}: {mend}"


def check_packages(environment: EnvironmentConfig) -> None:
    """Looks for the packages that an environment needs, without importing them.

    Raises:
        ConfigError: for one that is missing, with the command that installs it.
    """
    needed = [environment.package]
    if "envpool" in (environment.engine, environment.evaluation_engine):
        needed.append("envpool")
    if environment.gym_id.startswith(("LunarLander", "BipedalWalker")):
        needed.append("Box2D")
    if "atari" in environment.wrappers:
        needed.append("cv2")
    for package in needed:
        if not _is_installed(package):
            raise ConfigError(missing_package(environment.id, package))


def check_environments(environments: Iterable[EnvironmentConfig], true_advantages: Collection[str] = ()) -> None:
    """Makes and tries every environment as its runs will, so that what cannot work is known before the first of them.

    It takes a few seconds in a process of its own: the one that plans a sweep loads no simulator and no torch.

    Args:
        true_advantages: ids of those in which a method needs exact true advantages.

    Raises:
        ConfigError: for the first environment that does not work, or a package that is missing.
    """
    environments = list(environments)
    for environment in environments:
        check_packages(environment)
    if environments:
        data = json.dumps([(config.model_dump(mode="json"), config.id in true_advantages) for config in environments])
        command = [sys.executable, "-m", "rl_influence.runs.check"]
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
        "another fingerprint; in the clone, pip install '.[fast]'",
        stacklevel=3,
    )
    return environment.model_copy(update={"engine": "gymnasium", "evaluation_engine": "gymnasium"})


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # what a broken installation, or a stand-in without a specification, raises
        return False
