"""One HTML file of a study: verdicts first, then every figure and table, deviations, and what it all rests on.

Snakemake's own report fetches its scripts and styles from the network and needs a wide screen. This page is one file
without scripts: it opens from disk, offline, on a phone, and in ten years. The same results give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

import numpy as np
import pandas as pd

from rl_influence import figures
from rl_influence.analysis.claims import CLAIM_TABLES, MARKS, VERDICTS, number_text
from rl_influence.analysis.curves import VERSIONS, runs_behind
from rl_influence.analysis.numbers import count, interval, number
from rl_influence.analysis.registry import ANALYSIS_OF, LISTS, study_tables
from rl_influence.analysis.tables import TABLES
from rl_influence.config import Config
from rl_influence.runs.files import write_atomic
from rl_influence.runs.provenance import package_versions
from rl_influence.runs.store import ResultError, Results

SHOWN = {  # table -> title, what it says
    "efficiency": (
        "Sample efficiency",
        "Share of PPO's rounds that a method saves: SE_ave over all levels that PPO reaches, SE_peak at PPO's best "
        "(empty where most seeds never get there). se_ave_null: PPO against PPO of another seed. "
        "Paired by seed. levels and unreached are sums over seeds; with any unreached the number is an upper bound.",
    ),
    "rounds_saved": (
        "Rounds saved along PPO's rise",
        "(m_PPO \u2212 m) / max(m, m_PPO) with m the first round at 50, 75 and 90 % of the way from PPO's untrained "
        "return to the top of its mean curve, and the mean of the three. SE_ave hangs on the last, small rises of one "
        "curve.",
    ),
    "final_returns": (
        "Final returns",
        "Final return: mean over the last tenth of the rounds; and the mean training return.",
    ),
    "final_gains": (
        "Final gain over PPO",
        "Final return minus that of PPO with the same seed. detectable_gain is the smallest true gain that so many "
        "seeds find with a power of 80 %.",
    ),
    "controls": (
        "The gain taken apart",
        "Two methods of the same seeds, compared directly; rows of one effect change the same thing. se_ave: with the "
        "second method in PPO's place.",
    ),
    "heuristics": ("Advantage heuristics", "The same for the heuristics, with estimated and with exact advantages."),
    "table_2": ("Table 2: sweep of p", "SE of IIF for every p, with the paper's Table 2 beside it."),
    "table_3": ("Table 3: Adam", "SE of IIF with the Adam optimiser, with the paper's Table 3 beside it."),
    "table_4": ("Table 4: final gain", "Final return of IIF minus PPO's, 95 % t interval, with the paper's beside it."),
    "table_5": (
        "Table 5: runtimes",
        "CPU seconds on one thread, per round and in total, and RT_peak. The paper's seconds are of its own machine "
        "and of Stable-Baselines3: compare the shares, not the seconds.",
    ),
    "diagnosis_summary": (
        "Advantages of the bottom records",
        "Per round and source of the true advantage: Spearman of influence with true \u00d7 estimated advantage "
        "(positive: helpful records have the right sign; the paper correlates with the rank, which turns the sign) and "
        "with the error |true \u2212 estimated|; error and sign agreement of all records and of the bottom 100.",
    ),
    "agreement_summary": (
        "Start-of-round scores against full TracIn",
        "Spearman of both scorings of a buffer; overlap: share of the records that IIF drops at its p which the full "
        "sum drops as well, beside what a random set of that size would share.",
    ),
    "interventions_summary": (
        "Single rounds without their negative records",
        "Change of the test return in a round under an arm, minus that under another (all: nothing removed; negative: "
        "all negative records removed; _p: the share p of them; random: as many at random), paired by round; ahead: "
        "share of the rounds, of all seeds together, in which the arm gives the higher return.",
    ),
    "faithfulness_summary": (
        "Do scores predict what removals do?",
        "Linear datamodelling score: Spearman, over removed sets of records (random halves, or the largest groups one "
        "at a time), of the summed scores with the outcome of the redone round; reliability: of the outcome between "
        "mini-batch orders.",
    ),
    "runtimes": ("Runtimes of every method", "CPU seconds per round by phase, totals of all rounds, and RT_peak."),
}
PERCENT = ("se_ave", "se_peak", "rt_peak", "rounds_saved", "se_ave_null", "sign_agreement", "sign_agreement_bottom")
PERCENT += ("drop_fraction", "overlap", "overlap_by_chance", "jaccard", "ahead")
FOLDERS = (  # table -> its folder
    {name: table.folder for name, table in TABLES.items()}
    | dict.fromkeys((*CLAIM_TABLES, *ANALYSIS_OF, *LISTS), "tables")
)
STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --soft: #5c5c5c; --paper: #fff; --line: #d9d9d9; --panel: #f6f6f4;
  --replicated: #0b55a5; --partly: #8a5d00; --not: #b03f00; --cannot: #5c5c5c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --soft: #a8a8a8; --paper: #17181a; --line: #3a3b3e;
  --panel: #202225; --replicated: #7db8f0; --partly: #e2b35c; --not: #f0905c; --cannot: #a8a8a8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 62rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
h3 { margin: 2rem 0 .3rem; } a { color: inherit; } code { font-size: .9em; overflow-wrap: anywhere; }
nav a { margin-right: 1em; white-space: nowrap; } .soft, figcaption, .note { color: var(--soft); font-size: .88rem; }
.scroll { overflow-x: auto; } figure { margin: 0; }
.scroll img { display: block; width: 100%; min-width: 34rem; max-width: 52rem; background: #fff; border-radius: 4px; }
.data { border-collapse: collapse; font-size: .82rem; white-space: nowrap; }
.data th, .data td { padding: .2rem .6rem; text-align: left; border-bottom: 1px solid var(--line); }
.doc { font-size: .88rem; border-collapse: collapse; min-width: 38rem; } .doc code { overflow-wrap: normal; }
.doc th, .doc td { padding: .3rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
.verdict { font-weight: 700; white-space: nowrap; } .warning { color: var(--not); font-weight: 600; }
.replicated { color: var(--replicated); } .partly { color: var(--partly); } .not-replicated { color: var(--not); }
.undecided, .incomplete, .not-run, .not-applicable { color: var(--cannot); }
.claims { width: 100%; border-collapse: collapse; }
.claims td, .claims th { vertical-align: top; text-align: left; padding: .6rem .8rem .6rem 0;
  border-top: 1px solid var(--line); }
.claims ul { margin: 0; padding: 0; list-style: none; font-size: .85rem; }
.claims li { padding-left: 1.2em; text-indent: -1.2em; } .claims li.holds { color: var(--replicated); }
.claims li b { font-weight: 600; }
.claims li.fails { color: var(--not); } .claims td:nth-child(1) { width: 34%; } .claims td:nth-child(2) { width: 16%; }
details summary { cursor: pointer; color: var(--soft); font-size: .88rem; }
@media (max-width: 44rem) { .claims, .claims tbody, .claims tr, .claims td { display: block; width: auto !important; }
  .claims thead { display: none; } .claims td { border: 0; padding: .15rem 0; }
  .claims tr { border-top: 1px solid var(--line); padding: .7rem 0; } }
@media print { body { max-width: none; } .scroll { overflow: visible; } .scroll img { min-width: 0; } }
"""
LEGEND = """<p class="note">Each claim has checks, and each check is one number with its 95 % t interval over n seeds,
compared with a threshold that was fixed beforehand (<code>config/claims.yaml</code>). \u2713 holds; \u2717 fails;
? these seeds cannot tell; \u2026 runs are missing; \u2013 not applicable. \u2264, \u2265, \u2248: a bound, since some
of PPO's returns were never reached by the other method.</p>"""
CLAIMS_HEAD = """<table class="claims"><thead><tr><th>claim</th><th>verdict</th>
<th>checks: ours, and the paper's number</th></tr></thead>"""
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def write_report(config: Config, output: str | Path, root: str | Path = ".", source: str | Path | None = None) -> None:
    """Writes the report of a study.

    Args:
        root: holds `results/` and `paper_figures/`.
        source: the repository, which holds `docs/`; default `root`.

    Raises:
        ResultError: naming a table or figure that cannot be read.
    """
    write_atomic(output, render(config, Path(root), source).encode())


def render(config: Config, root: Path, source: str | Path | None = None) -> str:
    """The report as text."""
    tables = _tables(config, root)
    sections = [
        ("verdicts", "Does the paper hold?", _verdicts(tables, config)),
        ("figures", "Figures", _figures(tables, config, root)),
        ("tables", "Tables", _data_tables(tables, config, root)),
        ("deviations", "Deviations from the paper", _deviations(Path(source or root) / "docs/deviations.md")),
        ("provenance", "What this rests on", _provenance(tables, config, root)),
    ]
    title = f"A Snapshot of Influence, replicated: study {config.study}"
    links = "".join(f'<a href="#{name}">{heading}</a> ' for name, heading, _ in sections)
    body = [f"<h1>{escape(title)}</h1>", _introduction(tables, config), f"<nav>{links}</nav>"]
    body += [f'<section id="{name}"><h2>{heading}</h2>\n{content}</section>' for name, heading, content in sections]
    return PAGE.format(title=escape(title), style=STYLE, body="\n".join(body))


# Sections


def _introduction(tables: dict[str, pd.DataFrame], config: Config) -> str:
    runs, missing = tables["runs"], tables["missing_runs"]
    there = len(runs) - len(missing)
    text = (
        "<p>PPO against iterative influence-based filtering (IIF) and its alternatives, from arXiv 2505.19281. A run "
        "is one environment, method and seed; the seed is the unit of every mean and interval, and methods are "
        "compared with runs of the same seed. The paper's numbers stand beside ours and enter no computation.</p>"
    )
    if missing.empty:
        text += f"<p>All {there} runs of the study are in.</p>"
    else:
        text += (
            f'<p class="warning">{there} of {len(runs)} runs are in. Missing, and part of no mean: {len(missing)} '
            f'(<a href="#missing">which</a>).</p>'
        )
    if (versions := len(_versions(runs))) > 1:
        text += f'<p class="warning">The runs are of {versions} different versions of code or packages '
        text += '(<a href="#versions">which</a>).</p>'
    return text


def _verdicts(tables: dict[str, pd.DataFrame], config: Config) -> str:
    claims, checks = tables["claims"], tables["claims_checks"]
    counts = []
    for verdict in VERDICTS:
        numbers = claims.loc[claims["verdict"] == verdict, "claim"]
        links = ", ".join(f'<a href="#claim{number}">{number}</a>' for number in numbers)
        counts.append(f"<li>{_badge(verdict)}: {len(numbers)}{f' (claims {links})' if links else ''}</li>")
    rows = []
    for claim in claims.to_dict("records"):
        own = checks[checks["claim"] == claim["claim"]].to_dict("records")
        rows.append(
            f'<tr id="claim{claim["claim"]}"><td><b>{claim["claim"]}</b> {escape(claim["statement"])} '
            f'<span class="soft">{escape(claim["source"])}</span></td>'
            f'<td>{_badge(claim["verdict"])}<div class="soft">{escape(claim["reason"])}</div></td>'
            f"<td>{_check_list(own, claim, config)}</td></tr>"
        )
    return f"<ul>{''.join(counts)}</ul>{LEGEND}{CLAIMS_HEAD}<tbody>{''.join(rows)}</tbody></table>"


def _check_list(checks: list[dict], claim: dict, config: Config) -> str:
    lines = []
    for row in checks:
        if row["outcome"] == "not run":
            continue
        label = config.environments[row["environment"]].label
        text = escape(f"{MARKS[row['outcome']]} {label}, {row['check']}: ")
        text += f"<b>{escape(number_text(row))}</b>" if row["n"] else escape(row["reason"])
        text += f' <span class="soft">(paper: {escape(row["paper"])})</span>' if row["paper"] else ""
        lines.append(f'<li class="{_slug(row["outcome"])}">{text}</li>')
    if claim["absent"]:
        lines.append(f'<li class="soft">\u2013 not in this study: {escape(claim["absent"])}</li>')
    if claim["missing"]:
        lines.append(f'<li class="soft">\u2026 missing runs: {escape(claim["missing"])}</li>')
    rule = f"<details><summary>rule</summary>{escape(claim['rule'])}</details>"
    return f"<ul>{''.join(lines)}</ul>{rule}"


def _figures(tables: dict[str, pd.DataFrame], config: Config, root: Path) -> str:
    parts = []
    for name in config.study_config.figures:
        path = root / "paper_figures" / config.study / f"{name}.png"
        try:
            data, notes = base64.b64encode(path.read_bytes()).decode(), figures.notes(path)
        except OSError:
            raise ResultError(f"{path}: missing or no picture, so there is no report") from None
        figure = figures.FIGURES[name]
        caption, sources = _inline(f"{figure.caption} {notes}".strip()), _sources(figure.reads, config, root)
        parts.append(
            f'<figure id="{name}"><h3>{_title(name)}</h3><div class="scroll"><img alt="{_title(name)}" '
            f'src="data:image/png;base64,{data}"></div><figcaption><p>{caption}</p><p>{sources}</p></figcaption></figure>'
        )
    return "\n".join(parts)


def _data_tables(tables: dict[str, pd.DataFrame], config: Config, root: Path) -> str:
    parts = []
    for name, (title, note) in SHOWN.items():
        if name not in tables or tables[name].empty:
            continue
        frame = tables[name]
        parts.append(
            f'<h3 id="{name}">{escape(title)}</h3><p class="note">{escape(note)} Intervals: 95 % t over n seeds. '
            f"{_sources([name], config, root)}</p>{_html_table(_readable(frame, config))}"
        )
    return "\n".join(parts)


def _deviations(path: Path) -> str:
    return markdown(_text(path)) if path.exists() else "<p>docs/deviations.md was not there.</p>"


def _provenance(tables: dict[str, pd.DataFrame], config: Config, root: Path) -> str:
    runs, missing = tables["runs"], tables["missing_runs"]
    analyses = tables.get("missing_analyses", pd.DataFrame())
    versions = _versions(runs)
    left = Results(root).leftover(config)
    now = ", ".join(f"{name} {version}" for name, version in package_versions().items())
    parts = [
        f"<p>{escape(runs_behind(runs, config.study).capitalize())}. Every number above comes from these runs and from "
        "no other; the same line stands in the metadata of every figure's file.</p>",
        f'<h3 id="versions">Versions that made the runs</h3>{_html_table(pd.DataFrame(versions))}',
        '<p class="warning">More than one: results of different code or packages stand side by side.</p>'
        if len(versions) > 1
        else "",
        f'<p class="note">This page was made with {escape(now)}.</p>',
        '<h3 id="missing">Missing runs</h3>',
        _html_table(_readable(missing, config)) if len(missing) else "<p>None.</p>",
        f"<h3>Missing analyses</h3>{_html_table(_readable(analyses, config)) if len(analyses) else '<p>None.</p>'}",
        "<h3>Leftover runs</h3><p class='note'>Folders of other settings or versions, which nothing here reads.</p>",
        f"<p>{', '.join(f'<code>{escape(name)}</code>' for name in left) or 'None.'}</p>",
        f"<details><summary>All {len(runs)} runs with their fingerprints</summary>",
        _html_table(_readable(runs.assign(fingerprint=runs["fingerprint"].str[:16]), config)),
        "</details>",
    ]
    return "".join(parts)


# Parts


def _tables(config: Config, root: Path) -> dict[str, pd.DataFrame]:
    there = {*TABLES, *study_tables(config)}
    names = {name: FOLDERS[name] for name in [*SHOWN, "runs", "missing_runs", "missing_analyses"] if name in there}
    names |= dict.fromkeys(CLAIM_TABLES, "tables")
    tables = {}
    for name, folder in names.items():
        path = root / "results" / config.study / folder / f"{name}.csv"
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


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        raise ResultError(f"{path}: missing, so there is no report") from None


def _sources(names: Iterable[str], config: Config, root: Path) -> str:
    """Which tables, with the first digits of their checksums."""
    parts = []
    for name in names:
        path = root / "results" / config.study / FOLDERS[name] / f"{name}.csv"
        parts.append(f"<code>{FOLDERS[name]}/{name}.csv</code> ({hashlib.sha256(path.read_bytes()).hexdigest()[:8]})")
    return f"From {', '.join(parts)}."


def _versions(runs: pd.DataFrame) -> list[dict]:
    """Distinct versions behind the runs that are there, with how many runs each made."""
    there = runs[runs["reason"] == ""]
    groups = there.groupby(["code", *VERSIONS], sort=True).size()
    return [dict(zip(["code", *VERSIONS], key, strict=True)) | {"runs": number} for key, number in groups.items()]


def _badge(verdict: str) -> str:
    return f'<span class="verdict {_slug(verdict)}">{escape(verdict)}</span>'


def _slug(text: str) -> str:
    return text.replace(" ", "-")


def _title(name: str) -> str:
    """`fig06_returns` -> Figure 6: returns; `fig_claims`, `claims` -> Claims."""
    number, words = re.fullmatch(r"(?:fig(\d*)_)?(.+)", name).groups()
    words = words.replace("_", " ")
    return f"Figure {int(number)}: {words}" if number else words.capitalize()


def _readable(frame: pd.DataFrame, config: Config) -> pd.DataFrame:
    """A table for people: labels, `value [low, high]`, `mean ± spread`, percent, `4 of 5`; the paper's beside ours."""
    groups: dict[str, dict[str, str]] = {}  # shown column -> part -> column; standard deviations stay in the CSV
    for name in frame.columns.drop([c for c in frame if c == "expected" or c.endswith("_sd")]):
        match = re.fullmatch(r"(?:(.+)_)?(low|high|spread)", name)
        base, part = (match[1] or "value", match[2]) if match else (name, "value")
        groups.setdefault(base, {})[part] = name
    rows = frame.to_dict("records")
    shown = {}
    names = list(groups)
    ours = {name: name.removeprefix("paper_") for name in names}
    for base in sorted(names, key=lambda name: names.index(ours[name] if ours[name] in names else name)):
        shown[base] = [_cell(row, base, groups[base], config) for row in rows]
    return pd.DataFrame(shown)


def _cell(row: dict, base: str, parts: dict[str, str], config: Config) -> str:
    value, low, high, spread = (row.get(parts.get(part)) for part in ("value", "low", "high", "spread"))
    if base in ("environment", "method", "minus"):
        labels = config.environments if base == "environment" else config.methods
        return labels[value].label if value in labels else value
    if base == "n" and "expected" in row:
        return count(row)
    if isinstance(value, str):
        return value
    stem = base.removeprefix("paper_").replace("_with_sampling", "")
    kind = row.get("unit") or ("fraction" if row.get("quantity") in PERCENT else "") if stem == "value" else ""
    percent = stem in PERCENT or kind == "fraction"
    if value is None:  # an interval alone, as the paper prints some
        return "" if pd.isna(low) else f"[{number(low, percent=percent)}, {number(high, percent=percent)}]"
    if pd.isna(value):
        return ""
    if spread is not None and not pd.isna(spread):
        shown = f"{number(value, percent=percent)} ± {number(spread, percent=percent)}"
        return f"{shown} %" if percent else shown
    return interval(value, np.nan if low is None else low, np.nan if high is None else high, percent=percent)


def _html_table(frame: pd.DataFrame) -> str:
    head = "".join(f"<th>{escape(str(name)).replace('_', ' ')}</th>" for name in frame)
    rows = (
        "<tr>" + "".join(f"<td>{escape(str(value))}</td>" for value in row) + "</tr>"
        for row in frame.itertuples(index=False, name=None)
    )
    body = "".join(rows)
    return f'<div class="scroll"><table class="data"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def markdown(text: str) -> str:
    """HTML of the Markdown that the project's documents use, without the first-level heading."""
    blocks = []
    for block in re.split(r"\n\s*\n", text.strip()):
        heading, _, rest = block.partition("\n")
        if match := re.match(r"(#+) (.*)", heading):
            level = min(len(match[1]) + 1, 6)
            blocks += [f"<h{level}>{_inline(match[2])}</h{level}>"] if level > 2 else []
            block = rest
        lines = block.split("\n")
        if lines[0].startswith("|"):
            blocks.append(_markdown_table(lines))
        elif lines[0].startswith("* "):
            items = re.split(r"\n\* ", block[2:])
            blocks.append("<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in items) + "</ul>")
        elif block:
            blocks.append(f"<p>{_inline(block)}</p>")
    return "\n".join(blocks)


def _markdown_table(lines: Sequence[str]) -> str:
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] for line in lines]
    head = "".join(f"<th>{_inline(cell)}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{_inline(cell)}</td>" for cell in row) + "</tr>" for row in rows[2:])
    return f'<div class="scroll"><table class="doc"><tr>{head}</tr>{body}</table></div>'


def _inline(text: str) -> str:
    """Inline markup of Markdown and reStructuredText; links keep their text only."""
    text = escape(text).replace("\\|", "|")
    text = re.sub(r"``(.+?)``|`([^`]+)`", lambda match: f"<code>{match[1] or match[2]}</code>", text)
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text)
    return re.sub(r"(?<![\w*])\*([^*\s][^*]*)\*", r"<em>\1</em>", text)
