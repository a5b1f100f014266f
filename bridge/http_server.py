"""Runs uvicorn in our event loop, with limits for connections: their number, the size of a head,
and the time that a client may take.

uvicorn itself limits idle connections between requests and the buffer of a body. This module limits
connections that send no head or an incomplete one, fields behind a body, bodies that no handler
reads, and responses that the client does not read.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bridge.access.logins import CERTIFICATE
from bridge.access.tls_connections import EncryptedListeners
from bridge.config import BridgeSettings
from bridge.core.documents import write
from bridge.core.refusals import ErrorBody
from bridge.metrics import BridgeMetrics
from runtime.addresses import HostPort
from runtime.configuration import ConfigurationError
from runtime.logs import get_logger
from runtime.supervision import Supervisor
from wire.tls.reloading import ListenerCertificates

HEAD_BYTES_MAX = 64 * 1024
SWEEPS_PER_TIMEOUT = 10
SWEEP_PAUSE_S_MAX = 1.0
BACKLOG = 1024
_FULL_BODY = write(ErrorBody(503, "The bridge has as many connections as it may; try again."))
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_FULL_BODY), _FULL_BODY)
)

log = get_logger(__name__)


class BoundedProtocol(HttpToolsProtocol):
    """One connection, its state, and the time since which it is in this state."""

    def __init__(self, *arguments: Any, connections_max: int, metrics: BridgeMetrics, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._connections_max = connections_max
        self._metrics = metrics
        self._head_bytes = 0
        self._is_in_head = self._is_in_body = self._has_body_bytes = False
        self._waiting_since_s: float | None = None
        self._unsent_bytes = 0
        self._unsent_since_s: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client."""
        super().connection_made(transport)
        self._waiting_since_s = self.loop.time()
        encrypted = transport.get_extra_info("ssl_object")
        self._certificate = None if encrypted is None else encrypted.getpeercert(binary_form=True)
        # answer and close: a client learns more from a response than from a refused connection
        if len(self.connections) > self._connections_max:
            transport.write(_FULL)
            transport.close()
            self._metrics.record_dropped("connections")

    def data_received(self, data: bytes) -> None:
        """Bytes of heads and bodies."""
        was_in_head, was_in_body = self._is_in_head, self._is_in_body
        self._has_body_bytes = False
        super().data_received(data)
        # bytes of a body are not counted: uvicorn limits those
        has_fields_alone = was_in_body and self._is_in_body and not self._has_body_bytes
        is_counted = (was_in_head and self._is_in_head) or has_fields_alone
        self._head_bytes = self._head_bytes + len(data) if is_counted else 0
        if self._head_bytes > HEAD_BYTES_MAX:
            self.drop("head_size")

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self.scope[CERTIFICATE] = self._certificate  # type: ignore[typeddict-unknown-key]
        self._is_in_head = True
        self._waiting_since_s = self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of a head. Fields behind a chunked body are left out: a proxy that filters the
        headers of requests does not see them (RFC 9110, 6.5.1).
        """
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """A head is whole."""
        super().on_headers_complete()
        self._is_in_head, self._is_in_body = False, True
        self._waiting_since_s = None

    def on_body(self, body: bytes) -> None:
        """Bytes of a body."""
        self._has_body_bytes = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The body is complete; uvicorn's own limit on idle connections begins at the end of the
        response.
        """
        super().on_message_complete()
        self._is_in_body = False

    def look(self, now_s: float, timeout_s: float) -> None:
        """End the connection when the client takes too long."""
        # the response is sent and the body is not complete: a client that sends forever would hold
        # the connection
        if self._is_in_body and self.cycle.response_complete and self._waiting_since_s is None:
            self._waiting_since_s = now_s
        unsent_bytes = self.transport.get_write_buffer_size()
        # fewer bytes than at the last check: the client reads its response, however slowly
        if unsent_bytes == 0 or unsent_bytes < self._unsent_bytes:
            self._unsent_since_s = None
        elif self._unsent_since_s is None:
            self._unsent_since_s = now_s
        self._unsent_bytes = unsent_bytes
        for since_s, reason in ((self._waiting_since_s, "request"), (self._unsent_since_s, "answer")):
            if since_s is not None and now_s - since_s > timeout_s:
                self.drop(reason)
                return

    def drop(self, reason: str) -> None:
        """Disconnect."""
        self._metrics.record_dropped(reason)
        log.info("connection dropped", client=self.client, reason=reason)
        self.transport.abort()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the daemon's."""
        yield


class HttpServer:
    """Serves an application on the listeners. `start` binds the listeners, `stop` lets running
    requests end.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: BridgeSettings,
        metrics: BridgeMetrics,
        certificates: ListenerCertificates | None = None,
    ) -> None:
        """`certificates`: connections are TLS."""
        self._settings = settings
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        protocol = functools.partial(BoundedProtocol, connections_max=settings.connections_max, metrics=metrics)
        self._server = _Server(
            uvicorn.Config(
                app,
                http=protocol,  # type: ignore[arg-type]
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=max(1, settings.idle_timeout_ms // 1000),
                timeout_graceful_shutdown=max(1, settings.shutdown_timeout_ms // 1000),
            )
        )
        self._encrypted: EncryptedListeners | None = None
        if certificates is not None:
            uvicorns = {"config": self._server.config, "server_state": self._server.server_state, "app_state": {}}
            self._encrypted = EncryptedListeners(certificates, metrics, functools.partial(protocol, **uvicorns))
        self._loops = Supervisor()
        metrics.add_gauge("connections", lambda: len(self._server.server_state.connections))

    async def start(self) -> tuple[HostPort, ...]:
        """Bind and serve; where. Raises ConfigurationError when an address cannot be had."""
        sockets = _bound(self._settings.listeners, self._settings.scheme)
        addresses = tuple(HostPort(*bound.getsockname()[:2]) for bound in sockets)
        self.serving = asyncio.create_task(self._server.serve(sockets if self._encrypted is None else []))
        if self._encrypted is not None:
            self._encrypted.start(sockets)
        self._loops.start("HTTP connections", self._sweep)
        return addresses

    async def stop(self) -> None:
        """Accept no more requests; wait for the running ones, for a limited time."""
        self._server.should_exit = True
        if self._encrypted is not None:
            await self._encrypted.stop()
        await self._loops.stop()
        await self.serving

    async def _sweep(self) -> None:
        timeout_s = self._settings.client_timeout_ms / 1000
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(timeout_s / SWEEPS_PER_TIMEOUT, SWEEP_PAUSE_S_MAX))
            for connection in list(self._server.server_state.connections):
                if isinstance(connection, BoundedProtocol):
                    connection.look(loop.time(), timeout_s)


def _bound(listeners: Sequence[HostPort], scheme: str) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    for listener in listeners:
        try:
            family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
            sockets.append(socket.create_server(listener, family=family, backlog=BACKLOG))
        except OSError as error:
            for bound in sockets:
                bound.close()
            accepted = f"addresses that can be bound ({error.strerror})"
            raise ConfigurationError("listeners", f"{scheme}://{listener}", accepted) from error
    return sockets
