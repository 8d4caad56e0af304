"""Made-up results of a study: run folders as training writes them, with learning curves of known shape."""

from __future__ import annotations

import functools
import hashlib
import importlib
import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd

from rl_influence.config import Config, Run
from rl_influence.runs import columns, provenance, store

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


def write_synthetic_study(root, config: Config, *, skip=lambda run: False, curve=None, step=None) -> list[Path]:
    """Writes every run of `config` below `root` (the folder that holds `results/`), except where `skip(run)`.

    `curve(run)` gives the (K + 1,) test returns; the default rises along a logistic curve, sooner for methods that
    select by influence, with noise that depends on seed and method. `step(run)` gives the displacement of each round,
    for a diagnostics.csv whose other columns are 1.

    Returns:
        The folders of the runs.
    """
    folders = []
    for run in config.runs:
        if not skip(run):
            folder = Path(root) / store.run_directory(config.study, run)
            write_run(folder, run, (curve or logistic)(run), step and step(run))
            folders.append(folder)
    write_timings(root, config)
    return folders


def write_timings(root, config: Config) -> None:
    """PPO and every IIF timed in turn: the seconds of `write_run`, the same in both repeats."""
    rows = []
    for environment, method in dict.fromkeys((run.environment, run.method) for run in config.runs):
        spec = config.resolve(environment, method, seed=0)
        if spec.selection.kind in ("all", "influence"):
            seconds = dict(zip(columns.PHASES, phases(spec), strict=True))
            rows += [{"environment": environment, "method": method, "repeat": r, "round": 1} | seconds for r in (0, 1)]
    path = Path(root) / "results" / config.study / "timings" / "timings.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(path, index=False)


def phases(spec) -> tuple[float, float, float]:
    """Seconds of sampling, influence and optimisation in a round."""
    kept = round(spec.ppo.n_steps * (1 - 0.5 * spec.drop_fraction))
    influence_s = 0.01 if spec.selection.kind == "influence" else 0.0
    return 0.1, influence_s, round(0.3 * (0.5 + 0.5 * kept / spec.ppo.n_steps), 6)


@functools.cache
def base_manifest() -> dict:
    """What all manifests of a made-up study share."""
    spec = study({"environments": ["frozenlake"], "methods": ["ppo"], "seeds": [0]}).runs[0].spec
    return provenance.manifest(spec, started="", weights_sha256="", files={}, resumed=0)


def write_run(folder: Path, run: Run, returns, steps=None) -> None:
    """One run's files."""
    spec, n = run.spec, run.spec.ppo.n_steps
    kept = round(n * (1 - 0.5 * spec.drop_fraction))
    curve, timing = [",".join(columns.CURVE_COLUMNS)], [",".join(columns.TIMING_COLUMNS)]
    for k, value in enumerate(returns):
        evaluated = k % spec.evaluation.every == 0 or k == spec.rounds
        se = 0.0 if spec.evaluation.kind == "exact" else abs(float(value)) * 0.01
        shown = f"{float(value)},{se}" if evaluated else ","
        updates = spec.ppo.n_epochs * (kept // spec.ppo.batch_size)
        curve.append(f"{k},{k * n},{shown},{kept if k else 0},{updates if k else 0}")
        timing.append(",".join(map(str, [k, *(phases(spec) if k else (0.0, 0.0, 0.0)), 0.02])))
    folder.mkdir(parents=True, exist_ok=True)
    files = {"curve.csv": "\n".join(curve) + "\n", "timing.csv": "\n".join(timing) + "\n"}
    if steps is not None:
        names = columns.DIAGNOSTICS_COLUMNS
        rows = [
            ",".join(str({"round": k, "displacement": step}.get(name, 1)) for name in names)
            for k, step in enumerate(steps, start=1)
        ]
        files[store.DIAGNOSTICS] = "\n".join([",".join(names), *rows]) + "\n"
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


# Analyses of single rounds: runs are (environment, method, seed)


def interventions_tables(config: Config, runs: list[tuple[str, str, int]], rounds: int = 8) -> dict[str, pd.DataFrame]:
    """Removing negative records is worth 0.02 a round more than nothing, random ones 0.01 less; exact returns but in
    Acrobot and LunarLander."""
    gains = {"all": 0.0, "negative": 0.02, "random": -0.01, "negative_p": 0.015, "random_p": -0.005}
    rows = []
    for run in runs:
        rng = np.random.default_rng(run[2])
        se = 0.0 if run[0] in ("frozenlake", "minigrid") else 0.03
        for k in range(rounds):
            level = 0.1 * rng.random()
            for arm, gain in gains.items():
                delta = level + gain + 0.01 * rng.standard_normal()
                rows.append((*run, k, arm, 0, 100, 300, 0.5, 0.5 + delta, delta, se, se))
    names = ["round", "arm", "repeat", "records_removed", "updates", "return_before", "return_after", "delta"]
    table = pd.DataFrame(rows, columns=["environment", "method", "seed", *names, "se_before", "se_after"])
    return _with_summaries(config, "interventions", {"interventions": table}, runs)


def faithfulness_tables(config: Config, runs: list[tuple[str, str, int]], rounds=(2, 5)) -> dict[str, pd.DataFrame]:
    """Full TracIn predicts best, random scores nothing; one score is undefined."""
    means = {"TracIn, full": 0.8, "start of round": 0.6, "|advantage|": -0.1, "random": 0.0}
    rows = []
    for run in runs:
        rng = np.random.default_rng(run[2])
        for k, removal, outcome in itertools.product(rounds, ("subsets", "groups"), ("f_return", "test_return")):
            sizes = {"number of records": 0.3} if removal == "groups" else {}
            for scoring, mean in (means | sizes).items():
                rho = np.clip(mean * (0.6 if outcome == "test_return" else 1.0) + 0.05 * rng.standard_normal(), -1, 1)
                sets = 50 if removal == "subsets" else 10
                rows.append((*run, k, removal, outcome, scoring, rho, rho - 0.1, rho + 0.1, sets, 2, 0.9))
    names = ["round", "removal", "outcome", "scoring", "spearman", "low", "high", "sets", "orders", "reliability"]
    table = pd.DataFrame(rows, columns=["environment", "method", "seed", *names])
    table.loc[0, ["spearman", "low", "high"]] = np.nan
    return _with_summaries(config, "faithfulness", {"faithfulness": table}, runs)


def behaviour_tables(config: Config, runs: list[tuple[str, str, int]], rounds: int = 12) -> dict[str, pd.DataFrame]:
    """A behaviour that is learned in the middle of `rounds`; roughness falls, less so with more neighbours."""
    tables = {"behaviour": [], "behaviour_phases": [], "behaviour_records": [], "behaviour_targets": []}
    for environment, method, seed in runs:
        rng = np.random.default_rng(seed)
        probability = 0.1 + 0.8 / (1 + np.exp(-(np.arange(rounds + 1) - rounds / 2)))
        action = 4 if environment == "highway" else 2
        key = {"environment": environment, "method": method, "seed": seed}
        rows = {name: [] for name in tables}
        for k in range(rounds + 1):
            third = ("first", "middle", "last")[min(3 * k // rounds, 2)]
            for u in (20, 50, 100):
                rough = 0.02 + (0.1 + 0.001 * u) * np.exp(-k / 4) if k < rounds else np.nan
                rows["behaviour"].append((k, third, probability[k], u, 0.5, 1000, 9000, rough))
        for phase in (1, 2, 3):
            first, last = (phase - 1) * rounds // 3, phase * rounds // 3 - (phase < 3)
            rows["behaviour_phases"].append((phase, first, last, (first + last) // 2, 0.5))
            for place in range(1, 11):
                fields = (int(rng.integers(2048)), int(rng.integers(action + 1)), 0.5, rng.normal(), 1 / place)
                rows["behaviour_records"].append((phase, (first + last) // 2, place, *fields, _state(environment, rng)))
        label = "slower while tailing" if environment == "highway" else "pushing with the swing"
        target = (label, "a rule; median", action, rounds - 1, 77, _state(environment, rng))
        rows["behaviour_targets"].append(target)
        columns = {
            "behaviour": ["round", "third", "probability", "neighbours", "sigma", "nodes", "edges", "roughness"],
            "behaviour_phases": ["phase", "first_round", "last_round", "shown_round", "probability"],
            "behaviour_records": ["phase", "round", "place", "record", "action", "reward", "advantage", "influence"],
            "behaviour_targets": ["label", "rule", "action", "round", "record", "observation"],
        }
        columns["behaviour_records"].append("observation")
        for name, table in tables.items():
            frame = pd.DataFrame(rows[name], columns=columns[name])
            table.append(pd.concat([pd.DataFrame(key, index=frame.index), frame], axis=1))
    return {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()} | {
        "missing_analyses": no_missing_analyses()
    }


def no_missing_analyses() -> pd.DataFrame:
    return pd.DataFrame(columns=["analysis", "environment", "method", "seed", "reason"])


def _state(environment: str, rng: np.random.Generator) -> str:
    if environment == "highway":
        lane, *others = rng.integers(4, size=4) / 4
        cars = [[1, rng.uniform(0.02, 0.5), other - lane, rng.uniform(-0.1, 0.05), 0] for other in others]
        return json.dumps([1, 1, lane, 0.31, 0, *itertools.chain(*cars), 0, 0, 0, 0, 0])
    first, second = rng.uniform(-np.pi, np.pi, 2)
    angles = [np.cos(first), np.sin(first), np.cos(second), np.sin(second)]
    return json.dumps([*angles, *rng.uniform(-3, 3, 2)])


def _with_summaries(config: Config, name: str, tables: dict, runs: list) -> dict[str, pd.DataFrame]:
    """As `single_rounds.load_analyses` gives them."""
    for summary, make in importlib.import_module(f"rl_influence.analysis.{name}").SUMMARIES.items():
        frame = make(tables)
        pairs = list(frame[["environment", "method"]].itertuples(index=False, name=None))
        counts = [[run[:2] for run in runs].count(pair) for pair in pairs]
        frame.insert(frame.columns.get_loc("n") + 1, "expected", counts)
        tables = tables | {summary: frame}
    return tables | {"missing_analyses": no_missing_analyses()}
