"""PKCS12, Java's format since Java 9 and openssl's: what `cryptography` makes of a file, as the
entries of a key store.

Java marks the certificates that are trusted, and `cryptography` does not expose the marks. So a
certificate is trusted unless it is above the key's own certificate in its chain; one that appears
twice, once in the chain and once by itself, is trusted.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, PKCS12KeyAndCertificates, load_pkcs12
from cryptography.x509 import Certificate

from wire.tls.core.entries import KeyStore, StoredKey, UnusableStore, WrongPassword


def read_pkcs12(data: bytes, password: str | None) -> KeyStore:
    """The entries of a PKCS12 file: its first key, and certificates. UnusableStore,
    WrongPassword.
    """
    try:
        store = load_pkcs12(data, None if password is None else password.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        if "password" not in str(error).lower():
            raise UnusableStore(str(error)) from error
        cause = "no password is given" if password is None else "the password is wrong, or the file was changed"
        raise WrongPassword(cause) from error
    above, trusted = _divided(store)
    keys = () if store.key is None else (_key(store, above),)
    return KeyStore(keys=keys, certificates=tuple(_der(one.certificate) for one in trusted))


def _key(store: PKCS12KeyAndCertificates, above: list[Certificate]) -> StoredKey:
    assert store.key is not None
    own = [] if store.cert is None else [store.cert.certificate]
    name = b"" if store.cert is None else store.cert.friendly_name or b""
    return StoredKey(
        alias=name.decode("utf-8", "replace"),
        key=store.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()),
        is_locked=False,
        chain=tuple(_der(one) for one in (*own, *above)),
    )


def _divided(store: PKCS12KeyAndCertificates) -> tuple[list[Certificate], list[PKCS12Certificate]]:
    """The certificates above the key's own one, and all others."""
    above: list[Certificate] = []
    others = list(store.additional_certs)
    lowest = store.cert.certificate if store.cert is not None else None
    while lowest is not None:
        issuer = next((one for one in others if _has_issued(one.certificate, lowest)), None)
        if issuer is not None:
            others.remove(issuer)
            above.append(issuer.certificate)
        lowest = issuer.certificate if issuer is not None else None
    return above, others


def _has_issued(issuer: Certificate, certificate: Certificate) -> bool:
    if certificate.issuer == certificate.subject:
        return False  # the top of its chain
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _der(certificate: Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)
