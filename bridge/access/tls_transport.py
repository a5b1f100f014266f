"""An `asyncio.Transport` over an encrypted socket whose handshake is done: for servers that are
written against asyncio's protocols.

asyncio's own TLS takes no socket after its handshake, and so shakes hands on the event loop. Here
the loop's readiness drives an `ssl.SSLSocket`, as in `broker/network/tls_channel.py`. Bytes that
OpenSSL has already decrypted do not make the socket readable, and a partial write must be retried
with the same bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from typing import Final

READ_BYTES: Final = 64 * 1024
READS_PER_CALLBACK_MAX: Final = 16
"""Then other connections have their turn."""
BUFFERED_BYTES_HIGH: Final = 64 * 1024
BUFFERED_BYTES_LOW: Final = 16 * 1024
"""Between them the protocol may write; above, it pauses."""

FLUSH_TIMEOUT_S: Final = 30.0
"""A client that has stopped reading may keep a closed connection for this time, as with asyncio's
TLS.
"""

Bytes = bytes | bytearray | memoryview


class TlsTransport(asyncio.Transport):
    """One connection. The protocol's `connection_made` is called right away."""

    def __init__(self, tls: ssl.SSLSocket, protocol: asyncio.Protocol) -> None:
        super().__init__({"socket": tls, "ssl_object": tls, "sslcontext": tls.context})
        self._loop = asyncio.get_running_loop()
        self._tls = tls
        self._descriptor = tls.fileno()
        self._protocol = protocol
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._is_reading = self._is_writing = False
        self._is_reading_paused = self._is_writing_paused = False
        self._is_closing = self._is_closed = False
        self._flush_timer: asyncio.TimerHandle | None = None
        protocol.connection_made(self)
        self._read(is_wanted=True)

    # -- reading -----------------------------------------------------------------------------------

    def is_reading(self) -> bool:
        """True unless the protocol has paused it."""
        return not (self._is_reading_paused or self._is_closing)

    def pause_reading(self) -> None:
        """Stop passing received bytes to the protocol."""
        self._is_reading_paused = True
        self._read(is_wanted=False)

    def resume_reading(self) -> None:
        """Hand over bytes again."""
        if not self._is_reading_paused:
            return
        self._is_reading_paused = False
        self._read(is_wanted=True)
        # decrypted bytes make no socket readable
        self._loop.call_soon(self._on_readable)

    def _read(self, *, is_wanted: bool) -> None:
        is_wanted = is_wanted and not self._is_closing
        if is_wanted and not self._is_reading:
            self._loop.add_reader(self._descriptor, self._on_readable)
        elif not is_wanted and self._is_reading:
            self._loop.remove_reader(self._descriptor)
        self._is_reading = is_wanted

    def _on_readable(self) -> None:
        for _ in range(READS_PER_CALLBACK_MAX):
            if not self.is_reading():
                return
            try:
                received = self._tls.recv(READ_BYTES)
            except ssl.SSLWantReadError:
                return
            except ssl.SSLWantWriteError:
                # a key update of TLS 1.3 is answered while reading
                self._write(is_wanted=True)
                return
            except OSError as error:
                self._end(error)
                return
            if not received:
                self._protocol.eof_received()
                self.close()
                return
            self._protocol.data_received(received)
        self._loop.call_soon(self._on_readable)

    # -- writing -----------------------------------------------------------------------------------

    def get_write_buffer_size(self) -> int:
        """Bytes that are not sent yet."""
        return self._unsent_bytes

    def write(self, data: Bytes) -> None:
        """Send now or as soon as the client takes it."""
        if self._is_closing or not data:
            return
        self._unsent.append(bytes(data))
        self._unsent_bytes += len(data)
        if len(self._unsent) == 1:
            self._send()
        if self._unsent_bytes > BUFFERED_BYTES_HIGH and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def _write(self, *, is_wanted: bool) -> None:
        if is_wanted and not self._is_writing:
            self._loop.add_writer(self._descriptor, self._on_writable)
        elif not is_wanted and self._is_writing:
            self._loop.remove_writer(self._descriptor)
        self._is_writing = is_wanted

    def _on_writable(self) -> None:
        self._send()
        if self._is_closed:
            return
        if self._is_writing_paused and self._unsent_bytes <= BUFFERED_BYTES_LOW:
            self._is_writing_paused = False
            self._protocol.resume_writing()
        # a read may have waited for room to send
        self._on_readable()

    def _send(self) -> None:
        while self._unsent:
            head = self._unsent[0]
            try:
                sent = self._tls.send(head)
            except ssl.SSLWantWriteError:
                self._write(is_wanted=True)
                return
            except OSError as error:  # a want of a read is one: the context refuses renegotiation
                self._end(error)
                return
            self._unsent_bytes -= sent
            if sent < len(head):
                self._unsent[0] = head[sent:]
            else:
                self._unsent.popleft()
        self._write(is_wanted=False)
        if self._is_closing:
            self._end(None)

    # -- ending ------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        """True once it is closed, or closes when everything is sent."""
        return self._is_closing

    def close(self) -> None:
        """Close when everything is sent, or after `FLUSH_TIMEOUT_S`."""
        if self._is_closing:
            return
        self._is_closing = True
        self._read(is_wanted=False)
        if not self._unsent:
            self._end(None)
            return
        self._flush_timer = self._loop.call_later(FLUSH_TIMEOUT_S, self.abort)

    def abort(self) -> None:
        """Close at once, and drop bytes that are not sent yet."""
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self._is_closed:
            return
        self._is_closed = self._is_closing = True
        self._read(is_wanted=False)
        self._write(is_wanted=False)
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        self._unsent.clear()
        self._unsent_bytes = 0
        # after the caller: a protocol expects no end within its own call
        self._loop.call_soon(self._lose, error)

    def _lose(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            # without close_notify, a client treats the end as a truncation attack
            with contextlib.suppress(OSError, ValueError):
                self._tls.unwrap()
            self._tls.close()
