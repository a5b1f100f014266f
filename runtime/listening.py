"""Is anything still listening there? A connection that breaks, and is refused when it is made
again, says no within milliseconds.

A killed process closes its connections at once, long before its ZooKeeper session ends. Only a
refusal counts, and only when it is repeated: silence, a reset or a timeout may be the network, and
is left to the session. A refusal may still be wrong (a restart, a firewall that rejects), so a part
that acts on it is protected by epochs, and accepts the broker again when it answers.
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
    """Return when nothing listens at `host:port` any more; stays for ever when the address cannot
    be understood.

    `on_suspicion(True)` is called when a connection that stood has ended, `on_suspicion(False)`
    once another one stands.
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
        except (OSError, UnicodeError):  # the latter for a name that no host can have: no refusal either
            is_brief = True
        # A dying process may close its connections before its listener, which still takes one more:
        # look again soon. When that goes on, something else accepts and closes, such as a proxy
        # before a dead process.
        refusals, puzzles = 0, puzzles + 1 if is_brief else 0
        if puzzles:
            await asyncio.sleep(min(CONFIRMATION_PAUSE_S * 2 ** min(puzzles, 10), UNKNOWN_PAUSE_S))


async def _stay_connected(place: HostPort, on_suspicion: SuspicionListener) -> float:
    """Connect and read until the other side ends the connection, which is never written to; how
    long it stood, in seconds.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        reader, writer = await asyncio.open_connection(*place)
    on_suspicion(False)
    connected_at_s = loop.time()
    try:
        # a reset is as good as an end: whether something listens is found out by connecting again
        with suppress(ConnectionResetError):
            while await reader.read(READ_BYTES):
                pass
    finally:
        on_suspicion(True)
        writer.close()
    return loop.time() - connected_at_s
