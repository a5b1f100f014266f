"""Produce, Fetch and their neighbours frame by frame against a broker process."""

from __future__ import annotations

import select
import struct
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from runtime.clock import SystemClock
from tests.support.clients.raw_client import RawClient
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.held_flushes import FLUSHES_VARIABLE, Flushes
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.processes.processes import Processes
from wire.batches.record_batch import iterate_headers
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.protocol.messages.produce_codec import PartitionRecords, TopicRecords
from wire.protocol.streams.frames import decode_response

pytestmark = pytest.mark.integration

NOW_MS = SystemClock().now_ms()  # the broker deletes what is older than retention.ms
LONGER_THAN_A_CLIENT_WAITS_MS = 600_000
HELD_S = 0.3


@pytest.fixture
def topic(lone_broker: LoneBroker) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    with RawClient(lone_broker.port) as client:
        create(client, name)
    return name


def create(client: RawClient, name: str, partitions: int = 1, **configs: str) -> bytes:
    response = client.call(
        19,
        7,
        {
            "topics": [
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
                }
            ],
        },
    )
    assert response.topics[0].error_code is ErrorCode.none
    topic_id: uuid.UUID = response.topics[0].topic_id
    return topic_id.bytes


def records(count: int = 1, size: int = 20) -> bytes:
    return batch([b"v" * size] * count, timestamp_ms=NOW_MS)


def want(topic: str, offset: int = 0, *, partition: int = 0, max_bytes: int = 1 << 20, epoch: int = -1) -> TopicToFetch:
    return TopicToFetch(topic, None, [PartitionToFetch(partition, offset, max_bytes, epoch)])


def test_records_come_back_with_offsets_and_leader_epoch(lone_broker: LoneBroker, topic: str) -> None:
    with RawClient(lone_broker.port) as client:
        assert client.produce(topic, records(3)).base_offset == 0
        assert client.produce(topic, records(2)).base_offset == 3
        (partition,) = client.fetch(FetchRequest([want(topic)])).topics[0].partitions
        assert partition.high_watermark == 5
        headers = [header for _, header in iterate_headers(bytes(partition.records))]
        assert [(header.base_offset, header.partition_leader_epoch) for header in headers] == [(0, 0), (3, 0)]


@pytest.mark.parametrize("version", range(3, 13))
def test_every_produce_version_is_answered(lone_broker: LoneBroker, topic: str, version: int) -> None:
    with RawClient(lone_broker.port) as client:
        assert client.produce(topic, records(), version=version).error_code == 0


@pytest.mark.parametrize("version", range(4, 13))
def test_every_fetch_version_by_name_is_answered(lone_broker: LoneBroker, topic: str, version: int) -> None:
    with RawClient(lone_broker.port) as client:
        client.produce(topic, records())
        (partition,) = client.fetch(FetchRequest([want(topic)]), version=version).topics[0].partitions
        assert len(partition.records) == len(records())


def test_topics_are_found_by_id(lone_broker: LoneBroker) -> None:
    with RawClient(lone_broker.port) as client:
        name = f"t-{uuid.uuid4().hex[:8]}"
        topic_id = uuid.UUID(bytes=create(client, name))
        client.produce(name, records())
        asked = [TopicToFetch("", topic_id, [PartitionToFetch(0, 0, 1000)])]
        (partition,) = client.fetch(FetchRequest(asked), version=17).topics[0].partitions
        assert (partition.error_code, partition.high_watermark) == (0, 1)
        unknown = [TopicToFetch("", uuid.uuid4(), [PartitionToFetch(0, 0, 1000)])]
        (partition,) = client.fetch(FetchRequest(unknown), version=17).topics[0].partitions
        assert partition.error_code == ErrorCode.unknown_topic_id


def test_a_large_request_and_a_large_answer_pass(lone_broker: LoneBroker, topic: str) -> None:
    with RawClient(lone_broker.port) as client:
        big = records(1, size=900_000)
        for _ in range(12):
            assert client.produce(topic, big).error_code == 0
        response = client.fetch(FetchRequest([want(topic, max_bytes=20_000_000)], max_bytes=50_000_000))
        assert len(response.topics[0].partitions[0].records) == 12 * len(big)


def test_max_bytes_bound_an_answer_but_never_below_one_batch(lone_broker: LoneBroker, topic: str) -> None:
    with RawClient(lone_broker.port) as client:
        for _ in range(4):
            client.produce(topic, records(1, size=1000))
        size = len(records(1, size=1000))
        for limit, count in ((10, 1), (size * 2 + 10, 2), (size * 40, 4)):
            response = client.fetch(FetchRequest([want(topic)], max_bytes=limit))
            assert len(response.topics[0].partitions[0].records) == count * size


def test_a_fetch_waits_for_a_record_and_no_longer(lone_broker: LoneBroker, topic: str) -> None:
    with RawClient(lone_broker.port) as waiting, RawClient(lone_broker.port) as producing:
        waiting.send_fetch(FetchRequest([want(topic)], max_wait_ms=LONGER_THAN_A_CLIENT_WAITS_MS))
        producing.produce(topic, records())
        assert len(waiting.read_frame()) > len(records())


def test_a_fetch_waits_for_min_bytes(lone_broker: LoneBroker, topic: str) -> None:
    with RawClient(lone_broker.port) as waiting, RawClient(lone_broker.port) as producing:
        size = len(records())
        waiting.send_fetch(FetchRequest([want(topic)], max_wait_ms=LONGER_THAN_A_CLIENT_WAITS_MS, min_bytes=3 * size))
        for _ in range(3):
            producing.produce(topic, records())
        frame = waiting.read_frame()
        assert len(frame) > 3 * size


def test_a_fetch_without_records_is_answered_when_its_time_is_up(lone_broker: LoneBroker, topic: str) -> None:
    with RawClient(lone_broker.port) as client:
        started = time.monotonic()
        (partition,) = client.fetch(FetchRequest([want(topic)], max_wait_ms=200)).topics[0].partitions
        assert not partition.records
        assert time.monotonic() - started >= 0.19


@pytest.mark.parametrize(
    ("offset", "epoch", "expected"),
    [
        (99, -1, ErrorCode.offset_out_of_range),
        (0, 5, ErrorCode.unknown_leader_epoch),
    ],
)
def test_wrong_offsets_and_epochs_are_reported(
    lone_broker: LoneBroker, topic: str, offset: int, epoch: int, expected: ErrorCode
) -> None:
    with RawClient(lone_broker.port) as client:
        (partition,) = client.fetch(FetchRequest([want(topic, offset, epoch=epoch)])).topics[0].partitions
        assert partition.error_code == expected


def test_unknown_partitions_fail_alone(lone_broker: LoneBroker, topic: str) -> None:
    with RawClient(lone_broker.port) as client:
        client.produce(topic, records())
        response = client.fetch(FetchRequest([want(topic), want(topic, partition=7), want("no-such-topic")]))
        codes = [partition.error_code for found in response.topics for partition in found.partitions]
        assert codes == [0, ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_or_partition]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (lambda data: data[:70] + bytes([data[70] ^ 1]) + data[71:], ErrorCode.corrupt_message),
        (lambda data: data[:16] + b"\1" + data[17:], ErrorCode.invalid_record),
        (lambda data: data[:-3], ErrorCode.invalid_record),
        (lambda data: b"", ErrorCode.invalid_record),
    ],
)
def test_bad_batches_are_refused(
    lone_broker: LoneBroker, topic: str, changed: Callable[[bytes], bytes], expected: ErrorCode
) -> None:
    with RawClient(lone_broker.port) as client:
        assert client.produce(topic, changed(records())).error_code == expected
        assert client.produce(topic, records()).base_offset == 0


def test_acks_that_do_not_exist_are_refused(lone_broker: LoneBroker, topic: str) -> None:
    with RawClient(lone_broker.port) as client:
        assert client.produce(topic, records(), acks=2).error_code == ErrorCode.invalid_required_acks


def test_acks_0_is_not_answered_and_an_error_closes_the_connection(lone_broker: LoneBroker, topic: str) -> None:
    with RawClient(lone_broker.port) as client:
        client.send_produce(topic, records(), acks=0)
        assert client.produce(topic, records()).base_offset == 1
        client.send_produce("no-such-topic", records(), acks=0)
        assert client.read_frame() == b""


def test_a_bad_partition_does_not_keep_the_others_of_its_request_from_being_written(
    lone_broker: LoneBroker, topic: str
) -> None:
    torn = bytearray(records(3))
    torn[-1] ^= 1
    with RawClient(lone_broker.port) as client:
        other = f"{topic}-other"
        create(client, other, 2)
        answered = client.produce_all(
            [
                TopicRecords("no-such-topic", None, [PartitionRecords(0, records())]),
                TopicRecords(
                    other,
                    None,
                    [PartitionRecords(0, bytes(torn)), PartitionRecords(1, records(2)), PartitionRecords(7, records())],
                ),
                TopicRecords(topic, None, [PartitionRecords(0, records(4))]),
            ]
        )
        assert {
            (found.name, partition.partition_index): (partition.error_code, partition.base_offset)
            for found in answered.topics
            for partition in found.partitions
        } == {
            ("no-such-topic", 0): (ErrorCode.unknown_topic_or_partition, -1),
            (other, 0): (ErrorCode.corrupt_message, -1),
            (other, 1): (ErrorCode.none, 0),
            (other, 7): (ErrorCode.unknown_topic_or_partition, -1),
            (topic, 0): (ErrorCode.none, 0),
        }
        ends = [client.produce(*place).base_offset for place in ((topic, records()), (other, records()))]
        assert ends == [4, 0]
        assert client.produce(other, records(), partition=1).base_offset == 2


def test_pipelined_requests_are_answered_in_their_order(lone_broker: LoneBroker, topic: str) -> None:
    with RawClient(lone_broker.port) as client:
        sent = []
        for number in range(60):
            if number % 10 == 5:
                sent.append(client.send_fetch(FetchRequest([want(topic, 10_000)], max_wait_ms=0)))
            sent.append(client.send_produce(topic, records(1, size=50_000 if number % 7 == 3 else 20)))
        answered = [struct.unpack(">i", client.read_frame()[:4])[0] for _ in sent]
        assert answered == sent


def test_pipelined_commits_are_answered_in_their_order_and_a_fetch_behind_them_sees_the_last(
    lone_broker: LoneBroker, topic: str
) -> None:
    group, count = f"g-{topic}", 30
    with RawClient(lone_broker.port) as client:
        client.call(10, 4, {"key_type": 0, "coordinator_keys": [group]})
        eventually_sync(
            lambda: client.call(*commit(group, topic, 0)).topics[0].partitions[0].error_code is ErrorCode.none
        )
        for offset in range(1, count):
            client.send_call(*commit(group, topic if offset % 7 else f"{topic}-unknown", offset))
        client.send_call(9, 1, {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]})
        answers = [decode_response(client.read_frame(), 8, 7) for _ in range(1, count)]
        fetched = decode_response(client.read_frame(), 9, 1)
    outcomes = [answer.topics[0].partitions[0].error_code for answer in answers]
    unknown = ErrorCode.unknown_topic_or_partition
    assert outcomes == [ErrorCode.none if offset % 7 else unknown for offset in range(1, count)]
    assert fetched.topics[0].partitions[0].committed_offset == count - 1


def commit(group: str, topic: str, offset: int) -> tuple[int, int, dict[str, Any]]:
    partition = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    values = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": [partition]}],
    }
    return 8, 7, values


def test_a_reader_that_stops_reading_does_not_stop_others(lone_broker: LoneBroker, topic: str) -> None:
    with RawClient(lone_broker.port) as lazy, RawClient(lone_broker.port) as busy:
        for _ in range(20):
            busy.produce(topic, records(1, size=900_000))
        for _ in range(10):
            lazy.send_fetch(FetchRequest([want(topic, max_bytes=18_000_000)], max_bytes=50_000_000))
        assert busy.produce(topic, records()).error_code == 0
        assert len(lazy.read_frame()) > 17_000_000


def test_offsets_are_listed(lone_broker: LoneBroker, topic: str) -> None:
    with RawClient(lone_broker.port) as client:
        for number in range(4):
            client.produce(topic, batch([b"v"], timestamp_ms=NOW_MS + number * 10))

        def offset_at(timestamp: int) -> int:
            asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
            response = client.call(
                2,
                7,
                {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [asked]}]},
            )
            found: int = response.topics[0].partitions[0].offset
            return found

        assert [offset_at(timestamp) for timestamp in (-2, -1, -3, NOW_MS + 15, NOW_MS + 99)] == [0, 4, 3, 2, -1]


def test_min_insync_replicas_above_the_replication_factor_does_not_block(lone_broker: LoneBroker) -> None:
    with RawClient(lone_broker.port) as client:
        name = f"t-{uuid.uuid4().hex[:8]}"
        create(client, name, min_insync_replicas="2")
        assert client.produce(name, records()).error_code == 0


def test_a_topic_that_must_be_flushed_is_flushed_before_the_answer(processes: Processes, tmp_path: Path) -> None:
    """Its flush is held: the response and consumers wait, and a topic without flush.messages is
    answered meanwhile without a flush.
    """
    flushes = Flushes(tmp_path)
    environment = {FLUSHES_VARIABLE: str(tmp_path)}
    broker = LoneBroker(
        processes, tmp_path / "broker", module="tests.support.lone_brokers.held_flushes", environment=environment
    )
    with RawClient(broker.port) as client, RawClient(broker.port) as other:
        create(client, "flushed", flush_messages="1")
        create(client, "plain")
        flushes.hold("/flushed-0/")
        client.send_produce("flushed", records())
        eventually_sync(lambda: flushes.begun("/flushed-0/"))
        assert other.produce("plain", records()).error_code == 0
        assert select.select([client.socket], (), (), HELD_S)[0] == []
        assert flushes.begun("/plain-0/") == []
        (unseen,) = other.fetch(FetchRequest([want("flushed")], max_wait_ms=0)).topics[0].partitions
        assert (unseen.high_watermark, bytes(unseen.records)) == (0, b"")
        flushes.release()
        (flushed,) = client.produced().topics[0].partitions
        assert (flushed.error_code, flushed.base_offset) == (0, 0)
        (seen,) = other.fetch(FetchRequest([want("flushed")], max_wait_ms=0)).topics[0].partitions
        assert (seen.high_watermark, len(seen.records)) == (1, len(records()))
        begun = len(flushes.begun("/flushed-0/"))
        assert client.produce("flushed", records()).base_offset == 1
        assert len(flushes.begun("/flushed-0/")) > begun


def test_many_connections_do_not_mix_their_answers(lone_broker: LoneBroker) -> None:
    failures: list[str] = []

    def work(number: int) -> None:
        with RawClient(lone_broker.port) as client:
            name = f"own-{number}-{uuid.uuid4().hex[:6]}"
            create(client, name)
            for count in range(1, 30):
                placed = client.produce(name, records(count))
                if placed.base_offset != sum(range(count)):
                    failures.append(f"{name}: {placed}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
