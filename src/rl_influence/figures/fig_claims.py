"""Every claim of the paper and the controls of them, by environment: ✓ all of its checks hold there; (✓) those that
decide; ✗ fails; ? these seeds cannot tell; … runs are missing; – not in this study; n/a not applicable. Where a claim
has several cases, a cell has a sign for each, in the order of the claim's checks. Right: the numbers that decide, minus
their threshold, with their intervals over seeds, in units of the margin within which there is no effect (grey); right
of 0 lies what the claim says. Full arrows lie beyond the panel. Checks whose threshold is a size of its own have no
margin and are not in it. The rules were fixed beforehand (``config/claims.yaml``); the numbers themselves and the
paper's stand in the table of claims.
"""

from __future__ import annotations

import textwrap

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rl_influence.analysis.claims import case_status
from rl_influence.analysis.curves import environments_of
from rl_influence.config import Config

from . import style

READS = ("claims", "claims_checks")
BLUE, AMBER, GREY = style.POSITIVE, "#b07800", "#777777"
VERDICTS = {"replicated": BLUE, "partly": AMBER, "not replicated": style.NEGATIVE}  # others are open: grey
SIGNS = {  # status of a case -> sign, colour, what it says; the signs are those of all pages
    "full": ("\u2713", BLUE, "holds"),
    "part": ("(\u2713)", AMBER, "in part"),
    "fails": ("\u2717", style.NEGATIVE, "fails"),
    "undecided": ("?", GREY, "undecided with all runs there"),
    "open": ("\u2026", GREY, "runs are missing"),
    "absent": ("\u2013", GREY, "not in this study"),
    "not applicable": ("n/a", GREY, "not applicable"),
}
OUTCOMES = {"holds": BLUE, "fails": style.NEGATIVE}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
ROW, BOTTOM = 0.29, 0.62  # inches
CELL, WORDS, CHARACTERS = 0.2, 2.25, 39  # inches of a cell and of the titles; characters of a line
SIGN = 8  # points
LIMITS = (-10.0, 20.0)  # margins


def draw(tables: dict, config: Config) -> Figure:
    claims, checks = tables["claims"], tables["claims_checks"]
    checks = checks[~checks["role"].isin(["beside", "requires"])]
    if checks.empty:
        raise style.Nothing("no claim has a check")
    checks = checks.assign(place=[_place(name, config) for name in checks["environment"]])
    places = [name for name in environments_of(config) if (checks["place"] == name).any()]
    places += [name for name in checks["place"].unique() if name not in places]
    labels = [config.labels.get(place, place).partition(",")[0] for place in places]
    height = 0.3 + 1.1 * style.CHARACTER * max(map(len, labels)) + ROW * len(claims) + BOTTOM
    figure = style.new_figure(style.WIDTH, height)
    figure.set_layout_engine("none")
    left = WORDS + CELL * len(places) + 0.05
    span = [BOTTOM / height, ROW * len(claims) / height]
    words = figure.add_axes((0, span[0], 1, span[1]), xlim=(0, style.WIDTH), ylim=(len(claims), 0))
    words.set_axis_off()
    forest = figure.add_axes(((left + 0.85) / style.WIDTH, span[0], 1 - (left + 0.95) / style.WIDTH, span[1]))
    cases = {}
    for row, claim in enumerate(claims.to_dict("records")):
        own = checks[checks["claim"] == claim["claim"]]
        _write(words, row, claim, left)
        for column, place in enumerate(places):
            named = _write_signs(words, row, WORDS + CELL * (column + 0.5), own[own["place"] == place])
            cases |= {claim["claim"]: named} if len(named) > 1 else {}
        _draw_effects(forest, row, own[own["role"] == "decides"], places)
    for column, label in enumerate(labels):
        x = WORDS + CELL * (column + 0.5)
        words.text(x, -0.75, label, rotation=90, ha="center", va="bottom", fontsize=style.SMALL)
        words.plot([x], [-0.4], marker=MARKERS[column % len(MARKERS)], color=style.GREY, markersize=3.5, clip_on=False)
    _finish(forest, len(claims))
    signs = "; ".join(f"{sign} {words}" for sign, _, words in SIGNS.values())
    text = f"{signs}. {_legend_of_cases(cases)} Arrows: beyond the panel."
    text = textwrap.wrap(text, int((left + 0.5) / style.CHARACTER))
    figure.text(0.07 / style.WIDTH, (BOTTOM - 0.08) / height, "\n".join(text), va="top", color=style.GREY)
    figure.notes = ""
    return figure


def _place(environment: str, config: Config) -> str:
    """The column of an environment: one that is another's task with other settings stands in the other's."""
    if environment not in config.environments:
        return environment
    task = config.environments[environment].gym_id
    return next(name for name, other in config.environments.items() if other.gym_id == task)


def _write(axis: Axes, row: int, claim: dict, left: float) -> None:
    """Number, title and verdict."""
    lines = textwrap.wrap(claim["title"], CHARACTERS, max_lines=2, placeholder=" \u2026")
    axis.axhline(row, color="#dddddd", lw=0.5)
    small = {"fontsize": style.SMALL, "va": "center"}
    axis.text(0.19, row + 0.5, claim["claim"], ha="right", fontweight="bold", **small)
    axis.text(0.26, row + 0.5, "\n".join(lines), linespacing=1.05, **small)
    axis.text(left, row + 0.5, claim["verdict"], color=VERDICTS.get(claim["verdict"], GREY), fontweight="bold", **small)


def _write_signs(axis: Axes, row: int, x: float, checks: pd.DataFrame) -> list[str]:
    """A sign for each case, below each other in the order of the claim's checks; returns what the cases are called."""
    cases = list(checks.groupby(["environment", "case"], sort=False, dropna=False))
    for number, (_, case) in enumerate(cases):
        absent = case["outcome"].eq("not run").all() and case["missing"].fillna("").eq("").all()
        status = "absent" if absent else case_status(case.groupby("role")["outcome"].apply(list).to_dict())
        sign, color, _ = SIGNS[status]
        y = row + 0.5 + 0.44 * (number - (len(cases) - 1) / 2)
        axis.text(x, y, sign, color=color, ha="center", va="center", fontsize=SIGN)
    return [case for (_, case), _ in cases]


def _legend_of_cases(cases: dict[int, list[str]]) -> str:
    """What two signs in a cell are: claim -> names of its cases."""
    claims: dict[str, list[str]] = {}
    for claim, names in cases.items():
        claims.setdefault(", then ".join(names), []).append(str(claim))
    each = "; ".join(f"claim{'s' * (len(ns) > 1)} {', '.join(ns)}: {names}" for names, ns in claims.items())
    return f"Two signs are two cases ({each})." if each else ""


def _draw_effects(axis: Axes, row: int, checks: pd.DataFrame, places: list[str]) -> None:
    """Points and intervals of a claim, an environment below the other."""
    known = checks[checks["n"].gt(0) & checks["margin"].gt(0) & checks["value"].notna()]
    known = known[known["outcome"] != "not applicable"]
    for number, check in enumerate(known.to_dict("records")):
        y = row + (number + 1) / (len(known) + 1)
        sign = 1 if check["claimed"] == "above" else -1
        value, *ends = (
            sign * (check[name] - check["threshold"]) / check["margin"] for name in ("value", "low", "high")
        )
        color = OUTCOMES.get(check["outcome"], GREY)
        if np.isfinite(ends).all():
            axis.plot(np.clip(ends, *LIMITS), [y, y], color=color, lw=0.8)
            for edge, marker in zip(LIMITS, "<>", strict=True):
                if min(ends) < edge < max(ends):
                    axis.plot([edge], [y], color=color, marker=marker, markersize=3)
        marker = MARKERS[places.index(check["place"]) % len(MARKERS)]
        if not LIMITS[0] <= value <= LIMITS[1]:
            marker = "<" if value < LIMITS[0] else ">"
        axis.plot([np.clip(value, *LIMITS)], [y], color=color, marker=marker, markersize=3.6, markeredgewidth=0)


def _finish(axis: Axes, rows: int) -> None:
    axis.axvspan(-1, 1, color="#e6e6e6", lw=0, zorder=0)
    axis.axvline(0, color=style.SOFT, lw=0.6, zorder=1)
    for row in range(rows):
        axis.axhline(row, color="#dddddd", lw=0.5, zorder=0)
    axis.set_xlim(LIMITS[0] - 1, LIMITS[1] + 1)
    axis.set_xticks([LIMITS[0], 0, 10, LIMITS[1]], ["\u221210", "0", "10", "20"])
    axis.set_ylim(rows, 0)
    axis.set_yticks([])
    axis.grid(visible=False)
    axis.spines["left"].set_visible(False)
    axis.set_xlabel("effect / margin\n(grey: no effect)", fontsize=style.SMALL)
