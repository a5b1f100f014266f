"""TLS by Kafka's option names: whom we trust, and who we are, read from key stores.

`ssl.truststore.type` and `ssl.keystore.type` name the store's format: JKS or PKCS12, either of
which reads both, as in Java; or PEM. Without a type, the file's bytes decide. PEM may also be given
in the options themselves (KIP-651).

A private key out of a key store goes to OpenSSL through a file that exists in memory alone and for
this process alone: Python's ssl takes keys from files only, and one on disk might be read by others
or stay behind.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pydantic import Field, SecretStr, field_validator

from runtime.configuration import ConfigurationError, Settings
from wire.tls.core import pem
from wire.tls.core.entries import KeyStore, StoredKey, UnusableStore, WrongPassword
from wire.tls.core.java_key_store import unlocked
from wire.tls.core.reading import CONVERSION, Format, format_of, read_key_store

HIDDEN: Final = "(hidden)"
_NOT_SET: Final = "(not set)"
_TRUST, _KEY, _KEY_PASSWORD = "ssl.truststore", "ssl.keystore", "ssl.key.password"
_TYPES: Final = f"JKS or PKCS12 (each reads both, as in Java) or PEM; without it the file's content decides. Other kinds: {CONVERSION}"


_MISMATCH: Final = "the private key does not belong to the first certificate"
_MISMATCHES: Final = {"KEY_VALUES_MISMATCH": _MISMATCH, "KEY_TYPE_MISMATCH": _MISMATCH}
"""What OpenSSL's reasons mean."""
_BEGIN_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"
_END_CERTIFICATE: Final = "-----END CERTIFICATE-----"


class TlsSettings(Settings):
    """The certificates that a client trusts, and its own identity."""

    truststore: Path | None = Field(
        default=None,
        alias="ssl.truststore.location",
        description="a file of the certificates that are trusted; empty: the system's",
    )
    truststore_type: Format | None = Field(default=None, alias="ssl.truststore.type", description=_TYPES)
    truststore_password: SecretStr | None = Field(
        default=None,
        alias="ssl.truststore.password",
        description="the password of a JKS or PKCS12 file; without it the file's integrity is not checked",
    )
    truststore_certificates: str | None = Field(
        default=None,
        alias="ssl.truststore.certificates",
        description="PEM certificates that are trusted, instead of a file",
    )
    keystore: Path | None = Field(
        default=None, alias="ssl.keystore.location", description="a file of our private key and its certificates"
    )
    keystore_type: Format | None = Field(default=None, alias="ssl.keystore.type", description=_TYPES)
    keystore_password: SecretStr | None = Field(
        default=None, alias="ssl.keystore.password", description="the password of a JKS or PKCS12 file"
    )
    keystore_key: SecretStr | None = Field(
        default=None, alias="ssl.keystore.key", description="our private key in PEM, instead of a file"
    )
    keystore_certificate_chain: str | None = Field(
        default=None,
        alias="ssl.keystore.certificate.chain",
        description="the certificates of that key in PEM, its own one first",
    )
    key_password: SecretStr | None = Field(
        default=None,
        alias="ssl.key.password",
        description="the password of the private key, where it is not that of its store",
    )
    endpoint_identification: str = Field(
        default="https",
        alias="ssl.endpoint.identification.algorithm",
        pattern="^(https)?$",
        description="https demands that the certificate names the host; empty does not",
    )

    @field_validator("truststore_type", "keystore_type", mode="before")
    @classmethod
    def _any_case(cls, value: object) -> object:
        return value.strip().upper() or None if isinstance(value, str) else value

    @field_validator(
        "truststore", "truststore_certificates", "keystore", "keystore_key", "keystore_certificate_chain", mode="before"
    )
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        return None if value == "" else value

    def tls_context(self) -> ssl.SSLContext:
        """Reads the stores. ConfigurationError names the option, the file and what is accepted, and
        nothing secret.
        """
        context = self._trusting_context(ssl.Purpose.SERVER_AUTH)
        context.check_hostname = self.endpoint_identification == "https"
        self._identify(context)
        return context

    def files(self) -> tuple[Path, ...]:
        """The files that a context is made of."""
        return tuple(path for path in (self.truststore, self.keystore) if path is not None)

    def trusted_pem(self) -> str | None:
        """The certificates that are trusted, in PEM; None for the system's. ConfigurationError."""
        if self.truststore_certificates is not None:
            with _blamed(f"{_TRUST}.certificates", "(PEM)", "certificates in PEM"):
                return pem.unfolded(self.truststore_certificates, pem.CERTIFICATE)
        if self.truststore is None:
            return None
        # Java's formats are converted to PEM, because OpenSSL does not read them
        store = _store(_TRUST, self.truststore, self.truststore_type, _revealed(self.truststore_password))
        if store is None:
            return self.truststore.read_text(encoding="utf-8")
        return "".join(pem.armoured(pem.CERTIFICATE, anchor) for anchor in store.anchors)

    def own_certificate(self) -> bytes | None:
        """Our own certificate in DER; None without a certificate. ConfigurationError, OSError."""
        chain, path = self.keystore_certificate_chain, self.keystore
        if chain is None and path is not None:
            store = _store(_KEY, path, self.keystore_type, _revealed(self.keystore_password))
            if store is not None:
                return store.keys[0].chain[0] if store.keys and store.keys[0].chain else None
            chain = path.read_text(encoding="utf-8")
        if chain is None:
            return None
        with _blamed(f"{_KEY}.certificate.chain", "(PEM)", "certificates in PEM"):
            _, begin, rest = pem.unfolded(chain, pem.CERTIFICATE).partition(_BEGIN_CERTIFICATE)
            return ssl.PEM_cert_to_DER_cert(begin + rest.partition(_END_CERTIFICATE)[0] + _END_CERTIFICATE)

    def _trusting_context(self, purpose: ssl.Purpose) -> ssl.SSLContext:
        """A context that trusts the authorities of the options."""
        context = self._context_of_trust(purpose)
        # A certificate in the trust store is trusted whether it signed itself or not, as in Java.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        # On by default since Python 3.13; certificates that keytool and openssl make by their
        # defaults do not pass it.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context

    def _context_of_trust(self, purpose: ssl.Purpose) -> ssl.SSLContext:
        given, path, password = self.truststore_certificates, self.truststore, _revealed(self.truststore_password)
        if given is not None:
            _check_alone(_TRUST, "certificates", self.truststore_type, path, password)
            with _blamed(f"{_TRUST}.certificates", "(PEM)", "certificates in PEM"):
                return ssl.create_default_context(purpose, cadata=pem.unfolded(given, pem.CERTIFICATE))
        if path is None:
            _check_no_password(_TRUST, password)
            return ssl.create_default_context(purpose)
        store = _store(_TRUST, path, self.truststore_type, password)
        with _blamed(f"{_TRUST}.location", path, "a whole file of X.509 certificates"):
            if store is None:
                return ssl.create_default_context(purpose, cafile=str(path))
            if not store.anchors:
                raise UnusableStore("nothing in it is trusted: keytool -importcert puts a certificate there that is")
            return ssl.create_default_context(purpose, cadata=b"".join(store.anchors))

    def _identify(self, context: ssl.SSLContext) -> None:
        """Give the context our private key and its certificates, where there are any."""
        path, password, key_password = self.keystore, _revealed(self.keystore_password), _revealed(self.key_password)
        if self.keystore_key is not None or self.keystore_certificate_chain is not None:
            _check_alone(_KEY, "key", self.keystore_type, path, password)
            self._identify_in_line(context, key_password)
            return
        if path is None:
            _check_no_password(_KEY, password)
            return
        # PEM files need no conversion
        store = _store(_KEY, path, self.keystore_type, password)
        if store is None:
            accepted = f"a private key and its certificates in PEM, and its password, if it has one, as {_KEY_PASSWORD}"
            with _blamed(f"{_KEY}.location", path, accepted):
                context.load_cert_chain(str(path), password=key_password or "")
            # an empty password, not None: OpenSSL would ask for it at the terminal
            return
        if password is None:
            raise ConfigurationError(f"{_KEY}.password", _NOT_SET, f"the password of {path}")
        with _blamed(f"{_KEY}.location", path, "a private key and its certificates"):
            if not store.keys:
                raise UnusableStore("there is no private key in it")
        # the first key, where Java lets the broker's authorities choose; without a password of its
        # own it has the store's
        self._identify_by(context, store.keys[0], password if key_password is None else key_password)

    def _identify_by(self, context: ssl.SSLContext, key: StoredKey, password: str) -> None:
        with _blamed(f"{_KEY}.location", self.keystore, f"a key {key.alias!r} and the certificates that belong to it"):
            if not key.chain:
                raise UnusableStore("its certificates are not there")
            try:
                opened = unlocked(key.key, password) if key.is_locked else key.key
            except WrongPassword as error:
                given = _NOT_SET if self.key_password is None else HIDDEN
                accepted = (
                    f"the password of the key {key.alias!r} in {self.keystore}; if it is not set, that of the store"
                )
                raise ConfigurationError(_KEY_PASSWORD, given, accepted) from error
            _load(context, pem.certificates_and_key(key.chain, opened))

    def _identify_in_line(self, context: ssl.SSLContext, password: str | None) -> None:
        key, chain = _revealed(self.keystore_key), self.keystore_certificate_chain
        if key is None or chain is None:
            missing = "key" if key is None else "certificate.chain"
            raise ConfigurationError(f"{_KEY}.{missing}", _NOT_SET, "both, or neither, of key and certificate.chain")
        with _blamed(f"{_KEY}.key", HIDDEN, f"a key in PEM that {_KEY_PASSWORD} opens, if it is locked"):
            whole = pem.unfolded(key, pem.PRIVATE_KEY) + pem.unfolded(chain, pem.CERTIFICATE)
            _load(context, whole, password or "")


TLS_SECRETS: Final = tuple(
    str(field.alias) for field in TlsSettings.model_fields.values() if field.annotation == SecretStr | None
)
"""Options whose values are never repeated."""


def _revealed(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def open_store(prefix: str, path: Path, expected: Format | None, password: SecretStr | None) -> KeyStore | None:
    """Read a store from a file; None for PEM. ConfigurationError as in `tls_context`."""
    return _store(prefix, path, expected, _revealed(password))


def _store(prefix: str, path: Path, expected: Format | None, password: str | None) -> KeyStore | None:
    """Read a store from a file; None for PEM, which OpenSSL reads by itself."""
    try:
        data = path.read_bytes()
    except OSError as error:
        accepted = f"a file that can be read ({error.strerror})"
        raise ConfigurationError(f"{prefix}.location", str(path), accepted) from error
    with _blamed(f"{prefix}.location", path, "a whole JKS, PKCS12 or PEM file"):
        found = format_of(data)
        if expected is not None and (found is Format.PEM) is not (expected is Format.PEM):
            raise ConfigurationError(f"{prefix}.type", expected.value, f"{found.value}, which {path} is")
        if found is Format.PEM:
            if password:
                accepted = f"none: {path} is PEM, which has no password but that of a key, {_KEY_PASSWORD}"
                raise ConfigurationError(f"{prefix}.password", HIDDEN, accepted)
            return None
        try:
            return read_key_store(data, password)
        except WrongPassword as error:
            given = _NOT_SET if password is None else HIDDEN
            raise ConfigurationError(f"{prefix}.password", given, f"the password of {path} ({error})") from error


def _check_alone(prefix: str, name: str, kind: Format | None, path: Path | None, password: str | None) -> None:
    """PEM given in the options themselves, without a file."""
    if kind not in (None, Format.PEM):
        raise ConfigurationError(f"{prefix}.type", kind.value, f"PEM, since {prefix}.{name} is given")
    if path is not None:
        raise ConfigurationError(f"{prefix}.location", str(path), f"none, since {prefix}.{name} is given")
    if password:
        raise ConfigurationError(f"{prefix}.password", HIDDEN, f"none, since {prefix}.{name} is PEM")


def _check_no_password(prefix: str, password: str | None) -> None:
    if password:
        raise ConfigurationError(f"{prefix}.location", _NOT_SET, f"the file that {prefix}.password is for")


@contextmanager
def _blamed(option: str, value: object, accepted: str) -> Iterator[None]:
    """Turn any error of a reader (UnusableStore), Python or OpenSSL into a ConfigurationError of
    this option.
    """
    try:
        yield
    except (ValueError, ssl.SSLError) as error:
        reason = _MISMATCHES.get(str(getattr(error, "reason", "")), str(error))
        raise ConfigurationError(option, str(value), f"{accepted} ({reason})") from error


def _load(context: ssl.SSLContext, text: str, password: str = "") -> None:
    """A key and certificates that are in no file. With no password an empty one, since OpenSSL
    would ask for it at the terminal.
    """
    with open(os.memfd_create("key"), "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password=password)
