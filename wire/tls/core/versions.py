"""Chooses TLS versions and cipher suites from Kafka's options. Pure.

Suites have their IANA names in Kafka (`TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`) and names of their
own in OpenSSL (`ECDHE-RSA-AES128-GCM-SHA256`); both are accepted. Python's ssl cannot choose among
the suites of TLS 1.3, so a list names all three of them or none: none of them turns TLS 1.3 off.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

TLS_1_2: Final = "TLSv1.2"
TLS_1_3: Final = "TLSv1.3"
VERSIONS: Final = (TLS_1_2, TLS_1_3)
VERSIONS_ACCEPTED: Final = f"accepted: {TLS_1_2}, {TLS_1_3} or both"
SUITES_OF_TLS_1_3: Final = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
SUITES_ACCEPTED: Final = (
    "accepted: names of cipher suites as IANA or OpenSSL has them, "
    f"of TLS 1.3 all of {', '.join(SUITES_OF_TLS_1_3)} or none"
)
_KEY_BITS: Final = re.compile(r"(AES|CAMELLIA|ARIA)_(\d+)(?=_|$)")


class Offer(NamedTuple):
    """The offer of one side of TLS: versions, and the suites of TLS 1.2 in OpenSSL's form; empty
    for OpenSSL's own choice.
    """

    versions: tuple[str, ...]
    ciphers: str


def parse_versions(text: str) -> tuple[str, ...]:
    """The versions of a list, the oldest first. ValueError names the unknown version."""
    named = [item.strip() for item in text.split(",") if item.strip()]
    unknown = next((name for name in named if name not in VERSIONS), None)
    if unknown is not None or not named:
        raise ValueError(f"{unknown or text!r} is no version of TLS that is spoken")
    return tuple(version for version in VERSIONS if version in named)


def offer_of(versions: Sequence[str], suites: Sequence[str]) -> Offer:
    """Return the offer of these versions with these suites; no suites: all that OpenSSL prefers.
    ValueError says what cannot be.
    """
    if not suites:
        return Offer(tuple(versions), "")
    modern = [suite for suite in suites if suite in SUITES_OF_TLS_1_3]
    older = [suite for suite in suites if suite not in SUITES_OF_TLS_1_3]
    if modern and len(set(modern)) < len(SUITES_OF_TLS_1_3):
        raise ValueError("the suites of TLS 1.3 are named in part")
    possible = {TLS_1_2: bool(older), TLS_1_3: bool(modern)}
    left = tuple(version for version in versions if possible[version])
    if not left:
        raise ValueError(f"no suite belongs to {' or '.join(versions)}")
    return Offer(left, ":".join(openssl_suite(suite) for suite in older))


def openssl_suite(name: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2; a name that is none of IANA's stays as it is."""
    if not name.startswith("TLS_") or "_WITH_" not in name:
        return name
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    cipher = _KEY_BITS.sub(r"\1\2", cipher.replace("_CBC_", "_")).replace(
        "CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305"
    )
    whole = cipher if exchange == "RSA" else f"{exchange}_{cipher}"
    return whole.replace("_", "-")
