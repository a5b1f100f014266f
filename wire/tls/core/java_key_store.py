"""JKS, Java's own format until Java 9: entries one after the other, and at the end a SHA-1 digest
over the password and all of them.

    magic FEEDFEED, version 1 or 2, number of entries; then for each
    1, alias, time, locked key, certificates     a private key, locked with a password of its own
    2, alias, time, certificate                  a certificate that is trusted

Numbers are big-endian, names have 2 bytes of length before them, all else 4. The digest is the
integrity check, and the only proof that the store's password is right.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final

from wire.tls.core.entries import KeyStore, StoredKey, UnusableStore, WrongPassword

MAGIC: Final = bytes.fromhex("feedfeed")

_KEY, _CERTIFICATE = 1, 2
_VERSIONS: Final = (1, 2)
_HEADER: Final = struct.Struct(">4sII")
_DIGEST_BYTES: Final = 20
_KEY_PROTECTOR: Final = bytes.fromhex("300e060a2b060104012a021101010500")
"""The AlgorithmIdentifier of how JKS locks keys (1.3.6.1.4.1.42.2.17.1.1), before the octets of the
locked key.
"""
_WHITENER: Final = b"Mighty Aphrodite"


class _Reader:
    """Takes one field after the other, and never more than there is."""

    def __init__(self, data: bytes, version: int) -> None:
        self._data = data
        self._position = 0
        self._version = version

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise UnusableStore(f"it ends {end - len(self._data)} bytes before an entry does")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def number(self) -> int:
        return int(struct.unpack(">I", self.take(4))[0])

    def name(self) -> str:
        (size,) = struct.unpack(">H", self.take(2))
        return self.take(size).decode("utf-8", "replace")

    def certificate(self) -> bytes:
        if self._version > 1 and (kind := self.name()) not in ("X.509", "X509"):
            raise UnusableStore(f"a certificate is of kind {kind!r}, not X.509")
        return self.take(self.number())

    def end(self) -> None:
        if self._position != len(self._data):
            raise UnusableStore(f"{len(self._data) - self._position} bytes follow its last entry")


def read_java_key_store(data: bytes, password: str | None) -> KeyStore:
    """The entries of a JKS file. Without a password its integrity is not checked, as in Java.
    UnusableStore, WrongPassword.
    """
    if len(data) < _HEADER.size + _DIGEST_BYTES:
        raise UnusableStore("it ends within its first bytes")
    magic, version, count = _HEADER.unpack_from(data)
    entries, digest = data[_HEADER.size : -_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if magic != MAGIC or version not in _VERSIONS:
        raise UnusableStore(f"it is not a JKS store of version 1 or 2: it begins with {data[:8].hex()}")
    if password is not None:
        salted = password.encode("utf-16-be", "surrogatepass") + _WHITENER + data[:-_DIGEST_BYTES]
        if not hmac.compare_digest(_sha1(salted), digest):
            _read_entries(_Reader(entries, version), count)  # names a truncated store as such
            raise WrongPassword("its digest does not match: the password is wrong, or the file was changed")
    return _read_entries(_Reader(entries, version), count)


def unlocked(locked: bytes, password: str) -> bytes:
    """A private key, PKCS #8 in DER: encrypted with a stream of SHA-1 digests, after a salt and
    before a digest of it. WrongPassword.
    """
    _, protector, octets = locked.partition(_KEY_PROTECTOR)
    if not protector or octets[:1] != b"\x04" or len(octets) <= 2 * _DIGEST_BYTES:
        raise UnusableStore("a key is encrypted with an algorithm other than that of JKS")
    length_bytes = octets[1] & 0x7F if octets[1] & 0x80 else 0
    content, encoded = octets[2 + length_bytes :], password.encode("utf-16-be", "surrogatepass")
    link, under, check = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    stream = bytearray()
    while len(stream) < len(under):
        link = _sha1(encoded + link)
        stream += link
    plain = bytes(left ^ right for left, right in zip(under, stream, strict=False))
    if not hmac.compare_digest(_sha1(encoded + plain), check):
        raise WrongPassword("it does not decrypt the key")
    return plain


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data).digest()  # noqa: S324 - the format's


def _read_entries(reader: _Reader, count: int) -> KeyStore:
    keys: list[StoredKey] = []
    certificates: list[bytes] = []
    for _ in range(count):
        kind, alias, _time = reader.number(), reader.name(), reader.take(8)
        if kind == _KEY:
            locked = reader.take(reader.number())
            chain = tuple(reader.certificate() for _ in range(reader.number()))
            keys.append(StoredKey(alias=alias, key=locked, is_locked=True, chain=chain))
        elif kind == _CERTIFICATE:
            certificates.append(reader.certificate())
        else:
            raise UnusableStore(f"an entry is of kind {kind}: known are keys (1) and certificates (2)")
    reader.end()
    return KeyStore(keys=tuple(keys), certificates=tuple(certificates))
