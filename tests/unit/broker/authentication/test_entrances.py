"""What the entrances of a broker read again while it runs."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from broker.authentication import entrances as module
from broker.authentication.entrances import Entrances
from broker.authentication.listener_security import ListenerSecurity, read_listener_security
from tests.support.eventually import eventually
from tests.support.security.identities import Identities

PROTOCOLS = {"TOKENS": "SASL_PLAINTEXT", "CLIENT": "SSL"}


def security_with(url: str, identities: Identities) -> dict[str, ListenerSecurity]:
    properties = {
        "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.tokens.sasl.oauthbearer.jwks.endpoint.url": url,
        "listener.name.client.ssl.keystore.location": str(identities.issue("broker")),
    }
    return read_listener_security(properties, PROTOCOLS)


async def test_an_authorization_server_that_does_not_answer_delays_no_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_INTERVAL_S", 0.01)
    monkeypatch.setattr("wire.identity.key_sets.ANSWER_WITHIN_S", 3600)
    is_asked, may_answer = threading.Event(), threading.Event()

    class Silent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_asked.set()
            may_answer.wait()

    with ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        threading.Thread(target=server.serve_forever).start()
        identities = Identities(tmp_path)
        entrances = Entrances(security_with(f"http://127.0.0.1:{server.server_port}/keys", identities))
        entrances.start()
        try:
            await eventually(is_asked.is_set)
            former = entrances.by_listener["CLIENT"].context
            identities.issue("broker")
            await eventually(lambda: entrances.by_listener["CLIENT"].context is not former)
            assert not may_answer.is_set()
        finally:
            may_answer.set()
            await entrances.stop()
            server.shutdown()
