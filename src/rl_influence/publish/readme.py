"""The README's tables, written from the committed results: `python -m rl_influence.publish.readme`.

Each block stands between `<!-- NAME -->` and `<!-- end -->`; a test fails when a block differs from the results.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from rl_influence.analysis.claims import MARKS, number_text
from rl_influence.analysis.curves import chosen_iif, compared_environments, reference_method
from rl_influence.analysis.numbers import UNDEFINED, count, interval, number
from rl_influence.config import Config

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
        "| environment | p | seeds | SE_ave, ours | PPO against PPO | SE_ave, paper | SE_peak, ours | SE_peak, paper |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in frame.to_dict("records"):
        environment = row["environment"]
        if row["method"] != chosen_iif(config, environment) or not row["n"] or environment not in compared:
            continue
        p = config.environment(environment).drop_percent
        cells = [config.environment(environment).label, f"{p:g} %", count(row)]
        cells += [
            _shown(row, "se_ave", "at most" * bool(row["unreached"])),
            f"{number(row['se_ave_null'], percent=True)} %",
        ]
        cells += [_paper(row, "se_ave")]
        reached = row["n"] - row["peak_unreached"]
        few = pd.isna(row["se_peak"])
        peak = (
            f"reached in {reached} of {row['n']}" if few else _shown(row, "se_peak", "at most" * (reached < row["n"]))
        )
        lines.append(f"| {' | '.join([*cells, peak, _paper(row, 'se_peak')])} |")
    return "\n".join(lines)


def levels(tables: Path, config: Config) -> str:
    """Rounds that IIF saves at parts of PPO's rise."""
    frame = _read(tables / "rounds_saved.csv").astype({"at": str})
    parts = {at: "mean" if at == "mean" else f"{100 * float(at):g} %" for at in dict.fromkeys(frame["at"])}
    lines = [
        f"| rounds saved at … of PPO's rise | {' | '.join(parts.values())} |",
        f"|---|{'---|' * len(parts)}",
    ]
    for environment in compared_environments(config):
        rows = frame[(frame["environment"] == environment) & (frame["n"] > 0)]
        rows = rows[rows["method"] == chosen_iif(config, environment)].set_index("at")
        if len(rows):
            cells = [f"{_shown(rows.loc[at], 'rounds_saved')}{_star(rows.loc[at])}" for at in parts]
            lines.append(f"| {config.environment(environment).label}, n = {rows['n'].iloc[0]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def controls(tables: Path, config: Config) -> str:
    """What makes up the gain: two methods of the same seeds that differ in one thing, or in all of them."""
    frame = _read(tables / "controls.csv")
    frame = frame[(frame["quantity"] == "rounds_saved") & (frame["n"] > 0)]
    return _compared(frame, config, list(dict.fromkeys(frame.loc[frame["effect"] == "clipping", "environment"])))


def heuristics(tables: Path, config: Config) -> str:
    """The advantage heuristics with exact and with estimated advantages, and IIF."""
    frame = _read(tables / "heuristics.csv")
    frame = frame[(frame["quantity"] == "rounds_saved") & (frame["n"] > 0)]
    return _compared(frame, config, list(dict.fromkeys(frame["environment"])))


def _compared(frame: pd.DataFrame, config: Config, environments: list[str]) -> str:
    """Contrasts as rows, environments as columns."""
    lines = [
        f"| | rounds saved | {' | '.join(config.environment(name).label for name in environments)} |",
        f"|---|---|{'---|' * len(environments)}",
    ]
    for (effect, contrast), rows in frame.groupby(["effect", "contrast"], sort=False):
        cells = []
        for name in environments:
            row = rows[rows["environment"] == name].to_dict("records")
            cells.append(f"{_shown(row[0], '')}{_star(row[0])}, n = {row[0]['n']}" if row else UNDEFINED)
        lines.append(f"| {effect} | {contrast} | {' | '.join(cells)} |")
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


def _shown(row: Mapping, name: str, bound: str = "") -> str:
    """A share of rounds in percent, with its interval."""
    columns = (name, f"{name}_low", f"{name}_high") if name else ("value", "low", "high")
    return interval(*(row[column] for column in columns), percent=True, bound=bound)


def _star(row: Mapping) -> str:
    return "\\*" if row["unreached"] else ""


def _paper(row: Mapping, name: str) -> str:
    mean, spread = row[f"paper_{name}"], row[f"paper_{name}_spread"]
    return UNDEFINED if pd.isna(mean) else f"{number(mean, percent=True)} ± {number(spread, percent=True)} %"


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("."))
