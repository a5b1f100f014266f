"""The server's side of OAUTHBEARER: one message with a token. Pure.

A wrong token is answered with a JSON document first; the client confirms it with one byte, and is
then refused. Extensions that a client sends are read and ignored. Source: RFC 7628, KIP-255.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from broker.authentication.core.sasl_mechanisms import Login, LoginRefused, Step
from wire.identity.core.json_web_tokens import InvalidToken

_MESSAGE: Final = re.compile(
    r"n,(?:a=(?P<authorization>[^,\x01]+))?,\x01auth=[Bb]earer (?P<token>[A-Za-z0-9._~+/=-]+)\x01"
    r"(?P<extensions>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
INVALID_TOKEN: Final = b'{"status":"invalid_token"}'


class OauthBearerExchange:
    """One OAUTHBEARER exchange."""

    def __init__(self, check: Callable[[str], Login]) -> None:
        """`check` returns the login that a token gives, or raises InvalidToken."""
        self._check = check
        self._refusal = ""

    def step(self, message: bytes) -> Step:
        """Accept the message with the token, or the confirmation of a refusal."""
        if self._refusal:
            raise LoginRefused(f"Authentication failed: the token is invalid: {self._refusal}")
        found = _MESSAGE.fullmatch(message.decode(errors="replace"))
        if found is None:
            raise LoginRefused("Invalid OAUTHBEARER client first message")
        try:
            login = self._check(found["token"])
        except InvalidToken as error:
            self._refusal = str(error)
            return Step(INVALID_TOKEN)
        if found["authorization"] and found["authorization"] != login.name:
            raise LoginRefused("Authentication failed: Client requested an authorization id that is different")
        return Step(b"", login)
