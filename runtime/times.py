"""Converts times: Unix milliseconds in programs, ISO 8601 for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

ACCEPTED: Final = "Unix milliseconds, or ISO 8601 (2026-01-31T12:00:00Z)"


def unix_ms(text: str) -> int:
    """The time in the text; a time without a zone is in this machine's time zone. ValueError if the
    text is not ACCEPTED.
    """
    if text.isdecimal():
        return int(text)
    return round(datetime.fromisoformat(text).astimezone().timestamp() * 1000)


def iso_time(at_ms: int) -> str:
    """The time as ISO 8601 in UTC with milliseconds; empty for none, which is below 0."""
    if at_ms < 0:
        return ""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
