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
from rl_influence.publish.ledger import STUDIES, Ledger, read_table
from rl_influence.publish.results_page import BLOCKS as LONG_BLOCKS
from rl_influence.publish.results_page import table as aligned
from rl_influence.runs.files import write_atomic

ORDER = ("frozenlake", "minigrid", "acrobot", "highway", "lunarlander", "bipedalwalker")
COLUMNS = dict(zip(ORDER, ["FrozenLake", "MiniGrid", "Acrobot", "Highway", "Lunar", "Bipedal"], strict=True))
COLUMNS |= {"rlhf": "RLHF"}  # of the claims' table
SEEDS = {"confirm": "fresh", "paper": "explored"}
BESIDE_SGD = {"minigrid_adam": "minigrid", "lunarlander_adam": "lunarlander"}


def found(ledger: Ledger) -> str:
    """The answer in a few lines, without what the studies do not ask for."""
    lines = [answer(ledger), _rates(ledger), _papers_measure(ledger), _clipping(ledger), _tally(ledger)]
    return "\n".join(f"* {line}" for line in lines if line)


def answer(ledger: Ledger) -> str:
    """Where IIF saves rounds, in a sentence."""
    asked = {run.environment for run in ledger.config.runs}
    saved = [row for row in ledger.of(1, role="decides") if row["environment"] in asked]
    groups = {
        outcome: [row for row in saved if row["outcome"] == outcome] for outcome in ("holds", "undecided", "fails")
    }
    parts = [f"**IIF saves rounds in {_listed(groups['holds'])}**"] if groups["holds"] else []
    parts += [f"undecided: {_listed(groups['undecided'])}"] if groups["undecided"] else []
    parts += [f"no saving: {_listed(groups['fails'])}"] if groups["fails"] else []
    waiting = [row["label"] for row in saved if row["outcome"] in ("incomplete", "not run")]
    parts += [f"not enough runs: {', '.join(waiting)}"] if waiting else []
    return f"{'; '.join(parts)}. (Rounds to 50, 75 and 90 % of PPO's rise.)" if parts else ""


def _listed(rows: list[dict]) -> str:
    return ", ".join(f"{row['label']} ({row['text']})" for row in rows)


def _papers_measure(ledger: Ledger) -> str:
    rows = ledger.of(1, role="completes")
    reached = [row for row in rows if row["outcome"] == "holds"]
    missed = [row for row in rows if row["outcome"] in ("fails", "undecided")]
    if not reached + missed:
        return ""
    text = f"The paper's own measure, SE_ave, exceeds its 20 % in {_listed(reached) or 'no environment'}"
    return f"{text}; not, or not surely, in {_listed(missed)}." if missed else f"{text}."


def _clipping(ledger: Ledger) -> str:
    """Clipping alone, which the paper's public code switches off in filtered runs only."""
    beside = [row for row in ledger.of(22, role="beside") if row["check"].startswith("PPO, no clipping against PPO")]
    filtered = ledger.of(22, role="decides")
    if not any(row["n"] for row in beside + filtered):
        return ""
    alone, held = ([row for row in rows if row["outcome"] == "holds"] for rows in (beside, filtered))
    text = "Gradient clipping, which the public code switches off in filtered runs only, "
    text += f"explains a gain by itself in {_listed(alone)}" if alone else "explains no gain by itself so far"
    return f"{text}; without it in both, IIF saves rounds in {_listed(held) or 'no environment yet'}."


def _rates(ledger: Ledger) -> str:
    """The simplest rival: what IIF saves against a PPO with a larger step."""
    rows = ledger.of(18, role="decides")
    if not any(row["n"] for row in rows):
        waiting = any(row["expected"] for row in rows)
        return "Whether a larger learning rate does as much is not run yet." if waiting else ""
    rivals = {"against a PPO with a tuned learning rate": (18, ""), "with both tuned": (19, "")}
    rivals["against a PPO whose rounds move the actor as far as IIF's"] = (20, ", IIF's displacement:")
    parts = [
        f"{rival}: {_listed(found)}"
        for rival, (claim, words) in rivals.items()
        if (found := [row for row in ledger.of(claim, role="decides") if row["n"] > 2 and words in row["check"]])
    ]
    return f"**Is it the step?** Rounds that IIF saves (negative: loses) {'; '.join(parts)}."


def _tally(ledger: Ledger) -> str:
    """Verdicts of both studies, or what one of them says by itself."""
    if ledger.names != STUDIES:
        return cases(ledger)
    tally = Counter(ledger.verdict(claim)[0] for claim in _papers_claims(ledger).index)
    counted = ", ".join(f"{tally[name]} {name}" for name in VERDICTS if tally[name])
    levels = ", ".join(f"{ledger.level(study)} for {SEEDS[study]} ones" for study in ledger.studies)
    return (
        f"Of the paper's 17 claims: {counted}. The [rules](docs/claims.md) were committed before any fresh seed was "
        f"looked at; the explored seeds had been seen by then. Intervals over seeds: {levels}."
    )


def cases(ledger: Ledger) -> str:
    """How the paper's claims fare in the environments that a study tests."""
    words = {"full": "holds", "part": "holds in part", "fails": "fails", "undecided": "undecided"}
    counts = _papers_claims(ledger)[list(words)].sum()
    if not counts.sum():
        return "This study tests no claim of the paper."
    counted = ", ".join(f"{text} {counts[name]}" for name, text in words.items() if counts[name])
    return f"A claim of the paper in an environment: {counted}; the others are not in this study or wait for its runs."


def _papers_claims(ledger: Ledger) -> pd.DataFrame:
    """Without the controls, which are ours."""
    frame = ledger.verdicts[ledger.studies[-1]]
    return frame[frame.index <= 17]


def markdown(rows: list[dict]) -> str:
    """A Markdown table without room around its bars: a page with a limit of words has wide ones."""
    return re.sub(r" *\| *", "|", aligned(rows))


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
        n = f"{ours[2]}, {SEEDS[row['study']]}" if row["n"] else "–"
        null = f"{100 * row['null']:.0f} %" if pd.notna(row["null"]) else "–"
        cells = [row["label"], ours[0] if row["n"] else "not run", n, f"{row['paper']} %", agree, null]
        table.append(
            dict(zip(["environment", "SE_ave, ours", "n, seeds", "paper", "agree?", "null"], cells, strict=True))
        )
    return markdown(table)


def claims(ledger: Ledger) -> str:
    """One line per claim."""
    table = []
    for number, row in ledger.verdicts[ledger.studies[-1]].iterrows():
        marks: dict[str, list[str]] = {}
        for environment, mark in ledger.marks(number).items():
            place = BESIDE_SGD.get(environment, environment if environment in ORDER else "rlhf")
            marks.setdefault(place, []).append(mark)
        title = row["title"] if number <= 17 else f"*{row['title']}*"
        cells = {"": str(number), "claim": title, "verdict": ledger.verdict(number)[0]}
        table.append(cells | {label: " ".join(marks.get(place, [])) for place, label in COLUMNS.items()})
    return markdown(table)


FINDINGS = (  # claim, role, what its rows say
    (13, "decides", "A single round without the records that IIF drops raises the test return more than one on all"),
    (4, "completes", "Influence and true × estimated advantage correlate (Spearman)"),
    (5, "decides", "Dropping records by their advantage's sign, without a gradient, raises the mean training return"),
    (6, "decides", "The same rules in MiniGrid, where the paper says that they hurt, change it by"),
)


def findings(ledger: Ledger) -> str:
    """Four findings beyond the main claim, each with its interval; first where a check holds."""
    lines = []
    for claim, role, text in FINDINGS:
        rows = [row for row in ledger.of(claim, role=role) if row["n"] > 1 and "advantage error" not in row["check"]]
        shown = [(row["outcome"] == "holds", f"{row['label']} {row['case']}".strip(), row["text"]) for row in rows]
        sure, others = ("; ".join(f"{w} {t}" for known, w, t in shown if known == which) for which in (True, False))
        parts = [sure, f"not surely: {others}" if others and sure and role == "decides" else others]
        if rows:
            lines.append(f"* {text}: {'; '.join(filter(None, parts))}.")
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
