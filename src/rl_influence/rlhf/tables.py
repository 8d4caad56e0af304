"""Finished runs of a study -> its tables; what is missing is listed, and left out of no mean silently.

- `curves`: a row for each run and round, with optimiser steps and seconds so far.
- `rlhf_per_seed`: what the rules of claim 17 read (columns: `analysis.claims.samples`).
- `table_6`: seconds a round, ours beside the paper's; generating and scoring validation sequences is a line of its own.
- `ends`: test numbers before the first and after the last round, with t intervals over seeds.
- `progress`: whether PPO's reward improves by three standard errors, without which a study shows nothing.
- `faithfulness`: whether scores predict what leaving sequences out does, means and t intervals over seeds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from rl_influence.analysis.reported import load_reported
from rl_influence.analysis.statistics import t_interval
from rl_influence.rlhf.settings import Study, locate
from rl_influence.rlhf.store import TIMING_COLUMNS, check_run
from rl_influence.runs.files import write_atomic
from rl_influence.runs.store import ResultError

TABLES = ("curves", "rlhf_per_seed", "table_6", "ends", "progress", "faithfulness", "missing_runs")
PHASES = TIMING_COLUMNS[1:5]  # of training; evaluation is not part of it
ENDS = ("test_reward", "test_kl", "test_perplexity", "test_length", "test_distinct_2", "test_distinct_3")
LATEST = 5  # rounds whose mean is a run's final reward


def load(study: Study, root: str | Path = ".") -> tuple[pd.DataFrame, pd.DataFrame]:
    """(curves, missing): every whole run's rounds, and the runs that are not there with the reason.

    Raises:
        ResultError: if no run is there.
    """
    parts, missing = [], []
    for method, seed, spec in study.runs():
        folder = Path(root) / locate(study.study, method, seed, spec, root)
        try:
            clock = check_run(folder, spec)["clock"]
        except ResultError as error:
            missing.append([method, seed, "not there" if not folder.exists() else str(error).partition(": ")[2]])
            continue
        curve = pd.read_csv(folder / "curve.csv").merge(pd.read_csv(folder / "timing.csv"), on="round")
        curve.insert(0, "method", method)
        curve.insert(1, "seed", seed)
        curve["clock"] = clock
        curve["updates_so_far"] = curve["updates"].fillna(0).cumsum()
        curve["training_s"] = curve[list(PHASES)].sum(axis=1)
        curve["training_so_far_s"] = curve["training_s"].cumsum()
        parts.append(curve)
    if not parts:
        raise ResultError(f"results/{study.study}: no run is there yet")
    return pd.concat(parts, ignore_index=True), pd.DataFrame(missing, columns=["method", "seed", "reason"])


def per_seed(curves: pd.DataFrame, study: str) -> pd.DataFrame:
    """Every run against the PPO run of its seed: the first round in which its mean reward reaches PPO's best.

    A run that never does has its whole budget there, and `best_reached` 0.
    """
    rows = []
    trained = curves[curves["round"] > 0]
    references = {seed: run for (method, seed), run in trained.groupby(["method", "seed"]) if method == "ppo"}
    for (method, seed), run in trained.groupby(["method", "seed"], sort=False):
        if seed not in references:
            continue
        ppo = references[seed]
        reached = run[run["reward"] >= ppo["reward"].max()]
        at = reached.iloc[0] if len(reached) else run.iloc[-1]
        kl = min(final_mean(run, "kl"), final_mean(ppo, "kl"))
        batch = run["sequences"].iloc[0]
        rows.append(
            {
                "environment": study,
                "method": method,
                "seed": seed,
                "dropped_share": float(1 - (run["sequences_kept"] / batch).mean()),
                "optimise_s": float(run["optimise_s"].mean()),
                "rounds_to_best": int(at["round"]),
                "time_to_best_s": float(at["training_so_far_s"]),
                "best_reached": int(len(reached) > 0),
                "reward_at_equal_kl": at_first(run["kl"].to_numpy(), run["reward"].to_numpy(), kl),
                "ppo_rise": final_mean(ppo, "reward") - float(ppo["reward"].iloc[0]),
                "final_reward": final_mean(run, "reward"),
                "displacement": float(run["displacement"].mean()),
                "equal_kl": kl,
            }
        )
    return pd.DataFrame(rows)


def final_mean(run: pd.DataFrame, column: str) -> float:
    """Mean over a run's last rounds: one round's mean is noisy."""
    return float(run[column].iloc[-LATEST:].mean())


def at_first(along: np.ndarray, values: np.ndarray, level: float) -> float:
    """Value where `along` first reaches a level, on the line between two rounds; the last one's if it never does."""
    reached = np.flatnonzero(along >= level)
    if not len(reached):
        return float(values[-1])
    k = reached[0]
    if k == 0:
        return float(values[0])
    share = (level - along[k - 1]) / (along[k] - along[k - 1])
    return float(values[k - 1] + share * (values[k] - values[k - 1]))


def table_6(curves: pd.DataFrame) -> pd.DataFrame:
    """Seconds a round by phase: mean and standard deviation over runs of each run's mean, and the paper's.

    The paper's times are of one GPU, a batch of 256 and 2.7B parameters: only its ratios can be compared. `total_s` is
    without the generation of validation sequences, as the paper counts; `total_with_validation_s` is with it.
    """
    trained = curves[curves["round"] > 0].copy()
    trained["total_with_validation_s"] = trained["training_s"]
    trained["total_s"] = trained["training_s"] - trained["validation_s"]
    phases = [*PHASES, "total_s", "total_with_validation_s"]
    means = trained.groupby(["method", "seed"], sort=False)[phases].mean()
    ours = means.groupby("method", sort=False).agg(["mean", "std"])
    paper = load_reported().table_6
    names = {"sampling_s": ("generate_and_score_s", "forward_s")} | {
        name: (name,) for name in ("influence_s", "optimise_s", "total_s")
    }
    rows = []
    for method in ours.index:
        for phase in phases:
            said = [paper[name].get(method) for name in names.get(phase, ())]
            rows.append(
                {
                    "method": method,
                    "phase": phase,
                    "mean_s": ours.loc[method, (phase, "mean")],
                    "sd_s": ours.loc[method, (phase, "std")],
                    "share_of_ppo": ours.loc[method, (phase, "mean")] / ours["total_s", "mean"].get("ppo", np.nan),
                    "paper_s": sum(pair[0] for pair in said) if said and all(said) else np.nan,
                    "n": int((means.index.get_level_values("method") == method).sum()),
                }
            )
    return pd.DataFrame(rows)


def ends(curves: pd.DataFrame) -> pd.DataFrame:
    """Test numbers at both ends, (method, number): means and t intervals over seeds."""
    detectors = [name.removesuffix("_over_half") for name in curves if name.endswith("_over_half")]
    columns = [*ENDS, *(f"{name}{part}" for name in detectors for part in ("", "_over_half"))]
    rows = []
    for method, runs in curves.groupby("method", sort=False):
        for column in columns:
            both = [
                runs[runs["round"] == k].set_index("seed")[column].dropna()
                for k in (runs["round"].min(), runs["round"].max())
            ]
            start, end = (t_interval(values) for values in both)
            rows.append(
                {
                    "method": method,
                    "number": column.removeprefix("test_"),
                    **{f"start_{name}": getattr(start, name) for name in ("mean", "low", "high")},
                    **{f"end_{name}": getattr(end, name) for name in ("mean", "low", "high")},
                    "n": end.n,
                }
            )
    return pd.DataFrame(rows)


def progress(curves: pd.DataFrame) -> pd.DataFrame:
    """Whether each run's test reward rises by three standard errors, and what became of its text."""
    rows = []
    for (method, seed), run in curves.groupby(["method", "seed"], sort=False):
        start, end = run.iloc[0], run.iloc[-1]
        rise, error = (
            end["test_reward"] - start["test_reward"],
            np.hypot(end["test_reward_se"], start["test_reward_se"]),
        )
        kept = {
            f"{name}_ratio": end[f"test_{name}"] / start[f"test_{name}"]
            for name in ("distinct_2", "length", "perplexity")
        }
        rows.append({"method": method, "seed": seed, "rise": rise, "standard_errors": rise / error, **kept})
    return pd.DataFrame(rows)


def faithfulness(study: Study, root: str | Path = ".") -> pd.DataFrame:
    """(round, outcome, scoring): Spearman's correlation of predicted and measured, mean and t interval over seeds."""
    parts = [pd.read_csv(Path(root) / path) for path in study.removals() if (Path(root) / path).exists()]
    rows = []
    if parts:
        groups = pd.concat(parts).groupby(["round", "outcome", "scoring"], sort=False)
        for (number, outcome, scoring), part in groups:
            found = t_interval(part["spearman"])
            rows.append([number, outcome, scoring, *found, part["reliability"].mean()])
    names = ["round", "outcome", "scoring", "spearman", "low", "high", "n", "reliability"]
    return pd.DataFrame(rows, columns=names)


def write(study: Study, root: str | Path = ".") -> Path:
    """Writes a study's tables to `results/<study>/tables`."""
    curves, missing = load(study, root)
    folder = Path(root) / "results" / study.study / "tables"
    made = curves, per_seed(curves, study.study), table_6(curves), ends(curves), progress(curves)
    made += faithfulness(study, root), missing
    for name, table in zip(TABLES, made, strict=True):
        write_atomic(folder / f"{name}.csv", table.to_csv(index=False, lineterminator="\n").encode())
    return folder
