"""Times as people give them to commands."""

from __future__ import annotations

from cli.shared.failures import usage_error
from runtime.times import ACCEPTED, unix_ms


def parse_time(option: str, text: str, *, besides: str = "") -> int:
    """Unix ms of a time. A usage error says what is accepted, `besides` first."""
    try:
        return unix_ms(text)
    except ValueError as error:
        raise usage_error(f"{option} {text!r} is no time: accepted are {besides}{ACCEPTED}") from error
