"""Why a connection to a broker could not be made, in words that name the option to look at."""

from __future__ import annotations

import ssl
from typing import Final

UNANSWERED: Final = (
    "before the broker's first answer: security.protocol may not fit this listener, "
    "or the broker refuses this address or has too many connections"
)
"""The reason of a listener that closes a connection without a byte: the protocol has no message for
it.
"""


def connect_failure(error: BaseException) -> str:
    """The reason of an error of connecting and of the TLS handshake."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the broker's certificate is not accepted: {error.verify_message} "
            "(ssl.truststore.location has the trusted authorities)"
        )
    if isinstance(error, ssl.SSLError):
        return f"no TLS handshake: {error.reason or error}: is the listener encrypted (security.protocol)?"
    return getattr(error, "strerror", "") or str(error)
