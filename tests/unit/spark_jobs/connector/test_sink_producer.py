"""The writer of one task of the sink, with a broker that bounds the size of a batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from kio.schema.errors import ErrorCode

from spark_jobs.connector.core.options import WriteOptions
from spark_jobs.connector.core.sink_rows import Rows
from spark_jobs.connector.sink_producer import SinkProducer
from spark_jobs.logs.core.cluster_options import ClusterOptions
from wire.batches.record_batch import BatchHeader, read_header
from wire.batches.records import decode_batch
from wire.client.client_errors import BrokerError, broker_error

OPTIONS = WriteOptions(cluster=ClusterOptions(bootstrap="none:1"), topic="t")


class BoundedTopic:
    """The client of a broker with one topic of one partition."""

    def __init__(self, max_message_bytes: int) -> None:
        self.max_message_bytes = max_message_bytes
        self.batches: list[BatchHeader] = []
        self.values: list[bytes | None] = []

    async def new_producer_id(self) -> int:
        return 7

    async def metadata(self, topics: list[str]) -> Any:
        topic = SimpleNamespace(error_code=0, partitions={0: None})
        return SimpleNamespace(topics=dict.fromkeys(topics, topic))

    async def produce(self, topic: str, partition: int, batch: bytes, *, transactional_id: str | None) -> Any:
        assert (topic, partition, transactional_id) == ("t", 0, None)
        if len(batch) > self.max_message_bytes:
            raise broker_error(ErrorCode.message_too_large, message="t-0", api_key=0)
        header = read_header(batch)
        base_offset = len(self.values)
        self.batches.append(header)
        self.values += [record.value for record in decode_batch(batch, 0, header)]
        return SimpleNamespace(base_offset=base_offset)


def rows_of(count: int, size: int) -> Rows:
    values = pa.array([b"%04d" % number + bytes(size) for number in range(count)], pa.binary())
    return Rows(keys=pa.nulls(count, pa.binary()), values=values)


async def test_a_batch_that_is_too_large_for_the_topic_is_written_in_parts_and_in_order() -> None:
    topic, rows = BoundedTopic(max_message_bytes=1_000), rows_of(100, 60)
    producer = SinkProducer(topic, OPTIONS, task=0)  # type: ignore[arg-type]
    assert await producer.write([rows, rows_of(1, 5)]) == 101
    assert topic.values == [*rows.values.to_pylist(), b"0000" + bytes(5)]
    sequences = [one.base_sequence for one in topic.batches]
    counts = [one.record_count for one in topic.batches]
    assert sequences == [sum(counts[:number]) for number in range(len(counts))]
    assert producer.ends == {("t", 0): 101}


async def test_a_record_that_is_too_large_for_the_topic_is_an_error() -> None:
    producer = SinkProducer(BoundedTopic(max_message_bytes=1_000), OPTIONS, task=0)  # type: ignore[arg-type]
    with pytest.raises(BrokerError, match="t-0"):
        await producer.write([rows_of(3, 1_000)])
