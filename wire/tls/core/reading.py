"""Detects the format of a store from its bytes, as Java does since `keystore.type.compat`."""

from __future__ import annotations

import enum
from typing import Final

from wire.tls.core import java_key_store, pem
from wire.tls.core.entries import KeyStore, UnusableStore
from wire.tls.core.java_key_store import read_java_key_store

_JCEKS_MAGIC: Final = bytes.fromhex("cececece")
_SEQUENCE: Final = b"\x30"
CONVERSION: Final = (
    "keytool -importkeystore -srckeystore FILE -srcstoretype TYPE -destkeystore FILE.p12 -deststoretype PKCS12"
)
"""Advice to convert an unsupported store."""


class Format(enum.Enum):
    """The format of a store."""

    JKS = "JKS"
    PKCS12 = "PKCS12"
    PEM = "PEM"


def format_of(data: bytes) -> Format:
    """Return the format of the bytes. UnusableStore if they are of no known format."""
    if data.startswith(java_key_store.MAGIC):
        return Format.JKS
    if data.startswith(_JCEKS_MAGIC):
        raise UnusableStore(f"it is JCEKS, which is not read; {CONVERSION.replace('TYPE', 'JCEKS')} converts it")
    if pem.BEGIN in data:
        return Format.PEM
    if data.startswith(_SEQUENCE):
        return Format.PKCS12
    raise UnusableStore("it begins like none of these" if data else "it is empty")


def read_key_store(data: bytes, password: str | None) -> KeyStore:
    """The entries of a JKS or PKCS12 store. UnusableStore; WrongPassword."""
    if format_of(data) is Format.JKS:
        return read_java_key_store(data, password)
    # The library behind it is large: a process that opens no such store neither waits for it at the
    # start nor keeps it in memory.
    from wire.tls.core.pkcs12 import read_pkcs12

    return read_pkcs12(data, password)
