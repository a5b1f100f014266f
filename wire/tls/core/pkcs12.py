"""PKCS12 (RFC 7292), Java's default since Java 9 and what openssl exports: bags of keys and certificates, locked and not, under a MAC.

As Java does, a certificate is trusted if it carries the attribute that keytool gives to what it imports; a key's own certificate is the one
with the key's local id, and those above it are found by the names of their issuers. Bags of other kinds are passed over.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Final

from wire.tls.core.der import (
    BMP_STRING,
    CONTEXT_0,
    SEQUENCE,
    SET,
    Element,
    children,
    explicit,
    integer,
    object_identifier,
    octets,
    of_tag,
    parse,
)
from wire.tls.core.entries import KeyStore, StoredKey, UnusableStore, WrongPassword
from wire.tls.core.password_ciphers import HASHES, MAC_KEY, decrypted, pkcs12_key

_VERSION: Final = 3
_DATA: Final = "1.2.840.113549.1.7.1"
_ENCRYPTED_DATA: Final = "1.2.840.113549.1.7.6"
_PLAIN_KEY: Final = "1.2.840.113549.1.12.10.1.1"
_LOCKED_KEY: Final = "1.2.840.113549.1.12.10.1.2"
_CERTIFICATE: Final = "1.2.840.113549.1.12.10.1.3"
_X509: Final = "1.2.840.113549.1.9.22.1"
_FRIENDLY_NAME: Final = "1.2.840.113549.1.9.20"
_LOCAL_ID: Final = "1.2.840.113549.1.9.21"
_TRUSTED_KEY_USAGE: Final = "2.16.840.1.113894.746875.1.1"
"""Oracle's."""
_MAC_HASHES: Final = {
    "1.3.14.3.2.26": "sha1",
    "2.16.840.1.101.3.4.2.4": "sha224",
    "2.16.840.1.101.3.4.2.1": "sha256",
    "2.16.840.1.101.3.4.2.2": "sha384",
    "2.16.840.1.101.3.4.2.3": "sha512",
}


@dataclass(frozen=True, slots=True)
class _Bag:
    kind: str
    content: bytes
    attributes: dict[str, Element]

    @property
    def alias(self) -> str:
        named = self.attributes.get(_FRIENDLY_NAME)
        return "" if named is None else of_tag(named, BMP_STRING).content.decode("utf-16-be", "replace")

    @property
    def local_id(self) -> bytes | None:
        found = self.attributes.get(_LOCAL_ID)
        return None if found is None else octets(found)

    def certificate(self) -> bytes | None:
        """In DER, if it is of X.509."""
        kind, value = children(parse(self.content), at_least=2)[:2]
        return octets(explicit(value)) if object_identifier(kind) == _X509 else None


def read_pkcs12(data: bytes, password: str | None) -> KeyStore:
    """The entries of a PKCS12 file. Without a password its integrity is not checked, as in Java. UnusableStore, WrongPassword."""
    version, safe, *rest = children(parse(data), at_least=2)
    if integer(version) != _VERSION:
        raise UnusableStore(f"it is PKCS12 of version {integer(version)}: accepted is {_VERSION}")
    kind, content = children(safe, at_least=2)[:2]
    if object_identifier(kind) != _DATA:
        raise UnusableStore("it is signed with a certificate instead of a password, which is not read")
    contents = octets(explicit(content))
    if rest and password is not None:
        _check_mac(rest[0], contents, password)
    bags = [bag for part in children(parse(contents)) for bag in _bags(part, password)]
    return _key_store(bags)


def _check_mac(element: Element, contents: bytes, password: str) -> None:
    digest, salt, *rounds = children(element, at_least=2)
    algorithm, expected = children(digest, at_least=2)[:2]
    name = object_identifier(children(algorithm, at_least=1)[0])
    if name not in _MAC_HASHES:
        raise UnusableStore(f"its integrity is protected by algorithm {name}, which is not known here")
    hash_name, iterations = _MAC_HASHES[name], integer(rounds[0]) if rounds else 1
    size = HASHES[hash_name]().digest_size
    key = pkcs12_key(hash_name, password, octets(salt), iterations, purpose=MAC_KEY, size=size)
    if not hmac.compare_digest(hmac.digest(key, contents, hash_name), octets(expected)):
        raise WrongPassword("its digest is another one: the password is wrong, or the file was changed")


def _bags(part: Element, password: str | None) -> list[_Bag]:
    """Those of one ContentInfo."""
    kind, content = children(part, at_least=2)[:2]
    name = object_identifier(kind)
    if name == _DATA:
        plain = octets(explicit(content))
    elif name == _ENCRYPTED_DATA:
        if password is None:
            raise WrongPassword("it is encrypted, and no password is given")
        _, encrypted = children(explicit(content), at_least=2)[:2]
        _, algorithm, data = children(encrypted, at_least=3)[:3]
        plain = decrypted(algorithm, octets(data, CONTEXT_0), password)
    else:
        raise UnusableStore(f"a part of it is of kind {name}, which is not known here")
    return [_bag(element) for element in children(parse(plain))]


def _bag(element: Element) -> _Bag:
    kind, value, *rest = children(element, at_least=2)
    attributes: dict[str, Element] = {}
    for attribute in children(rest[0], SET) if rest else ():
        name, values = children(attribute, at_least=2)[:2]
        for first in children(values, SET)[:1]:
            attributes[object_identifier(name)] = first
    return _Bag(object_identifier(kind), of_tag(value, CONTEXT_0).content, attributes)


def _key_store(bags: list[_Bag]) -> KeyStore:
    keys = [bag for bag in bags if bag.kind in (_PLAIN_KEY, _LOCKED_KEY)]
    found = [(bag, bag.certificate()) for bag in bags if bag.kind == _CERTIFICATE]
    certificates = [(bag, certificate) for bag, certificate in found if certificate is not None]
    by_subject = {_names(certificate)[1]: certificate for _, certificate in certificates}
    own: dict[bytes | None, bytes] = {}
    for bag, certificate in certificates:
        if _TRUSTED_KEY_USAGE not in bag.attributes:
            own.setdefault(bag.local_id, certificate)
    return KeyStore(
        keys=tuple(
            StoredKey(alias=key.alias, sealed=key.content, chain=_chain(own.get(key.local_id), by_subject))
            for key in keys
        ),
        certificates=tuple(certificate for bag, certificate in certificates if _TRUSTED_KEY_USAGE in bag.attributes),
    )


def _chain(certificate: bytes | None, by_subject: dict[bytes, bytes]) -> tuple[bytes, ...]:
    """It and those that issued it, as far as they are there."""
    chain: list[bytes] = []
    while certificate is not None and certificate not in chain:
        chain.append(certificate)
        certificate = by_subject.get(_names(certificate)[0])
    return tuple(chain)


def _names(certificate: bytes) -> tuple[bytes, bytes]:
    """Issuer and subject of an X.509 certificate, as they are written there."""
    signed = children(children(parse(certificate), at_least=3)[0], at_least=5)
    fields = signed[1:] if signed[0].tag == CONTEXT_0 else signed  # a version stands before the serial number
    if len(fields) < 5:
        raise UnusableStore("a certificate is cut short")
    return of_tag(fields[2], SEQUENCE).content, of_tag(fields[4], SEQUENCE).content
