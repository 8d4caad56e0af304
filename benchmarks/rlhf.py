"""`make bench-rlhf`: times and memory of the language-model branch, written to `results/rlhf_benchmarks.csv`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.registry import Figure, benchmark, run

ROUNDS = """
import json, re, sys
from pathlib import Path
import torch
from rl_influence.rlhf.run import Clock
from rl_influence.rlhf.settings import load_study
from rl_influence.rlhf.trainer import Trainer
study, method, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
spec = load_study(f"config/{study}.yaml").run_spec(method, 100)
torch.set_num_threads(spec.model.threads)
trainer, phases = Trainer(spec), []
for k in range(rounds + 1):
    clock = Clock(spec)
    trainer.train_round(clock)
    phases.append(clock.seconds)
seconds = {name: sum(phase[name] for phase in phases[1:]) / rounds for name in phases[0]}
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024**2
print(json.dumps(seconds | {"memory_gb": peak}))
"""


def rounds(study: str, method: str, number: int) -> dict[str, float]:
    """Mean seconds of a round by phase, after a warm one, in a process of its own; its peak memory."""

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ROUNDS, study, method, str(number)], capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"bench-rlhf: {study}: {(done.stderr.strip() or 'killed').splitlines()[-1]}")
    return json.loads(done.stdout)


def figures(study: str, number: int, target_s: float) -> Iterator[Figure]:
    """PPO and IIF after each other, with the same prompts and seeds."""
    ppo, iif = (rounds(study, method, number) for method in ("ppo", "iif"))
    for name, found in (("ppo", ppo), ("iif", iif)):
        total = sum(value for phase, value in found.items() if phase.endswith("_s"))
        detail = ", ".join(f"{phase} {value:.2f}" for phase, value in found.items() if phase.endswith("_s") and value)
        yield Figure(f"{study}_{name}_round", total, "s", "<=", target_s, detail)
    if study == "rlhf_fast":
        share = 100 * (iif["influence_s"] + iif["validation_s"]) / ppo["optimise_s"]
        yield Figure(f"{study}_influence_and_validation", share, "%", "<=", 40, "of PPO's optimisation")
    yield Figure(f"{study}_memory", max(ppo["memory_gb"], iif["memory_gb"]), "GB", "<=", 5)


@benchmark("fast", one_core=False)
def fast() -> Iterator[Figure]:
    """The fast tier, CPU seconds on one thread."""
    yield from figures("rlhf_fast", 3, 8)


@benchmark("study", one_core=False)
def study() -> Iterator[Figure]:
    """The study tier, wall seconds on two threads."""
    if not Path("build/rlhf/study_model").exists():
        subprocess.run(
            [sys.executable, "-m", "rl_influence.rlhf", "prepare", "study-model", "--output", "build/rlhf/study_model"],
            check=True,
        )
    yield from figures("rlhf_study", 1, 60)


@benchmark("tests", one_core=False)
def tests() -> Iterator[Figure]:
    """`make test-rlhf`, wall seconds."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "pytest", "-q", "tests/rlhf"], check=True, stdout=subprocess.DEVNULL)
    yield Figure("rlhf_tests", time.perf_counter() - start, "s", "<=", 360)


if __name__ == "__main__":
    run(sys.argv[1:], Path("results/rlhf_benchmarks.csv"))
