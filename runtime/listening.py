"""Detects within milliseconds that a process has ended: its connection breaks, and a new connection
is refused.

A killed process closes its connections at once, long before its ZooKeeper session ends. Only
repeated refusals count. The network may cause silence, a reset or a timeout; then the end of the
session decides. A refusal may also be wrong (a restart, a firewall that rejects), so callers
protect their reaction by epochs, and accept the broker again when it answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from runtime.addresses import HostPort, parse_host_port

CONNECT_TIMEOUT_S = 1.0
REFUSALS_NEEDED = 2
CONFIRMATION_PAUSE_S = 0.005
UNKNOWN_PAUSE_S = 0.2
BRIEF_S = 0.05
READ_BYTES = 4096

SuspicionListener = Callable[[bool], None]


def _ignore(_: bool) -> None:
    """No part listens for suspected brokers."""


async def until_refused(address: str, *, on_suspicion: SuspicionListener = _ignore) -> None:
    """Return when `host:port` refuses connections; never returns if the address cannot be parsed.

    `on_suspicion(True)` is called when an established connection has ended, `on_suspicion(False)`
    when another one is established.
    """
    try:
        place = parse_host_port(address)
    except ValueError:
        await asyncio.Event().wait()
        return
    refusals = puzzles = 0
    while refusals < REFUSALS_NEEDED:
        try:
            is_brief = await _stay_connected(place, on_suspicion) < BRIEF_S
        except ConnectionRefusedError:
            refusals += 1
            await asyncio.sleep(CONFIRMATION_PAUSE_S)
            continue
        # UnicodeError: no host can have such a name, so this is not a refused connection either
        except (OSError, UnicodeError):
            is_brief = True
        # A dying process may close its connections before its listener, and accept one more:
        # connect again soon. If this continues, another program accepts and closes, such as a proxy
        # in front of a dead process, so the pauses grow.
        refusals, puzzles = 0, puzzles + 1 if is_brief else 0
        if puzzles:
            await asyncio.sleep(min(CONFIRMATION_PAUSE_S * 2 ** min(puzzles, 10), UNKNOWN_PAUSE_S))


async def _stay_connected(place: HostPort, on_suspicion: SuspicionListener) -> float:
    """Connect and read until the other side ends the connection; returns its duration in seconds.
    Nothing is written to it.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        reader, writer = await asyncio.open_connection(*place)
    on_suspicion(False)
    connected_at_s = loop.time()
    try:
        # a reset counts as an end of the connection: the next connection shows whether the process
        # lives
        with suppress(ConnectionResetError):
            while await reader.read(READ_BYTES):
                pass
    finally:
        on_suspicion(True)
        writer.close()
    return loop.time() - connected_at_s
