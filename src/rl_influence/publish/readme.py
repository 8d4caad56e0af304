"""What README.md and the pages of docs say of the results: `python -m rl_influence.publish.readme` writes it anew.

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


OUTCOMES = {"holds": "Rounds saved", "undecided": "Undecided", "fails": "None saved"}  # of checks that were judged


def found(ledger: Ledger) -> str:
    """The answer in a few lines, without what the studies do not ask for."""
    lines = [headline(ledger), saved(ledger), _step(ledger), _adam(ledger), _papers_measure(ledger)]
    return "\n".join(f"* {line}" for line in [*lines, _clipping(ledger), _tally(ledger)] if line)


def headline(ledger: Ledger) -> str:
    """What holds and what does not, for who reads ten seconds."""
    rows = [row for row in _saved(ledger) if row["outcome"] in OUTCOMES]
    if not rows:
        return ""
    text = f"IIF needs fewer rounds than PPO in {_of(rows)}."
    left = [*_controls(ledger)[LEFT].values()]
    if left:
        text += f" But its steps are larger: against a PPO with steps as large, its saving is sure in {_of(left)}."
    return f"**{text}**"


def _of(rows: list[dict]) -> str:
    """In how many of these environments a check holds."""
    holds = sum(row["outcome"] == "holds" for row in rows)
    return f"{holds or 'none'} of {len(rows)} environment{'s' * (len(rows) > 1)}"


def _saved(ledger: Ledger) -> list[dict]:
    """IIF against PPO in the environments that are asked for."""
    asked = {run.environment for run in ledger.config.runs}
    return [row for row in ledger.of(1, role="decides") if row["environment"] in asked]


def saved(ledger: Ledger) -> str:
    """How many rounds IIF saves where."""
    rows = _saved(ledger)
    groups = {name: [row for row in rows if row["outcome"] == name] for name in OUTCOMES}
    parts = [f"{text}: {_listed(groups[name])}." for name, text in OUTCOMES.items() if groups[name]]
    unit = "(Rounds to 50, 75, 90 % of PPO's rise in return, with intervals; negative: more rounds.)" if parts else ""
    waiting = ", ".join(row["label"] for row in rows if row["outcome"] in ("incomplete", "not run"))
    return " ".join(filter(None, [*parts, f"Not enough runs: {waiting}." if waiting else "", unit]))


def _listed(rows: list[dict]) -> str:
    """Environments with their numbers."""
    return ", ".join(f"{row['label']} {_percent(row, ' %')}" for row in rows)


def _papers_measure(ledger: Ledger) -> str:
    rows = ledger.of(1, role="completes")
    reached = [row["label"] for row in rows if row["outcome"] == "holds"]
    missed = [row["label"] for row in rows if row["outcome"] in ("fails", "undecided")]
    if not reached + missed:
        return ""
    text = f"**A saving of at least 20 %**, by the paper's measure, is sure in {', '.join(reached) or 'no environment'}"
    return f"{text}; not (surely) in {', '.join(missed)}." if missed else f"{text}."


def _clipping(ledger: Ledger) -> str:
    """Clipping alone, which the paper's public code switches off in filtered runs only."""
    beside = [row for row in ledger.of(22, role="beside") if row["check"].startswith("PPO, no clipping against PPO")]
    alone = [row for row in beside if row["outcome"] == "holds"]
    if not any(row["n"] for row in beside):
        return ""
    text = "The paper's public code clips gradients in plain PPO only. Without clipping, PPO itself saves rounds in"
    return f"{text} {_listed(alone) or 'no environment so far'}."


SCALED, LEFT = "PPO with IIF's step against PPO", "IIF against PPO with IIF's step"
CONTROLS = {  # head -> claim, role, words of the check
    "IIF against PPO": (1, "decides", "rounds saved"),
    SCALED: (20, "beside", "PPO, IIF's displacement against PPO:"),
    LEFT: (20, "decides", "against PPO, IIF's displacement:"),
    "IIF with PPO's step against PPO": (20, "decides", "PPO's displacement against PPO:"),
    "IIF against PPO, each at its best rate": (19, "decides", "rounds saved"),
    "IIF against PPO, both unclipped": (22, "decides", "rounds saved"),
}


def _controls(ledger: Ledger) -> dict[str, dict[str, dict]]:
    """Head of a control -> environment -> its check, with three seeds or more."""
    found = {}
    for head, (claim, role, words) in CONTROLS.items():
        rows = [row for row in ledger.of(claim, role=role) if words in row["check"] and row["n"] >= FEWEST_SEEDS]
        found[head] = {row["environment"]: row for row in rows}
    return found


def gain(ledger: Ledger) -> str:
    """What is left of the gain under each control, in the environments that have a number."""
    found = _controls(ledger)
    there = [name for name in ORDER if any(name in checks for checks in found.values())]
    labels = {name: ledger.config.environment(name).label for name in there}
    return markdown(
        [{"": head} | {labels[name]: _percent(checks.get(name)) for name in there} for head, checks in found.items()]
    )


def _percent(row: dict | None, unit: str = "") -> str:
    """A saving in whole percent with its interval, and the sign of a bound."""
    if row is None:
        return "–"
    value, low, high = (f"{100 * row[name]:z.0f}" for name in ("value", "low", "high"))
    return f"{BOUNDS.get(row['bound'], '')}{value}{unit} [{low}, {high}]"


def _step(ledger: Ledger) -> str:
    """The simplest rival: a PPO with a larger step, and what IIF saves against it."""
    checks = _controls(ledger)
    scaled, left = checks[SCALED], checks[LEFT]
    if not scaled:
        return "Whether a larger step does as much is not run yet." if ledger.of(20, role="decides") else ""
    most = [e for e, row in scaled.items() if row["outcome"] == "holds" and e in left and left[e]["outcome"] != "holds"]
    names = " and ".join(", ".join(scaled[e]["label"] for e in most).rsplit(", ", 1))
    text = f"**Larger steps are most of it in {names}.**" if most else "**Is it the step?**"
    text += f" A PPO whose rounds move the network as far as IIF's saves, against PPO: {_listed([*scaled.values()])}."
    return text + (f" IIF against that PPO: {_listed([*left.values()])}." if left else "")


def _adam(ledger: Ledger) -> str:
    """With an optimiser that takes the size out of the gradient."""
    rows = [row for row in ledger.of(16, role="decides") if row["n"] >= FEWEST_SEEDS]
    return f"With Adam, whose steps do not grow with the gradient, IIF saves: {_listed(rows)}." if rows else ""


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
    return f"The paper's claims, each in one environment: {counted}; others are not in this study or wait for runs."


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
    (
        13,
        "decides",
        "A single round without the records that IIF drops raises the test return more than one on all records, by",
    ),
    (4, "completes", "Spearman's correlation of influence with true × estimated advantage (the rule asks for 0.3)"),
    (
        5,
        "decides",
        "Dropping records by their advantage's sign, without a gradient, raises FrozenLake's mean training return",
    ),
    (6, "decides", "The same rules in MiniGrid, where the paper says that they hurt, change it by"),
)


def findings(ledger: Ledger) -> str:
    """Four findings beyond the main claim, each with its interval; first where a check holds."""
    lines = []
    for claim, role, text in FINDINGS:
        rows = [row for row in ledger.of(claim, role=role) if row["n"] > 1 and "advantage error" not in row["check"]]
        shown = [(row["outcome"] == "holds", row["case"] or row["label"], row["text"]) for row in rows]
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
            f"* Undecided: claims {', '.join(map(str, undecided))}. "
            "[What it would take](docs/results.md#what-would-change-our-mind)."
        )
    return "\n".join(lines)


BLOCKS = {make.__name__: make for make in (found, efficiency, gain, claims, findings, waiting)}
INDEX_BLOCKS = {"found": lambda ledger: found(ledger).replace("](docs/", "](")}
PAGES = {"README.md": BLOCKS, "docs/index.md": INDEX_BLOCKS, "docs/results.md": LONG_BLOCKS}


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
