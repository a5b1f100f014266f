"""Pauses between the rounds of a mirror's task: a change of the link's role ends them, or an event
for which the task waits.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.flow.followed_link import FollowedLink
from mirror.link.known_link import KnownLink
from mirror.link.link_watch import LinkMissing, LinkView, stand
from mirror.link.round_pauses import pause_between_rounds, pause_until
from wire.client.client_errors import UnsupportedApi
from wire.control.cluster_pb2 import LinkPhase, LinkRecord

AN_HOUR_MS = 3_600_000
LIMIT_S = 60.0
"""How long a test waits for the end of a pause, which would last an hour by itself."""


def view(*, epoch: int = 1, active: str = "a", phase: LinkPhase = LinkPhase.MIRRORING) -> LinkView:
    record = LinkRecord(name="a-b", source_site="a", target_site="b", active_site=active, epoch=epoch, phase=phase)
    return stand(record, "b")


async def begun(link: KnownLink) -> asyncio.Task[None]:
    """A pause of an hour that has begun."""
    pause = asyncio.create_task(pause_between_rounds(link, AN_HOUR_MS))
    await asyncio.sleep(0)
    return pause


async def ended(pause: asyncio.Task[None]) -> None:
    async with asyncio.timeout(LIMIT_S):
        await pause


@pytest.mark.parametrize(
    "found",
    [view(phase=LinkPhase.FENCED), view(epoch=2, active="b")],
    ids=["the source is fenced", "the site is active"],
)
async def test_a_change_of_role_ends_the_pauses_of_all_tasks(found: LinkView) -> None:
    link = KnownLink(view())
    pauses = [await begun(link), await begun(link)]
    link.update(found)
    for pause in pauses:
        await ended(pause)


async def test_another_record_with_the_same_role_ends_no_pause() -> None:
    link = KnownLink(view())
    pause = await begun(link)
    link.update(view(epoch=2))
    for _ in range(10):
        await asyncio.sleep(0)  # lets every other task finish
    assert not pause.done()
    pause.cancel()


async def test_a_change_ends_only_the_pauses_that_had_begun_before_it() -> None:
    link = KnownLink(view(phase=LinkPhase.FENCED))
    link.update(view())
    pause = await begun(link)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not pause.done()
    link.update(view(epoch=2, active="b"))
    await ended(pause)


async def test_a_pause_under_a_fence_is_short() -> None:
    await ended(await begun(KnownLink(view(phase=LinkPhase.FENCED))))


async def test_a_link_that_is_read_with_another_role_or_is_gone_ends_the_pauses() -> None:
    link = KnownLink(view())
    board: Any = SimpleNamespace(
        rows=list, restless_rows=list, promoted_rows=list, rows_to_turn=lambda _: [], lines_together=nullcontext
    )
    found: asyncio.Queue[LinkView | LinkMissing] = asyncio.Queue()

    async def read() -> LinkView:
        result = await found.get()
        if isinstance(result, LinkMissing):
            raise result
        return result

    def unmoved(_: object) -> None:
        raise AssertionError("the link has the same source")

    following = FollowedLink(board, link, read=read, interval_ms=1, on_turned=lambda: None, on_moved=unmoved)
    reading = asyncio.create_task(following.run())
    pause = await begun(link)
    found.put_nowait(view(epoch=2, active="b"))
    await ended(pause)
    pause = await begun(link)
    found.put_nowait(LinkMissing("site b has no link 'a-b'"))
    await ended(pause)
    reading.cancel()


async def an_event() -> None:
    """An event that is there at once."""


async def a_refusal() -> None:
    raise UnsupportedApi("the broker does not offer it")


async def test_an_event_ends_the_pause() -> None:
    await ended(asyncio.create_task(pause_until(an_event(), KnownLink(view()), AN_HOUR_MS)))


async def test_a_change_of_role_ends_the_wait_for_an_event() -> None:
    link, is_ended = KnownLink(view()), asyncio.Event()

    async def event() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            is_ended.set()

    pause = asyncio.create_task(pause_until(event(), link, AN_HOUR_MS))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not pause.done()
    link.update(view(epoch=2, active="b"))
    await ended(pause)
    async with asyncio.timeout(LIMIT_S):
        await is_ended.wait()


async def test_where_no_event_can_be_awaited_the_pause_lasts_for_its_interval() -> None:
    link = KnownLink(view())
    await ended(asyncio.create_task(pause_until(a_refusal(), link, 1)))
    pause = asyncio.create_task(pause_until(a_refusal(), link, AN_HOUR_MS))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not pause.done()
    link.update(view(epoch=2, active="b"))
    await ended(pause)
