"""Keys of tokens from a URL: answers that are no key set."""

from __future__ import annotations

import asyncio
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from runtime.clock import SystemClock
from tests.support.clock import ManualClock
from tests.support.lone_brokers.token_signer import TokenSigner
from tests.support.security.token_server import WRONG_ANSWERS, answering
from wire.identity.core.json_web_tokens import InvalidToken
from wire.identity.key_sets import ASKED_AGAIN_MS, URL, KeySet, SecureRedirects
from wire.identity.token_checks import NAME_CLAIM, TokenKeys, read_token_check


@pytest.mark.parametrize("answer", WRONG_ANSWERS.values(), ids=WRONG_ANSWERS.keys())
def test_an_answer_that_is_no_key_set_leaves_the_keys_and_is_no_failure_of_the_process(answer: bytes) -> None:
    with answering(answer) as url:
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


class _KeyServer(BaseHTTPRequestHandler):
    """Answers with the key set of a file, and counts the requests."""

    file: Path
    asked_count = 0

    def do_GET(self) -> None:
        type(self).asked_count += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.file.read_bytes())

    def log_message(self, *_: object) -> None: ...


async def test_new_keys_are_asked_for_when_a_token_is_signed_by_one_that_is_not_known(tmp_path: Path) -> None:
    """An hour is too long for clients whose authorization server has changed its keys; and a storm
    of tokens with invented keys must not become one at that server.
    """
    signer, clock = TokenSigner(tmp_path / "keys.json"), ManualClock()
    handler = type("Handler", (_KeyServer,), {"file": tmp_path / "keys.json"})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        options = {URL: f"http://127.0.0.1:{server.server_port}/keys", NAME_CLAIM: "client"}
        tokens = TokenKeys()
        check = read_token_check(options.get, tokens)
        await tokens.look(clock)
        assert check(signer.token()).name == "anna"
        rotated = signer.token(header={"kid": "rotated"})
        (tmp_path / "keys.json").write_text((tmp_path / "keys.json").read_text().replace('"RS256"', '"rotated"'))
        for _ in range(3):
            with pytest.raises(InvalidToken, match="key"):
                check(rotated)
            await tokens.look(clock)
        assert handler.asked_count == 1
        clock.advance(ASKED_AGAIN_MS)
        await tokens.look(clock)
        await tokens.look(clock)
        assert handler.asked_count == 2
        assert check(rotated).name == "anna"
        server.shutdown()
