"""A run as a process of its own: what starting up costs, and how much memory it takes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from statistics import median

from benchmarks.registry import Figure, benchmark
from rl_influence.config import Config

ENVIRONMENTS = ("frozenlake", "acrobot", "minigrid")

IMPORT_TORCH = """
import resource
import torch
usage = resource.getrusage(resource.RUSAGE_SELF)
print(usage.ru_utime + usage.ru_stime)
"""

START_UP = """
import resource, sys
from rl_influence.config import load_run_spec
from rl_influence.runs.training import Trainer
sampler = Trainer(load_run_spec(environment=sys.argv[1], method="ppo", seed=0)).sampler
sampler.step(sampler.action_space.sample())
usage = resource.getrusage(resource.RUSAGE_SELF)
print(usage.ru_utime + usage.ru_stime)
"""

MEMORY = r"""
import re, sys, tempfile
from pathlib import Path
from rl_influence.config import SelectionConfig, load_run_spec
from rl_influence.runs.training import run
spec = load_run_spec(environment=sys.argv[1], method="ppo", seed=0)
selection = SelectionConfig(kind="influence", drop_percent=spec.environment.drop_percent)
spec = spec.model_copy(update={"rounds": 2, "selection": selection})
with tempfile.TemporaryDirectory() as folder:
    run(spec, folder, log=lambda line: None)
# not ru_maxrss, which starts at the size of the process that started this one
print(int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024)
"""


def fresh(script: str, argument: str = "") -> float:
    """The number that a script prints in a new interpreter."""
    done = subprocess.run([sys.executable, "-c", script, argument], check=True, capture_output=True, text=True)
    return float(done.stdout)


@benchmark("start_up")
def start_up() -> Iterator[Figure]:
    """CPU time from the start of the interpreter to the first step of the environment."""
    for environment in ENVIRONMENTS:
        # in turn; the first pair warms the file cache
        pairs = [(fresh(START_UP, environment), fresh(IMPORT_TORCH)) for _ in range(6)][1:]
        seconds, torch_s = map(median, zip(*pairs, strict=True))
        yield Figure(f"start_up_{environment}", seconds, "s", "<=", 3, f"`import torch` alone: {torch_s:.2f} s")


@benchmark("memory")
def memory() -> Iterator[Figure]:
    """Peak resident memory of a run of IIF, evaluation included."""
    for environment in Config("config/paper.yaml").environments:
        yield Figure(f"memory_{environment}", fresh(MEMORY, environment), "MB", "<=", 600)
