"""Daemons of a translate link that is not shared: one carries it, the others wait and take over,
after any interruption.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from typing import cast

import pytest

from mirror.link.ports import Unreachable
from mirror.sharing.ownership import OnGain, read_nothing
from mirror.sharing.process_places import is_gone, own_place
from mirror.translate import link_holder
from mirror.translate.link_holder import LinkHolder
from mirror.translate.notes.core.stored_map import StoredRecord
from mirror.translate.notes.offset_store import OffsetStore
from tests.support.clock import ManualClock
from wire.protocol.ids import TopicPartition
from wire.rules.sync_reports import ALL_SLOTS

SESSION_MS = 6_000
PARTITION = TopicPartition("orders", 0)


class Topic:
    """The link's topic at a target that may be cut off, before it takes a record or before it
    answers.
    """

    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes | None]] = []
        self.is_cut_off = False
        self.loses_answers = False

    async def create(self) -> None:
        await self._reach()

    async def values_of(self, key: bytes, *, first_offset: int) -> tuple[list[bytes | None], int]:
        await self._reach()
        return [value for found, value in self.records[first_offset:] if found == key], len(self.records)

    async def save(self, groups: Sequence[Sequence[StoredRecord]], *, now_ms: int) -> None:
        assert now_ms
        await self._reach()
        self.records += [record for group in groups for record in group]
        if self.loses_answers:
            raise Unreachable("no answer")

    async def _reach(self) -> None:
        await asyncio.sleep(0)
        if self.is_cut_off:
            raise Unreachable("the target does not answer")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places each daemon on a machine of its own."""
    monkeypatch.setattr(link_holder, "own_place", str)


def daemon(topic: Topic, clock: ManualClock, name: str, on_gain: OnGain = read_nothing) -> LinkHolder:
    store = cast("OffsetStore", topic)
    return LinkHolder(store, daemon=name, session_timeout_ms=SESSION_MS, clock=clock, on_gain=on_gain)


async def turn(*daemons: LinkHolder) -> None:
    """Gives each daemon a turn, and time to read the records of the others."""
    for one in daemons:
        await one.turn()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_the_second_daemon_waits_says_for_whom_and_takes_over_within_a_session_of_a_kill(
    topic: Topic, clock: ManualClock
) -> None:
    first, second = daemon(topic, clock, "one:9"), daemon(topic, clock, "two:9")
    for _ in range(5):
        await turn(first, second)
        assert first.ownership.slots == ALL_SLOTS
        assert not first.waiting_for
        assert not second.ownership.slots
        assert not second.carries(PARTITION)
        assert "daemon one:9 carries the link" in second.waiting_for
        clock.advance(SESSION_MS / 2)
    # From here on the first daemon is dead.
    clock.advance(SESSION_MS / 2)
    assert not first.ownership.slots
    await turn(second)
    assert second.ownership.slots == ALL_SLOTS
    assert not second.waiting_for


async def test_a_daemon_that_stops_in_order_is_followed_at_once(topic: Topic, clock: ManualClock) -> None:
    first, second = daemon(topic, clock, "one:9"), daemon(topic, clock, "two:9")
    await turn(first, second)
    await first.close()
    await turn(second)
    assert second.ownership.slots == ALL_SLOTS


async def test_daemons_that_begin_together_leave_the_link_to_one_of_them(topic: Topic, clock: ManualClock) -> None:
    daemons = [daemon(topic, clock, f"{number}:9") for number in range(3)]
    await asyncio.gather(*(one.turn() for one in daemons))
    await turn(*daemons)
    assert sum(one.ownership.slots == ALL_SLOTS for one in daemons) == 1
    assert sum(bool(one.waiting_for) for one in daemons) == 2


async def test_a_daemon_that_was_stopped_reads_again_what_its_successor_wrote(topic: Topic, clock: ManualClock) -> None:
    readings: list[str] = []

    async def read_again() -> None:
        readings.append("stopped")

    stopped, successor = daemon(topic, clock, "one:9", read_again), daemon(topic, clock, "two:9")
    await turn(stopped, successor)
    clock.advance(SESSION_MS)
    await turn(successor)
    assert not stopped.ownership.slots
    await turn(stopped)
    assert not stopped.carries(PARTITION)
    assert "daemon two:9" in stopped.waiting_for
    await successor.close()
    await turn(stopped)
    assert stopped.ownership.slots == ALL_SLOTS
    assert len(readings) == 2


async def test_a_daemon_that_is_cut_off_writes_nothing_after_a_session_and_keeps_what_it_has_fetched(
    topic: Topic, clock: ManualClock
) -> None:
    first = daemon(topic, clock, "one:9")
    await turn(first)
    topic.is_cut_off = True
    clock.advance(SESSION_MS)
    with pytest.raises(Unreachable):
        await first.turn()
    assert not first.ownership.slots
    assert first.carries(PARTITION)
    assert "does not carry the link yet" in first.outage
    topic.is_cut_off = False
    await turn(first)
    assert first.ownership.slots == ALL_SLOTS
    assert not first.outage


async def test_a_notice_that_was_written_without_an_answer_gives_no_second_daemon_the_link(
    topic: Topic, clock: ManualClock
) -> None:
    first, second = daemon(topic, clock, "one:9"), daemon(topic, clock, "two:9")
    topic.loses_answers = True
    with pytest.raises(Unreachable):
        await first.turn()
    topic.loses_answers = False
    assert not first.ownership.slots
    await turn(second)
    assert second.waiting_for
    await turn(first, second)
    assert first.ownership.slots == ALL_SLOTS
    assert not second.ownership.slots


async def test_a_process_that_ended_on_this_machine_is_followed_at_once(
    topic: Topic, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = "from mirror.sharing.process_places import own_place; print(own_place())"
    ended = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", command], check=True, capture_output=True, text=True
    )
    monkeypatch.setattr(link_holder, "own_place", ended.stdout.strip)
    killed = daemon(topic, clock, "one:9")
    monkeypatch.setattr(link_holder, "own_place", own_place)
    restarted = daemon(topic, clock, "one:9")
    await turn(killed, restarted)
    assert restarted.ownership.slots == ALL_SLOTS


def test_only_a_process_of_this_machine_that_has_ended_is_gone() -> None:
    own = own_place()
    machine, process, started = own.rsplit("/", 2)
    assert not is_gone(own)
    assert is_gone(f"{machine}/{process}/{int(started) - 1}")
    assert not is_gone(f"another-{machine}/{process}/{int(started) - 1}")
    assert not is_gone("")
