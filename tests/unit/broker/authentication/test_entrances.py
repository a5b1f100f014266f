"""What the entrances of a broker read again while it runs."""

from __future__ import annotations

import threading
from collections.abc import MutableMapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from structlog.testing import capture_logs

from broker.authentication import entrances as module
from broker.authentication.entrances import Entrances
from broker.authentication.listener_security import ListenerSecurity, read_listener_security
from tests.support.eventually import eventually
from tests.support.security.identities import Identities
from wire.tls import shown_certificates

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


async def test_a_certificate_that_has_expired_is_a_warning_at_the_start_and_when_it_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown_certificates, "_shown", {})
    monkeypatch.setattr(module, "LOOK_INTERVAL_S", 0.01)
    identities = Identities(tmp_path)
    broker = identities.issue("broker", days=0)
    properties = {"listener.name.client.ssl.keystore.location": str(broker)}
    with capture_logs() as lines:
        entrances = Entrances(read_listener_security(properties, {"CLIENT": "SSL"}))
        assert expired(lines) == ["CLIENT"]
        entrances.start()
        identities.issue("broker", days=0)
        await eventually(lambda: expired(lines) == ["CLIENT", "CLIENT"])
        await entrances.stop()


def expired(lines: Sequence[MutableMapping[str, Any]]) -> list[str]:
    """The listeners of the warnings."""
    return [line["listener"] for line in lines if line["event"] == "a certificate has expired: clients refuse it"]


async def test_other_settings_of_a_listener_leave_the_keys_of_its_tokens(tmp_path: Path) -> None:
    """Until the authorization server has answered again, clients would be refused."""
    properties = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": "https://keys.example.org/keys",
        "ssl.keystore.location": str(Identities(tmp_path).issue("broker")),
    }
    entrances = Entrances(read_listener_security(properties, {"CLIENT": "SASL_SSL"}))
    (keys,) = entrances.by_listener["CLIENT"].tokens.found
    keys.keys = {"one": generate_private_key(SECP256R1()).public_key()}
    other = {**properties, "ssl.truststore.type": "PEM"}
    entrances.take(read_listener_security(other, {"CLIENT": "SASL_SSL"}))
    assert [set(found.keys) for found in entrances.by_listener["CLIENT"].tokens.found] == [{"one"}]
    moved = {**other, "sasl.oauthbearer.jwks.endpoint.url": "https://other.example.org/keys"}
    entrances.take(read_listener_security(moved, {"CLIENT": "SASL_SSL"}))
    assert [found.keys for found in entrances.by_listener["CLIENT"].tokens.found] == [{}]
    await entrances.stop()
