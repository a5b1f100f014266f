"""The public keys by which tokens are checked: of a file or of a URL
(`sasl.oauthbearer.jwks.endpoint.url`), read in the background.

A file is looked at twice a second, as certificates are; a URL is asked each
`sasl.oauthbearer.jwks.endpoint.refresh.ms`, and sooner while there is no answer, or after a token
that names another key, as by Kafka. The last keys stay valid while the endpoint does not answer. A
part of the process calls `look`.
"""

from __future__ import annotations

import asyncio
import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from runtime.clock import Clock
from runtime.configuration import ConfigurationError
from runtime.logs import get_logger
from wire.identity.core.json_web_tokens import PublicKey, read_key_set

log = get_logger(__name__)

URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
ACCEPTED: Final = "accepted: file:///path or https://host/path of a JSON web key set, http on loopback alone"
RETRY_MS: Final = 5_000
ASKED_AGAIN_MS: Final = 10_000
"""The least time (ms) between two requests for the sake of keys that tokens name."""
ANSWER_WITHIN_S: Final = 10
BYTES_MAX: Final = 1024 * 1024
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


class SecureRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect to a URL without TLS, except from loopback to loopback: keys would come
    over a connection that anyone on the way can change.
    """

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """The request for the new URL. Raises URLError for one without TLS."""
        to = urlsplit(newurl)
        if to.scheme != "https" and (req.type == "https" or to.hostname not in _LOOPBACK):
            raise urllib.error.URLError(f"it redirects to {newurl}, which has no TLS")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class KeySet:
    """The keys of one file or URL."""

    def __init__(self, url: str, *, refresh_ms: int) -> None:
        """Raises ConfigurationError if the URL is not accepted, or the file is not a key set."""
        parts = urlsplit(url)
        self.url = url
        self.refresh_ms = refresh_ms
        self._due_at_ms = 0.0
        self._asked_at_ms = -inf
        self._lacks_key = False
        self._seen = (0, 0)
        self.keys: Mapping[str, PublicKey] = {}
        self._file = Path(unquote(parts.path)) if parts.scheme == "file" else None
        is_far = parts.scheme == "http" and parts.hostname not in _LOOPBACK
        if parts.scheme not in ("file", "http", "https") or is_far:
            raise ConfigurationError(URL, url, ACCEPTED)
        if self._file is not None:
            try:
                self._seen = self._facts()
                self.keys = read_key_set(self._file.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise ConfigurationError(URL, url, f"{ACCEPTED} ({error})") from error

    def note_unknown_key(self) -> None:
        """A token names a key that is not here."""
        self._lacks_key = True

    async def look(self, clock: Clock) -> None:
        """Read the file if it has changed, or ask the URL if it is time."""
        if self._file is not None:
            try:
                facts = self._facts()
            except OSError:
                return
            if facts == self._seen:
                return
            self._seen = facts
        elif clock.monotonic_ms() < self._due_at_ms and not self._is_asked_again(clock):
            return
        self._asked_at_ms, self._lacks_key = clock.monotonic_ms(), False
        try:
            self.keys = read_key_set(await asyncio.to_thread(self._read))
        except (OSError, ValueError, http.client.HTTPException) as error:
            self._due_at_ms = clock.monotonic_ms() + RETRY_MS
            log.warning(
                "keys of tokens cannot be read", key=URL, url=self.url, reason=str(error) or type(error).__name__
            )
            return
        self._due_at_ms = clock.monotonic_ms() + self.refresh_ms
        log.info("keys of tokens were read", url=self.url, count=len(self.keys))

    def _is_asked_again(self, clock: Clock) -> bool:
        # tokens with invented keys must not become a storm of requests
        return self._lacks_key and clock.monotonic_ms() - self._asked_at_ms >= ASKED_AGAIN_MS

    def _facts(self) -> tuple[int, int]:
        assert self._file is not None
        found = self._file.stat()
        return found.st_ino, found.st_mtime_ns

    def _read(self) -> str:
        if self._file is not None:
            return self._file.read_text(encoding="utf-8")
        opener = urllib.request.build_opener(SecureRedirects)
        with opener.open(self.url, timeout=ANSWER_WITHIN_S) as answer:
            return str(answer.read(BYTES_MAX).decode())
