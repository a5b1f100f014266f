"""The requests that one append to the target of a translate link becomes."""

from __future__ import annotations

from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from mirror.link.ports import AppendPart
from mirror.translate.core.translation import Translation
from mirror.translate.produce_rounds import OutgoingPart, rounds_of
from wire.batches.record_batch import Compression, read_header
from wire.batches.records import Record, encode_batch
from wire.protocol.ids import TopicPartition

OURS = 4000


def planned(
    translation: Translation, *, partition: int = 0, compression: Compression = Compression.NONE
) -> OutgoingPart:
    """Three batches of two records, from the beginning of their partition."""
    batches = [
        encode_batch([Record(None, b"%d" % number)] * 2, base_offset=2 * number, compression=compression)
        for number in range(3)
    ]
    part = AppendPart(
        key=TopicPartition("orders", partition),
        topic_id=UUID(int=1),
        expected_log_end_offset=0,
        source_high_watermark=6,
        source_log_start_offset=0,
        source_seen_at_ms=0,
        records=memoryview(b"".join(batches)),
    )
    outgoing = OutgoingPart(part, translation)
    outgoing.plan(lambda _: OURS)
    return outgoing


def test_small_batches_of_a_partition_go_in_one_request() -> None:
    parts = [planned(Translation(), partition=index) for index in range(2)]
    (only,) = rounds_of(parts)
    assert [len(sent.plans) for _, sent in only] == [3, 3]
    assert [read_header(sent.batch.prefix).record_count for _, sent in only] == [6, 6]


def test_compressed_batches_of_a_partition_go_in_a_request_each() -> None:
    rounds = rounds_of([planned(Translation(), compression=Compression.LZ4)])
    assert [len(sent.plans) for row in rounds for _, sent in row] == [1, 1, 1]


def test_each_batch_of_a_merged_one_is_confirmed_at_its_own_offset() -> None:
    translation = Translation()
    (sent,) = planned(translation).to_send
    for plan, offset in sent.placed(50):
        translation.confirm(plan, offset)
    assert [translation.downstream(offset) for offset in range(6)] == list(range(50, 56))
    assert translation.position.sequences == {OURS: (0, 6)}


@pytest.mark.parametrize("code", [ErrorCode.message_too_large, ErrorCode.invalid_record])
def test_merged_batches_that_the_target_refuses_go_one_by_one(code: ErrorCode) -> None:
    """A topic may accept only small batches, and one record that it does not accept must not keep
    the batches before it back.
    """
    translation = Translation()
    part = planned(translation)
    part.refuse(code, "no", part.to_send[0])
    assert part.error is ErrorCode.request_timed_out, "the same batches are sent again"
    again = planned(translation)
    assert [len(sent.plans) for sent in again.to_send] == [1, 1, 1]
    assert again.to_send[0].plans[0].stamp == part.to_send[0].plans[0].stamp
    again.refuse(code, "no", again.to_send[0])
    assert again.error is (ErrorCode.policy_violation if code is ErrorCode.invalid_record else code)
