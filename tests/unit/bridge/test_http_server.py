"""Bytes of one HTTP connection: which of them are a request's headers, and how many may come
without a body.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import uvicorn
from prometheus_client import CollectorRegistry
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from bridge.http_server import _FULL, HEAD_BYTES_MAX, BoundedProtocol
from bridge.metrics import BridgeMetrics

HEAD = b"POST /topics/t HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n"


class Transport(asyncio.Transport):
    """A client that reads nothing."""

    is_aborted = False

    def write(self, data: Any) -> None:
        pass

    def abort(self) -> None:
        self.is_aborted = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def connected() -> tuple[BoundedProtocol, Transport, list[Scope]]:
    """A connection, and the requests that reach the application."""
    seen: list[Scope] = []

    async def app(scope: Scope, _: Receive, __: Send) -> None:
        seen.append(scope)
        await asyncio.Event().wait()

    config = uvicorn.Config(app, lifespan="off", ws="none", log_config=None)
    config.load()
    metrics = BridgeMetrics(CollectorRegistry())
    protocol = BoundedProtocol(
        config=config, server_state=ServerState(), app_state={}, connections_max=1, metrics=metrics
    )
    transport = Transport()
    protocol.connection_made(transport)
    return protocol, transport, seen


async def test_fields_behind_a_body_are_no_headers() -> None:
    """Whatever filters the headers of requests in front of the bridge does not see them."""
    protocol, _, seen = connected()
    protocol.data_received(HEAD + b"1\r\nx\r\n0\r\nauthorization: Basic YTpi\r\n\r\n")
    await asyncio.sleep(0)
    assert [name for name, _ in seen[0]["headers"]] == [b"host", b"transfer-encoding"]


async def test_a_client_that_sends_fields_without_end_behind_a_body_is_disconnected() -> None:
    for field in (b"a: b\r\n", b"a"):
        protocol, transport, _ = connected()
        protocol.data_received(HEAD + b"1\r\nx\r\n0\r\n")
        sent_bytes = 0
        while not transport.is_aborted and sent_bytes < 4 * HEAD_BYTES_MAX:
            protocol.data_received(field * 1000)
            sent_bytes += 1000 * len(field)
        assert transport.is_aborted


async def test_a_body_may_be_larger_than_a_head() -> None:
    protocol, transport, _ = connected()
    protocol.data_received(HEAD)
    for _ in range(2 * HEAD_BYTES_MAX // 1024):
        protocol.data_received(b"400\r\n" + bytes(1024) + b"\r\n")
    protocol.data_received(b"0\r\na: b\r\n\r\n")
    assert not transport.is_aborted


async def test_a_connection_beyond_the_bound_gets_a_whole_document() -> None:
    head, _, body = _FULL.partition(b"\r\n\r\n")
    assert b"content-length: %d\r\n" % len(body) in head
    assert json.loads(body)["error_code"] == 503
