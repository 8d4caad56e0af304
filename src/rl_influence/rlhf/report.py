"""Markdown of the committed results, for docs/rlhf.md and the README: `python -m rl_influence.rlhf report`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd

from rl_influence.analysis.statistics import t_interval
from rl_influence.rlhf import estimates
from rl_influence.rlhf.settings import Study, load_study

STUDIES = {"rlhf_results": ("rlhf_fast", "rlhf_study"), "rlhf_explained": ("rlhf_explain",)}  # by block
NUMBERS = {  # number in the table `ends` -> heading, decimals
    "reward": ("test reward", 2),
    "tox_block": ("toxicity: tox-block", 3),
    "tox_block_over_half": ("above ½", 3),
    "hatesonar_over_half": ("hatesonar above ½", 3),
    "profanity": ("alt-profanity-check", 3),
    "kl": ("KL, nats", 1),
    "perplexity": ("perplexity", 0),
    "distinct_2": ("distinct bigrams", 2),
    "length": ("tokens", 1),
}


def results(study: Study, root: str | Path = ".") -> str:
    """A study's numbers: start, and the end of every method; then rewards at equal KL, seconds and what was dropped.

    Returns:
        One line that says so where there are no runs yet.
    """
    folder = Path(root) / "results" / study.study / "tables"
    if not (folder / "ends.csv").exists():
        return f"{study.label}: no run is committed yet."
    ends, seeds, times, progress, predicted, missing = (
        pd.read_csv(folder / f"{name}.csv")
        for name in ("ends", "rlhf_per_seed", "table_6", "progress", "faithfulness", "missing_runs")
    )
    methods = list(dict.fromkeys(ends["method"]))
    shown = {number: what for number, what in NUMBERS.items() if number in set(ends["number"])}
    lines = [
        f"{study.label}, {study.rounds} rounds of {study.ppo.batch_size}; means over seeds (± half the t interval):",
        "",
        f"| | seeds | {' | '.join(heading for heading, _ in shown.values())} |",
        f"|---|---|{'---|' * len(shown)}",
    ]
    first = ends[ends["method"] == methods[0]].set_index("number")
    lines.append(_row("start", first, "start", shown))
    lines += [
        _row(study.methods[m].label, ends[ends["method"] == m].set_index("number"), "end", shown) for m in methods
    ]
    lines += ["", *_comparison(study, methods, seeds, times), *_paired(seeds)]
    enough = progress[progress["method"] == "ppo"]["standard_errors"]
    if len(enough):
        lines += [
            "",
            f"PPO's test reward rises by at least {enough.min():.1f} standard errors with each seed ({len(enough)}).",
        ]
    lines += _predicted(predicted)
    if len(missing):
        counts = missing.groupby("method", sort=False)["seed"].count()
        labels = ", ".join(f"{study.methods[method].label} {n}" for method, n in counts.items())
        lines += ["", f"{len(missing)} of {len(study.runs())} runs are not there yet ({labels})."]
    return "\n".join(lines)


def _row(label: str, numbers: pd.DataFrame, side: str, shown: dict[str, tuple[str, int]]) -> str:
    cells = []
    for number, (_, decimals) in shown.items():
        row = numbers.loc[number]
        half = (row[f"{side}_high"] - row[f"{side}_low"]) / 2
        spread = f" ± {half:.{decimals}f}" if np.isfinite(half) and side == "end" else ""
        cells.append(f"{row[f'{side}_mean']:z.{decimals}f}{spread}")
    count = int(numbers["n"].max()) if side == "end" else ""
    return f"| {label} | {count} | {' | '.join(cells)} |"


def _comparison(study: Study, methods: list[str], seeds: pd.DataFrame, times: pd.DataFrame) -> list[str]:
    """Seconds a round (the paper's in brackets), sequences dropped, and rewards at equal distance from the start."""
    phases = {"sampling_s": "generate and score", "validation_s": "validation", "influence_s": "influence"}
    phases |= {"optimise_s": "optimise", "total_s": "total without validation", "total_with_validation_s": "total"}
    heads = ("dropped", *phases.values(), "training reward, last 5 rounds", "at the same KL as PPO", "step of a round")
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    timed = times.set_index(["method", "phase"])
    for method in methods:
        cells = []
        for phase in phases:
            row = timed.loc[(method, phase)]
            cells.append(f"{row['mean_s']:.2f} s" + (f" ({row['paper_s']:.2f})" if np.isfinite(row["paper_s"]) else ""))
        own = seeds[seeds["method"] == method]
        if len(own):
            dropped, last = f"{100 * own['dropped_share'].mean():.0f} %", f"{own['final_reward'].mean():.2f}"
            cells = [
                dropped,
                *cells,
                last,
                f"{own['reward_at_equal_kl'].mean():.2f}",
                f"{own['displacement'].mean():.3f}",
            ]
        else:
            cells = ["–", *cells, "–", "–", "–"]
        lines.append(f"| {study.methods[method].label} | {' | '.join(cells)} |")
    return lines


def _paired(seeds: pd.DataFrame) -> list[str]:
    """IIF against PPO by seed: what claim 17 asks for, and the reward at equal distance from the start."""
    iif, ppo = (seeds[seeds["method"] == method].set_index("seed") for method in ("iif", "ppo"))
    both = iif.index.intersection(ppo.index)
    if both.empty:
        return []
    iif, ppo = iif.loc[both], ppo.loc[both]
    rounds, seconds = (_interval(100 * iif[name] / ppo[name], 0) for name in ("rounds_to_best", "time_to_best_s"))
    never = int((iif["best_reached"] == 0).sum())
    bound = f" ({never} of {len(both)} never reach it and count with all of their own)" if never else ""
    more = _interval(iif["reward_at_equal_kl"] - ppo["reward_at_equal_kl"], 2)
    return [
        "",
        f"IIF (f_seq) against PPO, by seed (n = {len(both)}; 95 % t intervals): to the best mean reward of PPO's curve "
        f"it takes {rounds} % of PPO's rounds and {seconds} % of its seconds{bound}; its reward at the same KL differs "
        f"by {more}.",
    ]


def _predicted(table: pd.DataFrame) -> list[str]:
    """Whether scores predict what leaving random halves of a round out does."""
    if table.empty:
        return []
    columns = list(dict.fromkeys(zip(table["round"], table["outcome"], strict=True)))
    lines = [f"| | {' | '.join(f'round {number}: {outcome}' for number, outcome in columns)} |"]
    lines.append(f"|---|{'---|' * len(columns)}")
    for scoring, rows in table.groupby("scoring", sort=False):
        cells = []
        for row in (rows[(rows["round"] == k) & (rows["outcome"] == outcome)].iloc[0] for k, outcome in columns):
            cells.append(f"{row['spearman']:z.2f} [{row['low']:z.2f}, {row['high']:z.2f}]")
        lines.append(f"| {scoring} | {' | '.join(cells)} |")
    return [
        "",
        "Spearman's correlation between what scores predict of leaving random halves of a round out and what it does "
        f"(95 % t intervals, n = {table['n'].max()} seeds):",
        "",
        *lines,
    ]


def _interval(values: pd.Series, decimals: int) -> str:
    found = t_interval(values)
    around = f" [{found.low:z.{decimals}f}, {found.high:z.{decimals}f}]" if np.isfinite(found.low) else ""
    return f"{found.mean:z.{decimals}f}{around}"


def blocks(root: str | Path = ".") -> dict[str, str]:
    """The generated blocks by name."""
    root = Path(root)
    found = {
        block: "\n\n".join(results(load_study(root / f"config/{name}.yaml"), root) for name in names)
        for block, names in STUDIES.items()
    }
    paper = load_study(root / "config/rlhf_paper.yaml")
    table = estimates.table(paper.run_spec("ppo", 0), paper.run_spec("iif", 0))
    return found | {"rlhf_estimates": table}


def render(text: str, root: str | Path = ".") -> str:
    """`text` with every generated block that it has made anew."""
    made = blocks(root)

    def block(match: re.Match) -> str:
        return f"<!-- {match[1]} -->\n{made[match[1]]}\n<!-- end -->"

    return re.sub(rf"<!-- ({'|'.join(made)}) -->\n.*?<!-- end -->", block, text, flags=re.DOTALL)
