"""Golden runs: rounds of every method give the numbers that they gave when `RESULTS_VERSION` was last raised.

What a result is, is decided by its specification and that number. So a refactor never retrains anything, and a change
of semantics cannot pass unnoticed: it fails here. If the change is meant, raise `RESULTS_VERSION` in
`src/rl_influence/runs/provenance.py` (which makes every committed result stale; the version of an engine or network
makes only its own so) and write the new values:

    python tests/unit/test_golden.py
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from rl_influence.config import Config, RunSpec, parse
from rl_influence.evaluation.returns import evaluate
from rl_influence.runs.provenance import RESULTS_VERSION, processor
from rl_influence.runs.training import Clock, Trainer

ROOT = Path(__file__).parents[2]
CONFIG = Config(ROOT / "config/smoke.yaml")
VALUES = ROOT / "tests/golden.json"
REGENERATE = "regenerate: python tests/unit/test_golden.py"
ADVICE = (
    "the numbers of a run changed; if that is meant, raise RESULTS_VERSION (or the version of the one engine or "
    f"network that changed) in provenance.py and {REGENERATE}; here: numpy {np.__version__} on {processor()}"
)
CASES = {
    **{f"frozenlake {method}": ("frozenlake", method, {}) for method in CONFIG.methods},
    "frozenlake iif_p50, Adam": ("frozenlake", "iif_p50", {"optimizer": "adam"}),
    "minigrid iif_p12_5": ("minigrid", "iif_p12_5", {}),
    "acrobot iif_p50": ("acrobot", "iif_p50", {}),
    "highway iif_p50": ("highway", "iif_p50", {}),
    "bipedalwalker iif_p6_25": ("bipedalwalker", "iif_p6_25", {}),
    "pong iif_p12_5": ("pong", "iif_p12_5", {}),
}
ROUNDS = {"frozenlake": 2}
STEPS = {"minigrid": 512, "pong": 128}
EPISODES = {"pong": 2}
MAX_STEPS = {"pong": 100}


def specification(environment: str, method: str, ppo: dict) -> RunSpec:
    """A run of the paper's settings with shorter and fewer rounds."""
    data = CONFIG.resolve(environment, method, 1).model_dump() | {"rounds": ROUNDS.get(environment, 1)}
    data["ppo"] |= {"n_steps": STEPS.get(environment, 1024)} | ppo
    data["evaluation"] |= {"episodes": EPISODES.get(environment, 10)}
    if environment in MAX_STEPS:
        data["evaluation"]["max_steps"] = MAX_STEPS[environment]
    return parse(RunSpec, data, "golden")


def outcome(case: str) -> dict[str, list[float]]:
    """Test returns and counts by round, and statistics of the final parameters."""
    spec = specification(*CASES[case])
    found = {"test_return": [], "records_kept": [], "updates": []}
    torch.set_num_threads(1)
    with threadpool_limits(1):
        trainer = Trainer(spec)
        for _ in range(spec.rounds):
            for name, count in trainer.train_round(Clock()).items():
                found[name].append(count)
            found["test_return"].append(evaluate(trainer.policy, spec.environment, spec.evaluation, 0).mean)
    vector = trainer.learner.parameters.vector.astype(np.float64)
    wave = np.cos(np.arange(len(vector)))  # tells permuted parameters apart
    found["parameters"] = [len(vector), vector.mean(), np.linalg.norm(vector), np.abs(vector).sum(), vector @ wave]
    return {name: [float(value) for value in values] for name, values in found.items()}


@pytest.mark.filterwarnings("ignore:environment pong. 2 of 2 test episodes did not end")
@pytest.mark.parametrize("case", CASES)
def test_golden_run(case):
    expected = json.loads(VALUES.read_text())["runs"].get(case)
    assert expected is not None, f"no values for {case!r} yet, a new one; {REGENERATE}"
    compare(outcome(case), expected, case)


def compare(found: dict, expected: dict, case: str) -> None:
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-5, err_msg=f"{case}, {name}: {ADVICE}")


def regenerated(case: str, recorded: dict | None) -> dict[str, list[float]]:
    """The recorded values where they hold: another machine's last digits are no news."""
    found = outcome(case)
    try:
        compare(found, recorded or {name: [np.nan] for name in found}, case)
    except AssertionError:
        return found
    return recorded


def test_golden_values_belong_to_this_version_and_to_these_runs():
    recorded = json.loads(VALUES.read_text())
    assert recorded["results_version"] == RESULTS_VERSION, REGENERATE
    assert list(recorded["runs"]) == list(CASES), REGENERATE


if __name__ == "__main__":
    old = json.loads(VALUES.read_text())["runs"]
    values = {"results_version": RESULTS_VERSION, "runs": {case: regenerated(case, old.get(case)) for case in CASES}}
    VALUES.write_text(json.dumps(values, indent=1) + "\n")
