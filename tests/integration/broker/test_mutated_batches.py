"""Batches with a right checksum and wrong insides, sent to a broker process: it refuses them, and
its neighbours notice nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import psutil
import pytest

from runtime.clock import SystemClock
from tests.golden.records import codes_for
from tests.support.clients.kafka_clients import Record, aiokafka_consume, librdkafka_produce
from tests.support.clients.raw_client import RawClient
from tests.support.disks.mutated_batches import CASES, TOPICS, at_time, batch, record
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from wire.batches.record_batch import read_header
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.protocol.messages.produce_codec import PartitionRecords, TopicRecords

pytestmark = pytest.mark.integration

NEIGHBOUR = "neighbour"
GROWTH_BYTES_MAX = 50 * 1024 * 1024


def _create(client: RawClient, name: str, partitions: int, configs: dict[str, str]) -> None:
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }
    assert client.call(19, 7, {"topics": [topic]}).topics[0].error_code == 0


def _log_end(client: RawClient, topic: str, partition: int) -> int:
    wanted = TopicToFetch(topic, None, [PartitionToFetch(partition, 0, 1)])
    return client.fetch(FetchRequest([wanted], max_wait_ms=0, min_bytes=0)).topics[0].partitions[0].high_watermark


def test_refused_batches_leave_the_log_end_and_neighbours_alone(start_broker: Callable[..., LoneBroker]) -> None:
    broker = start_broker(message_max_bytes="10000000")
    now_ms = SystemClock().now_ms()
    cases = [case for case in CASES.values() if case.topic != "bounded"]
    places = dict.fromkeys(TOPICS, 0)
    with RawClient(broker.port) as client:
        for topic, configs in TOPICS.items():
            _create(client, topic, sum(case.topic == topic for case in cases) or 1, dict(configs))
        _create(client, NEIGHBOUR, 1, {})
        good = at_time(batch(record()), now_ms)
        client.produce_all([TopicRecords(NEIGHBOUR, None, [PartitionRecords(0, good)])])
        before_bytes = psutil.Process(broker.process.pid).memory_info().rss
        for number, case in enumerate(cases, start=1):
            partition = places[case.topic]
            places[case.topic] += 1
            answer = client.produce_all(
                [
                    TopicRecords(case.topic, None, [PartitionRecords(partition, case.records)]),
                    TopicRecords(NEIGHBOUR, None, [PartitionRecords(0, good)]),
                ]
            )
            mutated, neighbour = (topic.partitions[0] for topic in answer.topics)
            assert mutated.error_code in codes_for(case.name), case.name
            assert (neighbour.error_code, neighbour.base_offset) == (0, number)
            stored = read_header(case.records).record_count if mutated.error_code == 0 else 0
            assert _log_end(client, case.topic, partition) == stored, case.name
        assert psutil.Process(broker.process.pid).memory_info().rss - before_bytes < GROWTH_BYTES_MAX


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
async def test_a_topic_keeps_its_codec_for_batches_of_any_codec(lone_broker: LoneBroker, codec: str) -> None:
    topic = f"codec-{codec}"
    expected = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[codec]
    with RawClient(lone_broker.port) as client:
        _create(client, topic, 1, {"compression.type": codec})
        sent = [Record(value=b"v%d" % number * 10, partition=0) for number in range(60)]
        for sender, start in zip(("none", "gzip", "lz4"), range(0, 60, 20), strict=True):
            settings = {"compression.type": sender}
            librdkafka_produce(lone_broker.bootstrap, topic, sent[start : start + 20], settings=settings)
        wanted = TopicToFetch(topic, None, [PartitionToFetch(0, 0, 1 << 20)])
        fetched = client.fetch(FetchRequest([wanted])).topics[0].partitions[0]
    assert fetched.records is not None
    assert read_header(bytes(fetched.records)).compression == expected
    received = await aiokafka_consume(lone_broker.bootstrap, topic, len(sent))
    assert [one.value for one in received] == [one.value for one in sent]
