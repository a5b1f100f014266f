"""The audit log: who did what to what, from where, with which outcome; a logger of its own.

Each line has `operation`, `principal`, `address`, `interface` (kafka, grpc or http) and `outcome`;
then what it was about (`link`, `topics`, `groups`, ...), and for what was not done the `reason`.
docs/security.md has the list.
"""

from __future__ import annotations

from typing import Final

from runtime.logs import AUDIT, get_logger

ALLOWED: Final = "allowed"
DENIED: Final = "denied"
"""The caller may not do it: nothing was done."""
FAILED: Final = "failed"
"""The caller may, and it did not work."""

NAMES_SHOWN: Final = 20
"""The most names in a line about a request with thousands of topics; the line also has their
number.
"""

_log = get_logger(AUDIT)


def audit(
    *, operation: str, principal: str, address: str, interface: str, outcome: str, reason: str = "", **subjects: str
) -> None:
    """Write one line."""
    _log.info(
        operation,
        principal=principal,
        address=address,
        interface=interface,
        **{name: value for name, value in subjects.items() if value},
        outcome=outcome,
        **({"reason": reason} if reason else {}),
    )
