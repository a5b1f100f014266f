"""The audit log: a logger for requests that change or refuse something, with their principal,
address and outcome.

Each line has `operation`, `principal`, `address`, `interface` (kafka, grpc or http) and `outcome`;
then the affected resources (`link`, `topics`, `groups`, ...), and for a refusal or failure the
`reason`. docs/security.md has the list.
"""

from __future__ import annotations

from typing import Final

from runtime.logs import AUDIT, get_logger

ALLOWED: Final = "allowed"
DENIED: Final = "denied"
"""The caller is not authorized; nothing changed."""
FAILED: Final = "failed"
"""The caller has the right, and the operation failed."""

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
