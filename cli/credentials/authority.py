"""A small certificate authority: makes itself, and certificates for processes and people.

ECDSA on P-256, which makes handshakes cheap. Each key is in the PEM file of its certificate, which
only its owner can read. Companies with an authority of their own do not need this; openssl's
commands for the same certificates are in docs/security.md.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from runtime.process import OperationalFailure

AUTHORITY_CERTIFICATE: Final = "ca.pem"
AUTHORITY_KEY: Final = "ca.key"
AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 397
"""The longest validity that browsers and auditors accept, give or take a day."""
BACKDATED: Final = dt.timedelta(minutes=5)
"""Clocks of two machines differ a little."""
_DNS_NAME: Final = re.compile(
    r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*"
)
PRIVATE: Final = 0o600
PUBLIC: Final = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """Its certificate and key, opened."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def issue(
        self, *, common_name: str, uris: Sequence[str] = (), hosts: Sequence[str] = (), days: int = CERTIFICATE_DAYS
    ) -> str:
        """A key and its certificate in one PEM text, good for servers and clients."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in uris]
        names += [_host(host) for host in hosts]
        builder = (
            _builder(common_name, self.certificate.subject, key.public_key(), days=days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(is_authority=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        return key_text(key) + certificate.public_bytes(Encoding.PEM).decode("ascii")

    def is_issuer_of(self, file: Path, *, for_days: int) -> bool:
        """True if the file has a certificate of this authority that is good for so many days."""
        try:
            certificate = x509.load_pem_x509_certificate(file.read_bytes())
            certificate.verify_directly_issued_by(self.certificate)
        except (OSError, ValueError, TypeError, InvalidSignature):
            return False
        return certificate.not_valid_after_utc > dt.datetime.now(dt.UTC) + dt.timedelta(days=for_days)


def make_authority(common_name: str, *, days: int = AUTHORITY_DAYS) -> Authority:
    """A new authority, in memory."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    certificate = (
        _builder(common_name, subject, key.public_key(), days=days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate=certificate, key=key)


def save_authority(authority: Authority, directory: Path) -> None:
    """Write its certificate and its key."""
    write_file(directory / AUTHORITY_KEY, key_text(authority.key), mode=PRIVATE)
    text = authority.certificate.public_bytes(Encoding.PEM).decode("ascii")
    write_file(directory / AUTHORITY_CERTIFICATE, text, mode=PUBLIC)


def load_authority(directory: Path) -> Authority:
    """The authority of a directory. OperationalFailure when it is not there or cannot be used."""
    try:
        certificate = x509.load_pem_x509_certificate((directory / AUTHORITY_CERTIFICATE).read_bytes())
        key = load_pem_private_key((directory / AUTHORITY_KEY).read_bytes(), None)
    except (OSError, ValueError) as error:
        raise OperationalFailure(
            f"{directory} holds no usable authority ({error}): accepted is a directory with {AUTHORITY_CERTIFICATE} and "
            f"{AUTHORITY_KEY}, as `antipode credentials authority` makes it"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise OperationalFailure(
            f"{directory / AUTHORITY_KEY} is no elliptic-curve key: use openssl with this authority"
        )
    return Authority(certificate=certificate, key=key)


def write_file(path: Path, text: str, *, mode: int) -> None:
    """Write a whole file that was never readable for others. OperationalFailure."""
    draft = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        raise OperationalFailure(f"{path} cannot be written ({error.strerror})") from error


def key_text(key: ec.EllipticCurvePrivateKey) -> str:
    """A key in PEM, without a password."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")


def _builder(
    common_name: str, issuer: x509.Name, public: ec.EllipticCurvePublicKey, *, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def is_host(text: str) -> bool:
    """True for a DNS name, which may begin with a wildcard, and for an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return _DNS_NAME.fullmatch(text) is not None
    return True


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
