"""TLS of the bridge's listeners: this module accepts connections and passes them to the HTTP server
after the handshake.

Each handshake uses the current certificates. Handshakes are bounded in number and time, and run
outside the event loop, like those of a broker (`wire/tls/handshakes.py`).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from bridge.access.tls_transport import TlsTransport
from bridge.metrics import BridgeMetrics
from runtime.supervision import Supervisor
from wire.tls.handshakes import TlsHandshakes
from wire.tls.reloading import ListenerCertificates

PAUSE_S: Final = 0.1
"""Pause after a connection that could not be accepted, as when there are no descriptors left."""


class EncryptedListeners:
    """Accepts connections and does the handshakes; `protocol` makes the protocol of each
    connection.
    """

    def __init__(
        self, certificates: ListenerCertificates, metrics: BridgeMetrics, protocol: Callable[[], asyncio.Protocol]
    ) -> None:
        self._certificates = certificates
        self._metrics = metrics
        self._protocol = protocol
        self._handshakes: TlsHandshakes | None = None
        self._listeners: Sequence[socket.socket] = ()
        self._loops = Supervisor()

    def start(self, listeners: Sequence[socket.socket]) -> None:
        """Accept at these sockets."""
        self._listeners = listeners
        handshakes = self._handshakes = TlsHandshakes()
        for number, listener in enumerate(listeners):
            listener.setblocking(False)
            self._loops.start(f"encrypted connections {number}", partial(self._accept, listener, handshakes))

    async def stop(self) -> None:
        """Stop accepting; current handshakes are ended."""
        await self._loops.stop()
        listeners, self._listeners = self._listeners, ()
        for listener in listeners:
            listener.close()
        if self._handshakes is not None:
            await self._handshakes.stop()

    async def _accept(self, listener: socket.socket, handshakes: TlsHandshakes) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, address = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(PAUSE_S)
                continue
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            handshakes.begin(
                connected, self._certificates.context(), host=address[0], port=address[1], on_done=self._begin
            )

    def _begin(self, tls: ssl.SSLSocket | None, *, is_wrong_certificate: bool) -> None:  # noqa: ARG002  the signature of OnDone
        if tls is None:
            self._metrics.record_dropped("handshake")
        elif not self._listeners:
            # the bridge stops: nothing would read from this connection
            tls.close()
        else:
            TlsTransport(tls, self._protocol())
