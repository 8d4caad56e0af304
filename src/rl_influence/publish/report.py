"""One HTML file of a study: findings and verdicts first, then every figure and table, deviations, and what it rests on.

Snakemake's own report fetches its scripts and styles from the network and needs a wide screen. This page loads nothing:
it opens from disk, offline, on a phone, and in ten years; without its script, which sorts and filters, it stays
readable. The same results give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from markdown_it import MarkdownIt
from markupsafe import Markup

from rl_influence import figures
from rl_influence.analysis.claims import CLAIM_TABLES, MARKS, VERDICTS, number_text
from rl_influence.analysis.curves import KEY, VERSIONS, runs_behind
from rl_influence.analysis.registry import study_tables
from rl_influence.analysis.tables import TABLES
from rl_influence.config import Config
from rl_influence.figures import FIGURES
from rl_influence.publish import readme, templates
from rl_influence.publish.ledger import Ledger
from rl_influence.publish.run_pages import page_name, write_pages
from rl_influence.publish.tables import SHOWN, readable, words
from rl_influence.runs.files import write_atomic
from rl_influence.runs.provenance import package_versions
from rl_influence.runs.store import ResultError, Results


def write_report(config: Config, output: str | Path, root: str | Path = ".", source: str | Path | None = None) -> None:
    """Writes the report of a study, and the pages of its runs into a folder beside it with its name.

    Args:
        root: holds `results/` and `paper_figures/`.
        source: the repository, which holds `docs/`; default `root`.

    Raises:
        ResultError: naming a table or figure that cannot be read.
    """
    write_atomic(output, render(config, Path(root), source).encode())
    write_pages(config, Path(output).parent / config.study, root)


def render(config: Config, root: Path, source: str | Path | None = None) -> str:
    """The report as text."""
    tables = _tables(config, root)
    ledger = Ledger(root, (config.study,), config)
    runs, missing = tables["runs"], tables["missing_runs"]
    drawn = [_figure(name, config, root) for name in config.study_config.figures]
    shown = [_shown(name, tables[name], config, root) for name in SHOWN if name in tables and len(tables[name])]
    claims = tables["claims"]
    tested = claims[claims["verdict"] != "not run"]
    parts = {"figures": drawn, "tables": shown}
    return (
        templates.environment()
        .get_template("report.html")
        .render(
            title=f"A Snapshot of Influence, replicated: study {config.study}",
            there=len(runs) - len(missing),
            total=len(runs),
            missing_count=len(missing),
            contents=[{"id": name, "title": title, "parts": parts.get(name, [])} for name, title in SECTIONS.items()],
            found=markdown(readme.found(ledger)),
            findings=markdown(readme.findings(ledger)),
            tally=[
                {"name": v, "slug": _slug(v), "claims": claims.loc[claims["verdict"] == v, "claim"].tolist()}
                for v in VERDICTS
                if (claims["verdict"] == v).any()
            ],
            claims=[_claim(claim, tables["claims_checks"], config) for claim in tested.to_dict("records")],
            untested=claims.loc[claims["verdict"] == "not run", "claim"].tolist(),
            figures=drawn,
            tables=shown,
            level=ledger.level(config.study),
            deviations=_deviations(Path(source or root) / "docs/deviations.md"),
            behind=runs_behind(runs, config.study).capitalize(),
            versions=_grid(pd.DataFrame(_versions(runs))),
            made_with=", ".join(f"{name} {version}" for name, version in package_versions().items()),
            missing=_grid(readable(missing, config)),
            analyses=_grid(readable(tables.get("missing_analyses", pd.DataFrame()), config)),
            leftover=Results(root).leftover(config),
            runs=_grid(_linked(runs, config)),
            script=Markup((templates.FOLDER / "report.js").read_text()),
        )
    )


SECTIONS = {
    "found": "What was found",
    "verdicts": "Does the paper hold?",
    "figures": "Figures",
    "tables": "Tables",
    "deviations": "Deviations from the paper",
    "provenance": "What this rests on",
}


def markdown(text: str) -> Markup:
    """HTML of a document of ours, without its title; links inside the repository keep their text only."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    if tokens and tokens[0].tag == "h1":
        tokens = tokens[3:]
    for token in tokens:
        if token.tag.startswith("h") and token.tag[1:].isdigit():
            token.tag = f"h{min(int(token.tag[1:]) + 1, 6)}"
        inside = False
        for child in token.children or []:
            if child.type == "link_open":
                inside = not child.attrs["href"].startswith("https:")
            if inside and child.type in ("link_open", "link_close"):
                inside = inside and child.type == "link_open"
                child.type, child.tag, child.nesting, child.content = "text", "", 0, ""
    html = parser.renderer.render(tokens, parser.options, {})
    return Markup(html.replace("<table>", '<div class="doc"><table>').replace("</table>", "</table></div>"))


def _claim(claim: dict, checks: pd.DataFrame, config: Config) -> dict[str, Any]:
    listed = []
    for row in checks[checks["claim"] == claim["claim"]].to_dict("records"):
        if row["outcome"] != "not run":
            label = config.labels.get(row["environment"], row["environment"])
            number = number_text(row) if row["n"] else row["reason"]
            listed.append(
                {
                    "slug": _slug(row["outcome"]),
                    "mark": MARKS.get(row["outcome"], "…"),
                    "label": label,
                    "text": row["check"],
                }
                | {"number": number, "counted": row["n"] > 0, "paper": row["paper"]}
            )
    return claim | {"number": claim["claim"], "slug": _slug(claim["verdict"]), "checks": listed}


def _figure(name: str, config: Config, root: Path) -> dict[str, Any]:
    path = root / "paper_figures" / config.study / f"{name}.png"
    try:
        data, notes = base64.b64encode(path.read_bytes()).decode(), figures.notes(path)
    except OSError:
        raise ResultError(f"{path}: missing, so there is no report") from None
    caption = FIGURES[name].caption
    number = name.removeprefix("fig").partition("_")[0]
    title = textwrap.shorten(re.split(r"[.:;(]|(?<=\?)", caption, maxsplit=1)[0].strip(), 100, placeholder=" …")
    return {
        "id": name,
        "title": f"Figure {int(number)}: {title}" if number.isdigit() else title,
        "data": data,
        "caption": markdown(caption),
        "notes": notes,
        "sources": _sources(FIGURES[name].reads, config, root),
    }


def _shown(name: str, frame: pd.DataFrame, config: Config, root: Path) -> dict[str, Any]:
    title, note = SHOWN[name]
    sources = _sources([name], config, root)
    return {"id": name, "title": title, "note": note, "sources": sources} | _grid(readable(frame, config))


def _grid(frame: pd.DataFrame) -> dict[str, Any]:
    """Heads in words, and cells."""
    return {
        "columns": [words(str(name)) for name in frame],
        "rows": list(frame.itertuples(index=False, name=None)),
    }


def _linked(runs: pd.DataFrame, config: Config) -> pd.DataFrame:
    """The table of runs, with a link to the page of each that is there."""
    shown = readable(runs.assign(fingerprint=runs["fingerprint"].str[:16]), config)
    link = Markup('<a href="{}/{}">{}</a>')
    shown["seed"] = [
        row["seed"] if row["reason"] else link.format(config.study, page_name(*(row[k] for k in KEY)), row["seed"])
        for row in runs.to_dict("records")
    ]
    return shown


def _deviations(path: Path) -> Markup:
    return markdown(path.read_text(encoding="utf-8")) if path.exists() else markdown(f"{path.name} was not there.")


def _tables(config: Config, root: Path) -> dict[str, pd.DataFrame]:
    there = {*TABLES, *study_tables(config)}
    names = [name for name in [*SHOWN, "runs", "missing_runs", "missing_analyses"] if name in there]
    tables = {}
    for name in dict.fromkeys([*names, *CLAIM_TABLES]):
        path = root / "results" / config.study / f"tables/{name}.csv"
        try:
            tables[name] = pd.read_csv(path, keep_default_na=False, na_values=[""])
        except (OSError, ValueError) as error:
            raise ResultError(f"{path}: cannot be read ({type(error).__name__})") from None
        for column in tables[name].select_dtypes(["object", "str"]):
            tables[name][column] = tables[name][column].fillna("")
    for name in (*CLAIM_TABLES, "runs"):  # columns that are empty throughout are read as numbers
        for column in ("reason", "missing", "absent", "paper", "ours", "bound", "unit", "code", *VERSIONS):
            if column in tables[name]:
                tables[name][column] = tables[name][column].astype(object).fillna("").astype(str)
    return tables


def _sources(names: Iterable[str], config: Config, root: Path) -> str:
    """Which tables, with the first digits of their checksums."""
    parts = []
    for name in names:
        path = root / "results" / config.study / f"tables/{name}.csv"
        parts.append(f"tables/{name}.csv ({hashlib.sha256(path.read_bytes()).hexdigest()[:8]})")
    return f"From {', '.join(parts)}."


def _versions(runs: pd.DataFrame) -> list[dict]:
    """Distinct versions behind the runs that are there, with how many runs each made."""
    there = runs[runs["reason"] == ""]
    groups = there.groupby(["code", *VERSIONS], sort=True).size()
    return [dict(zip(["code", *VERSIONS], key, strict=True)) | {"runs": number} for key, number in groups.items()]


def _slug(text: str) -> str:
    return text.replace(" ", "-")
