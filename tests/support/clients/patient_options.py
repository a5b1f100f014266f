"""Connection options of a client that connects once: on a busy machine a handshake and a login take
longer than a client should wait that may try again.
"""

from __future__ import annotations

from typing import Any

from wire.client.connection import ConnectionOptions

CONNECTED_WITHIN_MS = 120_000


def patient_options(**options: Any) -> ConnectionOptions:
    """The options, with enough time to connect and for each answer."""
    return ConnectionOptions(
        **{"connect_timeout_ms": CONNECTED_WITHIN_MS, "request_timeout_ms": CONNECTED_WITHIN_MS, **options}
    )
