"""The opposite link of a topic, from the notes of links at the source."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from mirror.translate.core.translation import Translation
from mirror.translate.notes import followed_notes
from mirror.translate.notes.core.stored_map import (
    Binding,
    StoredRecord,
    partition_records,
    producer_record,
    topic_record,
)
from mirror.translate.notes.followed_notes import READ_AGAIN_MS
from mirror.translate.opposite_links import OppositeLinks, UnknownPlace
from tests.support.clock import ManualClock
from wire.protocol.ids import TopicPartition

KEY = TopicPartition("orders", 0)
HERE, THERE, ELSEWHERE = UUID(int=1), UUID(int=2), UUID(int=3)
BINDING = Binding(topic="orders", source_id=HERE, target="orders", target_id=THERE)
"""Of our link, from here to there."""


class Notes:
    """Topics of notes at our source."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.written: dict[str, list[StoredRecord]] = {}
        self._clock = ManualClock()
        client: Any = None
        self.links = OppositeLinks(client, is_target="there".__eq__, clock=self._clock)
        monkeypatch.setattr(followed_notes, "read_topic", self._read)

    async def _read(self, client: object, topic: str, take: Any, *, first_offset: int = 0) -> int:
        for key, value in self.written[topic][first_offset:]:
            take(key, value)
        return len(self.written[topic])

    def note(self, link: str, *, origin: str, source_id: UUID, mirrored: int) -> None:
        """Notes that the link has written this many records of that origin into our topic."""
        binding = Binding(topic="orders", source_id=source_id, target="orders", target_id=HERE)
        translation = Translation()
        translation.map.append(0, 100, mirrored)
        translation.position.source_next, translation.position.target_next = mirrored, 100 + mirrored
        records = [producer_record(origin, 7), topic_record(binding), *partition_records(KEY, translation, chunks=[0])]
        self.written.setdefault(f"antipode-offset-map.{link}", []).extend(records)

    async def opposite(self) -> Translation | None:
        """The opposite link's translation, after a look."""
        self._clock.advance(READ_AGAIN_MS)
        await self.links.refresh({"orders": HERE, **dict.fromkeys(self.written, ELSEWHERE)})
        return self.links.of(KEY, BINDING)


async def test_the_link_between_the_same_two_topics_is_the_opposite_one_and_is_read_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes = Notes(monkeypatch)
    assert await notes.opposite() is None
    notes.note("elsewhere-here", origin="elsewhere", source_id=ELSEWHERE, mirrored=5)
    assert await notes.opposite() is None
    notes.note("there-here", origin="there", source_id=THERE, mirrored=10)
    found = await notes.opposite()
    assert found is not None
    assert found.upstream(103) == 3
    notes.note("there-here", origin="there", source_id=THERE, mirrored=20)
    found = await notes.opposite()
    assert found is not None
    assert found.position.source_next == 20


async def test_records_that_came_by_way_of_a_third_site_are_at_no_known_place(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes(monkeypatch)
    notes.note("elsewhere-here", origin="there", source_id=ELSEWHERE, mirrored=5)
    with pytest.raises(UnknownPlace, match="through another site"):
        await notes.opposite()
