"""Many lines to one broker, each with a proxy of its own, so that every fault of the table may last
at the same time.

A broker has a listener for each line, advertised through that line's proxy: a client that starts on
a line stays on it. A link a line (or a line at each of its ends), with a mirror and a topic; loads
and checkers go past the proxies.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.support.clients.steady_batches import LARGE, SteadyBatches
from tests.support.pairs.link_faults import LINE_FAULTS, LineFault, strike
from tests.support.processes.ports import LOOPBACK, free_ports
from tests.support.processes.toxiproxy import Proxy, Toxiproxy

PAIRS_IN_TURN = 4
"""Pairs of faults that one link has one after the other."""

QUICK = {"request.timeout.ms": "2000", "max.partition.fetch.bytes": "30000"}
"""Of a mirror under short faults, which its requests are not to outlast."""

LARGE_FRAMES = {"request.timeout.ms": "2000"}
"""The same, with fetches and appends as large as they are by default: of what came during a fault,
up to a megabyte a partition.
"""

LINE = {
    "max.partition.fetch.bytes": "30000",
    "queue.byte.size": "1048576",
    "topics.refresh.interval.ms": "5000",
    "group.sync.interval.ms": "5000",
    "config.sync.interval.ms": "5000",
    "emit.checkpoints.interval.ms": "5000",
    # One topic of a cluster: each of so many links would carry the heartbeats of all, in batches of
    # one record.
    "emit.heartbeats.enabled": "false",
}
"""Of a mirror under long ones: time limits are the defaults, and the queue fills while the target
is away, as in most outages.
"""

LARGE_FRAMES_OF_LINE = {
    key: value for key, value in LINE.items() if key not in ("max.partition.fetch.bytes", "queue.byte.size")
}
"""The same, with fetches, appends and a queue as large as they are by default."""


def with_lines(
    properties: Mapping[str, str], toxiproxy: Toxiproxy, name: str, count: int
) -> tuple[dict[str, str], list[Proxy]]:
    """A broker's properties with so many listeners more, and the proxies by which they are
    advertised.
    """
    found = dict(properties)
    proxies = []
    for number, port in enumerate(free_ports(count)):
        address = f"{LOOPBACK}:{port}"
        proxy = toxiproxy.create(f"{name}-line-{number}", address)
        proxies.append(proxy)
        found["listeners"] += f",LINE{number}://{address}"
        found["advertised.listeners"] += f",LINE{number}://{proxy.address}"
        found["listener.security.protocol.map"] += f",LINE{number}:PLAINTEXT"
    return found, proxies


@dataclass(frozen=True, slots=True)
class StruckLink:
    """A link's lines, and the fault that each of them has at the same time."""

    lines: tuple[tuple[LineFault, Proxy], ...]

    def __str__(self) -> str:
        return ", and beyond the mirror ".join(str(fault) for fault, _ in self.lines)

    @property
    def stops_everything(self) -> bool:
        """True if nothing can be mirrored during the fault."""
        return any(fault.stops_everything for fault, _ in self.lines)

    @property
    def is_narrow(self) -> bool:
        """True if a load may exceed the bandwidth of a line."""
        return any(fault.attributes.get("rate") for fault, _ in self.lines)

    async def strike(self, lasting_s: float) -> None:
        """Let each line have its fault for so long; all are well again when this returns."""
        await asyncio.gather(*(strike(line, fault, lasting_s) for fault, line in self.lines))


def struck_at_one_end(lines: Sequence[Proxy], faults: Sequence[LineFault] = LINE_FAULTS) -> list[StruckLink]:
    """A link for each fault of the table."""
    return [StruckLink(((fault, line),)) for fault, line in zip(faults, lines, strict=True)]


def struck_at_both_ends(
    chance: random.Random,
    source: Sequence[Proxy],
    target: Sequence[Proxy],
    faults: Sequence[LineFault] = LINE_FAULTS,
) -> list[StruckLink]:
    """A link for each pair of faults: every fault of the table once at each end, half of them the
    same one at both.
    """
    there = list(faults)
    chance.shuffle(there)
    others = there[len(there) // 2 :]
    back = [*there[: len(there) // 2], *chance.sample(others, len(others))]
    pairs = zip(zip(there, source, strict=True), zip(back, target, strict=True), strict=True)
    return [StruckLink(pair) for pair in pairs]


def chance_of_run() -> random.Random:
    """The random choices of this run, by a seed that is printed and may be given."""
    seed = int(os.environ.get("ANTIPODE_SEED") or random.randrange(2**32))
    print(f"ANTIPODE_SEED={seed}")
    return random.Random(seed)


def links_in_turn(
    source: Proxy | None, target: Proxy | None, faults: Sequence[LineFault] = LINE_FAULTS
) -> list[StruckLink]:
    """One link under all faults at one end, in an order by chance, or under some pairs of them at
    both.
    """
    chance = chance_of_run()
    count = len(faults)
    if source is not None and target is not None:
        pairs = struck_at_both_ends(chance, [source] * count, [target] * count, faults)
        return chance.sample(pairs, min(PAIRS_IN_TURN, count))
    line = source or target
    assert line is not None
    return chance.sample(struck_at_one_end([line] * count, faults), count)


def links_at_once(source: Sequence[Proxy], target: Sequence[Proxy]) -> list[StruckLink]:
    """A link for each fault, or for each pair of them, over the lines of one end or of both."""
    if source and target:
        return struck_at_both_ends(chance_of_run(), source, target)
    return struck_at_one_end(source or target)


def load_of(link: StruckLink, bootstrap: str, topic: str, partitions: int) -> SteadyBatches:
    """More than a line with little bandwidth takes, and little over the others; past all
    proxies.
    """
    return SteadyBatches(bootstrap, topic, partitions, batches_per_second=15 if link.is_narrow else 4)


def large_load_of(_: StruckLink, bootstrap: str, topic: str, partitions: int) -> SteadyBatches:
    """A load of batches of a megabyte: more than twice as many bytes as a line with little
    bandwidth carries.
    """
    return SteadyBatches(bootstrap, topic, partitions, record_bytes=LARGE["record_bytes"], batches_per_second=0.25)


async def strike_all(
    links: Sequence[StruckLink],
    lasting_s: float,
    *,
    mirrored: Callable[[int], Awaitable[object]],
    heal: Callable[[int], Awaitable[None]],
) -> None:
    """Every link has its faults for so long, all at once; then `heal` waits for each and checks.
    Prints the outcome of each one.

    For a fault that stops everything it checks that it does: the result of `mirrored` does not
    change in the second half of the fault.
    """

    turn = asyncio.Lock()

    async def stands_still(number: int, link: StruckLink) -> None:
        if link.stops_everything:
            begun_s = time.monotonic()
            await asyncio.sleep(lasting_s / 2)
            before = await mirrored(number)
            await asyncio.sleep(lasting_s / 3)
            after = await mirrored(number)
            is_over = time.monotonic() - begun_s > lasting_s  # on a busy machine; then nothing has been seen
            assert is_over or after == before, f"something passes the line in spite of {link}"

    async def one(number: int, link: StruckLink) -> None:
        await asyncio.gather(link.strike(lasting_s), stands_still(number, link))
        over_s = time.monotonic()
        try:
            async with turn:  # comparing is work, and twenty-five at a time would keep the mirrors from theirs
                await heal(number)
        except Exception as error:
            error.add_note(f"{link}, {lasting_s:g} s")
            print(f"FAILED {link}, {lasting_s:g} s: {error!r}"[:1000], flush=True)
            raise
        print(f"passed {link}, {lasting_s:g} s, well and equal {time.monotonic() - over_s:.1f} s later", flush=True)

    ends = await asyncio.gather(*(one(number, link) for number, link in enumerate(links)), return_exceptions=True)
    failures = [end for end in ends if isinstance(end, Exception)]
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(links)} links did not heal", failures)
