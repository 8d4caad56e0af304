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
from rl_influence.analysis.claims.models import FEWEST_SEEDS
from rl_influence.analysis.numbers import BOUNDS
from rl_influence.config import Config
from rl_influence.publish.ledger import STUDIES, Ledger, read_table
from rl_influence.publish.results_page import BLOCKS as LONG_BLOCKS
from rl_influence.publish.results_page import ppo_ends
from rl_influence.publish.results_page import table as aligned
from rl_influence.runs.files import write_atomic

ORDER = ("frozenlake", "minigrid", "acrobot", "highway", "lunarlander", "bipedalwalker")
COLUMNS = dict(zip(ORDER, ["FrozenLake", "MiniGrid", "Acrobot", "Highway", "Lunar", "Bipedal"], strict=True))
COLUMNS |= {"rlhf": "RLHF"}  # of the claims' table
SEEDS = {"confirm": "fresh", "paper": "explored"}
BESIDE_SGD = {"minigrid_adam": "minigrid", "lunarlander_adam": "lunarlander"}


def found(ledger: Ledger) -> str:
    """The answer in a few lines, without what the studies do not ask for."""
    lines = [answer(ledger), _step(ledger), _papers_measure(ledger), _clipping(ledger), _tally(ledger)]
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
    return f"{'; '.join(parts)}. (Rounds to 50, 75 and 90 % of PPO's rise; negative: loses.)" if parts else ""


def _listed(rows: list[dict]) -> str:
    """Environments with their numbers in whole percent."""
    ends = [[f"{100 * row[name]:z.0f}" for name in ("value", "low", "high")] for row in rows]
    shown = (
        f"{row['label']} ({BOUNDS.get(row['bound'], '')}{value} % [{low}, {high}])"
        for row, (value, low, high) in zip(rows, ends, strict=True)
    )
    return ", ".join(shown)


def _papers_measure(ledger: Ledger) -> str:
    rows = ledger.of(1, role="completes")
    reached = [row["label"] for row in rows if row["outcome"] == "holds"]
    missed = [row["label"] for row in rows if row["outcome"] in ("fails", "undecided")]
    if not reached + missed:
        return ""
    text = f"**At least 20 % by the paper's own measure**, SE_ave, is sure in {', '.join(reached) or 'no environment'}"
    return f"{text}; not, or not surely, in {', '.join(missed)}." if missed else f"{text}."


def _clipping(ledger: Ledger) -> str:
    """Clipping alone, which the paper's public code switches off in filtered runs only."""
    beside = [row for row in ledger.of(22, role="beside") if row["check"].startswith("PPO, no clipping against PPO")]
    alone = [row for row in beside if row["outcome"] == "holds"]
    if not any(row["n"] for row in beside):
        return ""
    text = "Without gradient clipping, which the public code switches off in filtered runs only, PPO itself saves"
    return f"{text} rounds in {_listed(alone) or 'no environment so far'}."


CONTROLS = {  # head -> claim, role, words of the check
    "IIF against PPO": (1, "decides", "rounds saved"),
    "PPO with IIF's step": (20, "beside", "PPO, IIF's displacement against PPO:"),
    "IIF against that": (20, "decides", "against PPO, IIF's displacement:"),
    "IIF with PPO's step": (20, "decides", "PPO's displacement against PPO:"),
    "both with their best rate": (19, "decides", "rounds saved"),
    "both unclipped": (22, "decides", "rounds saved"),
}


def _controls(ledger: Ledger) -> dict[str, dict[str, dict]]:
    """Head of a control -> environment -> its check, with three seeds or more."""
    found = {}
    for head, (claim, role, words) in CONTROLS.items():
        rows = [row for row in ledger.of(claim, role=role) if words in row["check"] and row["n"] >= FEWEST_SEEDS]
        found[head] = {row["environment"]: row for row in rows}
    return found


def gain(ledger: Ledger) -> str:
    """What is left of the gain under each control."""
    found, rows = _controls(ledger), []
    for environment in ORDER:
        cells = {}
        for head, checks in found.items():
            row = checks.get(environment)
            value, low, high = (f"{100 * row[name]:z.0f}" for name in ("value", "low", "high")) if row else ("",) * 3
            cells[head] = f"{BOUNDS.get(row['bound'], '')}{value} [{low}, {high}]" if row else "–"
        rows.append({"": ledger.config.environment(environment).label} | cells)
    return markdown(rows)


def _step(ledger: Ledger) -> str:
    """The simplest rival: a PPO with a larger step, and what IIF saves against it."""
    checks = _controls(ledger)
    scaled, left = checks["PPO with IIF's step"], checks["IIF against that"]
    if not scaled:
        return "Whether a larger step does as much is not run yet." if ledger.of(20, role="decides") else ""
    most = [e for e, row in scaled.items() if row["outcome"] == "holds" and e in left and left[e]["outcome"] != "holds"]
    names = ", ".join(scaled[e]["label"] for e in most)
    text = f"**Larger steps are most of it in {names}.** A" if most else "**Is it the step?** A"
    text += f" PPO whose rounds move the actor as far as IIF's saves as well: {_listed([*scaled.values()])}."
    adam = [row for row in ledger.of(16, role="decides") if row["n"] >= FEWEST_SEEDS]
    text += f" Against it IIF saves {_listed([*left.values()])}."
    return text + (f" With Adam, whose steps do not grow with the gradient: {_listed(adam)}." if adam else "")


def _tally(ledger: Ledger) -> str:
    """Verdicts of both studies, or what one of them says by itself."""
    if ledger.names != STUDIES:
        return cases(ledger)
    tally = Counter(ledger.verdict(claim).verdict for claim in _papers_claims(ledger).index)
    counted = ", ".join(f"{tally[name]} {name}" for name in VERDICTS if tally[name])
    levels = ", ".join(f"{ledger.level(study)} for {SEEDS[study]} ones" for study in ledger.studies)
    return (
        f"Of the paper's 17 claims: {counted}. The [rules](docs/claims.md) were written after the explored seeds, "
        f"before any fresh one, had been looked at. Intervals over seeds: {levels}."
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


EFFICIENCY = ("environment", "SE_ave, ours", "n, seeds", "paper", "agree?", "null", "PPO ends at (solved)")


def efficiency(ledger: Ledger) -> str:
    """SE_ave of IIF, ours and the paper's."""
    rows = {row["environment"]: row for row in ledger.of(1, role="vetoes", quantity="se_ave")}
    table = []
    for environment in ORDER:
        row = rows.get(environment)
        if row is None:
            continue
        agree = {"yes": "yes", "no": "no"}.get(row["paper_inside"], "–")
        agree = "bound" if agree == "yes" and row["bound"] == "at most" else agree  # the number itself may be far below
        ours = row["text"].partition(", n = ")
        n = f"{ours[2]}, {SEEDS[row['study']]}" if row["n"] else "–"
        null = f"{100 * row['null']:.0f} %" if pd.notna(row["null"]) else "–"
        cells = [row["label"], ours[0] if row["n"] else "not run", n, f"{row['paper']} %", agree, null]
        cells.append(ppo_ends(ledger, environment, row["study"]))
        table.append(dict(zip(EFFICIENCY, cells, strict=True)))
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
        cells = {"": str(number), "claim": title, "verdict": ledger.verdict(number).verdict}
        table.append(cells | {label: " ".join(marks.get(place, [])) for place, label in COLUMNS.items()})
    return markdown(table)


FINDINGS = (  # claim, role, what its rows say
    (13, "decides", "A single round without the records that IIF drops raises the test return more than one on all"),
    (4, "completes", "Spearman's correlation of influence with true × estimated advantage (the rule asks for 0.3)"),
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
    undecided = [n for n in ledger.verdicts[ledger.studies[-1]].index if ledger.verdict(n).verdict == "undecided"]
    if undecided:
        lines.append(
            f"* Undecided, whatever the missing runs show: {', '.join(map(str, undecided))}. "
            "[What it would take](docs/results.md#what-would-change-our-mind)."
        )
    return "\n".join(lines)


BLOCKS = {make.__name__: make for make in (found, efficiency, gain, claims, findings, waiting)}
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
