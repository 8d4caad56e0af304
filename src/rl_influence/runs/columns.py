"""The columns of a run's files: what they are called, and what may be in them."""

from __future__ import annotations

import math

import numpy as np

from rl_influence.config import RunSpec

CURVE_COLUMNS = ("round", "env_steps", "test_return", "test_return_se", "records_kept", "updates")
PHASES = ("sampling_s", "influence_s", "optimise_s")  # CPU seconds of a round of training
TIMING_COLUMNS = ("round", *PHASES, "evaluate_s")
DIAGNOSTICS_COLUMNS = (
    *("round", "episodes", "train_return", "train_length", "approx_kl", "clip_fraction", "entropy"),
    *("explained_variance", "policy_loss", "value_loss", "grad_norm", "grad_clipped_share", "displacement"),
    *("value_displacement", "negative_share", *(f"influence_q{percent}" for percent in ("05", "25", "50", "75", "95"))),
    *("step_scale", "displacement_target"),
)
COUNTS = ("round", "env_steps", "records_kept", "updates")
Columns = dict[str, list]


def write(columns: tuple[str, ...], rows: list[list]) -> bytes:
    """Rows as CSV."""
    return ("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n").encode()


def read_curve(text: str, spec: RunSpec) -> Columns:
    """Columns of a curve with the rounds 0 to K and values within their bounds; returns of rounds that are not
    evaluated are nan.

    Raises:
        ValueError: for the first thing that is wrong.
    """
    curve = _read(text, CURVE_COLUMNS, spec)

    def refuse(k: int, name: str, expected: str):
        shown = "empty" if curve[name][k] is None else curve[name][k]
        raise ValueError(f"round {k}: {name} is {shown}, expected {expected}")

    n, last = spec.ppo.n_steps, spec.rounds
    for k in range(last + 1):
        if curve["env_steps"][k] != k * n:
            refuse(k, "env_steps", str(k * n))
        if not 0 <= curve["records_kept"][k] <= (n if k else 0):
            refuse(k, "records_kept", f"0 to {n}" if k else "0")
        if not 0 <= curve["updates"][k] <= (math.inf if k else 0):
            refuse(k, "updates", ">= 0" if k else "0")
        evaluated = k % spec.evaluation.every == 0 or k == last
        for name in ("test_return", "test_return_se"):
            value = curve[name][k]
            if not evaluated and value is not None:
                refuse(k, name, "nothing, the round is not evaluated")
            if evaluated and (value is None or not math.isfinite(value)):
                refuse(k, name, "a finite number")
            if value is None:
                curve[name][k] = math.nan
        if curve["test_return_se"][k] < 0:
            refuse(k, "test_return_se", ">= 0")
    return curve


def read_timing(text: str, spec: RunSpec) -> Columns:
    """Columns of a run's seconds for the rounds 0 to K.

    Raises:
        ValueError: for the first thing that is wrong.
    """
    timing = _read(text, TIMING_COLUMNS, spec)
    for name in TIMING_COLUMNS[1:]:
        for k, seconds in enumerate(timing[name]):
            if seconds is None or not 0 <= seconds < math.inf:
                shown = "empty" if seconds is None else seconds
                raise ValueError(f"round {k}: {name} is {shown}, expected seconds >= 0")
    return timing


def read_diagnostics(text: str) -> dict[str, np.ndarray]:
    """Columns of a run's diagnostics, nan where a field is empty or an older file lacks the column.

    Raises:
        ValueError: for the first thing that is wrong.
    """
    header, *lines = text.split("\n")
    names = header.split(",")
    if not {"round", "episodes"} <= {*names} <= {*DIAGNOSTICS_COLUMNS}:
        raise ValueError(f"columns are {header[:100]!r}, expected {','.join(DIAGNOSTICS_COLUMNS)!r}")
    if not lines or lines.pop() != "":
        raise ValueError("truncated, its last line has no end")
    rows = [line.split(",") for line in lines]
    if any(len(row) != len(names) for row in rows):
        raise ValueError(f"lines of other than {len(names)} fields")
    table = np.array([[float(field or "nan") for field in row] for row in rows]).reshape(len(rows), len(names))
    there = dict(zip(names, table.T, strict=True))
    return {name: there.get(name, np.full(len(table), np.nan)) for name in DIAGNOSTICS_COLUMNS}


def _read(text: str, columns: tuple[str, ...], spec: RunSpec) -> Columns:
    """Columns of a file with exactly these columns and the rounds 0 .. K; None where a field is empty."""
    header, *lines = text.split("\n")
    if header != ",".join(columns):
        raise ValueError(f"columns are {header[:100]!r}, expected {','.join(columns)!r}")
    if not lines or lines.pop() != "":
        raise ValueError("truncated, its last line has no end")
    rows = []
    for number, line in enumerate(lines, start=2):
        fields = line.split(",")
        if len(fields) != len(columns):
            raise ValueError(f"line {number} has {len(fields)} fields, expected {len(columns)}")
        try:
            rows.append(
                [
                    int(field) if name in COUNTS else float(field) if field else None
                    for name, field in zip(columns, fields, strict=True)
                ]
            )
        except ValueError:
            raise ValueError(f"line {number} is not made of numbers: {line[:80]!r}") from None
    rounds = [row[0] for row in rows]
    if rounds != list(range(spec.rounds + 1)):
        lacking = sorted(set(range(spec.rounds + 1)) - set(rounds))
        what = f"round {lacking[0]} is missing" if lacking else "rounds are repeated, unordered or too many"
        raise ValueError(f"{what}; expected 0 to {spec.rounds}, found {len(rounds)} rows")
    return dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))
