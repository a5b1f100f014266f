"""The keys and certificates of the TLS options as PEM, for all formats of stores: for libraries
that take bytes (gRPC) or files (librdkafka, uvicorn).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
    load_pem_private_key,
)

from runtime.configuration import ConfigurationError
from wire.tls.core import pem
from wire.tls.core.entries import KeyStore
from wire.tls.core.java_key_store import unlocked
from wire.tls.settings import TlsSettings, open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsMaterial:
    """Bytes in PEM; None: not configured."""

    authorities: bytes | None
    certificate_chain: bytes | None
    private_key: bytes | None = field(repr=False)
    """The private key without a password."""


def tls_material(settings: TlsSettings) -> TlsMaterial:
    """Reads the stores. ConfigurationError names the option and the file, and nothing secret."""
    settings.tls_context()  # validates the files, with the errors of every other TLS client
    chain, key = _identity(settings)
    return TlsMaterial(authorities=_authorities(settings), certificate_chain=chain, private_key=key)


def files_of(settings: TlsSettings) -> tuple[Path, ...]:
    """The files that the material comes from: when one of them changes, it is read again."""
    return tuple(path for path in (settings.truststore, settings.keystore) if path is not None)


def _authorities(settings: TlsSettings) -> bytes | None:
    if settings.truststore_certificates is not None:
        return pem.unfolded(settings.truststore_certificates, pem.CERTIFICATE).encode("ascii")
    if settings.truststore is None:
        return None
    password = settings.truststore_password
    store = open_store("ssl.truststore", settings.truststore, settings.truststore_type, password)
    if store is None:
        return pem.unfolded(_text(settings.truststore), pem.CERTIFICATE).encode("ascii")
    return "".join(pem.armoured(pem.CERTIFICATE, one) for one in store.anchors).encode("ascii")


def _identity(settings: TlsSettings) -> tuple[bytes | None, bytes | None]:
    key_password = None if settings.key_password is None else settings.key_password.get_secret_value()
    if settings.keystore_key is not None and settings.keystore_certificate_chain is not None:
        key = pem.unfolded(settings.keystore_key.get_secret_value(), pem.PRIVATE_KEY)
        chain = pem.unfolded(settings.keystore_certificate_chain, pem.CERTIFICATE)
        return chain.encode("ascii"), _plain_key(key.encode("ascii"), key_password)
    if settings.keystore is None:
        return None, None
    store = open_store("ssl.keystore", settings.keystore, settings.keystore_type, settings.keystore_password)
    if store is None:
        text = _text(settings.keystore)
        chain, key = pem.unfolded(text, pem.CERTIFICATE), pem.unfolded(text, pem.PRIVATE_KEY)
        return chain.encode("ascii"), _plain_key(key.encode("ascii"), key_password)
    return _of_store(settings, store, key_password)


def _of_store(settings: TlsSettings, store: KeyStore, key_password: str | None) -> tuple[bytes, bytes]:
    stored, password = store.keys[0], settings.keystore_password
    assert password is not None, "tls_context would have refused"
    opened = unlocked(stored.key, key_password or password.get_secret_value()) if stored.is_locked else stored.key
    chain = "".join(pem.armoured(pem.CERTIFICATE, one) for one in stored.chain)
    key = load_der_private_key(opened, None)
    return chain.encode("ascii"), key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _plain_key(key: bytes, password: str | None) -> bytes:
    try:
        opened = load_pem_private_key(key, password.encode() if password else None)
    except TypeError:
        # a password for a key that has none, which OpenSSL accepts
        opened = load_pem_private_key(key, None)
    return opened.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise ConfigurationError("ssl.keystore.location", str(path), f"a file in PEM ({error})") from error
