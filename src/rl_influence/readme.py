"""The README's tables, written from the committed results: `python -m rl_influence.readme`.

Each block stands between `<!-- NAME -->` and `<!-- end -->`; a test fails when a block differs from the results.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pandas as pd

from rl_influence.analysis.curves import chosen_iif
from rl_influence.config import Config

STUDY = "config/paper.yaml"


def efficiency(tables: Path, config: Config) -> str:
    """Ours against the paper's: IIF at the paper's p."""
    frame = pd.read_csv(tables / "efficiency.csv")
    lines = [
        "| environment | p | seeds | SE_ave, ours (95 % interval) | SE_ave, paper | SE_peak, ours (95 % interval) | SE_peak, paper |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in frame.to_dict("records"):
        environment = row["environment"]
        if row["method"] != chosen_iif(config, environment) or not row["n"]:
            continue
        p = config.environment(environment).drop_percent
        cells = [config.environment(environment).label, f"{p:g} %", f"{row['n']} of {row['expected']}"]
        for name in ("se_ave", "se_peak"):
            bound = "≤ " if row["unreached" if name == "se_ave" else "peak_unreached"] else ""
            cells.append(f"{bound}{_percent(row[name])} % ({_percent(row[name + '_low'])} to {_percent(row[name + '_high'])})")
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
    for environment, rows in frame.groupby("environment", sort=False):
        rows = rows[(rows["method"] == chosen_iif(config, environment)) & (rows["n"] > 0)].set_index("fraction")
        if rows.empty:
            continue
        cells = [
            f"{'≤ ' if rows.loc[fraction, 'unreached'] else ''}{_percent(rows.loc[fraction, 'reduction'])} %"
            for fraction in fractions
        ]
        lines.append(f"| {config.environment(environment).label} | {' | '.join(cells)} |")
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


BLOCKS = {"efficiency": efficiency, "levels": levels, "missing": missing}


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


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}"


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("."))
