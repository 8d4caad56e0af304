"""The claims as pages show them: numbers of an environment come from the confirmatory seeds where these are complete,
and else from the exploratory ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from rl_influence.analysis.claims import Claims, confidence_of, load_claims, number_text
from rl_influence.analysis.claims.verdicts import Verdict, case_status, conclude
from rl_influence.config import Config

STUDIES = ("confirm", "paper")
OPEN = ("open", "")  # statuses of a case that runs could change
MARKS = {"full": "✓", "part": "(✓)", "fails": "✗", "undecided": "?", "open": "…", "not applicable": "n/a", "": ""}


def read_table(path: Path) -> pd.DataFrame:
    """A table of ours: ids stay text, empty cells are missing."""
    return pd.read_csv(path, keep_default_na=False, na_values=[""])


@dataclass(frozen=True)
class Ledger:
    """Verdicts and checks of the studies below `root` that have been judged.

    Args:
        names: of the studies; the first one that has an environment's numbers speaks for it.
        catalogue: whose environments have the labels; default: of the study `paper`.
    """

    root: Path
    names: tuple[str, ...] = STUDIES
    catalogue: Config | None = None

    @cached_property
    def config(self) -> Config:
        return self.catalogue or Config(self.root / "config/paper.yaml")

    @cached_property
    def studies(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if (self.tables(name) / "claims.csv").exists())

    def tables(self, study: str) -> Path:
        return self.root / "results" / study / "tables"

    @cached_property
    def rules(self) -> Claims:
        return load_claims(self.config.folder)

    def level(self, study: str) -> str:
        """Of a study's intervals: `95 %`."""
        return f"{100 * confidence_of(self.rules, study):.3g} %"

    @cached_property
    def verdicts(self) -> dict[str, pd.DataFrame]:
        """Study -> its table `claims`, by number."""
        return {name: read_table(self.tables(name) / "claims.csv").set_index("claim") for name in self.studies}

    @cached_property
    def checks(self) -> pd.DataFrame:
        """The checks of every claim, with the `study` that speaks for their environment, and its `status`."""
        found = []
        for study in self.studies:
            frame = read_table(self.tables(study) / "claims_checks.csv")
            for key, rows in frame.fillna({"case": ""}).groupby(["claim", "environment", "case"], sort=False):
                found.append((*key, study, case_status(_outcomes(rows)), rows))
        chosen: dict[tuple, tuple] = {}
        for claim, environment, case, study, status, rows in found:
            before = chosen.get((claim, environment, case))
            more = before is not None and rows["n"].max() > before[2]["n"].max()
            if before is None or (before[1] in OPEN and (status not in OPEN or more)):
                chosen[claim, environment, case] = (study, status, rows)
        parts = [rows.assign(study=study, status=status) for study, status, rows in chosen.values()]
        return pd.concat(parts, ignore_index=True).sort_values("claim", kind="stable")

    def of(self, claim: int, **where: object) -> list[dict]:
        """Rows of a claim's checks that match, each with the environment's `label` and its number as `text`."""
        rows = self.checks[self.checks["claim"] == claim]
        for column, value in where.items():
            rows = rows[rows[column] == value]
        labels = self.config.labels
        return [
            row | {"label": labels.get(row["environment"], row["environment"]), "text": number_text(row)}
            for row in rows.to_dict("records")
        ]

    def cases(self, claim: int) -> dict[tuple[str, str], pd.DataFrame]:
        """(environment, case) -> the checks of one that are shown, in the order of the rules."""
        (rule,) = (rule for rule in self.rules.claims if rule.claim == claim)
        rows = self.checks[self.checks["claim"] == claim]
        groups = dict(iter(rows.groupby(["environment", "case"], sort=False)))
        return {case: groups[case] for case in rule.cases if case in groups}

    def marks(self, claim: int) -> dict[str, str]:
        """Environment -> mark of its case, joined where it has several."""
        found: dict[str, list[str]] = {}
        for (environment, _), rows in self.cases(claim).items():
            found.setdefault(environment, []).append(MARKS[rows["status"].iloc[0]])
        return {environment: " ".join(marks) for environment, marks in found.items()}

    def verdict(self, claim: int) -> Verdict:
        """Of the cases that are shown, whichever study they are from."""
        (rule,) = (rule for rule in self.rules.claims if rule.claim == claim)
        return conclude(rule, [_outcomes(rows) for rows in self.cases(claim).values()])


def _outcomes(rows: pd.DataFrame) -> dict[str, list[str]]:
    """Role -> outcomes of a case's checks that count."""
    counting = rows[~rows["role"].isin(["beside", "requires"])]
    return counting.groupby("role")["outcome"].apply(list).to_dict()
