"""The content of a link's topic is restored by the last value of each key, for any remainder after
compaction.
"""

from __future__ import annotations

from uuid import UUID

from mirror.translate.core.offset_map import CHUNK_RUNS
from mirror.translate.core.renumbering import Piece
from mirror.translate.core.translation import Position, Translation
from mirror.translate.notes.core.claims import Claim, ClaimName
from mirror.translate.notes.core.stored_map import (
    Binding,
    StoredLink,
    StoredRecord,
    claim_record,
    claim_tombstone,
    is_claim,
    partition_records,
    producer_record,
    tombstones,
    topic_record,
    writer_record,
)
from wire.batches.record_batch import read_header
from wire.batches.records import Record, encode_batch
from wire.protocol.ids import TopicPartition

KEY = TopicPartition("orders", 1)
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


def test_claims_and_all_producer_ids_of_a_link_s_transactions_are_known() -> None:
    shared = Claim(name=ClaimName("mirror.one", 7, 0), mirror="one", slots=frozenset({3, 1}))
    whole = Claim(name=ClaimName("mirror", 8, 2), mirror="two", slots=None)
    link = stored(claim_record(shared), writer_record("a", 7), claim_record(whole), writer_record("a", 8))
    assert list(link.claims.values()) == [shared, whole]
    assert link.writers == {7, 8}
    assert link.producers == {}
    assert list(stored(claim_record(shared), claim_record(whole), claim_tombstone(shared)).claims) == [whole.name]
    assert is_claim(claim_tombstone(whole)[0])
    assert not is_claim(writer_record("a", 7)[0])


def test_a_position_can_be_noted_before_it_counts() -> None:
    for runs in (0, 1, CHUNK_RUNS - 1, CHUNK_RUNS, CHUNK_RUNS + 1):
        made = translation(runs)
        saved_chunk = max(0, made.map.last_chunk)
        before = (made.position.source_next, made.position.target_next, list(made.map))
        link = stored(*partition_records(KEY, made, chunks=range(saved_chunk + 1)))
        at = made.planned_next
        made.write_under(9, 4, instead_of={4711, 9})
        assert made.position.sequences == {9: (4, 0)}
        headers = [
            read_header(encode_batch([Record(None, b"v", 1)] * 3, base_offset=at + 3 * number)) for number in range(2)
        ]
        plans = made.plan(headers, expected=at, skipped=(), producer_of=lambda _: 9)
        for number, plan in enumerate(plans):
            assert plan is not None
            plan.pieces = (Piece(plan.base_offset, 0, 3),)
            plan.target_offset = 10_000 + 3 * number
        ahead = made.ahead(first_chunk=saved_chunk)
        assert (made.position.source_next, made.position.target_next, list(made.map)) == before
        for record in partition_records(KEY, ahead, chunks=range(saved_chunk, ahead.map.last_chunk + 1)):
            link.apply(*record)
        made.confirm()
        after = link.translation(KEY)
        assert after.position == made.position
        assert list(after.map) == list(made.map)
