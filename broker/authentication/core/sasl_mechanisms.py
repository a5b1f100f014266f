"""The server's side of PLAIN and SCRAM: it takes a client's messages, and returns answers and a
login. Pure.

A mechanism object serves one exchange. `step` takes the client's next message and returns the
answer, and the login when the exchange is complete; LoginRefused ends the exchange, and its text is
for the client: it never says which part of a login was wrong. Sources: RFC 4616, RFC 5802, KIP-84.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from wire.rules.scram import ScramCredential, hashed, signed

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
INVALID_PASSWORD: Final = "Authentication failed: Invalid username or password"  # noqa: S105  a message
_CLIENT_FIRST: Final = re.compile(
    r"(?P<header>[ny],(?:a=(?P<authorization>[^,]*))?,)n=(?P<user>[^,]*),r=(?P<nonce>[!-+\--~]+)(?P<rest>,.*)?",
    re.DOTALL,
)
_TOKEN_EXTENSION: Final = "tokenauth=true"  # noqa: S105  of the client's first message (KIP-48)
_CLIENT_FINAL: Final = re.compile(
    r"(?P<signed>c=(?P<binding>[^,]+),r=(?P<nonce>[^,]+)(?:,[^p][^,]*)*),p=(?P<proof>[^,]+)"
)


class Login(NamedTuple):
    """The name of an authenticated client, and the expiry of its token (Unix ms; None: never).
    `is_by_token`: the client logged in by a delegation token.
    """

    name: str
    expires_at_ms: int | None = None
    is_by_token: bool = False


class Step(NamedTuple):
    """The answer to one message."""

    answer: bytes
    login: Login | None = None


class LoginRefused(Exception):
    """The exchange has failed; the text is for the client."""


class Mechanism(Protocol):
    """One exchange of a SASL mechanism."""

    def step(self, message: bytes) -> Step:
        """Take the client's next message. LoginRefused."""
        ...


ScramLookUp = Callable[[str, str, bool], tuple[ScramCredential, Login] | None]
"""Returns the credential for a mechanism, and the login that it gives: (mechanism, name, True for a
delegation token).
"""
Invention = Callable[[str, bool], tuple[bytes, int]]
"""Returns the salt and the iterations that an unknown name gets: (name, True for a delegation
token).
"""


def named_token(message: bytes) -> str | None:
    """The id of the delegation token by which a client's first message of SCRAM begins a login;
    None for any other message.
    """
    try:
        found = _CLIENT_FIRST.fullmatch(message.decode())
    except UnicodeDecodeError:
        return None
    return None if found is None or not _is_by_token(found) else _name(found)


def _is_by_token(client_first: re.Match[str]) -> bool:
    return _TOKEN_EXTENSION in (client_first["rest"] or "").split(",")


def _name(client_first: re.Match[str]) -> str:
    # RFC 5802: a comma and an equals sign in a name are encoded
    return client_first["user"].replace("=2C", ",").replace("=3D", "=")


class PlainExchange:
    """PLAIN: name and password in one message."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def step(self, message: bytes) -> Step:
        """Take the message."""
        try:
            authorization, name, password = message.decode().split("\0")
        except ValueError as error:
            raise LoginRefused("Invalid SASL/PLAIN response: expected 3 tokens, separated by NUL") from error
        if not name or not password:
            raise LoginRefused("Authentication failed: username or password not specified")
        if authorization and authorization != name:
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        # the comparison takes as long for an unknown name
        expected = self._passwords.get(name, "")
        is_right = hmac.compare_digest(expected.encode(), password.encode())
        if not is_right or name not in self._passwords:
            raise LoginRefused(INVALID_PASSWORD)
        return Step(b"", Login(name))


class ScramExchange:
    """SCRAM: two messages. An unknown name gets a salt and a count of iterations too
    (`invented_credentials.py`), so that the first answer does not show which names exist.
    """

    def __init__(self, mechanism: str, look_up: ScramLookUp, *, nonce: str, invent: Invention) -> None:
        """`nonce` is random and new for each exchange."""
        self._mechanism = mechanism
        self._look_up = look_up
        self._nonce = nonce
        self._invent = invent
        self._name = ""
        self._credential: ScramCredential | None = None
        self._login = Login("")
        self._header = self._client_first = self._server_first = ""

    def step(self, message: bytes) -> Step:
        """Accept the client's first message, then its final one."""
        try:
            text = message.decode()
        except UnicodeDecodeError as error:
            raise self._refused() from error
        return self._final(text) if self._server_first else self._first(text)

    def _first(self, text: str) -> Step:
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None:
            raise LoginRefused("Invalid SCRAM client first message format")
        self._name = _name(found)
        if found["authorization"] and found["authorization"] != found["user"]:
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self._header = found["header"]
        self._client_first = text[len(self._header) :]
        is_token = _is_by_token(found)
        known = self._look_up(self._mechanism, self._name, is_token)
        if known is not None:
            self._credential, self._login = known
        # invented for a known name as well: both take the same time
        salt, iterations = self._invent(self._name, is_token)
        if self._credential is not None:
            salt, iterations = self._credential.salt, self._credential.iterations
        self._nonce = found["nonce"] + self._nonce
        self._server_first = f"r={self._nonce},s={base64.b64encode(salt).decode()},i={iterations}"
        return Step(self._server_first.encode())

    def _final(self, text: str) -> Step:
        found = _CLIENT_FINAL.fullmatch(text)
        if found is None:
            raise LoginRefused("Invalid SCRAM client final message format")
        # the binding repeats the first message's header: without this check a relay could change it
        # (RFC 5802)
        if found["nonce"] != self._nonce or _decoded(found["binding"]) != self._header.encode():
            raise LoginRefused("Invalid client nonce in the final client message.")
        if self._credential is None:
            raise self._refused()
        exchange = f"{self._client_first},{self._server_first},{found['signed']}".encode()
        signature = signed(self._mechanism, self._credential.stored_key, exchange)
        proof = _decoded(found["proof"])
        # zip would silently compare a part of a proof that is too short
        if len(proof) != len(signature):
            raise self._refused()
        # the proof is the client key XOR the signature: the server stores only the hash of the
        # client key
        client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashed(self._mechanism, client_key), self._credential.stored_key):
            raise self._refused()
        ours = signed(self._mechanism, self._credential.server_key, exchange)
        return Step(b"v=" + base64.b64encode(ours), self._login)

    def _refused(self) -> LoginRefused:
        return LoginRefused(
            f"Authentication failed during authentication due to invalid credentials with SASL mechanism {self._mechanism}"
        )


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise LoginRefused("Invalid SCRAM client final message format") from error
