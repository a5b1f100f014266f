"""Kafka's rule for topic names: letters, digits, dot, underscore, hyphen; at most 249 characters;
not `.` or `..`. Pure.
"""

from __future__ import annotations

import re
from typing import Final

TOPIC_NAME_LENGTH_MAX: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def is_valid_topic_name(name: str) -> bool:
    """True when Kafka would accept the name."""
    return len(name) <= TOPIC_NAME_LENGTH_MAX and name not in (".", "..") and _LEGAL.fullmatch(name) is not None
