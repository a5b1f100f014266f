"""The bytes of one encrypted connection: an `ssl.SSLSocket` driven by readiness, without asyncio's
TLS, whose buffers cost a quarter of a megabyte a connection and whose reads copy twice.

OpenSSL holds back bytes on both sides. Bytes that it has received (`wire/tls/read_ahead.py`), or
decrypted and not yet returned, do not make the socket readable: `has_received` stays true until
OpenSSL asks for more. A record that is encrypted and not yet sent must be offered
again unchanged: the channel keeps it, and `flush` sends it. A TLS 1.3 key update is answered while
reading, so a read may have to wait until the socket is writable (`receive_waits_for_send`). A send
never waits for a read: there is no renegotiation.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final

from broker.network.channels import Channel

RECORD_BYTES: Final = 16 * 1024
"""The most that a record of TLS holds, and so one read."""
SENT_AT_ONCE_BYTES_MAX: Final = 64 * 1024
"""The maximum that is read from a file, or joined, for one send."""
RECEIVED_AT_ONCE_BYTES_MAX: Final = 256 * 1024
HELD_BY_TLS_BYTES: Final = 2 * RECORD_BYTES
"""The most bytes of an incomplete frame that OpenSSL may hold, where the socket's mark does not
count them.
"""


class TlsChannel(Channel):
    """A connection after its handshake."""

    __slots__ = ("_is_corked", "_is_drained", "_read", "_receive_waits_for_send", "_tls", "_unsent")

    def __init__(self, tls: ssl.SSLSocket) -> None:
        super().__init__(tls)
        self._tls = tls
        # not `recv_into`: its checks in Python cost a fifth of the time of a small record
        self._read: Callable[[int, memoryview], int] = tls._sslobj.read  # type: ignore[attr-defined]
        self._is_drained = False  # the handshake may have received the first request
        self._is_corked = False
        self._unsent: memoryview | None = None
        self._receive_waits_for_send = False

    @property
    def is_full_after_less(self) -> bool:
        return False  # it takes a bounded piece at a time

    @property
    def has_received(self) -> bool:
        return not self._is_drained

    @property
    def receive_waits_for_send(self) -> bool:
        return self._receive_waits_for_send

    def expect(self, missing_bytes: int) -> None:
        self._mark.expect(missing_bytes - HELD_BY_TLS_BYTES)

    def receive_into(self, view: memoryview) -> int:
        # librdkafka sends a record of TLS for each record of Kafka: a turn of the loop for each of
        # them costs several times as much as its decryption
        view = view[:RECEIVED_AT_ONCE_BYTES_MAX]
        filled = received = self._receive(view)
        while received and filled < len(view):
            try:
                received = self._receive(view[filled:])
            except BlockingIOError:
                break
            filled += received
        return filled

    def _receive(self, view: memoryview) -> int:
        self._is_drained = self._receive_waits_for_send = False
        try:
            return self._read(len(view), view)
        except ssl.SSLWantReadError as error:
            self._is_drained = True
            raise BlockingIOError from error
        except ssl.SSLWantWriteError as error:
            self._receive_waits_for_send = True
            raise BlockingIOError from error
        except ssl.SSLEOFError:  # the client has closed the socket without the end of TLS
            return 0

    def send_buffers(self, buffers: Sequence[bytes | bytearray | memoryview], *, has_more: bool) -> int:
        self._push()
        if has_more:
            self._cork(is_corked=True)
        first = memoryview(buffers[0])
        # one buffer that fills a record is sent as it is; small ones are joined, since each send is
        # a record
        is_alone = len(buffers) == 1 or len(first) >= RECORD_BYTES
        taken = first[:SENT_AT_ONCE_BYTES_MAX] if is_alone else memoryview(_joined(buffers))
        self._send(taken)
        return len(taken)

    def send_file(self, fd: int, position: int, length: int) -> int:
        self._push()
        if length > RECORD_BYTES:
            self._cork(is_corked=True)
        read = os.pread(fd, min(length, SENT_AT_ONCE_BYTES_MAX), position)
        self._send(memoryview(read))
        return len(read)

    def flush(self) -> None:
        self._push()
        self._cork(is_corked=False)

    def _cork(self, *, is_corked: bool) -> None:
        """Have the kernel gather records into full packets until the end of the response: OpenSSL
        gives it one record at a time, and each packet costs the way through TCP, an acknowledgement
        and a wake-up of the reader.
        """
        if is_corked is not self._is_corked:
            self._is_corked = is_corked
            # a connection over something else than TCP has no packets to fill
            with contextlib.suppress(OSError):
                self._tls.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, is_corked)

    def _push(self) -> None:
        """Send what was taken and not sent yet; BlockingIOError when the kernel takes no more."""
        while self._unsent is not None:
            try:
                # the same bytes again, as OpenSSL demands after WantWrite
                sent = self._tls.send(self._unsent)
            except ssl.SSLWantWriteError as error:
                raise BlockingIOError from error
            except ssl.SSLWantReadError as error:
                # TLS 1.2 alone could ask for it, and the context refuses it
                raise OSError(errno.EPROTO, "the client renegotiates") from error
            self._unsent = self._unsent[sent:] if sent < len(self._unsent) else None

    def _send(self, taken: memoryview) -> None:
        """Accept all of it; `flush` sends what the kernel does not accept now."""
        self._unsent = taken or None
        with contextlib.suppress(BlockingIOError):
            self._push()

    def close(self) -> None:
        # without a notice of the end, the peer must treat the connection as interrupted
        with contextlib.suppress(OSError, ValueError):
            self._tls.unwrap()
        self._tls.close()


def _joined(buffers: Sequence[bytes | bytearray | memoryview]) -> bytes:
    taken: list[memoryview] = []
    room = SENT_AT_ONCE_BYTES_MAX
    for buffer in buffers:
        piece = memoryview(buffer)[:room]
        taken.append(piece)
        room -= len(piece)
        if not room:
            break
    return b"".join(taken)
