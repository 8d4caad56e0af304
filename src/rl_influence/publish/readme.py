"""The README's tables, written from the committed results: `python -m rl_influence.publish.readme`.

Each block stands between `<!-- NAME -->` and `<!-- end -->`; a test fails when a block differs from the results.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pandas as pd

from rl_influence.analysis.claims import MARKS, number_text
from rl_influence.analysis.curves import chosen_iif, compared_environments, reference_method
from rl_influence.config import EXACT_HEURISTICS, Config

STUDY = "config/paper.yaml"
OUTCOMES = {"f_return": "f_return", "test_return": "exact test return"}


def verdicts(tables: Path, config: Config) -> str:
    """Every claim of the paper with its verdict, and each check that has a number."""
    claims, checks = (_read(tables / f"{name}.csv") for name in ("claims", "claims_checks"))
    lines = ["| | the paper's claim | verdict | ours (95 % interval, n seeds) |", "|---|---|---|---|"]
    for claim in claims.to_dict("records"):
        tested = checks[(checks["claim"] == claim["claim"]) & (checks["n"] > 0)]
        tested = tested[tested["role"].isin(["decides", "vetoes", "completes"]) & tested["outcome"].isin(MARKS)]
        cells = []
        for row in tested.to_dict("records"):
            label = config.environment(row["environment"]).label
            cells.append(f"{MARKS[row['outcome']]} {label}, {row['check']}: {number_text(row)}")
        ours = "<br>".join(cells) or claim["reason"]
        lines.append(f"| {claim['claim']} | {claim['statement']} | **{claim['verdict']}** | {ours} |")
    return "\n".join(lines)


def efficiency(tables: Path, config: Config) -> str:
    """Ours against the paper's: IIF at the paper's p."""
    frame, compared = pd.read_csv(tables / "efficiency.csv"), compared_environments(config)
    lines = [
        "| environment | p | seeds | SE_ave, ours | SE_ave, paper | SE_peak, ours | SE_peak, paper |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in frame.to_dict("records"):
        environment = row["environment"]
        if row["method"] != chosen_iif(config, environment) or not row["n"] or environment not in compared:
            continue
        p = config.environment(environment).drop_percent
        cells = [config.environment(environment).label, f"{p:g} %", f"{row['n']} of {row['expected']}"]
        for name in ("se_ave", "se_peak"):
            bound = "≤ " if row["unreached" if name == "se_ave" else "peak_unreached"] else ""
            interval = f" ({_percent(row[name + '_low'])} to {_percent(row[name + '_high'])})" if row["n"] > 1 else ""
            cells.append(f"{bound}{_percent(row[name])} %{interval}")
            paper = f"{_percent(row['paper_' + name])} ± {_percent(row['paper_' + name + '_spread'])} %"
            cells.append(paper if pd.notna(row["paper_" + name]) else "–")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def levels(tables: Path, config: Config) -> str:
    """Rounds that IIF saves at parts of PPO's range."""
    frame = pd.read_csv(tables / "efficiency_levels.csv")
    fractions = sorted(frame["fraction"].unique())
    lines = [
        f"| rounds saved at … of PPO's rise | {' | '.join(f'{100 * fraction:g} %' for fraction in fractions)} |",
        f"|---|{'---|' * len(fractions)}",
    ]
    for environment in compared_environments(config):
        rows = frame[frame["environment"] == environment]
        rows = rows[(rows["method"] == chosen_iif(config, environment)) & (rows["n"] > 0)].set_index("fraction")
        if rows.empty:
            continue
        cells = [
            f"{'≤ ' if rows.loc[fraction, 'unreached'] else ''}{_percent(rows.loc[fraction, 'reduction'])} %"
            for fraction in fractions
        ]
        lines.append(f"| {config.environment(environment).label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def controls(tables: Path, config: Config) -> str:
    """What makes up the gain: differences in SE_ave that each change one thing, or all of them."""
    frame = _read(tables / "controls.csv")
    frame = frame[(frame["quantity"] == "se_ave") & (frame["n"] > 0)]
    apart = frame[frame["effect"] == "clipping"]
    environments = list(dict.fromkeys(apart["environment"]))
    lines = [
        f"| | difference in SE_ave, points | {' | '.join(config.environment(name).label for name in environments)} |",
        f"|---|---|{'---|' * len(environments)}",
    ]
    for (effect, contrast), rows in frame.groupby(["effect", "contrast"], sort=False):
        cells = []
        for name in environments:
            row = rows[rows["environment"] == name].to_dict("records")
            cells.append("–" if not row else _points(row[0]))
        lines.append(f"| {effect} | {contrast} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _points(row: dict) -> str:
    mark = "\\*" if row["unreached"] else ""
    interval = f" ({_percent(row['low'])} to {_percent(row['high'])})" if row["n"] > 1 else ""
    return f"{_percent(row['value'])}{mark}{interval}"


def heuristics(tables: Path, config: Config) -> str:
    """SE_ave of IIF and of the advantage heuristics, with true advantages estimated and exact."""
    frame = _read(tables / "efficiency.csv")
    frame = frame[frame["n"] > 0].set_index(["environment", "method"])
    exact = [name for name in config.methods if config.method(name).selection.kind in EXACT_HEURISTICS]
    environments = [name for name in compared_environments(config) if (name, exact[0]) in frame.index]
    estimated = [name.removesuffix("_exact") for name in exact]
    lines = [
        f"| SE_ave | {' | '.join(config.environment(name).label for name in environments)} |",
        f"|---|{'---|' * len(environments)}",
    ]
    for method in (None, *estimated, *exact):  # None: IIF
        cells = []
        for name in environments:
            key = name, method or chosen_iif(config, name)
            if key not in frame.index:
                cells.append("–")
                continue
            row = frame.loc[key]
            bound = "≤ " if row["unreached"] else ""
            interval = f"{_percent(row['se_ave_low'])} to {_percent(row['se_ave_high'])}"
            cells.append(f"{bound}{_percent(row['se_ave'])} % ({interval}, n = {row['n']})")
        label = config.method(method).label if method else "IIF at the environment's p"
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def faithfulness(tables: Path, config: Config) -> str:
    """Linear datamodelling scores: do summed scores predict what the removal of random subsets does?"""
    frame = _read(tables / "faithfulness_summary.csv")
    frame = frame[(frame["removal"] == "subsets") & (frame["n"] > 0)]
    means = frame.groupby(["environment", "outcome", "scoring"], sort=False)["spearman"].mean()
    columns = list(dict.fromkeys(key[:2] for key in means.index))
    heads = [f"{config.environment(name).label}, {OUTCOMES[outcome]}" for name, outcome in columns]
    lines = [f"| Spearman, mean over rounds | {' | '.join(heads)} |", f"|---|{'---|' * len(columns)}"]
    for scoring in dict.fromkeys(frame["scoring"]):
        cells = [f"{means[(*column, scoring)]:.2f}" if (*column, scoring) in means else "–" for column in columns]
        lines.append(f"| {scoring.replace('|', chr(92) + '|')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def costs(tables: Path, config: Config) -> str:
    """CPU time of a round and of a run, by phase."""
    frame = _read(tables.parent / "runtimes/runtimes.csv")
    phases = ["sampling_s", "influence_s", "optimise_s", "evaluate_s"]
    lines = [
        "| environment | method | runs | rounds | sampling | influence | optimisation | evaluation | a run, min |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rounds = {(run.environment, run.method): run.spec.rounds for run in config.runs}
    for row in frame[frame["n"] > 0].to_dict("records"):
        environment, method = row["environment"], row["method"]
        if method not in (reference_method(config), chosen_iif(config, environment)):
            continue
        k = rounds[environment, method]
        times = [row[name] for name in phases]
        cells = [config.environment(environment).label, config.method(method).label, f"{row['n']}", f"{k}"]
        cells += [*(f"{value:.2g}" for value in times), f"{k * sum(times) / 60:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def missing(tables: Path, config: Config) -> str:
    """What the study's grid asks for and the results do not have."""
    frame = pd.read_csv(tables / "missing_runs.csv")
    total = len(config.runs)
    if frame.empty:
        return f"All {total} runs of the study are there."
    counts = frame.groupby("environment", sort=False)["seed"].count()
    listed = ", ".join(f"{config.environment(name).label} {n}" for name, n in counts.items())
    return (
        f"{len(frame)} of the study's {total} runs are missing and enter no mean ({listed}): "
        f"[missing_runs.csv](results/{config.study}/tables/missing_runs.csv)."
    )


BLOCKS = {
    make.__name__: make for make in (verdicts, controls, heuristics, faithfulness, efficiency, levels, costs, missing)
}


def render(text: str, tables: Path, config: Config) -> str:
    """`text` with every block made anew."""

    def block(match: re.Match) -> str:
        return f"<!-- {match[1]} -->\n{BLOCKS[match[1]](tables, config)}\n<!-- end -->"

    return re.sub(rf"<!-- ({'|'.join(BLOCKS)}) -->\n.*?<!-- end -->", block, text, flags=re.DOTALL)


def main(root: Path = Path(".")) -> None:
    """Rewrites README.md below `root`."""
    config = Config(root / STUDY)
    path = root / "README.md"
    path.write_text(render(path.read_text(), root / "results" / config.study / "tables", config))


def _read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, keep_default_na=False, na_values=[""])


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}"


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("."))
