"""One offset of a translate link at its other end, by the notes that the link has stored."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from mirror.translate.core.offset_map import OffsetMap
from mirror.translate.core.translation import Position, Translation
from mirror.translate.notes.core.stored_map import Binding, StoredLink, partition_records, topic_record
from mirror.translate.offset_translator import OffsetTranslator, SourceNotes
from mirror.translate.opposite_links import UnknownPlace
from runtime.process import OperationalFailure
from wire.protocol.ids import TopicPartition

SOURCE, TARGET = "orders", "a.orders"


@pytest.fixture
def translator() -> OffsetTranslator:
    """Source offsets 5 to 8 are 0 to 3 of the target, and 10 to 11 (behind a marker) 4 and 5."""
    return OffsetTranslator("a-b", stored_link())


def stored_link() -> StoredLink:
    stored = StoredLink()
    binding = topic_record(Binding(topic=SOURCE, source_id=UUID(int=1), target=TARGET, target_id=UUID(int=2)))
    offset_map = OffsetMap()
    offset_map.append(5, 0, 4)
    offset_map.append(10, 4, 2)
    at = Position(source_next=13, target_next=6)
    records = partition_records(TopicPartition(SOURCE, 0), Translation(at, offset_map), chunks=[0])
    for record in (binding, *records):
        stored.apply(*record)
    return stored


@pytest.mark.parametrize(
    ("source", "target", "is_known"),
    [(0, 0, True), (5, 0, True), (8, 3, True), (9, 4, True), (11, 5, True), (12, 6, False)],
)
def test_an_offset_of_the_source_is_that_of_the_next_record_at_the_target(
    translator: OffsetTranslator, source: int, target: int, *, is_known: bool
) -> None:
    found = translator.downstream(SOURCE, 0, source)
    assert (found.topic, found.partition, found.offset, found.is_known) == (TARGET, 0, target, is_known)


@pytest.mark.parametrize(("target", "source", "is_known"), [(0, 5, True), (3, 8, True), (4, 10, True), (6, 13, False)])
def test_an_offset_of_the_target_is_that_of_the_same_record_at_the_source(
    translator: OffsetTranslator, target: int, source: int, *, is_known: bool
) -> None:
    found = translator.upstream(TARGET, 0, target)
    assert (found.topic, found.partition, found.offset, found.is_known) == (SOURCE, 0, source, is_known)


def test_a_topic_that_the_link_does_not_carry_is_named(translator: OffsetTranslator) -> None:
    with pytest.raises(OperationalFailure, match=r"carries no topic 'a\.orders'; there: orders"):
        translator.downstream(TARGET, 0, 1)
    with pytest.raises(OperationalFailure, match=r"carries no topic 'orders'; there: a\.orders"):
        translator.upstream(SOURCE, 0, 1)
    with pytest.raises(OperationalFailure, match="stored no offsets of orders-1 yet"):
        translator.downstream(SOURCE, 1, 1)


class Opposite:
    """The opposite link: offsets 6 to 8 of the target are 13 to 15 of the source."""

    def __init__(self, error: UnknownPlace | None = None) -> None:
        self._error = error

    def of(self, key: TopicPartition, binding: Binding) -> Translation:
        assert (key.topic, binding.target) == (SOURCE, TARGET)
        if self._error is not None:
            raise self._error
        offset_map = OffsetMap()
        offset_map.append(6, 13, 3)
        return Translation(Position(source_next=9, target_next=16), offset_map)


def both_ways(source_end: int, error: UnknownPlace | None = None) -> OffsetTranslator:
    opposite: Any = Opposite(error)
    ends = {TopicPartition(SOURCE, 0): source_end}
    return OffsetTranslator("a-b", stored_link(), SourceNotes(opposite=opposite, ends=ends))


def test_records_that_the_opposite_link_has_brought_count_where_the_source_was_asked() -> None:
    found = both_ways(13).downstream(SOURCE, 0, 14)
    assert (found.offset, found.is_known, found.opposite) == (7, True, "counted")
    found = both_ways(13).upstream(TARGET, 0, 7)
    assert (found.offset, found.is_known, found.opposite) == (13, True, "counted")


def test_where_the_link_s_notes_do_not_reach_the_source_s_end_the_answer_stays_within_them() -> None:
    """Between the notes and the end there may be records that the link carried since, before those
    of the opposite link.
    """
    found = both_ways(16).downstream(SOURCE, 0, 14)
    assert (found.offset, found.is_known) == (6, False)
    found = both_ways(16).downstream(SOURCE, 0, 10)
    assert (found.offset, found.is_known) == (4, True)


def test_an_answer_without_the_source_says_that_it_is_of_this_link_alone(translator: OffsetTranslator) -> None:
    assert translator.downstream(SOURCE, 0, 5).opposite == translator.upstream(TARGET, 0, 1).opposite == "not asked"


def test_records_that_came_round_by_another_site_have_no_answer() -> None:
    with pytest.raises(
        OperationalFailure, match="records of b came through another site: the link has not stored their offsets"
    ):
        both_ways(13, UnknownPlace("records of b came through another site")).downstream(SOURCE, 0, 5)
