"""What a study needs that may not be installed: packages, engines, environments."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import warnings
from collections.abc import Iterable

from rl_influence.config.loading import ConfigError
from rl_influence.config.models import EnvironmentConfig


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
