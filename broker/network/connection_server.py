"""The listeners of one broker: accept within limits, close idle connections, drain at the end.

Limits are Kafka's: connections in total and for each address, connection rates, idle time. At
`max.connections`, new connections wait unaccepted until one closes. The inter-broker listener, if
clients have another one, still accepts and closes the connection of another listener that was idle
for the longest time. A connection over the limit of its address is closed at once. A connection
with an incomplete request that makes no progress is closed too, if other connections wait for the
memory that it holds. On an encrypted listener the handshake comes first
(`wire/tls/handshakes.py`); it counts like a connection. A connection of an address whose logins
failed too often is closed at once, except at the inter-broker listener.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Final

from broker.authentication.entrances import Entrance, Refused
from broker.network.channels import Channel, send_buffer_for
from broker.network.connection_limits import ConnectionLimits
from broker.network.connections import Connection, FrameHandler
from broker.network.frame_receiver import SHARED_BUFFER_BYTES
from broker.network.request_memory import RequestMemory
from broker.network.sockets import RealSockets, Sockets
from broker.network.tls_channel import TlsChannel
from broker.quotas.core.connection_rates import ConnectionRates
from runtime.clock import Clock
from runtime.logs import get_logger
from runtime.security.client_networks import unmapped
from runtime.supervision import note_death
from wire.identity.core.failed_logins import FAILURES_MAX_KEY, FailedLogins
from wire.rules.principals import ANONYMOUS
from wire.tls.handshakes import TlsHandshakes

log = get_logger(__name__)

ACCEPTS_PER_CALLBACK_MAX: Final = 4  # 0.1 ms; then others have their turn on the loop
ACCEPT_PAUSE_S: Final = 0.1
MEMORY_CHECK_INTERVAL_MS: Final = 5_000
HELD_CONNECTIONS_MAX: Final = 1000
"""Connections above the rate that are kept open for a moment before they are closed; further ones
are closed at once.
"""
UNLIMITED: Final = 2**31 - 1
PROGRESS_BYTES_MIN: Final = 64 * 1024
"""A half-received frame must grow this much per check while other connections wait for memory."""


class ConnectionServer:
    """The listeners of one broker and all their connections."""

    def __init__(
        self,
        handler: FrameHandler,
        limits: ConnectionLimits,
        memory: RequestMemory,
        clock: Clock,
        rates: ConnectionRates,
        *,
        exempt_listener: str = "",
        sockets: Sockets | None = None,
    ) -> None:
        """`exempt_listener` is the inter-broker listener: neither the rate nor the total number of
        connections applies to it.
        """
        self.handler = handler
        self._sockets = sockets or RealSockets()
        self._limits = limits
        self.request_bytes_max = limits.request_bytes_max
        self.memory = memory
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self.shared_view = memoryview(bytearray(SHARED_BUFFER_BYTES))
        # in the order in which they came, in any process: the simulation repeats a history
        self.connections: dict[Connection, None] = {}
        self.handshakes = TlsHandshakes()
        self.refused_count = 0
        self.failed_logins = FailedLogins(
            failures_max=limits.failed_logins_max, window_ms=limits.failed_logins_window_ms
        )
        self.refused_logins_count = 0
        """Connections that were closed because too many logins of their address had failed."""
        self.throttled_count = 0
        self.rates = rates
        self._exempt_listener = exempt_listener
        self._held: dict[socket.socket, asyncio.TimerHandle] = {}
        self.reaped_count = 0
        self._all_closed: asyncio.Future[None] | None = None
        self._names: dict[int, str] = {}
        self._entrances: dict[str, Entrance] = {}
        self._counts: dict[str, int] = {}
        self._listening: list[socket.socket] = []
        self._waiting_for_room: list[socket.socket] = []
        self._is_known_to_be_full = False
        self._sweep: asyncio.TimerHandle | None = None
        self._checked_at_ms = 0.0

    @property
    def limits(self) -> ConnectionLimits:
        """The bounds in force."""
        return self._limits

    @limits.setter
    def limits(self, limits: ConnectionLimits) -> None:
        """Apply other bounds; connections beyond the total number are ended, the longest unused
        ones first.
        """
        self._limits = limits
        self.failed_logins.failures_max = limits.failed_logins_max
        self.failed_logins.window_ms = limits.failed_logins_window_ms
        self._end_excess()
        self._accept_where_there_is_room()

    def listen(self, name: str, host: str, port: int, entrance: Entrance | None = None) -> int:
        """Bind a listener and return its port; connections are taken from `start_accepting` on.
        OSError when it is taken. Without an entrance it is plaintext.
        """
        if entrance is not None:
            self._entrances[name] = entrance
        listening = self._sockets.listen(host, port, receive_buffer_bytes=self._limits.receive_buffer_bytes)
        self._listening.append(listening)
        self._names[listening.fileno()] = name
        return int(listening.getsockname()[1])

    def start_accepting(self) -> None:
        """Take connections on all listeners."""
        for listening in self._listening:
            self.loop.add_reader(listening.fileno(), self._accept, listening)
        self._schedule_sweep()

    def _accept(self, listening: socket.socket) -> None:
        name = self._names[listening.fileno()]
        if not self._has_room(name):
            self._wait_for_room(listening)
            return
        # bounded: a storm of connections must not delay those that are being served
        for _ in range(ACCEPTS_PER_CALLBACK_MAX):
            try:
                plain, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                self._is_known_to_be_full = False
                return
            except OSError as error:
                # usually no descriptor is free: accepting again at once would spin
                log.warning("connections could not be accepted; retrying", reason=error.strerror)
                self._pause_accepting(listening, ACCEPT_PAUSE_S)
                return
            host = unmapped(str(address[0]))
            # before it counts: an address above its rate must not use up the places of others
            if not self._is_too_fast(plain, host):
                self._admit(plain, host=host, port=int(address[1]), listener=name)
            pause_ms = self._pause_ms(name)
            if pause_ms:
                self._pause_accepting(listening, pause_ms / 1000)
                return
            if not self._has_room(name):
                return  # called again if a client waits

    def _has_room(self, listener: str) -> bool:
        return self._open_count < self._limits.connections_max or listener == self._exempt_listener

    @property
    def _open_count(self) -> int:
        return len(self.connections) + len(self.handshakes)

    def _wait_for_room(self, listening: socket.socket) -> None:
        """Clients stay in the kernel's queue until a connection closes."""
        self.loop.remove_reader(listening.fileno())
        self._waiting_for_room.append(listening)
        if not self._is_known_to_be_full:
            self._is_known_to_be_full = True
            log.warning(
                "connection limit reached: new connections wait", key="max.connections", value=len(self.connections)
            )

    def _accept_where_there_is_room(self) -> None:
        waiting, self._waiting_for_room = self._waiting_for_room, []
        for listening in waiting:
            self._accept_again(listening)

    def _end_excess(self) -> None:
        # only of clients: followers and mirrors keep their connections
        """Close idle connections before those with a request in flight."""
        excess = self._open_count - self._limits.connections_max
        if excess <= 0:
            return
        others = [connection for connection in self.connections if connection.listener != self._exempt_listener]
        others.sort(key=lambda connection: (not connection.is_idle, connection.used_at_ms))
        for connection in others[:excess]:
            connection.close("max.connections is exceeded")

    def _is_too_fast(self, plain: socket.socket, host: str) -> bool:
        """True if the address connects too fast: the connection is closed after a moment
        (KIP-612).
        """
        hold_ms = self.rates.came_from(self.clock.monotonic_ms(), host)
        if not hold_ms:
            return False
        self.throttled_count += 1
        log.debug("connection refused: the address exceeds its connection rate", client=host, hold_ms=hold_ms)
        # closed at once: there is no memory for an answer after a pause
        if len(self._held) >= HELD_CONNECTIONS_MAX:
            plain.close()
        else:
            self._held[plain] = self.loop.call_later(hold_ms / 1000, self._refuse_held, plain)
        return True

    def _refuse_held(self, plain: socket.socket) -> None:
        del self._held[plain]
        plain.close()

    def _pause_ms(self, listener: str) -> float:
        bound = self._limits.connection_creation_rate_max
        if bound >= UNLIMITED or listener == self._exempt_listener:
            return 0.0
        return self.rates.came(self.clock.monotonic_ms(), bound)

    def _pause_accepting(self, listening: socket.socket, pause_s: float) -> None:
        self.loop.remove_reader(listening.fileno())
        self.loop.call_later(pause_s, self._accept_again, listening)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0 and listening in self._listening:
            self.loop.add_reader(listening.fileno(), self._accept, listening)

    def _admit(self, plain: socket.socket, *, host: str, port: int, listener: str) -> None:
        limits = self._limits
        count = self._counts.get(host, 0)
        most = limits.connections_per_address_overrides.get(host, limits.connections_per_address_max)
        if count >= most:
            self.refused_count += 1
            log.warning("connection refused: too many from one address", client=host, connections=count)
            plain.close()
            return
        if self.refuses_login(host, listener):
            self.refused_logins_count += 1
            plain.close()
            return
        plain.setblocking(False)
        # responses are small and complete: Nagle's algorithm would delay each for an
        # acknowledgement
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        send_buffer_bytes = limits.send_buffer_bytes if limits.send_buffer_bytes > 0 else send_buffer_for(plain)
        if send_buffer_bytes:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        self._counts[host] = count + 1
        entrance, address = self._entrances.get(listener), f"{host}:{port}"
        if entrance is None or entrance.context is None:
            self._open(Channel(plain, self._sockets.send_file), entrance, None, listener=listener, address=address)
            return

        def on_done(tls: ssl.SSLSocket | None, *, is_wrong_certificate: bool) -> None:
            entrance.note_handshake(is_done=tls is not None)
            if is_wrong_certificate:
                self.login_failed(host, listener)
            # the broker stops: nothing would read from this connection
            if tls is None or not self._listening:
                if tls is not None:
                    tls.close()
                self._uncount(address)
            else:
                self._open(TlsChannel(tls), entrance, tls, listener=listener, address=address)

        self.handshakes.begin(plain, entrance.context, host=host, port=port, on_done=on_done)

    def _open(
        self, channel: Channel, entrance: Entrance | None, tls: ssl.SSLSocket | None, *, listener: str, address: str
    ) -> None:
        """Open the connection of a client, after its handshake if it has one."""
        try:
            principal = ANONYMOUS if entrance is None else entrance.principal_of(tls)
        except Refused as refusal:
            log.warning("connection refused: its client has no principal", client=address, reason=str(refusal))
            channel.close()
            self._uncount(address)
            return
        connection = Connection(self, channel, listener=listener, address=address)
        connection.principal = principal
        if entrance is not None:
            # before the first frame: only the login may pass the gate
            connection.sasl = entrance.session(connection, self.clock, frame_bytes_max=self.request_bytes_max)
            connection.shut_gate()
        self.connections[connection] = None
        self._end_excess()

    # --- failed logins

    def login_failed(self, host: str, listener: str) -> None:
        """A client of this address has shown a wrong password, token or certificate."""
        if self.failed_logins.record(self.clock.monotonic_ms(), host):
            log.warning(
                "logins of an address are refused for a while: too many have failed",
                client=host,
                listener=listener,
                key=FAILURES_MAX_KEY,
                value=self.failed_logins.failures_max,
                refused_ms=self.failed_logins.window_ms,
            )

    def refuses_login(self, host: str, listener: str) -> bool:
        """True while clients of this address may not log in."""
        # other brokers may share an address with clients, and must reach this one
        is_exempt = listener == self._exempt_listener
        return not is_exempt and self.failed_logins.is_refused(self.clock.monotonic_ms(), host)

    def connection_closed(self, connection: Connection) -> None:
        """Bookkeeping of a connection that closed itself."""
        self.connections.pop(connection, None)
        if not self.connections and self._all_closed is not None and not self._all_closed.done():
            self._all_closed.set_result(None)
        self._uncount(connection.address)

    def _uncount(self, address: str) -> None:
        """A connection of this address has closed, or was not completed."""
        host = address.rpartition(":")[0]
        left = self._counts.get(host, 0) - 1
        if left > 0:
            self._counts[host] = left
        else:
            self._counts.pop(host, None)
        if self._waiting_for_room and self._open_count < self._limits.connections_max:
            self._accept_where_there_is_room()

    # --- reaping

    def _schedule_sweep(self) -> None:
        interval_s = min(max(self._limits.idle_ms_max / 4000, 0.05), MEMORY_CHECK_INTERVAL_MS / 1000)
        self._sweep = self.loop.call_later(interval_s, self._sweep_connections)

    def _sweep_connections(self) -> None:
        now_ms = self.clock.monotonic_ms()
        is_memory_check = now_ms - self._checked_at_ms >= MEMORY_CHECK_INTERVAL_MS
        if is_memory_check:
            self._checked_at_ms = now_ms
        for connection in tuple(self.connections):
            try:
                self._look_at(connection, now_ms, is_memory_check=is_memory_check)
            except Exception:
                note_death(
                    "connection sweep", client=connection.address
                )  # the other connections and the next sweep follow all the same
        self._schedule_sweep()

    def _look_at(self, connection: Connection, now_ms: float, *, is_memory_check: bool) -> None:
        connection.receive_now()
        if is_memory_check:
            self._check_progress(connection, now_ms)
        is_moving = connection.progress_bytes and not connection.is_between_requests
        if not is_moving and now_ms - connection.used_at_ms > self._limits.idle_ms_max:
            self.reaped_count += 1
            connection.close("idle for too long")

    def _check_progress(self, connection: Connection, now_ms: float) -> None:
        progress, connection.progress_bytes = connection.progress_bytes, 0
        if progress and not connection.is_between_requests:
            # A large frame over a slow connection takes longer than the idle timeout.
            connection.used_at_ms = now_ms
        if connection.holds_memory and self.memory.waiting_count and progress < PROGRESS_BYTES_MIN:
            connection.close("a slow, incomplete request held memory that other connections wait for", is_fault=True)

    # --- ending

    def stop_accepting(self) -> None:
        """Close the listeners; connections go on."""
        for listening in self._listening:
            self.loop.remove_reader(listening.fileno())
            listening.close()
        self._listening.clear()
        self._waiting_for_room.clear()
        for plain, refusal in self._held.items():
            refusal.cancel()
            plain.close()
        self._held.clear()

    async def stop(self, *, grace_s: float) -> None:
        """Stop accepting, answer what is in flight for up to `grace_s`, close everything."""
        self.stop_accepting()
        if self._sweep is not None:
            self._sweep.cancel()
        await self.handshakes.stop()
        for connection in tuple(self.connections):
            connection.drain()
        if self.connections:
            self._all_closed = self.loop.create_future()
            await asyncio.wait([self._all_closed], timeout=grace_s)
        for connection in tuple(self.connections):
            connection.close("the broker stops")
