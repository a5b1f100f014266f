"""SCRAM credentials as all parts of a site know them: how they follow from a password, and how
ZooKeeper keeps them below `/config/users`. Pure.

A credential is not a password, and a client cannot log in with it; but an owner of the credential
can pretend to be the server, and try passwords. Sources: RFC 5802, RFC 7677, KIP-84, KIP-554.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final, NamedTuple

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISM_NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Numbers of the mechanisms in AlterUserScramCredentials and DescribeUserScramCredentials."""
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
"""Upper bound of iterations of a stored credential, as in Kafka."""
SALT_BYTES: Final = 18
ACCEPTED: Final = "accepted: salt=BASE64,stored_key=BASE64,server_key=BASE64,iterations=NUMBER"


class ScramCredential(NamedTuple):
    """The derived keys of a password that a server keeps."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The slow step from a password to its keys: milliseconds."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, *, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password."""
    client_key = signed(mechanism, salted, b"Client Key")
    return ScramCredential(salt, hashed(mechanism, client_key), signed(mechanism, salted, b"Server Key"), iterations)


def signed(mechanism: str, key: bytes, message: bytes) -> bytes:
    """The mechanism's HMAC."""
    return hmac.new(key, message, HASHES[mechanism]).digest()


def hashed(mechanism: str, message: bytes) -> bytes:
    """The mechanism's hash."""
    return hashlib.new(HASHES[mechanism], message).digest()


def encode_credential(credential: ScramCredential) -> str:
    """Encode a credential for ZooKeeper."""
    salt, stored, server = (
        base64.b64encode(part).decode() for part in (credential.salt, credential.stored_key, credential.server_key)
    )
    return f"salt={salt},stored_key={stored},server_key={server},iterations={credential.iterations}"


def decode_credential(text: str) -> ScramCredential:
    """Decode a credential from ZooKeeper's text. The ValueError repeats nothing of the text."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        salt, stored, server = (
            base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        return ScramCredential(salt, stored, server, int(fields["iterations"]))
    except (KeyError, ValueError):
        raise ValueError(ACCEPTED) from None
