"""The bearer tokens by which a client logs in (OAUTHBEARER): out of a file that another program
keeps fresh, or from an authorization server by the grant `client_credentials` (KIP-768, KIP-1139).

A login takes the token that there is. After `RENEWED_AFTER` of its lifetime the next login asks for
a new token; if the endpoint gives none, the client uses the former token until it expires. A file
is read at each login. The calls block, and any thread may make them; nothing that is secret is in
an error.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import IO, Any, Final, NamedTuple
from urllib.parse import unquote, urlencode, urlsplit

from runtime.clock import Clock, SystemClock
from runtime.configuration import ConfigurationError
from runtime.logs import get_logger
from wire.identity.core.json_web_tokens import TOKEN_BYTES_MAX, InvalidToken, lifetime_of_token

log = get_logger(__name__)

ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
ACCEPTED: Final = "file:///path of a token, or https://host/path of an authorization server, http on loopback alone"
RENEWED_AFTER: Final = 0.8
"""The fraction of a token's lifetime after which the client requests another one, as in Kafka's
clients (`sasl.login.refresh.window.factor`).
"""
RETRY_MS: Final = 5_000
ANSWER_WITHIN_S: Final = 10
ANSWER_BYTES_MAX: Final = 1024 * 1024
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_OF_A_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]+")
_NO_DOCUMENT: Final = (OSError, ValueError, http.client.HTTPException, RecursionError)
"""What reading an answer raises that is no JSON: no connection, other bytes than HTTP, a part of an
answer, arrays that are nested too deeply.
"""
_OF_AN_ERROR: Final = re.compile(r"[a-z_]{1,64}")


class NoToken(Exception):
    """No token is available for a login; the message gives the reason and contains no secret."""


class BearerToken(NamedTuple):
    """A token and the time at which it expires (Unix ms)."""

    text: str
    expires_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """Where tokens come from; the client's id and secret are for an authorization server."""

    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    trusted: ssl.SSLContext | None = field(default=None, repr=False)
    """The authorities of the authorization server; None: the system's."""


class BearerTokens:
    """The tokens of one client."""

    def __init__(self, request: TokenRequest, clock: Clock | None = None) -> None:
        """ConfigurationError for a URL that is not accepted, or without a client's id or secret."""
        parts = urlsplit(request.url)
        self._request = request
        self._clock = clock or SystemClock()
        self._one_at_a_time = threading.Lock()
        self._token: BearerToken | None = None
        self._renewed_at_ms = 0
        self._file = Path(unquote(parts.path)) if parts.scheme == "file" else None
        is_far = parts.scheme == "http" and parts.hostname not in _LOOPBACK
        if parts.scheme not in ("file", "http", "https") or is_far:
            raise ConfigurationError(ENDPOINT, request.url or "(not set)", f"accepted: {ACCEPTED}")
        if self._file is None and not (request.client_id and request.client_secret):
            key = "sasl.oauthbearer.client.credentials.client.id"
            raise ConfigurationError(
                key, request.client_id or "(not set)", f"an id and a secret, since {ENDPOINT} is set"
            )

    def current(self) -> BearerToken:
        """The token to log in by. Blocks while it is read or asked for. Raises NoToken."""
        # a lock of threads: logins run in threads, and one request for a token is enough
        with self._one_at_a_time:
            now_ms, known = self._clock.now_ms(), self._token
            # a file is read at each login, since another program may replace the token at any time
            if known is not None and self._file is None and now_ms < self._renewed_at_ms:
                return known
            try:
                found = self._read() if self._file is not None else self._ask()
            except NoToken as error:
                if known is None or known.expires_at_ms <= now_ms:
                    raise
                log.warning("no new token is available; the former one is used", key=ENDPOINT, reason=str(error))
                # not at each login: the authorization server may be down
                self._renewed_at_ms = now_ms + RETRY_MS
                return known
            self._token = found
            # as in Kafka's clients, before the expiry, so that a slow server ends no connection
            self._renewed_at_ms = now_ms + int(RENEWED_AFTER * (found.expires_at_ms - now_ms))
            return found

    def _read(self) -> BearerToken:
        assert self._file is not None
        try:
            text = self._file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise NoToken(f"{self._file} cannot be read: {getattr(error, 'strerror', None) or 'not text'}") from None
        return self._checked(text, None)

    def _ask(self) -> BearerToken:
        given = self._request
        form = {"grant_type": "client_credentials", **({"scope": given.scope} if given.scope else {})}
        login = base64.b64encode(f"{given.client_id}:{given.client_secret}".encode()).decode()
        asked = urllib.request.Request(  # noqa: S310  checked above
            given.url,
            data=urlencode(form).encode(),
            headers={"Authorization": f"Basic {login}", "Accept": "application/json"},
        )
        # a context of its own, not the brokers': the authorization server has other authorities
        context = given.trusted or ssl.create_default_context()
        opener = urllib.request.build_opener(_NoRedirection(), urllib.request.HTTPSHandler(context=context))
        try:
            with opener.open(asked, timeout=ANSWER_WITHIN_S) as answer:
                document = json.loads(answer.read(ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as error:
            raise NoToken(f"{given.url} answers {error.code}{_reason(error)}") from None
        except _NO_DOCUMENT as error:
            reason = getattr(error, "reason", None) or type(error).__name__
            raise NoToken(f"{given.url} does not answer with a token: {reason}") from None
        if not isinstance(document, dict) or not isinstance(document.get("access_token"), str):
            raise NoToken(f"{given.url} answers without an access_token")
        return self._checked(document["access_token"], document.get("expires_in"))

    def _checked(self, text: str, expires_in_s: Any) -> BearerToken:
        """The token with its lifetime, which the token itself states, or else the server that
        issued it.
        """
        if len(text) > TOKEN_BYTES_MAX or _OF_A_TOKEN.fullmatch(text) is None:
            raise NoToken("the response is not a token")
        now_ms = self._clock.now_ms()
        try:
            expires_at_ms = lifetime_of_token(text)
        # an opaque token has no expiry inside, so the server's `expires_in` counts
        except InvalidToken:
            is_number = isinstance(expires_in_s, int | float) and not isinstance(expires_in_s, bool)
            if not is_number or not 0 < expires_in_s < 1 << 40:
                raise NoToken("the token does not say when it expires") from None
            expires_at_ms = now_ms + int(1000 * expires_in_s)
        if expires_at_ms <= now_ms:
            raise NoToken("the token has expired")
        return BearerToken(text, expires_at_ms)


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    """The secret is sent only to the configured server."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """Follow nothing."""


def _reason(error: urllib.error.HTTPError) -> str:
    """The error code of RFC 6749, section 5.2, where the answer has one."""
    try:
        document: Mapping[str, Any] = json.loads(error.read(ANSWER_BYTES_MAX))
        code = document["error"]
    except (*_NO_DOCUMENT, LookupError, TypeError):
        return ""
    return f" ({code})" if isinstance(code, str) and _OF_AN_ERROR.fullmatch(code) else ""
