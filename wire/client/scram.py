"""The client's side of SCRAM (RFC 5802, with SHA-256 of RFC 7677 and Kafka's SHA-512): proves a
password without sending it, and has the broker prove that it knows it too. Pure: the caller
provides the nonce.
"""

import base64
import hmac
import re
from typing import Final

from wire.rules.scram import ITERATIONS_MIN, hashed, salted_password, signed

ITERATIONS_MAX: Final = 1_000_000
"""Upper bound of iterations: above it a broker would keep our event loop busy for seconds."""

_NO_CHANNEL_BINDING: Final = "n,,"
_NUMBER: Final = re.compile(r"[0-9]{1,9}")


class ScramRefused(Exception):
    """The broker does not accept the password, or does not prove that it knows it."""


class ScramClient:
    """One SCRAM exchange: `first`, `final` with the broker's answer, then `verify`. ScramRefused
    ends it.
    """

    def __init__(self, mechanism: str, *, username: str, password: str, nonce: str, is_by_token: bool = False) -> None:
        """With `is_by_token` the name is a delegation token's id and the password its HMAC in
        base64 (KIP-48).
        """
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={nonce}" + (",tokenauth=true" if is_by_token else "")
        self._expected_signature = b""

    def first(self) -> bytes:
        """The client's first message."""
        return f"{_NO_CHANNEL_BINDING}{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """The proof, made with the broker's salt."""
        attributes = _attributes(server_first)
        nonce, iterations = attributes.get("r", ""), attributes.get("i", "")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramRefused("the broker's nonce does not continue ours")
        # int() fails on thousands of digits, and on some that isdigit() takes
        is_number = _NUMBER.fullmatch(iterations) is not None
        if not is_number or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
            raise ScramRefused(f"{iterations[:20]!r} iterations: accepted are {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        salt = _decoded(attributes.get("s", ""))
        salted = salted_password(self._mechanism, self._password, salt, int(iterations))
        client_key = self._signed(salted, b"Client Key")
        binding = base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()
        without_proof = f"c={binding},r={nonce}"
        exchange = b",".join((self._first_bare.encode(), server_first, without_proof.encode()))
        signature = self._signed(hashed(self._mechanism, client_key), exchange)
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        self._expected_signature = self._signed(self._signed(salted, b"Server Key"), exchange)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Check the server's signature: the broker must know the password. Raises ScramRefused."""
        attributes = _attributes(server_final)
        if "e" in attributes:
            raise ScramRefused(attributes["e"])
        if not hmac.compare_digest(_decoded(attributes.get("v", "")), self._expected_signature):
            raise ScramRefused("the broker does not know the password")

    def _signed(self, key: bytes, message: bytes) -> bytes:
        return signed(self._mechanism, key, message)


def _attributes(message: bytes) -> dict[str, str]:
    try:
        text = message.decode()
    except UnicodeDecodeError as error:
        raise ScramRefused("the broker's message is not text") from error
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ScramRefused("the broker's message is not base64") from error
