"""An authorization server's half: two keys, their key set in a file, and tokens signed by them."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256


class TokenSigner:
    """Signs by RS256 and ES256."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.renew()

    def renew(self) -> None:
        """Replace the keys, and write the new key set to the file."""
        self._rsa = rsa.generate_private_key(65537, 2048)
        self._ec = ec.generate_private_key(ec.SECP256R1())
        numbers, point = self._rsa.public_key().public_numbers(), self._ec.public_key().public_numbers()
        keys = [
            {"kty": "RSA", "kid": "RS256", "n": _number(numbers.n, 256), "e": _number(numbers.e, 3)},
            {"kty": "EC", "crv": "P-256", "kid": "ES256", "x": _number(point.x, 32), "y": _number(point.y, 32)},
        ]
        self._file.parent.mkdir(parents=True, exist_ok=True)
        incoming = self._file.with_suffix(".incoming")
        incoming.write_text(json.dumps({"keys": keys}))
        incoming.replace(self._file)

    def token(self, algorithm: str = "RS256", header: Mapping[str, Any] | None = None, **claims: Any) -> str:
        """A token of anna's for ten minutes; other claims where given, None leaves one out.
        `header` adds to the signed header.
        """
        now = time.time()
        said = {"client": "anna", "sub": "x", "aud": "kafka", "iat": now, "exp": now + 600, **claims}
        document = {key: value for key, value in said.items() if value is not None}
        signed = f"{_encoded({'alg': algorithm, 'kid': algorithm, **(header or {})})}.{_encoded(document)}"
        return f"{signed}.{_text(self._signature(algorithm, signed.encode()))}"

    def _signature(self, algorithm: str, signed: bytes) -> bytes:
        if algorithm == "none":
            return b""
        if algorithm == "RS256":
            return self._rsa.sign(signed, padding.PKCS1v15(), SHA256())
        halves = decode_dss_signature(self._ec.sign(signed, ec.ECDSA(SHA256())))
        return b"".join(half.to_bytes(32, "big") for half in halves)


def _encoded(document: dict[str, Any]) -> str:
    return _text(json.dumps(document).encode())


def _number(value: int, size: int) -> str:
    return _text(value.to_bytes(size, "big"))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
