"""Clients that abuse TLS: handshakes byte by byte, records without end, wrong certificates one
after the other, renegotiation by openssl.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from runtime.addresses import HostPort

ENDLESS_RECORD = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03"
"""The head of a handshake record of 16 KiB, which the client never completes."""


class SlowHandshake:
    """A client that sends each byte of its handshake in a segment of its own."""

    def __init__(self, address: HostPort, context: ssl.SSLContext) -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(30)
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, server_hostname=address.host)
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send_byte(self) -> bool:
        """Send the next byte. Returns False when the server has to answer first."""
        byte = self._to_send.read(1)
        self._socket.sendall(byte)
        return bool(byte)

    def complete(self) -> None:
        """Continue until both sides have completed the handshake."""
        while True:
            while self.send_byte():
                pass
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._receive()
            else:
                break
        while self.send_byte():
            pass

    def ask(self, request: bytes) -> bytes:
        """Send a request, byte by byte too. Returns the first bytes of the answer."""
        self._tls.write(request)
        while self.send_byte():
            pass
        while True:
            try:
                return self._tls.read(4096)
            except ssl.SSLWantReadError:
                self._receive()

    def _receive(self) -> None:
        received = self._socket.recv(4096)
        if not received:
            raise ConnectionResetError("the server closed the connection")
        self._received.write(received)


class EndlessRecord:
    """A client that begins a TLS record and sends one further byte of it at each call."""

    def __init__(self, address: HostPort) -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(ENDLESS_RECORD)
        self._socket.setblocking(False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def is_closed_after_another_byte(self) -> bool:
        """Whether the server has closed the connection."""
        try:
            self._socket.send(b"\0")
            return self._socket.recv(1) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True


@contextlib.contextmanager
def wrong_certificates(address: HostPort, context: ssl.SSLContext, request: bytes) -> Iterator[WrongCertificates]:
    """Clients that show a wrong certificate, one after the other, until the block ends. A client
    whose request is answered was accepted.
    """
    storm = WrongCertificates(address, context, request)
    thread = threading.Thread(target=storm.run, name="wrong certificates")
    thread.start()
    try:
        yield storm
    finally:
        storm.is_over.set()
        thread.join()


class WrongCertificates:
    """How many of the storm's clients the server refused, and how many it accepted."""

    def __init__(self, address: HostPort, context: ssl.SSLContext, request: bytes) -> None:
        self._address = address
        self._context = context
        self._request = request
        self.is_over = threading.Event()
        self.refused = 0
        self.accepted = 0

    def run(self) -> None:
        """Connect again and again."""
        while not self.is_over.is_set():
            try:
                with (
                    socket.create_connection(self._address, timeout=30) as plain,
                    self._context.wrap_socket(plain, server_hostname=self._address.host) as tls,
                ):
                    # TLS 1.3 reports a refused certificate after the client's part of the handshake
                    tls.sendall(self._request)
                    is_accepted = bool(tls.recv(1))
            except OSError:
                is_accepted = False
            self.accepted += is_accepted
            self.refused += not is_accepted


def renegotiated(address: HostPort, authority: Path) -> str:
    """The output of openssl after it has asked for a new handshake of TLS 1.2."""
    command = ("openssl", "s_client", "-connect", f"{address.host}:{address.port}", "-tls1_2", "-CAfile", authority)
    # a line of "R" has openssl ask for a new handshake
    asked = subprocess.run(
        command, input=b"R\n", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
    )
    return asked.stdout.decode(errors="replace")
