"""JSON that another process has written: the result is a document or a ValueError, for any bytes.
Pure.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final, NoReturn

DIGITS_MAX: Final = 19
"""The digits of a number of 64 bits; Python refuses to convert thousands of digits."""


def parse_json(payload: bytes | str) -> Any:
    """The document. Arrays and objects that are nested too deeply for Python are a ValueError as
    well. So are numbers that are not finite, because they cannot be converted to integers.
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
    """True if the text is an integer with at most as many digits as a number of 64 bits."""
    digits = text.removeprefix("-")
    return digits.isdecimal() and len(digits) <= DIGITS_MAX
