"""The last rehearsal of a link belongs to that link, and not to a later one of the same name."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from dr.agent.links_store import LinksStore
from dr.agent.rehearsals import INTERVAL_MS, Rehearsals
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2 import LinkRehearsal
from wire.znodes.layout import link_path
from wire.znodes.link_znodes import encode, encode_link, rehearsal_path

FORMER, LATER = (
    LinkRecord(name="a-b", source_site="a", target_site="b", active_site="a", epoch=1, made_at_ms=made_at_ms)
    for made_at_ms in (1_000, 2_000)
)
PASSED = LinkRehearsal(site="a", ended_at_ms=500, is_passed=True)


class Znodes:
    """The znodes of one link."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.reads = 0

    async def get_or_none(self, path: str) -> tuple[bytes, Any] | None:
        self.reads += 1
        found = self.kept.get(path)
        return None if found is None else (found, SimpleNamespace(version=0))

    async def set(self, path: str, value: bytes) -> None:
        self.kept[path] = value


class Cache:
    """The links of the site."""

    def __init__(self) -> None:
        self.facts = SimpleNamespace(links=dict[str, LinkRecord]())
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def show(self, *links: LinkRecord) -> None:
        self.facts.links = {link.name: link for link in links}
        for listener in self._listeners:
            listener()


def site_with(link: LinkRecord, *, rehearsal: LinkRehearsal | None) -> tuple[Znodes, Cache, Rehearsals]:
    znodes: Any = Znodes()
    cache: Any = Cache()
    znodes.kept[link_path(link.name)] = encode_link(link)
    if rehearsal is not None:
        znodes.kept[rehearsal_path(link.name)] = encode(rehearsal)
    cache.show(link)
    return znodes, cache, Rehearsals(cache=cache, store=LinksStore(znodes), clock=ManualClock())


async def test_a_link_that_is_made_again_has_no_rehearsal_although_the_former_link_had_one() -> None:
    znodes, cache, rehearsals = site_with(FORMER, rehearsal=PASSED)
    rehearsals.start()
    try:
        await eventually(lambda: rehearsals.last(FORMER) == PASSED)
        assert rehearsals.last(LATER) is None
        del znodes.kept[rehearsal_path("a-b")]
        cache.show(LATER)
        # the clock stands still: no regular look is due
        await eventually(lambda: not rehearsals.states())
        assert rehearsals.last(LATER) is None
    finally:
        await rehearsals.stop()


async def test_the_rehearsal_of_a_deleted_link_is_forgotten_at_once() -> None:
    _, cache, rehearsals = site_with(FORMER, rehearsal=PASSED)
    rehearsals.start()
    try:
        await eventually(lambda: list(rehearsals.states()) == ["a-b"])
        cache.show()
        await eventually(lambda: not rehearsals.states())
    finally:
        await rehearsals.stop()


async def test_a_rehearsal_that_this_agent_stores_is_the_last_one_of_its_link() -> None:
    znodes, _, rehearsals = site_with(LATER, rehearsal=PASSED)
    failed = LinkRehearsal(site="a", ended_at_ms=900, is_passed=False)
    await rehearsals.keep("a-b", failed)
    assert (rehearsals.last(LATER), rehearsals.last(FORMER)) == (failed, None)
    assert znodes.kept[rehearsal_path("a-b")] == encode(failed)


async def test_a_rehearsal_that_another_agent_stores_is_read_after_the_interval() -> None:
    znodes, cache, rehearsals = site_with(FORMER, rehearsal=None)
    clock: ManualClock = rehearsals._clock  # type: ignore[assignment]
    rehearsals.start()
    try:
        await eventually(lambda: znodes.reads == 1)
        znodes.kept[rehearsal_path("a-b")] = encode(PASSED)
        clock.advance(INTERVAL_MS)
        cache.show(FORMER)
        await eventually(lambda: rehearsals.last(FORMER) == PASSED)
    finally:
        await rehearsals.stop()
