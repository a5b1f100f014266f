"""The first login by a delegation token: its keys are derived beside the event loop, once for all
clients that wait for them.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from broker.authentication import delegation_tokens
from broker.authentication.core.sasl_login import SaslLogin
from broker.authentication.delegation_tokens import DelegationTokens
from broker.authentication.sasl_offers import ScramUsers, read_sasl_offer
from tests.support.clock import ManualClock
from wire.identity.token_checks import TokenKeys
from wire.rules.delegation_tokens import DelegationToken
from wire.rules.principals import Principal
from wire.rules.scram import salted_password

MECHANISM = "SCRAM-SHA-512"
PROPERTIES = {
    "sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
    "plain.sasl.jaas.config": 'PlainLoginModule required user_a="b";',
    "sasl.jaas.config": "ScramLoginModule required;",
}
BY_TOKEN = b"n,,n=t,r=nonce,tokenauth=true"
NOW_MS = 1000
ALICE = Principal("User", "alice")
TOKEN = DelegationToken("t", ALICE, ALICE, (), 0, NOW_MS + 1, NOW_MS + 2)


class Scene:
    """A broker with one token, and the threads in which keys were derived."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock(NOW_MS)
        self.tokens = DelegationTokens("secret", self.clock)
        self.tokens.take({"t": TOKEN})
        self.may_derive = threading.Event()
        self.may_derive.set()
        self.threads: list[int] = []
        monkeypatch.setattr(delegation_tokens, "salted_password", self._salted_password)
        self._offer = read_sasl_offer(PROPERTIES, ScramUsers(self.tokens), TokenKeys())

    def _salted_password(self, *given: Any) -> bytes:
        self.threads.append(threading.get_ident())
        assert self.may_derive.wait(60)
        return salted_password(*given)

    def login(self, mechanism: str = MECHANISM) -> SaslLogin:
        login = SaslLogin(self._offer)
        login.handshake(mechanism, 1, 0)
        return login


async def test_keys_are_derived_beside_the_loop_and_once_for_all_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.may_derive.clear()
    logins = [scene.login() for _ in range(3)]
    waits = [asyncio.ensure_future(wait) for login in logins if (wait := login.token_deriving(BY_TOKEN)) is not None]
    waits[0].cancel()
    await asyncio.sleep(0)
    assert [wait.done() for wait in waits] == [True, False, False], "the loop serves others, and one client has left"
    scene.may_derive.set()
    await asyncio.gather(*waits[1:])
    (thread,) = scene.threads
    assert thread != threading.get_ident()
    for login in logins[1:]:
        assert login.authenticate(BY_TOKEN, now_ms=NOW_MS, monotonic_ms=0).message.startswith(b"r=nonce")
    assert scene.login().token_deriving(BY_TOKEN) is None
    assert len(scene.threads) == 1


async def test_a_token_that_is_removed_meanwhile_leaves_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    wait = scene.login().token_deriving(BY_TOKEN)
    assert wait is not None
    scene.tokens.take({})
    await wait
    assert scene.tokens.credential(MECHANISM, "t") is None
    scene.tokens.take({"t": TOKEN})
    assert scene.login().token_deriving(BY_TOKEN) is not None


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        pytest.param(MECHANISM, b"n,,n=t,r=nonce", id="a user of that name"),
        pytest.param(MECHANISM, b"n,,n=other,r=nonce,tokenauth=true", id="an unknown token"),
        pytest.param(MECHANISM, b"c=biws,r=nonce,p=AAAA", id="the final message"),
        pytest.param(MECHANISM, b"\xff", id="no text"),
        pytest.param("PLAIN", BY_TOKEN, id="another mechanism"),
    ],
)
async def test_no_other_message_waits(monkeypatch: pytest.MonkeyPatch, mechanism: str, message: bytes) -> None:
    assert Scene(monkeypatch).login(mechanism).token_deriving(message) is None


async def test_an_expired_token_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.clock.advance(2)
    assert scene.login().token_deriving(BY_TOKEN) is None
