"""The hand-written codecs of Produce, Fetch, OffsetCommit, AddPartitionsToTxn and LinkProgress give
and take the very bytes of kio, in every version.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.support.kio_messages import messages
from wire.client.requests import fetch_requests
from wire.protocol import schemas
from wire.protocol.byte_reader import Malformed
from wire.protocol.entity_building import build_entity
from wire.protocol.messages import add_partitions_codec, fetch_codec, offset_commit_codec, produce_codec
from wire.protocol.messages.link_messages import LinkProgressRequest, encode_link_progress

RELAXED = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
PRODUCE_VERSIONS = range(produce_codec.LOWEST_VERSION, produce_codec.HIGHEST_VERSION + 1)
FETCH_VERSIONS = range(fetch_codec.LOWEST_VERSION, fetch_codec.HIGHEST_VERSION + 1)
COMMIT_VERSIONS = range(offset_commit_codec.LOWEST_VERSION, offset_commit_codec.HIGHEST_VERSION + 1)

OUR_NAMES = {
    "generation_id_or_member_epoch": "generation",
    "retention_time": "retention_ms",
    "timeout": "timeout_ms",
    "topic_data": "topics",
    "partition_data": "partitions",
    "index": "partition_index",
    "partition": "partition_index",
    "partition_responses": "partitions",
    "responses": "topics",
    "throttle_time": "throttle_time_ms",
    "log_append_time": "log_append_time_ms",
    "batch_index_error_message": "message",
    "topic": "name",
    "max_wait": "max_wait_ms",
    "forgotten_topics_data": "forgotten_topics",
}


def joined(parts: tuple[list[Any], int]) -> bytes:
    data = b"".join(parts[0])
    assert parts[1] == len(data)
    return data


def comparable(value: Any) -> Any:
    """Both sides' messages as plain dictionaries with our names, so that only content is
    compared.
    """
    if is_dataclass(value):
        found = {OUR_NAMES.get(f.name, f.name): comparable(getattr(value, f.name)) for f in fields(value)}
        return found | found.pop("replica_state", {})
    if hasattr(value, "_asdict"):
        return {name: comparable(part) for name, part in value._asdict().items()}
    if isinstance(value, dt.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, dt.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, (list, tuple)):
        return [comparable(part) for part in value]
    return bytes(value) if isinstance(value, memoryview) else value


def assert_agrees(ours: Any, theirs: Any) -> None:
    """Everything that kio's message says is in ours."""
    if isinstance(theirs, dict):
        for name, value in theirs.items():
            assert_agrees(ours[name], value)
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for our_part, their_part in zip(ours, theirs, strict=True):
            assert_agrees(our_part, their_part)
    elif theirs is None and isinstance(ours, int):
        assert ours == -1
    else:
        assert ours == theirs


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@RELAXED
@given(data=st.data())
def test_produce_request_is_kios(version: int, data: st.DataObject) -> None:
    theirs = data.draw(messages(schemas.request_type(0, version)))
    encoded = schemas.encode(theirs)
    ours = produce_codec.parse_produce_request(b"head" + encoded, 4, version)
    assert_agrees(comparable(ours), comparable(theirs))
    assert joined(produce_codec.produce_request_parts(ours, version)) == encoded


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@RELAXED
@given(data=st.data())
def test_produce_response_is_kios(version: int, data: st.DataObject) -> None:
    theirs = data.draw(messages(schemas.response_type(0, version)))
    encoded = schemas.encode(theirs)
    ours = produce_codec.parse_produce_response(b"head" + encoded, 4, version)
    assert_agrees(comparable(ours), comparable(theirs))
    assert produce_codec.encode_produce_response(ours, version) == encoded


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@RELAXED
@given(data=st.data())
def test_fetch_request_is_kios(version: int, data: st.DataObject) -> None:
    theirs = data.draw(messages(schemas.request_type(1, version)))
    encoded = schemas.encode(theirs)
    ours = fetch_requests.parse_fetch_request(b"head" + encoded, 4, version)
    assert_agrees(comparable(ours), comparable(theirs))
    assert fetch_requests.encode_fetch_request(ours, version) == encoded


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@RELAXED
@given(data=st.data())
def test_fetch_response_is_kios(version: int, data: st.DataObject) -> None:
    theirs = data.draw(messages(schemas.response_type(1, version)))
    encoded = schemas.encode(theirs)
    ours = fetch_codec.parse_fetch_response(b"head" + encoded, 4, version)
    assert_agrees(comparable(ours), comparable(theirs))
    assert joined(fetch_codec.fetch_response_parts(ours, version)) == encoded


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
@RELAXED
@given(data=st.data())
def test_offset_commit_request_is_kios(version: int, data: st.DataObject) -> None:
    theirs = data.draw(messages(schemas.request_type(8, version)))
    ours = offset_commit_codec.parse_offset_commit_request(b"head" + schemas.encode(theirs), 4, version)
    assert_agrees(comparable(ours), comparable(theirs))


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
@RELAXED
@given(data=st.data())
def test_offset_commit_response_is_kios(version: int, data: st.DataObject) -> None:
    theirs = data.draw(messages(schemas.response_type(8, version)))
    topics = [
        offset_commit_codec.TopicOutcome(
            getattr(topic, "name", ""),
            getattr(topic, "topic_id", None),
            [(partition.partition_index, partition.error_code) for partition in topic.partitions],
        )
        for topic in theirs.topics
    ]
    throttle_time_ms = comparable(getattr(theirs, "throttle_time", 0))
    ours = offset_commit_codec.encode_offset_commit_response(topics, version, throttle_time_ms=throttle_time_ms)
    assert ours == schemas.encode(theirs)


@pytest.mark.parametrize("version", range(6))
@RELAXED
@given(data=st.data())
def test_add_partitions_response_is_kios(version: int, data: st.DataObject) -> None:
    theirs = data.draw(messages(schemas.response_type(24, version)))
    given_transactions = (
        [("", theirs.results_by_topic_v3_and_below)]
        if version < 4
        else [(one.transactional_id, one.topic_results) for one in theirs.results_by_transaction]
    )
    transactions = [
        (
            name,
            {
                topic.name: [(each.partition_index, each.partition_error_code) for each in topic.results_by_partition]
                for topic in topics
            },
        )
        for name, topics in given_transactions
    ]
    assume(
        all(len(ours) == len(topics) for (_, ours), (_, topics) in zip(transactions, given_transactions, strict=True))
    )
    encoded = schemas.encode(theirs)
    without_error = encoded[4:] if version < 4 else encoded[6:]
    ours = add_partitions_codec.encode_add_partitions_response(version, transactions)
    assert ours == bytes(4 if version < 4 else 6) + without_error


PARSERS = {
    (8, "request"): (offset_commit_codec.parse_offset_commit_request, COMMIT_VERSIONS),
    (0, "request"): (produce_codec.parse_produce_request, PRODUCE_VERSIONS),
    (0, "response"): (produce_codec.parse_produce_response, PRODUCE_VERSIONS),
    (1, "request"): (fetch_requests.parse_fetch_request, FETCH_VERSIONS),
    (1, "response"): (fetch_codec.parse_fetch_response, FETCH_VERSIONS),
}


@pytest.mark.parametrize("message", PARSERS)
@settings(RELAXED, max_examples=120)
@given(data=st.data())
def test_damaged_bytes_are_only_ever_malformed(message: tuple[int, str], data: st.DataObject) -> None:
    parse, versions = PARSERS[message]
    version = data.draw(st.sampled_from(versions))
    of_kind = schemas.request_type if message[1] == "request" else schemas.response_type
    damaged = bytearray(schemas.encode(data.draw(messages(of_kind(message[0], version)))))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.sampled_from(b"\0\1\x7f\x80\xff\x10"))
    cut = data.draw(st.integers(0, len(damaged)))
    for buffer in (bytes(damaged), bytes(damaged[:cut]), data.draw(st.binary(max_size=100))):
        try:
            parse(buffer, 0, version)
        except Malformed:
            continue


def test_records_stay_views_of_the_received_frame() -> None:
    records = b"r" * 100
    topic = produce_codec.TopicRecords("t", None, [produce_codec.PartitionRecords(0, records)])
    frame = joined(produce_codec.produce_request_parts(produce_codec.ProduceRequest(None, -1, 1000, [topic]), 9))
    parsed = produce_codec.parse_produce_request(frame, 0, 9).topics[0].partitions[0].records
    assert isinstance(parsed, memoryview)
    assert parsed.obj is frame
    assert parsed == records


@pytest.mark.parametrize("version", [3, 9])
def test_a_new_header_is_sent_before_records_that_are_not_copied(version: int) -> None:
    def request(*partitions: produce_codec.PartitionRecords) -> produce_codec.ProduceRequest:
        return produce_codec.ProduceRequest(None, -1, 1000, [produce_codec.TopicRecords("t", None, partitions)])

    records = memoryview(b"records")
    in_pieces = request(
        produce_codec.PartitionRecords(0, records, b"header"), produce_codec.PartitionRecords(1, records)
    )
    whole = request(produce_codec.PartitionRecords(0, b"headerrecords"), produce_codec.PartitionRecords(1, b"records"))
    parts, size = produce_codec.produce_request_parts(in_pieces, version)
    assert joined((parts, size)) == joined(produce_codec.produce_request_parts(whole, version))
    assert any(part is records for part in parts)


def test_pieces_of_files_are_passed_on_with_their_length() -> None:
    class FilePiece:
        length = 1000

    piece = FilePiece()
    partitions = [fetch_codec.PartitionFetched(0, records=piece), fetch_codec.PartitionFetched(1, records=b"x")]
    response = fetch_codec.FetchResponse([fetch_codec.TopicFetched("t", None, partitions)])
    parts, size = fetch_codec.fetch_response_parts(response, 12)
    assert parts[1] is piece
    assert size == sum(piece.length if part is piece else len(part) for part in parts)  # type: ignore[arg-type]
    plain = [partitions[0]._replace(records=bytes(1000)), partitions[1]]
    filled = fetch_codec.FetchResponse([fetch_codec.TopicFetched("t", None, plain)])
    assert joined(fetch_codec.fetch_response_parts(filled, 12)) == b"".join(
        bytes(1000) if part is piece else part  # type: ignore[misc]
        for part in parts
    )


@given(
    link=st.text(max_size=5),
    link_epoch=st.integers(0, 2**31 - 1),
    acknowledged=st.dictionaries(
        st.tuples(st.text(max_size=5), st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), max_size=300
    ),
)
@RELAXED
def test_reports_about_a_standby_are_those_of_kio(
    link: str, link_epoch: int, acknowledged: dict[tuple[str, int], int]
) -> None:
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, partition), offset in acknowledged.items():
        topics.setdefault(topic, []).append({"index": partition, "acknowledged_offset": offset})
    listed = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    values = {"link": link, "link_epoch": link_epoch, "topics": listed}
    expected = schemas.encode(build_entity(LinkProgressRequest, values))
    assert encode_link_progress(link, link_epoch, acknowledged.items()) == expected
