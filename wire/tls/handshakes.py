"""TLS handshakes before a connection exists: bounded in number and time, and outside the loop.

A handshake costs a millisecond or two of arithmetic, which a thread of its own does; the loop only
waits for the socket. The thread does one step of one handshake, and gets the next step in the next
round of the event loop, so that the loop serves connected clients in between. Networks take turns
at the thread, and at `HANDSHAKES_MAX` the network with most handshakes loses one
(`core/handshake_turns.py`), so that a storm from one address does not keep others out. A handshake
that is not complete after `HANDSHAKE_TIMEOUT_S` ends too. A connection costs no memory of TLS until
its client has sent a byte.

Callers: broker/network/connection_server.py, bridge/access/tls_connections.py.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Protocol

from runtime.logs import get_logger
from runtime.security.client_networks import network_of
from runtime.supervision import note_death
from wire.tls.core.handshake_turns import HandshakeTurns

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


class _Handshake:
    """One handshake. Only the thread touches its socket while it works on it."""

    __slots__ = (
        "_plain",
        "client",
        "context",
        "descriptor",
        "is_at_work",
        "is_over",
        "is_watched",
        "on_done",
        "timer",
        "tls",
    )

    def __init__(self, plain: socket.socket, context: ssl.SSLContext, client: str, on_done: OnDone) -> None:
        self._plain = plain
        self.descriptor = plain.fileno()
        self.context = context
        self.client = client
        self.on_done = on_done
        self.tls: ssl.SSLSocket | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.is_watched = False
        self.is_at_work = False
        """True while the thread has it."""
        self.is_over = False

    @property
    def has_client_gone(self) -> bool:
        """True if the client has closed the connection without a byte; False once TLS has begun."""
        if self.tls is not None:
            return False
        try:
            return not self._plain.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def advance(self) -> None:
        """Do the next step, in the thread. ssl.SSLWantReadError or ssl.SSLWantWriteError when the
        client has to go on, OSError or ValueError when the handshake has failed.
        """
        if self.tls is None:
            self.tls = self.context.wrap_socket(self._plain, server_side=True, do_handshake_on_connect=False)
        self.tls.do_handshake()

    def close(self) -> None:
        """Close the socket, once the thread no longer works on it: otherwise the descriptor might
        already belong to another socket.
        """
        self.is_over = True
        if not self.is_at_work:
            (self._plain if self.tls is None else self.tls).close()

    def leave_thread(self) -> None:
        """The thread has done its step."""
        self.is_at_work = False
        if self.is_over:
            self.close()


class _StepThread:
    """The thread that does steps of handshakes, one after the other. It starts with the first one.

    Each step costs the loop one call: the futures of an executor cost it four, which a storm turns
    into a delay of the clients that are served.
    """

    def __init__(self, on_step: Callable[[_Handshake, BaseException | None], None]) -> None:
        """`on_step` is called on the loop, with the error of the step if it has one."""
        self._loop = asyncio.get_running_loop()
        self._on_step = on_step
        self._steps: SimpleQueue[_Handshake | None] = SimpleQueue()
        self._is_started = False

    def take(self, handshake: _Handshake) -> None:
        """Do its next step."""
        if not self._is_started:
            self._is_started = True
            threading.Thread(target=self._run, name="tls-handshake", daemon=True).start()
        handshake.is_at_work = True
        self._steps.put(handshake)

    def end(self) -> None:
        """End the thread after the steps that it has. Nothing may be taken after this."""
        self._steps.put(None)

    def _run(self) -> None:
        while (handshake := self._steps.get()) is not None:
            error: BaseException | None = None
            try:
                handshake.advance()
            except BaseException as failure:
                error = failure
            self._loop.call_soon_threadsafe(self._on_step, handshake, error)


class TlsHandshakes:
    """The TLS handshakes of one server that are under way."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # one thread: handshakes must not take CPU from clients that are served
        self._thread = _StepThread(self._on_step)
        self._turns: HandshakeTurns[_Handshake] = HandshakeTurns()
        self._is_working = False
        self._stopped: asyncio.Future[None] | None = None
        self.failed_count = 0

    def __len__(self) -> int:
        return len(self._turns)

    def begin(self, plain: socket.socket, context: ssl.SSLContext, *, host: str, port: int, on_done: OnDone) -> None:
        """Shake hands on an accepted, non-blocking socket of a client at this address."""
        handshake = _Handshake(plain, context, f"{host}:{port}", on_done)
        self._turns.add(handshake, network_of(host))
        handshake.timer = self._loop.call_later(HANDSHAKE_TIMEOUT_S, self._time_out, handshake)
        self._watch(handshake, self._loop.add_reader)
        if len(self._turns) > HANDSHAKES_MAX:
            self._fail(self._turns.surplus(), "ended by the server: too many handshakes")

    def _watch(self, handshake: _Handshake, watch: Callable[..., object]) -> None:
        handshake.is_watched = True
        watch(handshake.descriptor, self._on_ready, handshake)

    def _unwatch(self, handshake: _Handshake) -> None:
        if handshake.is_watched:
            handshake.is_watched = False
            self._loop.remove_reader(handshake.descriptor)
            self._loop.remove_writer(handshake.descriptor)

    def _on_ready(self, handshake: _Handshake) -> None:
        self._unwatch(handshake)
        # a thread's turn for each port scan and each look of a load balancer would delay others
        if handshake.has_client_gone:
            self._fail(handshake, "closed by the client")
            return
        self._turns.ready(handshake)
        self._work_on_next()

    def _work_on_next(self) -> None:
        if self._is_working or self._stopped is not None:
            return
        handshake = self._turns.next()
        if handshake is None:
            return
        self._is_working = True
        self._thread.take(handshake)

    def _on_step(self, handshake: _Handshake, error: BaseException | None) -> None:
        self._is_working = False
        handshake.leave_thread()
        # it may have ended while the thread worked
        if handshake in self._turns:
            self._turns.waits_for_client(handshake)
            self._take_result(handshake, error)
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)
        self._work_on_next()

    def _take_result(self, handshake: _Handshake, error: BaseException | None) -> None:
        try:
            if error is not None:
                raise error  # noqa: TRY301 (the thread's, sorted here)
        except ssl.SSLWantReadError:
            self._watch(handshake, self._loop.add_reader)
        except ssl.SSLWantWriteError:
            self._watch(handshake, self._loop.add_writer)
        except (OSError, ValueError) as failure:
            self._fail(handshake, _reason(failure))
        except BaseException as failure:  # an error of this program
            note_death("tls handshake", client=handshake.client)
            self._fail(handshake, _reason(failure))
        else:
            self._complete(handshake)

    def _complete(self, handshake: _Handshake) -> None:
        self._end(handshake)
        handshake.on_done(handshake.tls, is_wrong_certificate=False)

    def _fail(self, handshake: _Handshake, reason: str) -> None:
        self._end(handshake)
        self.failed_count += 1
        log.debug("tls handshake failed", client=handshake.client, reason=reason)
        handshake.close()
        handshake.on_done(None, is_wrong_certificate=reason.startswith(_WRONG_CERTIFICATE))

    def _time_out(self, handshake: _Handshake) -> None:
        self._fail(handshake, f"not done within {HANDSHAKE_TIMEOUT_S:g} s")

    def _end(self, handshake: _Handshake) -> None:
        self._turns.discard(handshake)
        self._unwatch(handshake)
        if handshake.timer is not None:
            handshake.timer.cancel()

    async def stop(self) -> None:
        """End those under way."""
        self._stopped = self._loop.create_future()
        for handshake in self._turns.all:
            self._fail(handshake, "the server stops")
        if self._is_working:
            await self._stopped
        self._thread.end()


def _reason(error: BaseException) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
