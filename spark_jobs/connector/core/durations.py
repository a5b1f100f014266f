"""Spark's time strings, as `JavaUtils.timeStringAsMs` reads them: a number and a unit. Pure."""

from __future__ import annotations

import re
from typing import Final

_UNITS_MS: Final = {
    "": 1.0,
    "us": 0.001,
    "ms": 1.0,
    "s": 1_000.0,
    "m": 60_000.0,
    "min": 60_000.0,
    "h": 3_600_000.0,
    "d": 86_400_000.0,
}
FORM: Final = f"a number with {', '.join(unit for unit in _UNITS_MS if unit)}"


def duration_ms(text: str) -> int | None:
    """The time in ms, None for another text."""
    found = re.fullmatch(r"(\d+)([a-z]*)", text.strip().lower())
    if found is None or found[2] not in _UNITS_MS:
        return None
    return int(int(found[1]) * _UNITS_MS[found[2]])
