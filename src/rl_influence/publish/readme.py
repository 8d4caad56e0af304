"""What README.md and docs/results.md say of the results: `python -m rl_influence.publish.readme` writes it anew.

Each block stands between `<!-- NAME -->` and `<!-- end -->`; a test fails when one differs from the committed tables.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

from rl_influence.analysis.claims import VERDICTS
from rl_influence.config import Config
from rl_influence.publish.ledger import Ledger, read_table
from rl_influence.publish.results_page import BLOCKS as LONG_BLOCKS
from rl_influence.publish.results_page import table as markdown
from rl_influence.runs.files import write_atomic

ORDER = ("frozenlake", "minigrid", "acrobot", "highway", "lunarlander", "bipedalwalker")
BESIDE_SGD = {"minigrid_adam": "minigrid", "lunarlander_adam": "lunarlander"}  # columns of README's matrix


def found(ledger: Ledger) -> str:
    """The answer in four lines."""
    saved = ledger.of(1, role="decides")
    groups = {
        outcome: [row for row in saved if row["outcome"] == outcome] for outcome in ("holds", "undecided", "fails")
    }
    parts = [f"IIF saves rounds in {_listed(groups['holds'])}"] if groups["holds"] else []
    parts += [f"undecided: {_listed(groups['undecided'])}"] if groups["undecided"] else []
    parts += [f"no saving: {_listed(groups['fails'])}"] if groups["fails"] else []
    waiting = [row["label"] for row in saved if row["outcome"] in ("incomplete", "not run")]
    parts += [f"not enough runs yet: {', '.join(waiting)}"] if waiting else []
    papers = ledger.of(1, role="completes")
    reached = [row for row in papers if row["outcome"] == "holds"]
    missed = [row for row in papers if row["outcome"] in ("fails", "undecided")]
    tally = Counter(ledger.verdict(claim)[0] for claim in ledger.verdicts[ledger.studies[-1]].index if claim <= 17)
    counted = ", ".join(f"{tally[name]} {name}" for name in VERDICTS if tally[name])
    lines = [
        f"**{parts[0]}**; {'; '.join(parts[1:])}. (Rounds to 50, 75 and 90 % of PPO's rise.)"
        if parts[1:]
        else parts[0],
        f"The paper's own measure, SE_ave, exceeds its 20 % in {_listed(reached) or 'no environment'}; "
        f"not, or not surely, in {_listed(missed) or 'none'}.",
        f"{_clipping(ledger)} {_rates(ledger)}",
        f"Of the paper's 17 claims: {counted}. The [rules](docs/claims.md) were committed before any fresh seed was "
        "looked at; the explored seeds had been seen by then.",
    ]
    return "\n".join(f"* {line}" for line in lines)


def _listed(rows: list[dict]) -> str:
    return ", ".join(f"{row['label']} ({row['text']})" for row in rows)


def _clipping(ledger: Ledger) -> str:
    """Clipping alone, which the paper's public code switches off in filtered runs only."""
    beside = [row for row in ledger.of(22, role="beside") if row["check"].startswith("PPO, no clipping against PPO")]
    alone = [row for row in beside if row["outcome"] == "holds"]
    filtered = ledger.of(22, role="decides")
    text = "Gradient clipping, which the public code switches off in filtered runs only, "
    text += f"explains a gain by itself in {_listed(alone)}" if alone else "explains no gain by itself so far"
    held = [row for row in filtered if row["outcome"] == "holds"]
    return f"{text}; without it in both, IIF saves rounds in {_listed(held) or 'no environment yet'}."


def _rates(ledger: Ledger) -> str:
    """The simplest rival."""
    words = [f"{verdict}" for verdict in dict.fromkeys(ledger.verdict(claim)[0] for claim in (18, 19))]
    if words == ["not run"]:
        return "Whether a larger learning rate does as much is not run yet."
    held = ledger.of(18, role="decides")
    return f"Against a PPO with a tuned learning rate: {_listed([row for row in held if row['n'] > 0])}."


def efficiency(ledger: Ledger) -> str:
    """SE_ave of IIF, ours and the paper's."""
    rows = {row["environment"]: row for row in ledger.of(1, role="vetoes", quantity="se_ave")}
    table = []
    for environment in ORDER:
        row = rows.get(environment)
        if row is None:
            continue
        agree = {"yes": "yes", "no": "no"}.get(row["paper_inside"], "–")
        ours = row["text"].partition(", n = ")
        seeds = {"confirm": "fresh", "paper": "explored"}[row["study"]]
        n = f"{ours[2]}, {seeds}" if row["n"] else "–"
        null = f"{100 * row['null']:.0f} %" if pd.notna(row["null"]) else "–"
        cells = [row["label"], ours[0] if row["n"] else "not run", n, f"{row['paper']} %", agree, null]
        table.append(
            dict(zip(["environment", "SE_ave, ours", "n, seeds", "paper", "agree?", "null"], cells, strict=True))
        )
    return markdown(table)


def claims(ledger: Ledger) -> str:
    """One line per claim."""
    labels = ["FrozenLake", "MiniGrid", "Acrobot", "Highway", "Lunar", "Bipedal"]
    table = []
    for number, row in ledger.verdicts[ledger.studies[-1]].iterrows():
        marks: dict[str, list[str]] = {}
        for environment, mark in ledger.marks(number).items():
            marks.setdefault(BESIDE_SGD.get(environment, environment), []).append(mark)
        cells = [" ".join(marks.get(environment, [])) for environment in ORDER]
        title = row["title"] if number <= 17 else f"*{row['title']}*"
        cells = [str(number), title, ledger.verdict(number)[0], *cells]
        table.append(dict(zip(["", "claim", "verdict", *labels], cells, strict=True)))
    return markdown(table)


def findings(ledger: Ledger) -> str:
    """Four findings beyond the main claim, each with its interval."""
    lines = []
    for claim, role, text in (
        (13, "decides", "A single round trained without the records that IIF drops gains more than one on all of them"),
        (4, "completes", "Influence and true × estimated advantage correlate (Spearman)"),
        (
            5,
            "decides",
            "Dropping records whose advantage has the wrong sign learns faster in FrozenLake, with no gradient at all",
        ),
        (6, "decides", "In MiniGrid, where the paper says it hurts, the same rule gives"),
    ):
        rows = [row for row in ledger.of(claim, role=role) if row["n"] > 1 and "advantage error" not in row["check"]]
        if rows:
            shown = "; ".join(f"{row['label']}{' ' + row['case'] if row['case'] else ''} {row['text']}" for row in rows)
            lines.append(f"* {text}: {shown}.")
    return "\n".join(lines)


def waiting(ledger: Ledger) -> str:
    """What is open."""
    lines = []
    for study in ledger.studies:
        missing = read_table(ledger.tables(study) / "missing_runs.csv")
        total = len(Config(ledger.root / f"config/{study}.yaml").runs)
        counts = missing.groupby("environment", sort=False)["seed"].count()
        labels = ", ".join(f"{ledger.config.environment(name).label} {n}" for name, n in counts.items())
        state = (
            f"{len(missing)} of {total} runs are missing ({labels})" if len(missing) else f"all {total} runs are there"
        )
        lines.append(f"* Study `{study}`: {state}.")
    undecided = [n for n in ledger.verdicts[ledger.studies[-1]].index if ledger.verdict(n)[0] == "undecided"]
    if undecided:
        lines.append(
            f"* Undecided with all runs there: {', '.join(map(str, undecided))}. How many seeds they would take: "
            "[power](docs/results.md#power)."
        )
    return "\n".join(lines)


BLOCKS = {make.__name__: make for make in (found, efficiency, claims, findings, waiting)}


PAGES = {"README.md": BLOCKS, "docs/results.md": LONG_BLOCKS}


def render(text: str, blocks: Mapping[str, Callable[[Ledger], str]], ledger: Ledger) -> str:
    """`text` with every block made anew.

    Raises:
        ValueError: for a text without one of the blocks, or with a block that nothing makes.
    """
    named = re.findall(r"<!-- (?!end )(\w+) -->", text)
    if sorted(named) != sorted(blocks):
        raise ValueError(f"the page has the blocks {', '.join(named)}, and not {', '.join(blocks)}")

    def block(match: re.Match) -> str:
        return f"<!-- {match[1]} -->\n{blocks[match[1]](ledger).rstrip()}\n<!-- end -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- end -->", block, text, flags=re.DOTALL)


def files(root: Path) -> dict[Path, str]:
    """The pages that speak of results, as they should be."""
    ledger = Ledger(root)
    return {root / name: render((root / name).read_text(), blocks, ledger) for name, blocks in PAGES.items()}


if __name__ == "__main__":
    for path, text in files(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(".")).items():
        write_atomic(path, text.encode())
