"""Numbers as people read them, once for all: README, report, figures, LaTeX and terminal print the same digits."""

from __future__ import annotations

import math
from collections.abc import Mapping

UNDEFINED = "–"
REMOVALS = {"subsets": "random halves", "groups": "single groups"}  # of records, see `faithfulness`
BOUNDS = {"at most": "≤ ", "at least": "≥ ", "either way": "≈ "}


def decimals(low: float, high: float) -> int | None:
    """Digits after the point that show half of an interval's width with two digits; None without an interval."""
    half = (high - low) / 2
    return max(0, 1 - math.floor(math.log10(half))) if math.isfinite(half) and half > 0 else None


def number(value: float, digits: int | None = None, *, percent: bool = False) -> str:
    """A number with so many digits after the point; by default one in percent, else three significant ones. `percent`
    multiplies by 100 and adds no sign. No exponent for what is at least 0.0001, and never -0."""
    if value is None or math.isnan(value):
        return UNDEFINED
    value = 100 * value if percent else value
    if digits is None and not percent and 0 < abs(value) < 1e-4:
        return f"{value:.3g}"
    if digits is None and not percent:
        text = f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}" if value else "0"
        return text.rstrip("0").rstrip(".") if "." in text else text
    text = f"{value:.{1 if digits is None else digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def interval(value: float, low: float, high: float, *, percent: bool = False, bound: str = "", unit: str = "") -> str:
    """`9.8 % [4.5, 15.1]`: rounded so that half of the interval's width has two digits; without one just the number.
    `bound`: `at most`, `at least` or `either way`, where a return was never reached; `unit`: after the number, if not
    percent."""
    scale = 100 if percent else 1
    digits = decimals(scale * low, scale * high) if low is not None else None
    shown = [
        number(scale * x, digits) if digits is not None else number(x, percent=percent) for x in (value, low, high)
    ]
    unit = " %" if percent else f" {unit}" if unit else ""
    if shown[0] == UNDEFINED:
        return UNDEFINED
    return f"{BOUNDS.get(bound, '')}{shown[0]}{unit}" + (f" [{shown[1]}, {shown[2]}]" if UNDEFINED not in shown else "")


def count(row: Mapping) -> str:
    """`5`, or `4 of 5` where seeds are missing."""
    return f"{row['n']:g}" if row["n"] == row["expected"] else f"{row['n']:g} of {row['expected']:g}"
