"""Made-up results of a study: run folders as training writes them, with learning curves of known shape."""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path

import numpy as np

from rl_influence import provenance
from rl_influence.config import Config, Run

CATALOGUE = Path(__file__).parents[1] / "config"
RANGES = {  # untrained and final return
    "frozenlake": (0.0, 0.99),
    "minigrid": (0.02, 0.95),
    "acrobot": (-499.0, -85.0),
    "highway": (9.0, 24.0),
    "lunarlander": (-190.0, 210.0),
    "bipedalwalker": (-105.0, 230.0),
    "pong": (-20.5, 15.0),
}
SPEEDS = {"influence": 1.5, "random": 0.8, "advantage_h1": 1.2, "advantage_h2": 0.9, "td_error": 0.85}


def study(*blocks: dict, folder: Path = CATALOGUE) -> Config:
    """A study named `made_up`; each block of its grid takes environments, methods, seeds and overrides."""
    return Config({"study": "made_up", "grid": list(blocks)}, folder)


def write_synthetic_study(root, config: Config, *, skip=lambda run: False, curve=None) -> list[Path]:
    """Writes every run of `config` below `root` (the folder that holds `results/`), except where `skip(run)`.

    `curve(run)` gives the (K + 1,) test returns; the default rises along a logistic curve, sooner for methods that
    select by influence, with noise that depends on seed and method.

    Returns:
        The folders of the runs.
    """
    folders = []
    for run in config.runs:
        if not skip(run):
            folder = Path(root) / provenance.run_directory(config.study, run)
            write_run(folder, run, (curve or logistic)(run))
            folders.append(folder)
    return folders


@functools.cache
def base_manifest() -> dict:
    """What all manifests of a made-up study share."""
    spec = study({"environments": ["frozenlake"], "methods": ["ppo"], "seeds": [0]}).runs[0].spec
    return provenance.manifest(spec, started="", weights_sha256="", files={}, resumed=0)


def write_run(folder: Path, run: Run, returns) -> None:
    """One run's three files."""
    spec, n = run.spec, run.spec.ppo.n_steps
    kept = round(n * (1 - 0.5 * spec.drop_fraction))
    speed = 0.5 + 0.5 * kept / n
    curve, timing = [",".join(provenance.CURVE_COLUMNS)], [",".join(provenance.TIMING_COLUMNS)]
    for k, value in enumerate(returns):
        evaluated = k % spec.evaluation.every == 0 or k == spec.rounds
        se = 0.0 if spec.evaluation.kind == "exact" else abs(float(value)) * 0.01
        shown = f"{float(value)},{se}" if evaluated else ","
        updates = spec.ppo.n_epochs * (kept // spec.ppo.batch_size)
        curve.append(f"{k},{k * n},{shown},{kept if k else 0},{updates if k else 0}")
        influence_s = 0.01 if spec.selection.kind == "influence" else 0.0
        timing.append(f"{k},0.1,{influence_s},{0.3 * speed:.6f},0.02" if k else "0,0.0,0.0,0.0,0.02")
    folder.mkdir(parents=True, exist_ok=True)
    files = {"curve.csv": "\n".join(curve) + "\n", "timing.csv": "\n".join(timing) + "\n"}
    for name, text in files.items():
        (folder / name).write_text(text)
    hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
    record = base_manifest() | {"fingerprint": provenance.fingerprint(spec), "spec": spec.model_dump(mode="json")}
    (folder / "manifest.json").write_text(json.dumps(record | {"files_sha256": hashes}))


def logistic(run: Run) -> np.ndarray:
    """Test returns that rise from the environment's untrained to its final return."""
    spec = run.spec
    start, end = RANGES.get(run.environment.split("_")[0], (0.0, 1.0))
    label = int(hashlib.sha256(f"{run.environment}/{run.method}".encode()).hexdigest()[:8], 16)
    rng = np.random.default_rng([run.seed, label])
    middle = 0.35 * spec.rounds / SPEEDS.get(spec.selection.kind, 1.0) * rng.normal(1, 0.08)
    rounds = np.arange(spec.rounds + 1)
    rise = 1 / (1 + np.exp(-(rounds - middle) / (0.08 * spec.rounds)))
    noise = np.concatenate([[0], rng.normal(0, 1, spec.rounds)]) * (0.005 + 0.2 * rise * (1 - rise))
    top = 1.0 if spec.selection.kind == "influence" else 0.97
    values = start + (end - start) * np.clip(top * (rise - rise[0]) + noise, 0, 1.0)
    return np.round(values, 6)
