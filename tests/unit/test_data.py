"""docs/data.md describes every column of every committed CSV file, and none that is not there."""

from __future__ import annotations

import csv
import re
import subprocess
from collections import defaultdict
from pathlib import Path

from rl_influence.rlhf import store, tables

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/data.md").read_text()
OPTIONAL = re.compile(r"^[\w ]+ only: ")  # columns of some environments or methods, of which there may be no result yet
MODELS = " of language models"


def rows_of(text: str) -> dict[str, tuple[str, str]]:
    """Column -> (unit, meaning) of the tables in a part of the page."""
    found: dict[str, tuple[str, str]] = {}
    for names, unit, meaning in re.findall(r"^\| (`.+?) \| (.+?) \| (.+) \|$", text, re.M):
        for name in re.findall(r"`([^`]+)`", names):
            assert name not in found, f"{name} is described twice"
            found[name] = unit, meaning
    return found


COMMON, *PARTS = re.split(r"^## (?=`)", PAGE, flags=re.M)
PARTS = {re.sub("`", "", part.partition("\n")[0]): part.split("\n# ")[0] for part in PARTS}
COMMON, SECTIONS = rows_of(COMMON), {name: rows_of(part) for name, part in PARTS.items()}
ALIKE = {name: re.findall(r"(?:[Aa]s|Means of) `([^`]+)`(?! \|)", part) for name, part in PARTS.items()}


def kind(path: Path) -> str:
    return path.name + MODELS * path.parts[1].startswith("rlhf_") * (len(path.parts) > 2)


def committed() -> dict[str, set[str]]:
    """Kind of file -> the columns of all its files."""
    listed = subprocess.run(["git", "ls-files", "results/*.csv"], cwd=ROOT, capture_output=True, text=True, check=True)
    found = defaultdict(set)
    for name in listed.stdout.splitlines():
        if (ROOT / name).exists():
            with open(ROOT / name, newline="") as file:
                found[kind(Path(name))] |= {*next(csv.reader(file))}
    return dict(found)


FILES = committed()


def is_described(column: str, name: str) -> bool:
    """By name, there or in a file that this one is like, or as the spread or interval of a column that is."""
    if column in COMMON or column in SECTIONS[name] or any(is_described(column, other) for other in ALIKE[name]):
        return True
    stems = (re.fullmatch(re.escape(p).replace(r"\*", "(.+)"), column) for p in COMMON if "*" in p)
    return any(is_described(stem[1], name) for stem in stems if stem)


def test_every_file_and_every_column_is_described():
    assert {*FILES} - {*SECTIONS} == set()
    lacking = {name: [c for c in sorted(columns) if not is_described(c, name)] for name, columns in FILES.items()}
    assert {name: columns for name, columns in lacking.items() if columns} == {}


def test_nothing_is_described_that_is_not_there():
    later = {name for name in SECTIONS if name.endswith(MODELS)} | {"timings.csv"}
    assert {*SECTIONS} - {*FILES} <= later
    for name, columns in FILES.items():
        own = {column for column, (_, meaning) in SECTIONS[name].items() if not OPTIONAL.match(meaning)}
        assert own <= columns, name
    there = set().union(*FILES.values())
    for name in COMMON:
        assert any(re.fullmatch(re.escape(name).replace(r"\*", ".+"), column) for column in there), name


def test_the_files_of_a_language_model_are_described_before_there_are_any():
    assert {*store.ROUND_COLUMNS} <= {*SECTIONS[f"curve.csv{MODELS}"], *COMMON}
    assert {*store.TIMING_COLUMNS} <= {*SECTIONS[f"timing.csv{MODELS}"], *COMMON}
    assert {f"{name}.csv{MODELS}" for name in tables.TABLES} <= {*SECTIONS}


def test_every_column_has_a_unit_and_a_meaning():
    for name, rows in SECTIONS.items():
        assert all(unit and meaning for unit, meaning in rows.values()), name
