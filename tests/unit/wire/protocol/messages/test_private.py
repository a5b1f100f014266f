"""Private messages: the claim that a mirror puts into an offset commit, and the versions that
exist.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32, i64

from wire.protocol import schemas
from wire.protocol.messages.damaged_batch_messages import (
    DamagedBatch,
    DamagedBatchesRequest,
    DamagedBatchesResponse,
)
from wire.protocol.messages.mirror_append_messages import MIRROR_APPEND
from wire.protocol.messages.private import MIRROR_OFFSET_COMMIT, SITE_METADATA, link_claim, parse_link_claim
from wire.protocol.messages.quarantine_messages import (
    QuarantineEntry,
    QuarantineRecordsOutcome,
    QuarantineRecordsPartition,
    QuarantineRecordsRequest,
    QuarantineRecordsResponse,
    QuarantineRecordsTopic,
    QuarantineRequest,
    QuarantineResponse,
)
from wire.protocol.messages.range_digest_messages import (
    RangeDigestsAnswer,
    RangeDigestsQuery,
    RangeDigestsRequest,
    RangeDigestsResponse,
    RangeDigestsTopic,
    RangeDigestsTopicAnswer,
)


@pytest.mark.parametrize(("link", "epoch"), [("a-b", 0), ("odd@name", 2**31 - 1)])
def test_link_claim_round_trips(link: str, epoch: int) -> None:
    assert parse_link_claim(link_claim(link, epoch)) == (link, epoch)


@pytest.mark.parametrize("claim", [None, "", "a-b", "@4", "a-b@", "a-b@-1", "a-b@x", "a-b@\u0664"])
def test_other_text_is_no_claim(claim: str | None) -> None:
    with pytest.raises(ValueError, match="accepted: link@epoch"):
        parse_link_claim(claim)


def test_borrowed_schemas_are_those_of_their_models() -> None:
    assert schemas.request_type(SITE_METADATA, 12) is schemas.request_type(3, 12)
    assert schemas.response_type(MIRROR_OFFSET_COMMIT, 9) is schemas.response_type(8, 9)


@pytest.mark.parametrize(("api_key", "version"), [(MIRROR_APPEND, 1), (SITE_METADATA, 11), (MIRROR_OFFSET_COMMIT, 7)])
def test_other_versions_do_not_exist(api_key: int, version: int) -> None:
    with pytest.raises(schemas.UnknownSchema):
        schemas.request_type(api_key, version)


def test_quarantine_messages_pass_through_their_codec() -> None:
    asked = QuarantineRecordsRequest(
        link="a-b",
        link_epoch=i32(3),
        reason="histories diverge at offset 30",
        topics=(
            QuarantineRecordsTopic(
                name=TopicName("orders"),
                topic_id=uuid.UUID(int=7),
                partitions=(QuarantineRecordsPartition(index=i32(0), first_offset=i64(30)),),
            ),
        ),
    )
    entry = QuarantineEntry(
        name="0.cut.orders-0",
        kind="truncated",
        topic=TopicName("orders"),
        partition=i32(0),
        first_offset=i64(30),
        end_offset=i64(31),
        size_bytes=i64(70),
        topic_id="",
        at_ms=i64(1),
        reason="why",
        origin_site="",
        link="",
        link_epoch=i32(-1),
    )
    outcome = QuarantineRecordsOutcome(topic=TopicName("orders"), index=i32(0), error_code=ErrorCode.none)
    messages = (
        asked,
        replace(asked, must_truncate=True),
        QuarantineRecordsResponse(outcomes=(outcome, replace(outcome, log_end_offset=i64(30)))),
        QuarantineRequest(action=i8(1), name="0.cut.orders-0", position=i64(0)),
        QuarantineResponse(error_code=ErrorCode.none, entries=(entry,)),
        QuarantineResponse(error_code=ErrorCode.none, records=b"batches"),
        QuarantineResponse(error_code=ErrorCode.resource_not_found, error_message="nothing is kept"),
    )
    for message in messages:
        assert schemas.decode(type(message), schemas.encode(message)) == message


def test_damage_messages_are_what_was_sent() -> None:
    damaged = DamagedBatch(
        topic=TopicName("orders"),
        index=i32(3),
        is_leader=True,
        base_offset=i64(10),
        last_offset=i64(19),
        reason="its checksum does not fit its bytes",
    )
    for message in (DamagedBatchesRequest(), DamagedBatchesResponse(count=i32(7), batches=(damaged,))):
        assert schemas.decode(type(message), schemas.encode(message)) == message


def test_digest_messages_are_what_was_sent() -> None:
    query = RangeDigestsQuery(index=i32(3), first_offset=i64(10), end_offset=i64(20), span=i32(-1))
    answer = RangeDigestsAnswer(
        index=i32(3),
        error_code=ErrorCode.none,
        log_start_offset=i64(5),
        high_watermark=i64(30),
        pending_leaves=i32(2),
        content=b"digests",
    )
    refusal = RangeDigestsAnswer(index=i32(4), error_code=ErrorCode.invalid_request, error_message="why")
    topic = TopicName("orders")
    messages = (
        RangeDigestsRequest(topics=(RangeDigestsTopic(name=topic, partitions=(query,)),)),
        RangeDigestsResponse(
            leaf_offsets=i32(4096), topics=(RangeDigestsTopicAnswer(name=topic, partitions=(answer, refusal)),)
        ),
    )
    for message in messages:
        assert schemas.decode(type(message), schemas.encode(message)) == message
