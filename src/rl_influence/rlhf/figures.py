"""Figures 7 and 16: reward and toxicity of every method, against rounds, optimiser steps, seconds and distance."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rl_influence.analysis.statistics import t_interval
from rl_influence.figures import style
from rl_influence.rlhf.settings import Study

LOOKS = {
    "ppo": ("#000000", "-", "o"),
    "iif": ("#0b55a5", "-", "s"),
    "iif_token": ("#35a8c0", (0, (4, 1)), "^"),
    "random": ("#e69f00", (0, (3, 1.5)), "X"),
    "ppo_matched_updates": ("#777777", ":", "*"),
}
SMOOTH = 5  # rounds of a running mean: a round's mean reward is of a few dozen generations
DETECTORS = {"tox_block": "tox-block", "hatesonar": "hatesonar", "profanity": "profanity"}


def looks(study: Study, method: str) -> dict:
    """Colour, line, marker and label of a method."""
    others = [name for name in study.methods if name not in LOOKS]
    color, line, _ = LOOKS[method] if method in LOOKS else style.spare(others.index(method))
    return {"color": color, "linestyle": line, "label": study.methods[method].label}


def curve(axis: Axes, runs: pd.DataFrame, x: str, y: str, look: dict, smooth: int = 1) -> None:
    """Mean over seeds of y at the mean x of each round; from three seeds on a band of 95 % (t), if x only grows."""
    runs = runs.dropna(subset=[y]).copy()
    if smooth > 1:
        runs[y] = runs.groupby("seed")[y].transform(lambda values: values.rolling(smooth, min_periods=1).mean())
        runs[x] = runs.groupby("seed")[x].transform(lambda values: values.rolling(smooth, min_periods=1).mean())
    rounds = runs.groupby("round")
    middle = rounds[x].mean().to_numpy()
    intervals = [t_interval(values) for _, values in rounds[y]]
    axis.plot(middle, [interval.mean for interval in intervals], **look)
    if min(interval.n for interval in intervals) >= 3 and (middle[1:] > middle[:-1]).all():
        low, high = ([getattr(interval, side) for interval in intervals] for side in ("low", "high"))
        axis.fill_between(middle, low, high, color=look["color"], alpha=0.12, linewidth=0)


def draw(
    study: Study, curves: pd.DataFrame, methods: list[str], panels: list[tuple[str, str, str, str, int]]
) -> Figure:
    """A figure of panels (x, y, x label, y label, rounds of the running mean)."""
    there = [method for method in methods if method in set(curves["method"])]
    if not there:
        return style.nothing(f"None of {', '.join(methods)} is there yet.")
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure = style.new_figure(1.75 * columns + 0.4, 1.6 * rows)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, (x, y, xlabel, ylabel, smooth) in zip(axes, panels, strict=False):
        for method in there:
            curve(axis, curves[curves["method"] == method], x, y, looks(study, method), smooth)
        axis.set_xlabel(xlabel)
        axis.set_ylabel(ylabel)
    for axis in axes[len(panels) :]:
        axis.remove()
    seeds = {study.methods[m].label: curves.loc[curves["method"] == m, "seed"].nunique() for m in there}
    expected = len(study.seeds)
    notes = [
        f"{study.label}. {style.counts(seeds)} of {expected}; bands: 95 % t intervals over seeds. Training rewards "
        f"are running means over {SMOOTH} rounds; against KL there are no bands. Seconds: training, with the "
        "generation of validation sequences. Perplexity: under the frozen start. The reward is tox-block's, too.",
    ]
    return style.finish(figure, [style.handle(**looks(study, m)) for m in there], notes)


def figure_7(study: Study, curves: pd.DataFrame) -> Figure:
    """Everything against everything: reward, distance, text and toxicity."""
    toxicity = [
        ("round", f"test_{name}", "rounds", f"toxicity: {DETECTORS.get(name, name)}", 1)
        for name in (c.removeprefix("test_").removesuffix("_over_half") for c in curves if c.endswith("_over_half"))
    ]
    panels = [
        ("round", "reward", "rounds", "training reward", SMOOTH),
        ("updates_so_far", "reward", "optimiser steps", "training reward", SMOOTH),
        ("training_so_far_s", "reward", "seconds", "training reward", SMOOTH),
        ("kl", "reward", "KL from the start (nats)", "training reward", SMOOTH),
        *toxicity,
        ("test_kl", "test_tox_block", "KL from the start (nats)", "toxicity: tox-block", 1),
        ("round", "test_kl", "rounds", "KL (nats)", 1),
        ("round", "test_perplexity", "rounds", "perplexity", 1),
        ("round", "test_distinct_2", "rounds", "distinct bigrams", 1),
        ("round", "test_length", "rounds", "tokens a generation", 1),
    ]
    panels = [panel for panel in panels if panel[1] in curves]
    return draw(study, curves, list(study.methods), panels)


def figure_16(study: Study, curves: pd.DataFrame) -> Figure:
    """The sequence target against the token-level one, with PPO."""
    panels = [
        ("round", "reward", "rounds", "training reward", SMOOTH),
        ("kl", "reward", "KL from the start (nats)", "training reward", SMOOTH),
        ("round", "test_tox_block", "rounds", "toxicity: tox-block", 1),
        ("round", "sequences_kept", "rounds", "sequences kept", SMOOTH),
    ]
    return draw(study, curves, ["ppo", "iif", "iif_token"], [panel for panel in panels if panel[1] in curves])


FIGURES = {"fig07_rlhf": figure_7, "fig16_targets": figure_16}


def write(study: Study, root: str | Path = ".") -> list[Path]:
    """Draws a study's figures from its tables into `paper_figures/<study>`."""
    root, made = Path(root), []
    curves = pd.read_csv(root / "results" / study.study / "tables" / "curves.csv")
    source = f"{study.study}: {len(curves.groupby(['method', 'seed']))} runs"
    for name, maker in FIGURES.items():
        paths = [root / "paper_figures" / study.study / f"{name}.{kind}" for kind in ("pdf", "png")]
        with style.context():
            style.save(maker(study, curves), *paths, source)
        made += paths
    return made
