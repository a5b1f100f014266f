"""Tokens of OAUTHBEARER: signed JSON web tokens, and the public keys that they are checked by.
Pure.

A token names its user in the claim `sub`, and the time at which it expires in `exp`. It is signed
by RS256 or ES256 with a key of the authorization server's key set (JWKS), or, where this was asked
for, not signed at all. Sources: RFC 7515, RFC 7517, RFC 7519, KIP-768.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from msgspec import Struct

TOKEN_BYTES_MAX: Final = 64 * 1024
RSA_BITS_MIN: Final = 2048
_COORDINATE_BYTES: Final = 32
_NO_SIGNATURE: Final = "none"

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey


class InvalidToken(ValueError):
    """No client can log in with the token. The message gives the reason and repeats no part of the
    token.
    """


class UnknownKey(InvalidToken):
    """The token names a key that is not in the key set: the authorization server may have changed
    its keys.
    """


class TokenHolder(NamedTuple):
    """The name that a token gives its holder, and when the token expires (Unix ms)."""

    name: str
    expires_at_ms: int


class TokenRules(Struct, frozen=True, kw_only=True):
    """The claims that a token must have."""

    is_unsecured: bool = False
    audiences: frozenset[str] = frozenset()
    issuer: str = ""
    name_claim: str = "sub"
    scope_claim: str = "scope"
    scopes: frozenset[str] = frozenset()
    """The scopes that a token must have, all of them."""
    skew_ms: int = 30_000


def read_key_set(text: str) -> dict[str, PublicKey]:
    """Public keys by their id, those that RS256 or ES256 can use. ValueError without any."""
    found: dict[str, PublicKey] = {}
    try:
        for key in json.loads(text)["keys"]:
            made = _public_key(key)
            if made is not None:
                found[str(key.get("kid", ""))] = made
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON web key set ({type(error).__name__})") from error
    if not found:
        raise ValueError("it has no key for RS256 or ES256")
    return found


def holder_of_token(token: str, rules: TokenRules, keys: Mapping[str, PublicKey], now_ms: int) -> TokenHolder:
    """The token's holder. Raises InvalidToken."""
    parts = token.split(".")
    if len(parts) != 3 or len(token) > TOKEN_BYTES_MAX:
        raise InvalidToken("it is no JSON web token")
    header = _document(parts[0])
    # an extension that must be understood may change what the signature covers (RFC 7515, 4.1.11)
    if "crit" in header:
        raise InvalidToken("its header demands an extension, and none is supported")
    algorithm = header.get("alg")
    if algorithm == _NO_SIGNATURE and rules.is_unsecured:
        if parts[2]:
            raise InvalidToken("it has a signature and says that it has none")
    else:
        _check_signature(header, f"{parts[0]}.{parts[1]}".encode(), _bytes(parts[2]), keys)
    return _holder(_document(parts[1]), rules, now_ms)


def lifetime_of_token(token: str) -> int:
    """When a token expires (Unix ms), by its own account: for its holder, who does not check it.
    Raises InvalidToken where it does not say.
    """
    parts = token.split(".")
    if len(parts) != 3 or len(token) > TOKEN_BYTES_MAX:
        raise InvalidToken("it is no JSON web token")
    expires_at_ms = _time_ms(_document(parts[1]), "exp")
    if expires_at_ms is None:
        raise InvalidToken("it has no time at which it expires")
    return expires_at_ms


def _check_signature(header: Mapping[str, Any], signed: bytes, signature: bytes, keys: Mapping[str, PublicKey]) -> None:
    identity = header.get("kid")
    key = next(iter(keys.values())) if identity is None and len(keys) == 1 else keys.get(str(identity))
    if key is None:
        raise UnknownKey("its key is not in the key set")
    try:
        match header.get("alg"), key:
            case "RS256", rsa.RSAPublicKey():
                key.verify(signature, signed, padding.PKCS1v15(), SHA256())
            case "ES256", ec.EllipticCurvePublicKey() if len(signature) == 2 * _COORDINATE_BYTES:
                halves = (signature[:_COORDINATE_BYTES], signature[_COORDINATE_BYTES:])
                numbers = (int.from_bytes(half, "big") for half in halves)
                key.verify(encode_dss_signature(*numbers), signed, ec.ECDSA(SHA256()))
            case _:
                raise InvalidToken("it is not signed by RS256 or ES256 with a key of that kind")
    except InvalidSignature as error:
        raise InvalidToken("its signature is wrong") from error


def _holder(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> TokenHolder:
    expires_at_ms = _time_ms(claims, "exp")
    if expires_at_ms is None:
        raise InvalidToken("it has no time at which it expires")
    if now_ms - rules.skew_ms >= expires_at_ms:
        raise InvalidToken("it has expired")
    begins_at_ms, issued_at_ms = _time_ms(claims, "nbf"), _time_ms(claims, "iat")
    if issued_at_ms is None and not rules.is_unsecured:
        raise InvalidToken("it has no time at which it was issued")
    if begins_at_ms is not None and now_ms + rules.skew_ms < begins_at_ms:
        raise InvalidToken("it is not valid yet")
    if expires_at_ms < max(begins_at_ms or 0, issued_at_ms or 0):
        raise InvalidToken("it expires before it is valid, or before it was issued")
    if rules.issuer and claims.get("iss") != rules.issuer:
        raise InvalidToken("its issuer is another one")
    if rules.audiences and not rules.audiences & _audiences(claims.get("aud")):
        raise InvalidToken("its audience is another one")
    if not rules.scopes <= _texts(claims.get(rules.scope_claim)):
        raise InvalidToken("it lacks a scope")
    name = claims.get(rules.name_claim)
    if not isinstance(name, str) or not name:
        raise InvalidToken(f"it has no claim {rules.name_claim}")
    return TokenHolder(name, expires_at_ms)


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        raise InvalidToken(f"its {name} is no time")
    return int(value * 1000)


def _audiences(value: Any) -> frozenset[str]:
    # unlike scopes, one text is one audience, with its spaces (RFC 7519, 4.1.3)
    return frozenset((value,)) if isinstance(value, str) else _texts(value)


def _texts(value: Any) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset(value.split())
    return frozenset(item for item in value if isinstance(item, str)) if isinstance(value, list) else frozenset()


def _public_key(key: Mapping[str, Any]) -> PublicKey | None:
    if key.get("use", "sig") != "sig":
        return None
    match key["kty"], key.get("crv"):
        case "RSA", _:
            modulus = _number(key["n"])
            if modulus.bit_length() < RSA_BITS_MIN:
                return None
            return rsa.RSAPublicNumbers(_number(key["e"]), modulus).public_key()
        case "EC", "P-256":
            return ec.EllipticCurvePublicNumbers(_number(key["x"]), _number(key["y"]), ec.SECP256R1()).public_key()
        case _:
            return None


def _number(text: str) -> int:
    return int.from_bytes(_bytes(text), "big")


def _document(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(_bytes(text))
    except (ValueError, RecursionError) as error:
        raise InvalidToken("a part of it is no JSON") from error
    if not isinstance(document, dict):
        raise InvalidToken("a part of it is no JSON object")
    return document


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError as error:
        raise InvalidToken("a part of it is not base64") from error
