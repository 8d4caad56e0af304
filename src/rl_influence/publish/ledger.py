"""The claims as pages show them: numbers of an environment come from the confirmatory seeds where these are complete,
and else from the exploratory ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from rl_influence.analysis.claims import confidence_of, load_claims, number_text
from rl_influence.analysis.claims.verdicts import case_status
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

    def level(self, study: str) -> str:
        """Of a study's intervals: `95 %`."""
        return f"{100 * confidence_of(load_claims(self.config.folder), study):.3g} %"

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
                counting = rows[~rows["role"].isin(["beside", "requires"])]
                status = case_status(counting.groupby("role")["outcome"].apply(list).to_dict())
                found.append((*key, study, status, rows))
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

    def marks(self, claim: int) -> dict[str, str]:
        """Environment -> mark of its case, joined where it has several."""
        rows = self.checks[self.checks["claim"] == claim].drop_duplicates(["environment", "case"])
        return rows.groupby("environment")["status"].apply(lambda x: " ".join(MARKS[s] for s in x)).to_dict()

    def verdict(self, claim: int) -> tuple[str, str]:
        """(verdict, study) of the confirmatory study if it has one that is not open, else of the other."""
        found = [(self.verdicts[study].loc[claim, "verdict"], study) for study in self.studies]
        decided = [pair for pair in found if pair[0] not in ("incomplete", "not run")]
        some = [pair for pair in found if pair[0] != "not run"]
        return [*decided, *some, *found][0]
