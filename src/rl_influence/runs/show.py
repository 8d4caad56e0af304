"""One run as a picture: its curve, and what every round did to the policy."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from rl_influence.config import RunSpec
from rl_influence.runs.files import write_atomic
from rl_influence.runs.store import load_any

PANELS = {  # title -> columns of diagnostics.csv
    "return": ("train_return",),
    "episode length (steps)": ("train_length",),
    "approximate KL (nats)": ("approx_kl",),
    "share of records clipped": ("clip_fraction",),
    "entropy (nats)": ("entropy",),
    "explained variance": ("explained_variance",),
    "policy loss": ("policy_loss",),
    "value loss": ("value_loss",),
    "gradient norm": ("grad_norm",),
    "displacement of parameters": ("displacement", "value_displacement"),
    "share of negative influence": ("negative_share",),
    "factor of the learning rate": ("step_scale",),
    "influence: 5, 25, 50, 75, 95 %": tuple(f"influence_q{percent}" for percent in ("05", "25", "50", "75", "95")),
}


def show(folder: str | Path, output: str | Path | None = None) -> Path:
    """Draws a finished run; returns the PNG's path, by default `run.png` in the run's folder.

    A run that is older than its diagnostics shows its curve alone.

    Raises:
        ResultError: in one line, if the folder does not hold a whole run.
    """
    folder = Path(folder)
    spec, run = load_any(folder)
    curve = {name: np.array(values) for name, values in run.columns.items()}
    title = f"{spec.environment.label}, {_method(spec)}, seed {spec.seed}"
    output = Path(output or folder / "run.png")
    write_atomic(output, _draw(title, curve["round"], curve["test_return"], curve["test_return_se"], run.diagnostics()))
    return output


def _method(spec: RunSpec) -> str:
    chosen = spec.selection.drop_percent
    return f"selection {spec.selection.kind}" + (f", p = {chosen:g} %" if chosen else "")


def _draw(title: str, rounds, returns, errors, seen: dict[str, np.ndarray] | None) -> bytes:
    import matplotlib.figure  # a second that the other commands do not need

    shown = {name: columns for name, columns in PANELS.items() if seen and np.isfinite(seen[columns[0]]).any()}
    shown = shown or {"return": ()}
    rows = -(-len(shown) // 3)
    figure = matplotlib.figure.Figure(figsize=(11, 2.6 * rows) if seen else (6, 4), layout="constrained")
    axes = figure.subplots(rows, min(3, len(shown)), squeeze=False).ravel()
    for ax, (name, columns) in zip(axes, shown.items(), strict=False):
        if name == "return":
            evaluated = np.isfinite(returns)
            ax.errorbar(rounds[evaluated], returns[evaluated], errors[evaluated], label="test", color="C1")
        for column in columns:
            ax.plot(seen["round"], seen[column], label={"train_return": "training"}.get(column, column), linewidth=1)
        if len(columns) == 2 or name == "return":
            ax.legend(fontsize=7)
        ax.set_title(name, fontsize=9)
        ax.set_xlabel("round", fontsize=8)
        ax.tick_params(labelsize=7)
    for ax in axes[len(shown) :]:
        ax.remove()
    figure.suptitle(title.replace("$", r"\$"), fontsize=10)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()
