"""What a link's topic holds comes back as it was, by the last value of each key, whatever compaction left of it."""

from __future__ import annotations

from uuid import UUID

from mirror.core.offset_map import CHUNK_RUNS
from mirror.core.partitions import PartitionKey
from mirror.core.stored_map import (
    Binding,
    StoredLink,
    StoredRecord,
    partition_records,
    producer_record,
    tombstones,
    topic_record,
)
from mirror.core.translation import Position, Translation

KEY = PartitionKey("orders", 1)
BINDING = Binding(topic="orders", source_id=UUID(int=1), target="a.orders", target_id=UUID(int=2))


def stored(*records: StoredRecord) -> StoredLink:
    link = StoredLink()
    for key, value in records:
        link.apply(key, value)
    return link


def translation(runs: int) -> Translation:
    made = Translation(Position(2 * runs, 5, 3 * runs, {4711: (1, runs)}))
    for number in range(runs):
        made.map.append(2 * number, 3 * number, 1)
    return made


def test_positions_maps_and_bindings_come_back() -> None:
    before = translation(2 * CHUNK_RUNS + 3)
    link = stored(topic_record(BINDING), *partition_records(KEY, before, chunks=range(3)))
    after = link.translation(KEY)
    assert link.bindings == {"orders": BINDING}
    assert after.position == before.position
    assert list(after.map) == list(before.map)


def test_the_last_value_of_a_key_counts() -> None:
    link = stored(
        *partition_records(KEY, translation(3), chunks=[0]), *partition_records(KEY, translation(9), chunks=[0])
    )
    assert list(link.translation(KEY).map) == list(translation(9).map)


def test_of_two_producers_that_were_noted_at_once_the_first_stands() -> None:
    assert stored(producer_record("a", 7), producer_record("a", 8), producer_record("a", 7)).producers == {"a": 7}


def test_tombstones_take_all_away() -> None:
    records = partition_records(KEY, translation(3), chunks=[0])
    link = stored(*records, *tombstones(KEY, [0], with_position=True))
    assert link.translation(KEY).position == Position()
    assert not len(link.translation(KEY).map)


def test_chunks_before_a_missing_one_are_left_out() -> None:
    whole = translation(3 * CHUNK_RUNS)
    link = stored(*partition_records(KEY, whole, chunks=[0, 2]))
    assert list(link.translation(KEY).map) == whole.map.chunk(2)
