"""A metrics page over TLS, with and without certificates of its clients, and replaced files."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter

from runtime.configuration import ConfigurationError
from runtime.metrics import MetricsServer, serve_metrics_by
from tests.support.security.identities import Identities
from wire.access.metrics import protect_metrics

Serve = Callable[[dict[str, str]], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a page with these options; returns its address."""
    servers: list[MetricsServer] = []

    def started(options: dict[str, str]) -> str:
        protect_metrics(options)
        registry = CollectorRegistry()
        Counter("flights", "Flights", registry=registry).inc(3)
        servers.append(MetricsServer(registry, host="127.0.0.1", port=0))
        return f"127.0.0.1:{servers[-1].start()}"

    yield started
    for server in servers:
        server.stop()
    serve_metrics_by(None)


def options(identities: Identities, **more: str) -> dict[str, str]:
    return {
        "antipode.metrics.ssl.keystore.location": str(identities.issue("page")),
        "antipode.metrics.ssl.truststore.location": str(identities.trusted),
        **{f"antipode.metrics.ssl.{key.replace('_', '.')}": value for key, value in more.items()},
    }


def scraped(address: str, identities: Identities, *, own: Path | None = None) -> str:
    context = ssl.create_default_context(cafile=str(identities.trusted))
    if own is not None:
        context.load_cert_chain(str(own))
    with urllib.request.urlopen(f"https://{address}/metrics", context=context, timeout=20) as answer:
        return str(answer.read().decode())


def test_a_page_is_encrypted_and_takes_replaced_certificates(serve: Serve, tmp_path: Path) -> None:
    identities, others = Identities(tmp_path / "one"), Identities(tmp_path / "two")
    given = options(identities)
    address = serve(given)
    assert "flights_total 3.0" in scraped(address, identities)
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(f"http://{address}/metrics", timeout=20)
    page = Path(given["antipode.metrics.ssl.keystore.location"])
    page.write_text("half a file")
    assert "flights_total 3.0" in scraped(address, identities), "the former certificates count"
    others.issue("page").replace(page)
    assert "flights_total 3.0" in scraped(address, others)


def test_clients_show_certificates_where_they_must(serve: Serve, tmp_path: Path) -> None:
    identities, others = Identities(tmp_path / "one"), Identities(tmp_path / "two")
    address = serve(options(identities, client_auth="required"))
    assert "flights_total 3.0" in scraped(address, identities, own=identities.issue("prometheus"))
    for own in (None, others.issue("stranger")):
        with pytest.raises((urllib.error.URLError, ConnectionError, ssl.SSLError)):
            scraped(address, identities, own=own)


def test_an_option_that_cannot_be_used_is_named_and_no_secret_repeated(serve: Serve, tmp_path: Path) -> None:
    identities = Identities(tmp_path)
    with pytest.raises(ConfigurationError) as refused:
        serve(options(identities, keystore_password="hush", keystore_type="PKCS12"))
    assert refused.value.key.startswith("antipode.metrics.ssl.keystore")
    assert "hush" not in str(refused.value)
