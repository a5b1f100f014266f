"""TLS handshakes before a connection exists: bounded in number and time, and outside the loop.

A handshake costs a millisecond or two of arithmetic, which a thread of its own does; the loop only
waits for the socket. At `HANDSHAKES_MAX`, a new handshake ends the oldest one: half-open
connections use up places, but never lock a client out. A handshake that is not complete after
`HANDSHAKE_TIMEOUT_S` ends too.

Callers: broker/network/connection_server.py, bridge/access/tls_connections.py.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from runtime.logs import get_logger
from runtime.supervision import in_background

log = get_logger(__name__)

_WRONG_CERTIFICATE: Final = ("CERTIFICATE_VERIFY_FAILED", "PEER_DID_NOT_RETURN_A_CERTIFICATE")
"""OpenSSL's reasons for a client that has no certificate of a trusted authority."""

HANDSHAKES_MAX: Final = 512
HANDSHAKE_TIMEOUT_S: Final = 10.0


class OnDone(Protocol):
    """Called once: with the encrypted socket, or with None when there is none and the socket is
    closed.
    """

    def __call__(self, tls: ssl.SSLSocket | None, *, is_wrong_certificate: bool) -> None: ...


class _Step:
    """The thread's current work for one handshake."""

    def __init__(self) -> None:
        self.work: asyncio.Future[None] | None = None

    def close(self, tls: ssl.SSLSocket) -> None:
        """Close the socket after the thread has finished with it: otherwise the descriptor might
        already belong to another socket.
        """
        if self.work is None or self.work.done():
            tls.close()
            return

        def ended(work: asyncio.Future[None]) -> None:
            if not work.cancelled():
                work.exception()
            tls.close()

        self.work.add_done_callback(ended)


class TlsHandshakes:
    """The TLS handshakes of one server that are under way."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # one thread: handshakes must not take CPU from clients that are served
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tls-handshake")
        self._under_way: dict[asyncio.Task[str], None] = {}
        self.completed_count = 0
        self.failed_count = 0

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(
        self,
        plain: socket.socket,
        context: ssl.SSLContext,
        *,
        client: str,
        on_done: OnDone,
    ) -> None:
        """Shake hands on an accepted, non-blocking socket."""
        try:
            tls = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        except (OSError, ValueError):  # the client has gone
            plain.close()
            self._end(on_done, None, "")
            return
        if len(self._under_way) >= HANDSHAKES_MAX:
            # the oldest: an honest client completes its handshake within a second
            next(iter(self._under_way)).cancel()
        step = _Step()
        task = in_background("tls handshake", self._run(tls, step))
        self._under_way[task] = None

        def ended(task: asyncio.Task[str]) -> None:
            self._under_way.pop(task, None)
            is_done = not task.cancelled() and task.exception() is None and not task.result()
            if not is_done:
                reason = "" if task.cancelled() or task.exception() else task.result()
                log.debug("tls handshake failed", client=client, reason=reason or "ended by the server")
                step.close(tls)
                self._end(on_done, None, reason)
            else:
                self._end(on_done, tls, "")

        task.add_done_callback(ended)

    def _end(self, on_done: OnDone, tls: ssl.SSLSocket | None, reason: str) -> None:
        if tls is None:
            self.failed_count += 1
        else:
            self.completed_count += 1
        on_done(tls, is_wrong_certificate=reason.startswith(_WRONG_CERTIFICATE))

    async def _run(self, tls: ssl.SSLSocket, step: _Step) -> str:
        """Shake hands. Returns the reason of a failure; empty if it succeeded."""
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                while True:
                    # in the thread: the arithmetic of one handshake would hold the loop for a
                    # millisecond
                    step.work = self._loop.run_in_executor(self._thread, tls.do_handshake)
                    try:
                        # shielded: a cancelled handshake must not free a socket that the thread
                        # works on
                        await asyncio.shield(step.work)
                    except ssl.SSLWantReadError:
                        await self._ready(tls, self._loop.add_reader, self._loop.remove_reader)
                    except ssl.SSLWantWriteError:
                        await self._ready(tls, self._loop.add_writer, self._loop.remove_writer)
                    else:
                        return ""
        except (OSError, ValueError) as error:  # ValueError: the socket was closed in between
            return _reason(error)

    async def _ready(self, tls: ssl.SSLSocket, watch: Callable[..., object], unwatch: Callable[..., object]) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()
        descriptor = tls.fileno()

        def note() -> None:
            if not ready.done():
                ready.set_result(None)

        watch(descriptor, note)
        try:
            await ready
        finally:
            unwatch(descriptor)

    async def stop(self) -> None:
        """End those under way."""
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._thread.shutdown(wait=False)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"not done within {HANDSHAKE_TIMEOUT_S:g} s"
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
