"""Many lines to one broker, each with a proxy of its own, so that every fault of the table may last at the same time.

A broker has a listener for each line, advertised through that line's proxy: a client that starts on a line stays on it. A link a line, each
with a mirror and a topic; loads and checkers go past the proxies.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from tests.support.link_faults import LineFault, strike
from tests.support.ports import LOOPBACK, free_ports
from tests.support.toxiproxy import Proxy, Toxiproxy


def with_lines(
    properties: Mapping[str, str], toxiproxy: Toxiproxy, name: str, count: int
) -> tuple[dict[str, str], list[Proxy]]:
    """A broker's properties with so many listeners more, and the proxies by which they are advertised."""
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


async def strike_all(
    lines: Sequence[tuple[LineFault, Proxy]],
    lasting_s: float,
    *,
    mirrored: Callable[[int], Awaitable[object]],
    heal: Callable[[int], Awaitable[None]],
) -> None:
    """Every line has its fault for so long, all at once; then `heal` waits for each and checks. Says what became of each one.

    A fault that stops everything must be seen to: what has been `mirrored` stands still in the second half of it.
    """

    turn = asyncio.Lock()

    async def stands_still(number: int, fault: LineFault) -> None:
        if fault.stops_everything:
            await asyncio.sleep(lasting_s / 2)
            before = await mirrored(number)
            await asyncio.sleep(lasting_s / 3)
            assert await mirrored(number) == before, f"something passes the line in spite of {fault}"

    async def one(number: int, fault: LineFault, line: Proxy) -> None:
        await asyncio.gather(strike(line, fault, lasting_s), stands_still(number, fault))
        over_s = time.monotonic()
        try:
            async with turn:  # comparing is work, and twenty-five at a time would keep the mirrors from theirs
                await heal(number)
        except Exception as error:
            error.add_note(f"{fault}, {lasting_s:g} s")
            print(f"FAILED {fault}, {lasting_s:g} s: {error!r}"[:1000], flush=True)
            raise
        print(f"passed {fault}, {lasting_s:g} s, well and equal {time.monotonic() - over_s:.1f} s later", flush=True)

    ends = await asyncio.gather(
        *(one(number, fault, line) for number, (fault, line) in enumerate(lines)), return_exceptions=True
    )
    failures = [end for end in ends if isinstance(end, Exception)]
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(lines)} lines did not heal", failures)
