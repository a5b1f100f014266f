"""The time for which a certificate is valid, and what is wrong with it now. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

WARNED_BEFORE_MS: Final = 30 * 24 * 3_600_000
"""How long (ms) before its end a certificate is reported."""


class Validity(Struct, frozen=True, kw_only=True):
    """A certificate's subject (RFC 4514), its serial number in hexadecimal, and the Unix times in
    ms between which it is valid.
    """

    subject: str
    serial: str
    begins_at_ms: int
    ends_at_ms: int

    def problem(self, now_ms: int) -> str:
        """What an operator has to know about the certificate at this time; empty for nothing."""
        if now_ms >= self.ends_at_ms:
            return "a certificate has expired: clients refuse it"
        if now_ms < self.begins_at_ms:
            return "a certificate is not valid yet: clients refuse it"
        if now_ms >= self.ends_at_ms - WARNED_BEFORE_MS:
            return "a certificate expires soon"
        return ""
