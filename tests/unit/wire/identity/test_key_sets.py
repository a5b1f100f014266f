"""Keys of tokens from a URL: answers that are no key set."""

from __future__ import annotations

import asyncio
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from runtime.clock import SystemClock
from wire.identity.key_sets import KeySet, SecureRedirects


@contextmanager
def endpoint(answer: bytes) -> Iterator[str]:
    """A server that answers one request with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client:
                client.recv(65536)
                client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/keys"
        thread.join()


@pytest.mark.parametrize(
    "answer",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 200_000,
        b"HTTP/1.1 500 no\r\n\r\n",
        b"",
    ],
    ids=["no status", "too short", "too many headers", "too deep", "an error", "nothing"],
)
def test_an_answer_that_is_no_key_set_leaves_the_keys_and_is_no_failure_of_the_process(answer: bytes) -> None:
    with endpoint(answer) as url:
        keys = KeySet(url, refresh_ms=1000)
        asyncio.run(keys.look(SystemClock()))
    assert keys.keys == {}


@pytest.mark.parametrize(
    ("first", "second", "is_followed"),
    [
        ("https://keys/a", "https://keys/b", True),
        ("http://127.0.0.1/a", "http://127.0.0.1/b", True),
        ("https://keys/a", "http://keys/b", False),
        ("http://127.0.0.1/a", "http://keys/b", False),
    ],
)
def test_no_redirect_leads_away_from_tls(first: str, second: str, is_followed: bool) -> None:
    request = urllib.request.Request(first)
    answer: Any = None
    if is_followed:
        followed = SecureRedirects().redirect_request(request, answer, 302, "Found", {}, second)
        assert followed is not None
        assert followed.full_url == second
    else:
        with pytest.raises(urllib.error.URLError, match="no TLS"):
            SecureRedirects().redirect_request(request, answer, 302, "Found", {}, second)
