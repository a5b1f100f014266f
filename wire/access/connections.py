"""Counts the connections to an encrypted port of the control plane, and logs those that make no
call: callers whose certificate the port does not accept, callers without TLS, and scans of ports.

gRPC shows failed handshakes in its own log alone, as a line of C++ for each. `runtime/__init__.py`
turns these lines off, because a storm of wrong callers would fill the log with them. Here the whole
storm is one line in `WINDOW_MS`.

Callers: credentials.py, guard.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily

from runtime.clock import Clock
from runtime.logs import get_logger

log = get_logger(__name__)

WINDOW_MS: Final = 60_000
"""The least time (ms) between two lines."""
WITHOUT_CALL_MIN: Final = 10
"""Fewer connections without a call in `WINDOW_MS` are normal: health checks of load balancers, and
channels that are opened for later.
"""
CALLERS_KEPT: Final = 4096


class ControlConnections:
    """The connections to one port. Threads of gRPC and the event loop call it."""

    def __init__(self, clock: Clock) -> None:
        self.begun_count = 0
        """Connections, counted before their TLS handshake."""
        self.calling_count = 0
        """Connections that have made a call."""
        self._clock = clock
        self._callers: dict[str, None] = {}
        self._window = threading.Lock()
        self._window_ends_ms = clock.monotonic_ms() + WINDOW_MS
        self._counts_before = (0, 0)

    def begin(self) -> None:
        """A connection begins its handshake."""
        self.begun_count += 1
        self._look()

    def note_call(self, caller: str) -> None:
        """The connection from this address and port makes a call."""
        if caller not in self._callers:
            self.calling_count += 1
            self._callers[caller] = None
            if len(self._callers) > CALLERS_KEPT:
                del self._callers[next(iter(self._callers))]
        self._look()

    def _look(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._window_ends_ms:
            return
        with self._window:
            if now_ms < self._window_ends_ms:
                return  # another thread has ended this window
            self._window_ends_ms = now_ms + WINDOW_MS
            counts, before = (self.begun_count, self.calling_count), self._counts_before
            self._counts_before = counts
        connections = counts[0] - before[0]
        without_call = connections - (counts[1] - before[1])
        if without_call >= WITHOUT_CALL_MIN:
            log.warning(
                "connections to the control plane made no call: their certificates are not accepted, they speak no TLS, "
                "or a program scans ports",
                connections=connections,
                without_call=without_call,
            )

    def families(self) -> Iterator[CounterMetricFamily]:
        """Both counts."""
        yield CounterMetricFamily(
            "antipode_control_connections",
            "Connections to the encrypted port of the control plane, counted before their TLS handshake",
            value=self.begun_count,
        )
        yield CounterMetricFamily(
            "antipode_control_calling_connections",
            "Connections to the encrypted port of the control plane that made a call; the others failed in their "
            "handshake, or had nothing to ask",
            value=self.calling_count,
        )
