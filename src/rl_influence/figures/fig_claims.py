"""The verdicts: every claim of the paper with its checks, our numbers beside the paper's, and what follows."""

from __future__ import annotations

import textwrap

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rl_influence.analysis.claims import number_text
from rl_influence.config import Config

from . import style

TABLES = ("claims", "claims_checks")
COLORS = {"replicated": "#0b55a5", "partly": "#b07800", "not replicated": "#c04a00"}
COLORS |= dict.fromkeys(("undecided", "incomplete", "not run", "not applicable"), "#666666")
MARKS = {"holds": "\u2713", "fails": "\u2717", "undecided": "?", "incomplete": "\u2026", "not applicable": "\u2013"}
LINE = 0.098  # inches
COLUMNS = {"claim": 0.0, "check": 0.29, "paper": 0.862}  # shares of the width
HEADERS = {"claim": "claim and verdict", "check": "checks: ours with 95 % t interval", "paper": "the paper"}
CLAIM_CHARACTERS, CHECK_CHARACTERS = 36, 82


def draw(tables: dict, config: Config) -> Figure:
    rows = []
    claims, checks = tables["claims"], tables["claims_checks"]
    for claim in claims.to_dict("records"):
        lines = _check_lines(checks[checks["claim"] == claim["claim"]].to_dict("records"), claim, config)
        words = textwrap.wrap(f"{claim['claim']}  {claim['statement']}", CLAIM_CHARACTERS, subsequent_indent="    ")
        rows.append((claim["verdict"], words, lines))
    height = sum(max(len(words) + 1, len(lines)) + 0.9 for _, words, lines in rows) * LINE + 0.25
    figure = style.new_figure(style.WIDTH, height)
    figure.set_layout_engine("none")
    top = 1 - 0.1 / height
    for name, text in HEADERS.items():
        figure.text(0.01 + COLUMNS[name], top, text, fontsize=6, color="#444444", va="center")
    place = top - LINE / height
    for verdict, words, lines in rows:
        figure.add_artist(Line2D([0.01, 0.99], [place, place], color="#cccccc", lw=0.5))
        place -= 0.75 * LINE / height
        for number, line in enumerate([*words, f"    {verdict}"]):
            bold = {"color": COLORS[verdict], "fontweight": "bold"} if number == len(words) else {}
            figure.text(0.01, place - number * LINE / height, line, fontsize=5.8, va="center", **bold)
        for number, (outcome, check, paper) in enumerate(lines):
            height_ = place - number * LINE / height
            color = {"holds": COLORS["replicated"], "fails": COLORS["not replicated"]}.get(outcome, "#444444")
            figure.text(0.01 + COLUMNS["check"], height_, check, fontsize=5.2, va="center", color=color)
            figure.text(0.01 + COLUMNS["paper"], height_, paper, fontsize=5.2, va="center", color="#444444")
        place -= (max(len(words) + 1, len(lines)) + 0.15) * LINE / height
    return figure


def _check_lines(checks: list[dict], claim: dict, config: Config) -> list[tuple[str, str, str]]:
    """(outcome, text, paper's number) of each line beside a claim."""
    lines = []
    for row in checks:
        if row["outcome"] == "not run" or row["role"] in ("beside", "requires"):
            continue
        label = config.environments[row["environment"]].label
        number = number_text(row).replace(" ", "\u00a0") if row["n"] else row["reason"]  # in one line
        text = f"{MARKS[row['outcome']]} {label}, {row['check']}: {number}"
        papers = row["paper"].replace(" against ", "\nvs ").split("\n") if isinstance(row["paper"], str) else []
        for number, part in enumerate(textwrap.wrap(text, CHECK_CHARACTERS, subsequent_indent="    ")):
            lines.append((row["outcome"], part, papers[number] if number < len(papers) else ""))
        lines += [(row["outcome"], "", part) for part in papers[number + 1 :]]
    notes = []
    if isinstance(claim["absent"], str) and claim["absent"]:
        notes.append(f"\u2013 not in this study: {claim['absent']}")
    if isinstance(claim["missing"], str) and claim["missing"]:
        notes.append(f"missing runs: {claim['missing']}")
    if not checks:
        notes.append(claim["reason"])
    for note in notes:
        short = textwrap.shorten(note, 4 * CHECK_CHARACTERS, placeholder=" ... (claims.csv)")
        lines += [("not run", part, "") for part in textwrap.wrap(short, CHECK_CHARACTERS, subsequent_indent="    ")]
    return lines
