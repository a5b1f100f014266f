"""JSON that another process has written: whatever the bytes are, there is a document or a
ValueError. Pure.
"""

from __future__ import annotations

import json
from typing import Any, Final

DIGITS_MAX: Final = 19
"""As many as a number of 64 bits has; Python refuses to convert thousands."""


def parse_json(payload: bytes | str) -> Any:
    """The document. Arrays and objects inside each other, more than Python can follow, are a
    ValueError as well.
    """
    try:
        return json.loads(payload)
    except RecursionError as error:
        raise ValueError("arrays and objects are nested too deeply") from error


def is_number_text(text: str) -> bool:
    """Whether a text is a whole number of no more digits than one of 64 bits."""
    digits = text.removeprefix("-")
    return digits.isdecimal() and len(digits) <= DIGITS_MAX
