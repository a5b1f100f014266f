"""The offsets at which a group agreed at both sites: a daemon notes them, and its successor and the
opposite link read them.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from mirror.link.ports import Unreachable
from mirror.translate.notes import followed_notes
from mirror.translate.notes import group_notes as module
from mirror.translate.notes.core.group_notes import GroupNote, StoredGroups, note_record
from mirror.translate.notes.core.stored_map import StoredRecord
from mirror.translate.notes.group_notes import GROUPS_TOPIC_PREFIX, GroupNotes, OppositeGroupNotes
from tests.support.clock import ManualClock
from wire.protocol.ids import TopicPartition

KEY = TopicPartition("orders", 0)
OTHER = TopicPartition("bills", 1)
TOPIC = f"{GROUPS_TOPIC_PREFIX}a-b"


class Topic:
    """The link's topic."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records: list[StoredRecord] = []
        self.is_up = True
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        for reader in (module, followed_notes):
            monkeypatch.setattr(reader, "read_topic", self._read)
        monkeypatch.setattr(module.LinkTopic, "create", self._create)
        monkeypatch.setattr(module.LinkTopic, "save", self._save)

    def notes(self) -> GroupNotes:
        """The notes of a daemon that has just started."""
        client: Any = None
        return GroupNotes(client, "a-b", source_alias="a", replication_factor=1, clock=ManualClock())

    async def _create(self) -> None:
        pass

    async def _save(self, groups: Any, *, now_ms: int) -> None:
        await self.may_answer.wait()
        if not self.is_up:
            raise Unreachable("the target is down")
        self.records += [record for group in groups for record in group]

    async def _read(self, client: object, topic: str, take: Any, *, first_offset: int = 0) -> int:
        assert topic == TOPIC
        end = len(self.records)
        await self.may_answer.wait()
        for key, value in self.records[first_offset:end]:
            take(key, value)
        return end


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    return Topic(monkeypatch)


def test_the_last_note_of_a_group_counts_and_null_takes_it_away() -> None:
    stored = StoredGroups()
    notes = [GroupNote("a", 10, 7), GroupNote("a", 12, 9)]
    for note in notes:
        stored.apply(*note_record("billing", KEY, note))
    stored.apply(*note_record("live", KEY, notes[0]))
    assert stored.notes == {("billing", KEY): notes[1], ("live", KEY): notes[0]}
    stored.apply(*note_record("billing", KEY, None))
    assert stored.notes == {("live", KEY): notes[0]}


@pytest.mark.parametrize("is_read_first", [False, True])
async def test_notes_that_are_saved_while_those_of_other_daemons_are_read_stay(
    topic: Topic, is_read_first: bool
) -> None:
    notes = topic.notes()
    await notes.load()
    notes.note("billing", KEY, source_offset=5, target_offset=5)
    await notes.save()
    notes.note("billing", KEY, source_offset=9, target_offset=8)
    topic.may_answer.clear()
    calls = [notes.load, notes.save] if is_read_first else [notes.save, notes.load]
    under_way = []
    for call in calls:
        under_way.append(asyncio.create_task(call()))
        await asyncio.sleep(0)
    topic.may_answer.set()
    await asyncio.gather(*under_way)
    assert notes.of("billing", KEY) == GroupNote("a", 9, 8)
    assert topic.records[-1] == note_record("billing", KEY, GroupNote("a", 9, 8))


async def test_the_next_daemon_finds_all_notes_and_only_changes_are_written(topic: Topic) -> None:
    notes = topic.notes()
    await notes.load()
    notes.note("billing", KEY, source_offset=10, target_offset=7)
    notes.note("billing", OTHER, source_offset=3, target_offset=3)
    topic.is_up = False
    with pytest.raises(Unreachable):
        await notes.save()
    topic.is_up = True
    await notes.save()
    notes.note("billing", KEY, source_offset=10, target_offset=7)
    await notes.save()
    assert len(topic.records) == 2
    notes.forget_topic("bills")
    await notes.save()
    successor = topic.notes()
    await successor.load()
    assert successor.of("billing", KEY) == GroupNote("a", 10, 7)
    assert successor.of("billing", OTHER) is None


async def test_notes_of_another_daemon_of_the_link_are_taken_and_unsaved_notes_stay(topic: Topic) -> None:
    mine, others = topic.notes(), topic.notes()
    others.note("billing", KEY, source_offset=5, target_offset=5)
    others.note("live", KEY, source_offset=5, target_offset=5)
    await others.save()
    mine.note("billing", KEY, source_offset=6, target_offset=6)
    await mine.load()
    assert (mine.of("billing", KEY), mine.of("live", KEY)) == (GroupNote("a", 6, 6), GroupNote("a", 5, 5))


async def test_unsaved_changes_survive_a_read_of_the_topic(topic: Topic) -> None:
    mine = topic.notes()
    mine.note("gone", KEY, source_offset=5, target_offset=5)
    await mine.save()
    mine.forget("gone", KEY)
    mine.note("first", KEY, source_offset=6, target_offset=6)
    await mine.load()
    assert (mine.of("gone", KEY), mine.of("first", KEY)) == (None, GroupNote("a", 6, 6))
    await mine.save()
    successor = topic.notes()
    await successor.load()
    assert (successor.of("gone", KEY), successor.of("first", KEY)) == (None, GroupNote("a", 6, 6))


@pytest.mark.parametrize(("alias", "offset", "expected"), [("a", 7, True), ("a", 8, False), ("c", 7, False)])
async def test_an_offset_is_from_the_target_as_long_as_it_is_what_the_link_from_there_noted(
    topic: Topic, alias: str, offset: int, *, expected: bool
) -> None:
    """Seen from the link b -> a."""
    notes = topic.notes()
    notes.note("billing", KEY, source_offset=10, target_offset=7)
    await notes.save()
    client: Any = None
    opposite = OppositeGroupNotes(client, target_alias=alias, clock=ManualClock())
    await opposite.refresh({"orders": UUID(int=1), TOPIC: UUID(int=2)})
    assert opposite.is_from_target("billing", KEY, offset) is expected
    assert not opposite.is_from_target("live", KEY, offset)
