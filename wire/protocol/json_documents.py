"""JSON that another process has written: whatever the bytes are, there is a document or a
ValueError. Pure.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final, NoReturn

DIGITS_MAX: Final = 19
"""The digits of a number of 64 bits; Python refuses to convert thousands of digits."""


def parse_json(payload: bytes | str) -> Any:
    """The document. Arrays and objects inside each other, more than Python can follow, are a
    ValueError as well, and so are numbers that are not finite: they cannot be converted to whole
    ones.
    """
    try:
        return json.loads(payload, parse_float=_finite, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("arrays and objects are nested too deeply") from error


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:DIGITS_MAX]} is too large")
    return number


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def is_number_text(text: str) -> bool:
    """True if the text is a whole number with no more digits than a number of 64 bits."""
    digits = text.removeprefix("-")
    return digits.isdecimal() and len(digits) <= DIGITS_MAX
