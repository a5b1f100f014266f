"""The faults of a network line between two sites, as toxiproxy injects them: a table, one way and
both ways, and how long it lasts.

A fault that lasts longer than its time because its removal failed would spoil every later one:
`strike` removes it whatever happens, and looks whether bytes pass again only through what the test
itself checks afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.support.processes.toxiproxy import Proxy

BOTH_WAYS = ("upstream", "downstream")

SHORT_S = 0.8
OUTLASTING_REQUESTS_S = 4.0
LONG_S = 43.0
"""As long as the partition between two coasts that made a large site's two databases diverge."""
LONGER_S = (150.0, 660.0)
"""Longer than what has a time limit in the path by default: requests, transactions, deliveries,
fetch sessions and copies of metadata; and longer than ten minutes, after which brokers end
connections that are idle and Apache Kafka looks which producers it forgets.
"""
FLAPPING_S = 130.0
"""Down seven times and up six times, for ten seconds each."""
HEALED_WITHIN_MS = 120_000
HEALED_AT_ONCE_WITHIN_MS = 240_000
"""All lines heal at the same moment."""


@dataclass(frozen=True, slots=True)
class LineFault:
    """Toxics on some of a proxy's streams, or the line cut (no toxic), once or again and again."""

    name: str
    toxic: str = ""
    streams: Sequence[str] = BOTH_WAYS
    attributes: Mapping[str, int] = field(default_factory=dict)
    strikes: int = 1

    def __str__(self) -> str:
        return self.name

    @property
    def stops_everything(self) -> bool:
        """True if nothing can be mirrored over the line during the fault."""
        lets_nothing_through = not self.toxic or self.toxic == "timeout" or self.attributes.get("rate") == 0
        return lets_nothing_through and self.strikes == 1


def _each_way(name: str, toxic: str, **attributes: int) -> list[LineFault]:
    return [
        LineFault(f"{name}, {way}", toxic, streams, attributes)
        for way, streams in (("there", ("upstream",)), ("back", ("downstream",)), ("both ways", BOTH_WAYS))
    ]


LINE_FAULTS: tuple[LineFault, ...] = (
    *_each_way("a black hole", "timeout", timeout=0),
    *_each_way("no bandwidth", "bandwidth", rate=0),
    *_each_way("little bandwidth", "bandwidth", rate=100),
    *_each_way("latency of 200 ms", "latency", latency=200, jitter=100),
    *_each_way("tiny packets", "slicer", average_size=600, size_variation=300, delay=100),
    *_each_way("breaking off within a batch", "limit_data", bytes=60_000),
    *_each_way("resets", "reset_peer", timeout=50),
    LineFault("latency of a second", "latency", BOTH_WAYS, {"latency": 1000, "jitter": 300}),
    LineFault("slow to close", "slow_close", BOTH_WAYS, {"delay": 1000}),
    LineFault("a cut line"),
    LineFault("a flapping line", strikes=4),
)
"""The table of faults; upstream is towards the broker."""

FLAPPING_LINES: tuple[LineFault, ...] = (
    LineFault("a line that is cut again and again", strikes=7),
    LineFault("a black hole again and again", "timeout", BOTH_WAYS, {"timeout": 0}, strikes=7),
    LineFault("no bandwidth again and again", "bandwidth", BOTH_WAYS, {"rate": 0}, strikes=7),
)
"""Phases in which the line is up for long enough to make progress; at the end of each, connections
close or only hang.
"""


async def strike(proxy: Proxy, fault: LineFault, lasting_s: float) -> None:
    """Let the line have the fault for so long; a flapping one is down and up in turns within that
    time.
    """
    each_s = lasting_s / (2 * fault.strikes - 1)
    for number in range(fault.strikes):
        if number:
            await _last(each_s)
        await _strike_once(proxy, fault, each_s)


async def _strike_once(proxy: Proxy, fault: LineFault, lasting_s: float) -> None:
    if not fault.toxic:
        await asyncio.to_thread(proxy.cut)
        try:
            await _last(lasting_s)
        finally:
            await asyncio.to_thread(proxy.restore)
        return
    names: list[str] = []
    try:
        for stream in fault.streams:
            names += [await asyncio.to_thread(_add, proxy, fault, stream)]
        await _last(lasting_s)
    finally:
        for name in names:
            await asyncio.to_thread(proxy.remove, name)


def _add(proxy: Proxy, fault: LineFault, stream: str) -> str:
    return proxy.add(fault.toxic, stream=stream, **fault.attributes)


async def _last(seconds: float) -> None:
    """Wait for the length of a fault. There is no condition to await."""
    await asyncio.sleep(seconds)
