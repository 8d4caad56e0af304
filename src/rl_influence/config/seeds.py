"""Seeds of a study: whole numbers, one by one or as ranges."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

Seed = Annotated[int, Field(ge=0, lt=2**63)]
SEEDS_AT_ONCE = 10_000  # of one range


def _seeds(value: Any) -> Any:
    """Seeds with their ranges written out: `0..9`, or a list such as `[0..4, 7]`."""
    if not isinstance(value, (list, tuple)) and not (isinstance(value, str) and ".." in value):
        raise ValueError("expected a list, or a range as in 0..9")
    written = []
    for part in value if isinstance(value, (list, tuple)) else [value]:
        match = re.fullmatch(r"\s*(\d{1,18})\s*\.\.\s*(\d{1,18})\s*", part) if isinstance(part, str) else None
        if match is None:
            if isinstance(part, str) and ".." in part:
                raise ValueError(f"{part!r} is no range of seeds; expected first..last, as in 0..9")
            written.append(part)
            continue
        first, last = map(int, match.groups())
        if not first <= last < first + SEEDS_AT_ONCE:
            raise ValueError(f"{part!r}: expected a range that rises and has at most {SEEDS_AT_ONCE} seeds")
        written += range(first, last + 1)
    return value if written == [value] else written


SEED = {"type": "integer", "minimum": 0, "exclusiveMaximum": 2**63}
RANGE = {"type": "string", "pattern": r"^\d+\.\.\d+$"}
Seeds = Annotated[
    tuple[Seed, ...],
    BeforeValidator(_seeds),
    WithJsonSchema({"anyOf": [{"type": "array", "minItems": 1, "items": {"anyOf": [SEED, RANGE]}}, RANGE]}),
]
