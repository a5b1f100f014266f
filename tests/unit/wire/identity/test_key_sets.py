"""Keys of tokens from a URL: answers that are no key set."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from typing import Any

import pytest

from runtime.clock import SystemClock
from tests.support.security.token_server import WRONG_ANSWERS, answering
from wire.identity.key_sets import KeySet, SecureRedirects


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
