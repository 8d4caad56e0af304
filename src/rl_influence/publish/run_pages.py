"""A page for every run that is there: its curve, what each round did to the policy, its settings, and who made it.

A study has hundreds of runs, so a panel is a few polylines of a template, not a figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rl_influence.config import Config, Run
from rl_influence.publish.templates import environment
from rl_influence.runs.files import write_atomic
from rl_influence.runs.show import PANELS
from rl_influence.runs.store import Results, RunResult

WIDTH, HEIGHT = 300, 100  # of a panel, in the picture's own units
RESOLVED = ("ppo", "rounds", "evaluation", "drop_percent")  # the environment's own, which the run's stand for
TIMES = ("sampling_s", "influence_s", "optimise_s", "evaluate_s")


def page_name(environment: str, method: str, seed: int) -> str:
    """File name of a run's page."""
    return f"{environment}-{method}-seed{seed}.html"


def write_pages(config: Config, folder: str | Path, root: str | Path = ".") -> None:
    """Writes the pages of a study's runs into a folder beside the study's report.

    Args:
        root: holds `results/`.
    """
    results, template = Results(root), environment().get_template("run.html")
    for run in config.runs:
        found = results.find(config.study, run)
        if found.result:
            text = template.render(**_content(config, run, found.result, found.folder))
            write_atomic(Path(folder) / page_name(run.environment, run.method, run.seed), text.encode())


def _content(config: Config, run: Run, result: RunResult, folder: Path) -> dict[str, Any]:
    manifest = dict(result.manifest)
    spec = manifest.pop("spec")
    spec["environment"] = {key: value for key, value in spec["environment"].items() if key not in RESOLVED}
    returns = result.columns["test_return"]
    return {
        "title": f"{config.labels[run.environment]}, {config.methods[run.method].label}, seed {run.seed}",
        "study": config.study,
        "last": f"{returns[-1]:.4g}",
        "rounds": len(returns) - 1,
        "panels": _panels(result),
        "spec": list(_flat(spec)),
        "provenance": [("folder", folder.as_posix()), *_flat(manifest)],
    }


def _panels(result: RunResult) -> list[dict[str, Any]]:
    """The curve first, then a round's diagnostics, records and seconds."""
    curve = {name: np.array(values, dtype=float) for name, values in result.columns.items()}
    seen = result.diagnostics() or {}
    lines = {title: {name: (seen["round"], seen[name]) for name in names if seen} for title, names in PANELS.items()}
    lines["return"] = {"test_return": (curve["round"], curve["test_return"])} | lines["return"]
    lines["records that trained"] = {"records_kept": (curve["round"][1:], curve["records_kept"][1:])}
    lines["CPU time (s)"] = {name: (curve["round"][1:], curve[name][1:]) for name in TIMES}
    return [panel for title, series in lines.items() if (panel := _panel(title, series, curve["round"][-1]))]


def _panel(title: str, series: Mapping[str, tuple[np.ndarray, np.ndarray]], last: float) -> dict[str, Any]:
    """A panel's lines in its own units, and the ends of its axis; empty if there is nothing to draw."""
    series = {name: (x[np.isfinite(y)], y[np.isfinite(y)]) for name, (x, y) in series.items()}
    series = {name: (x, y) for name, (x, y) in series.items() if len(y)}
    if not series:
        return {}
    low, high = (end(end(y) for _, y in series.values()) for end in (min, max))
    lines = []
    for name, (x, y) in series.items():
        places = WIDTH * x / max(last, 1), HEIGHT * (1 - (y - low) / ((high - low) or 1))
        points = [f"{a:.1f},{b:.1f}" for a, b in zip(*places, strict=True)]
        lines.append({"name": name, "points": " ".join(points * (1 + (len(points) == 1)))})  # one alone is a dot
    return {"title": title, "low": f"{low:.4g}", "high": f"{high:.4g}", "last": f"{last:g}", "lines": lines}


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """`{a: {b: 1}}` -> (a.b, 1)."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value
