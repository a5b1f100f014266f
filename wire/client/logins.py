"""How a client logs in: its user and password, or its bearer token, and the messages of each
mechanism.

A client reads its credentials at each login and each renewal of a login, so that changed files take
effect without a restart.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kio.schema.errors import ErrorCode

from runtime.config_providers import looked_up
from runtime.configuration import ConfigurationError, read_properties
from wire.client.client_errors import Unreachable, error_code
from wire.client.login_session import Handshake, LoginExchange
from wire.client.scram import ScramClient, ScramRefused
from wire.rules.jaas import parse_jaas

if TYPE_CHECKING:
    from wire.client.bearer_tokens import BearerTokens

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
PASSWORD_MODULES: Final = ("PlainLoginModule", "ScramLoginModule")
TOKEN_MODULE: Final = "OAuthBearerLoginModule"  # noqa: S105  a class of Kafka's
NONCE_BYTES: Final = 24
EXTENSION: Final = "extension_"
_VERSION: Final = 1
"""The version of SaslHandshake and SaslAuthenticate, in use since Kafka 2.2: versions cannot be
negotiated yet.
"""
_SEPARATOR: Final = b"\x01"


class User(NamedTuple):
    """A user and its password; or a delegation token's id and its HMAC."""

    name: str
    password: str
    is_by_token: bool = False


def parse_login(line: str) -> User:
    """The user of a `sasl.jaas.config`. ValueError does not repeat what is secret."""
    found = parse_jaas(line)
    if found is None or found.name not in PASSWORD_MODULES:
        raise ValueError(f"accepted are {' and '.join(PASSWORD_MODULES)}, required, with options")
    options = found.options
    if not options.get("username") or "password" not in options:
        raise ValueError('username="..." and password="..." are missing')
    return User(options["username"], options["password"], options.get("tokenauth", "").lower() == "true")


def parse_token_login(line: str) -> dict[str, str]:
    """The options of a `sasl.jaas.config` for OAUTHBEARER. ValueError does not repeat them."""
    found = parse_jaas(line)
    if found is None or found.name != TOKEN_MODULE:
        raise ValueError(f"accepted is {TOKEN_MODULE}, required, with options")
    unsecured = next((name for name in found.options if name.startswith("unsecured")), "")
    if unsecured:
        raise ValueError(f"{unsecured}: tokens without signature are not made here; use a file of a token")
    return found.options


def read_user(path: Path) -> User:
    """The user of a file of credentials. Raises ConfigurationError, OSError; nothing secret."""
    given = looked_up(read_properties(path))
    if not given.get("username") or "password" not in given:
        raise ConfigurationError("username", "(not set)", f"username and password in {path}")
    return User(given["username"], given["password"], given.get("tokenauth", "").strip().lower() == "true")


def by_password(mechanism: str, user_of: Callable[[], User]) -> Handshake:
    """The handshake of PLAIN and SCRAM. `user_of` may raise ConfigurationError and OSError."""

    async def log_in(line: LoginExchange) -> float:
        # read at each login: the file may have got another password meanwhile
        try:
            user = user_of()
        except (ConfigurationError, OSError) as error:
            raise Unreachable(f"no credentials to log in with: {error}", node=str(line.address)) from error
        await _choose(line, mechanism)
        if mechanism == PLAIN:
            # RFC 4616: no authorization id before the first NUL, since the client acts as this user
            return (await _authenticate(line, f"\0{user.name}\0{user.password}".encode())).session_ms
        scram = ScramClient(
            mechanism,
            username=user.name,
            password=user.password,
            nonce=secrets.token_urlsafe(NONCE_BYTES),
            is_by_token=user.is_by_token,
        )
        try:
            final = scram.final((await _authenticate(line, scram.first())).message)
            answer = await _authenticate(line, final)
            scram.verify(answer.message)
        except ScramRefused as error:
            raise Unreachable(f"login refused: {error}", node=str(line.address)) from error
        return answer.session_ms

    return log_in


def by_bearer_token(tokens: BearerTokens, extensions: dict[str, str]) -> Handshake:
    """The handshake of OAUTHBEARER (RFC 7628), with the extensions of KIP-342."""
    from wire.client.bearer_tokens import NoToken

    async def log_in(line: LoginExchange) -> float:
        # in a thread: it reads a file or waits for an authorization server
        try:
            token = await asyncio.to_thread(tokens.current)
        except NoToken as error:
            raise Unreachable(f"no token to log in with: {error}", node=str(line.address)) from error
        await _choose(line, OAUTHBEARER)
        reported = {"auth": f"Bearer {token.text}", **extensions}
        # RFC 7628: GS2 header without an authorization id, then key-value pairs, each ended by 0x01
        parts = [b"n,,", *(f"{name}={value}".encode() for name, value in reported.items()), b"", b""]
        answer = await _authenticate(line, _SEPARATOR.join(parts))
        if answer.message:  # why the token is refused, which the client has to confirm
            await _authenticate(line, _SEPARATOR)
            raise Unreachable("login refused: the token is invalid", node=str(line.address))
        return answer.session_ms

    return log_in


class _Answer(NamedTuple):
    message: bytes
    session_ms: float


async def _choose(line: LoginExchange, mechanism: str) -> None:
    answer = await line.call(SASL_HANDSHAKE, {"mechanism": mechanism}, version=_VERSION)
    code = error_code(answer.error_code)
    if code is not ErrorCode.none:
        detail = code.name
        if code is ErrorCode.unsupported_sasl_mechanism:
            detail += f": the broker offers {', '.join(answer.mechanisms) or 'nothing'}, not {mechanism}"
        raise Unreachable(detail, node=str(line.address), api_key=SASL_HANDSHAKE)


async def _authenticate(line: LoginExchange, message: bytes) -> _Answer:
    answer = await line.call(SASL_AUTHENTICATE, {"auth_bytes": message}, version=_VERSION)
    code = error_code(answer.error_code)
    if code is not ErrorCode.none:
        detail = f"login refused: {answer.error_message or code.name}"
        raise Unreachable(detail, node=str(line.address), api_key=SASL_AUTHENTICATE)
    return _Answer(bytes(answer.auth_bytes), answer.session_lifetime / timedelta(milliseconds=1))
