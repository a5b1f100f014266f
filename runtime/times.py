"""Converts times: Unix milliseconds in programs, ISO 8601 for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

ACCEPTED: Final = "Unix milliseconds, or ISO 8601 (2026-01-31T12:00:00Z)"
LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999, the last one of ISO 8601's years with four digits."""


def unix_ms(text: str) -> int:
    """The time in the text; a time without a zone is in this machine's time zone. ValueError if the
    text is not ACCEPTED, or a time before 1970 or after LAST_MS.
    """
    try:
        at_ms = int(text) if text.isdecimal() else round(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except OverflowError as error:
        raise ValueError(str(error)) from error
    # Kafka's requests use negative times for the earliest and the latest offset.
    if not 0 <= at_ms <= LAST_MS:
        raise ValueError(f"{at_ms} ms is before 1970 or after the year 9999")
    return at_ms


def iso_time(at_ms: int) -> str:
    """The time as ISO 8601 in UTC with milliseconds; empty for none, which is below 0. A time after
    LAST_MS, as of records whose producer counts microseconds, as a number of milliseconds.
    """
    if at_ms < 0:
        return ""
    if at_ms > LAST_MS:
        return f"{at_ms} ms"
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
