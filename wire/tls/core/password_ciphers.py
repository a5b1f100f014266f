"""What passwords lock in key stores: PBES2 (keytool since Java 16), PKCS12's own schemes (before), and the one of JKS.

An AlgorithmIdentifier says which it is and how the key is made of the password. AES and Triple DES are those of `cryptography`; whatever
a damaged store may ask for is bounded, so that it costs an error and not minutes.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.ciphers import Cipher, CipherAlgorithm
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC

from wire.tls.core import rc2
from wire.tls.core.der import INTEGER, OCTETS, SEQUENCE, Element, children, integer, object_identifier, octets, parse
from wire.tls.core.entries import UnusableStore, WrongPassword

ITERATIONS_MAX: Final = 5_000_000
"""Java's own limit: some seconds."""
KEY, IV, MAC_KEY = 1, 2, 3
"""What PKCS12 derives from a password (RFC 7292, B.3)."""

_Decrypt = Callable[[bytes, bytes, bytes], bytes]
"""Key, initialization vector and whole blocks to the plain text, padding included."""


def _by(algorithm: Callable[[bytes], CipherAlgorithm]) -> _Decrypt:
    def decrypt(key: bytes, iv: bytes, data: bytes) -> bytes:
        decryptor = Cipher(algorithm(key), CBC(iv)).decryptor()
        return decryptor.update(data) + decryptor.finalize()

    return decrypt


def _two_keys(key: bytes) -> CipherAlgorithm:
    return TripleDES(key + key[:8])


@dataclass(frozen=True, slots=True)
class _BlockCipher:
    decrypt: _Decrypt
    key_bytes: int
    block_bytes: int

    def opened(self, key: bytes, iv: bytes, data: bytes) -> bytes:
        """Without the padding. WrongPassword when there is none such."""
        if not data or len(data) % self.block_bytes or len(iv) != self.block_bytes:
            raise UnusableStore("what is encrypted has not the size of whole blocks")
        plain = self.decrypt(key, iv, data)
        count = plain[-1]
        if not 0 < count <= self.block_bytes or plain[-count:] != bytes([count]) * count:
            raise WrongPassword("it does not open what is encrypted")
        return plain[:-count]


_TRIPLE_DES: Final = _BlockCipher(_by(TripleDES), 24, 8)
_PKCS12_CIPHERS: Final = {
    "1.2.840.113549.1.12.1.3": _TRIPLE_DES,
    "1.2.840.113549.1.12.1.4": _BlockCipher(_by(_two_keys), 16, 8),
    "1.2.840.113549.1.12.1.5": _BlockCipher(rc2.decrypt_cbc, 16, rc2.BLOCK_BYTES),
    "1.2.840.113549.1.12.1.6": _BlockCipher(rc2.decrypt_cbc, 5, rc2.BLOCK_BYTES),
}
_PBES2_CIPHERS: Final = {
    "1.2.840.113549.3.7": _TRIPLE_DES,
    "2.16.840.1.101.3.4.1.2": _BlockCipher(_by(AES), 16, 16),
    "2.16.840.1.101.3.4.1.22": _BlockCipher(_by(AES), 24, 16),
    "2.16.840.1.101.3.4.1.42": _BlockCipher(_by(AES), 32, 16),
}
_PBES2: Final = "1.2.840.113549.1.5.13"
_PBKDF2: Final = "1.2.840.113549.1.5.12"
_SUN_KEY_PROTECTOR: Final = "1.3.6.1.4.1.42.2.17.1.1"
_HMACS: Final = {
    "1.2.840.113549.2.7": "sha1",
    "1.2.840.113549.2.8": "sha224",
    "1.2.840.113549.2.9": "sha256",
    "1.2.840.113549.2.10": "sha384",
    "1.2.840.113549.2.11": "sha512",
}
HASHES: Final = {
    "sha1": hashlib.sha1,
    "sha224": hashlib.sha224,
    "sha256": hashlib.sha256,
    "sha384": hashlib.sha384,
    "sha512": hashlib.sha512,
}
_SHA1_BYTES: Final = 20


def unsealed(sealed: bytes, password: str) -> bytes:
    """A private key, PKCS #8 in DER, out of its EncryptedPrivateKeyInfo. WrongPassword when it does not open."""
    first, second, *_ = children(parse(sealed), at_least=2)
    if first.tag == INTEGER:  # a PrivateKeyInfo: not locked
        return sealed
    plain = decrypted(first, octets(second), password)
    try:
        children(parse(plain), at_least=3)
    except UnusableStore as error:
        # One wrong password in some hundred gives a padding that looks right.
        raise WrongPassword("it does not open the key") from error
    return plain


def decrypted(algorithm: Element, data: bytes, password: str) -> bytes:
    """What `data` was, by its AlgorithmIdentifier. WrongPassword when the password does not fit, as far as can be told."""
    identifier, *parameters = children(algorithm, at_least=1)
    name = object_identifier(identifier)
    if name == _SUN_KEY_PROTECTOR:
        return _opened_as_sun_does(data, password)
    if len(parameters) != 1:
        raise UnusableStore(f"algorithm {name} has {len(parameters)} parameters")
    if name == _PBES2:
        return _opened_by_pbes2(parameters[0], data, password)
    cipher = _PKCS12_CIPHERS.get(name)
    if cipher is None:
        raise UnusableStore(f"it is encrypted by algorithm {name}, which is not known here")
    salt, iterations = children(parameters[0], at_least=2)[:2]
    key, iv = (
        pkcs12_key("sha1", password, octets(salt), integer(iterations), purpose=purpose, size=size)
        for purpose, size in ((KEY, cipher.key_bytes), (IV, cipher.block_bytes))
    )
    return cipher.opened(key, iv, data)


def pkcs12_key(hash_name: str, password: str, salt: bytes, iterations: int, *, purpose: int, size: int) -> bytes:
    """RFC 7292, B.2: `size` bytes for a purpose."""
    _check_iterations(iterations)
    make_hash = HASHES[hash_name]
    encoded = password.encode("utf-16-be", "surrogatepass") + b"\0\0"
    block = make_hash().block_size
    work = _repeated(salt, block) + _repeated(encoded, block)
    found = b""
    while len(found) < size:
        digest = bytes([purpose]) * block + work
        for _ in range(iterations):
            digest = make_hash(digest).digest()
        found += digest
        step = int.from_bytes((digest * block)[:block], "big") + 1
        work = b"".join(
            ((int.from_bytes(work[at : at + block], "big") + step) % (1 << 8 * block)).to_bytes(block, "big")
            for at in range(0, len(work), block)
        )
    return found[:size]


def _repeated(data: bytes, block: int) -> bytes:
    """Over whole blocks."""
    size = -(-len(data) // block) * block
    return (data * (size // len(data) + 1))[:size] if data else b""


def _opened_by_pbes2(parameters: Element, data: bytes, password: str) -> bytes:
    derivation, encryption = children(parameters, at_least=2)[:2]
    scheme, scheme_parameters = children(encryption, at_least=2)[:2]
    cipher = _PBES2_CIPHERS.get(object_identifier(scheme))
    if cipher is None:
        raise UnusableStore(f"it is encrypted by cipher {object_identifier(scheme)}, which is not known here")
    key = _pbkdf2(derivation, password, cipher.key_bytes)
    return cipher.opened(key, octets(scheme_parameters), data)


def _pbkdf2(derivation: Element, password: str, size: int) -> bytes:
    identifier, parameters = children(derivation, at_least=2)[:2]
    if (name := object_identifier(identifier)) != _PBKDF2:
        raise UnusableStore(f"a key is derived by algorithm {name}, which is not known here")
    salt, iterations, *rest = children(parameters, at_least=2)
    _check_iterations(integer(iterations))
    mac = "1.2.840.113549.2.7"
    for element in rest:  # a length of the key may stand before it, which the cipher says too
        if element.tag == SEQUENCE:
            mac = object_identifier(children(element, at_least=1)[0])
    if mac not in _HMACS:
        raise UnusableStore(f"a key is derived with {mac}, which is not known here")
    encoded = password.encode("utf-8", "surrogatepass")
    return hashlib.pbkdf2_hmac(_HMACS[mac], encoded, octets(salt, OCTETS), integer(iterations), size)


def _opened_as_sun_does(data: bytes, password: str) -> bytes:
    """A salt, the key under a stream of SHA-1 digests, and a digest of the key (sun.security.provider.KeyProtector)."""
    if len(data) <= 2 * _SHA1_BYTES:
        raise UnusableStore("a locked key is cut short")
    encoded = password.encode("utf-16-be", "surrogatepass")
    link, locked, check = data[:_SHA1_BYTES], data[_SHA1_BYTES:-_SHA1_BYTES], data[-_SHA1_BYTES:]
    stream = bytearray()
    while len(stream) < len(locked):
        link = _sha1(encoded + link)
        stream += link
    plain = bytes(left ^ right for left, right in zip(locked, stream, strict=False))
    if not hmac.compare_digest(_sha1(encoded + plain), check):
        raise WrongPassword("it does not open the key")
    return plain


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data).digest()  # noqa: S324 - the format's


def _check_iterations(count: int) -> None:
    if not 0 < count <= ITERATIONS_MAX:
        raise UnusableStore(f"a key is derived in {count} rounds: accepted are 1 to {ITERATIONS_MAX}")
