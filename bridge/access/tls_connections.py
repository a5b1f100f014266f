"""TLS of the bridge's listeners: this module accepts connections and passes them to the HTTP server
after the handshake.

Each handshake uses the current certificates and has a time limit. The number of concurrent
handshakes is bounded, and a new one replaces the oldest, so that half-open connections do not lock
clients out.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from bridge.metrics import BridgeMetrics
from runtime.supervision import Supervisor
from wire.tls.reloading import ListenerCertificates

HANDSHAKES_MAX: Final = 512
HANDSHAKE_TIMEOUT_S: Final = 10.0
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
        self._under_way: OrderedDict[asyncio.Task[None], None] = OrderedDict()
        self._listeners: Sequence[socket.socket] = ()
        self._loops = Supervisor()

    def start(self, listeners: Sequence[socket.socket]) -> None:
        """Accept at these sockets."""
        self._listeners = listeners
        for number, listener in enumerate(listeners):
            listener.setblocking(False)
            self._loops.start(f"encrypted connections {number}", partial(self._accept, listener))

    async def stop(self) -> None:
        """Stop accepting; current handshakes are ended."""
        await self._loops.stop()
        for listener in self._listeners:
            listener.close()
        handshakes = list(self._under_way)
        for handshake in handshakes:
            handshake.cancel()
        await asyncio.gather(*handshakes, return_exceptions=True)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, _ = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(PAUSE_S)
                continue
            if len(self._under_way) >= HANDSHAKES_MAX:
                oldest, _ = self._under_way.popitem(last=False)
                oldest.cancel()
                self._metrics.record_dropped("handshakes")
            handshake = loop.create_task(self._shake_hands(connected))
            self._under_way[handshake] = None
            handshake.add_done_callback(lambda ended: self._under_way.pop(ended, None))

    async def _shake_hands(self, connected: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            context = self._certificates.context()
            await loop.connect_accepted_socket(
                self._protocol, connected, ssl=context, ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S
            )
        except (OSError, TimeoutError):  # errors of TLS or of the connection are the client's problem
            self._metrics.record_dropped("handshake")
            connected.close()
        except asyncio.CancelledError:
            connected.close()
            raise
