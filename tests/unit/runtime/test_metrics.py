"""Several registries of one process on one page, and the clients of that page."""

from __future__ import annotations

import socket
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from runtime import metrics
from runtime.metrics import MetricsServer, OnePage


def registry_of(link: str, records: int) -> CollectorRegistry:
    """The figures of one link, and one that the process has."""
    registry = CollectorRegistry()
    Counter("records", "Records.", ["link"], registry=registry).labels(link).inc(records)
    Histogram("seconds", "Seconds.", ["link"], buckets=(1,), registry=registry).labels(link).observe(0.5)
    Counter("deaths", "Of the process.", registry=registry).inc(3)
    return registry


def test_families_of_one_name_become_one_and_what_all_have_alike_is_there_once() -> None:
    page = OnePage.of([registry_of("a-b", 5), registry_of("b-a", 7)])
    lines = generate_latest(page).decode().splitlines()
    assert [line for line in lines if line.startswith("records_total")] == [
        'records_total{link="a-b"} 5.0',
        'records_total{link="b-a"} 7.0',
    ]
    assert [line for line in lines if line.startswith("seconds_count")] == [
        'seconds_count{link="a-b"} 1.0',
        'seconds_count{link="b-a"} 1.0',
    ]
    assert [line for line in lines if line.startswith("deaths_total")] == ["deaths_total 3.0"]
    assert len([line for line in lines if line.startswith("# TYPE records_total ")]) == 1


def test_a_client_that_sends_nothing_keeps_no_thread_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "CLIENT_TIMEOUT_S", 0.05)
    server = MetricsServer(registry_of("a-b", 1), host="127.0.0.1", port=0)
    port = server.start()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as silent:
            silent.sendall(b"GET /metrics HTTP/1.1\r\n")
            assert silent.recv(1) == b""
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            assert b"records_total" in page.read()
    finally:
        server.stop()
