"""The header `Authorization`: a name with a password (RFC 7617), or a token (RFC 6750). Pure."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BasicLogin:
    """A name and a password."""

    name: str
    password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class BearerLogin:
    """A signed token."""

    token: str = field(repr=False)


def read_authorization(header: str) -> BasicLogin | BearerLogin | None:
    """The login of the header; None for a scheme that is neither. Raises ValueError for one that
    cannot be read, without repeating any of it.
    """
    scheme, _, rest = header.strip().partition(" ")
    match scheme.lower():
        case "basic":
            return _basic(rest.strip())
        case "bearer":
            return BearerLogin(rest.strip())
        case _:
            return None


def _basic(text: str) -> BasicLogin:
    try:
        name, colon, password = base64.b64decode(text, validate=True).partition(b":")
        login = BasicLogin(name.decode(), password)
    except (binascii.Error, ValueError):
        login, colon = BasicLogin("", b""), b""
    if not colon or not login.name:
        raise ValueError("the credentials are not base64 of name:password in UTF-8")
    return login
