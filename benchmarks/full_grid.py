"""The paper's full grid from cached results: planning its jobs, and gathering and drawing 1,500 runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.registry import Figure, benchmark
from rl_influence.analysis.claims import CLAIM_TABLES
from rl_influence.analysis.tables import TABLES
from rl_influence.config import Config
from rl_influence.figures import FIGURES
from rl_influence.publish.latex import LATEX
from tests.synthetic import write_synthetic_study

METHODS = ["ppo", "iif_p6_25", "iif_p12_5", "iif_p25", "iif_p50", "iif_p100", "random", "advantage_h1", "advantage_h2"]
METHODS += ["td_error", "ppo_noclip", "iif_p12_5_noclip", "iif_p50_noclip"]
METHODS += ["ppo_matched_updates", "iif_matched_updates", "difficulty"]
SEEDS = list(range(12))
GRID = [
    {
        "environments": ["frozenlake", "minigrid", "acrobot", "highway", "lunarlander", "bipedalwalker", "pong"],
        "methods": METHODS,
        "seeds": SEEDS,
    },
    {"environments": ["minigrid_adam", "lunarlander_adam"], "methods": ["ppo", "iif_p12_5", "random"], "seeds": SEEDS},
]


class Cost(NamedTuple):
    clock_s: float
    cpu_s: float
    peak_mb: float  # of the largest process


# In between, as the peak of a process begins with the size of the one that started it, and this one may be large.
MEASURED = """
import resource, subprocess, sys, time
start = time.perf_counter()
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
clock, usage = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
print(clock, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
sys.exit(done.stdout.decode() if done.returncode else 0)
"""


def snakemake(root: Path, *arguments: str) -> Cost:
    """What a call costs with all of its jobs."""
    command = [sys.executable, "-m", "snakemake", "--configfile", "config/full.yaml", "--cores", "2", *arguments]
    measured = [sys.executable, "-c", MEASURED, *command]
    done = subprocess.run(measured, cwd=root, check=True, stdout=subprocess.PIPE, text=True)
    return Cost(*map(float, done.stdout.split()))


@benchmark("full_grid", one_core=False)
def full_grid() -> Iterator[Figure]:
    """Clock time on 2 cores, so on an idle machine; CPU time beside it. The runs are made up."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("config", "workflow", "docs"):
            shutil.copytree(name, root / name)
        shutil.copy("environment.yml", root)
        figures = [name for name, figure in FIGURES.items() if {*figure.reads} <= {*TABLES, *CLAIM_TABLES}]
        tables = [name for name in LATEX if name in TABLES]
        study = {"study": "full", "grid": GRID, "figures": figures, "tables": tables}
        (root / "config/full.yaml").write_text(json.dumps(study))  # JSON is YAML
        config = Config(root / "config/full.yaml")
        plan = snakemake(root, "--dry-run")
        detail = f"{len(config.runs)} runs to train; {plan.cpu_s:.1f} s of CPU"
        yield Figure("full_grid_plan", plan.clock_s, "s", "<=", 12, detail)
        write_synthetic_study(root, config)
        drawn = snakemake(root, "--snakefile", "workflow/figures.smk")
        rounds = sum(run.spec.rounds for run in config.runs)
        detail = f"{len(config.runs)} runs, {rounds} rounds; {drawn.cpu_s:.0f} s of CPU"
        yield Figure("full_grid_draw", drawn.clock_s, "s", "<=", 120, detail)
        yield Figure("full_grid_memory", drawn.peak_mb, "MB", "<=", 2000, "largest process")
