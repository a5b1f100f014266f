"""Lines of logs as several clients send them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

EVENTS: Final = (
    ("INFO", "request {number} is served"),
    ("INFO", "user {number} has logged in"),
    ("WARN", "request {number} took longer than 500 ms"),
    ("INFO", "cache entry {number} has expired"),
    ("ERROR", "disk {number} is full"),
)


def client_name(client: int) -> str:
    """The name of a client in its lines."""
    return f"web-{client + 1}"


def log_lines(client: int, count: int, *, at_ms: int) -> Iterator[str]:
    """Lines of one client, a second apart from `at_ms` (Unix ms) on; each line is there once."""
    for number in range(count):
        at = datetime.fromtimestamp(at_ms / 1000 + number, UTC).isoformat(timespec="seconds")
        level, text = EVENTS[number % len(EVENTS)]
        yield f"{at} {client_name(client)} {level} {text.format(number=number)}"
