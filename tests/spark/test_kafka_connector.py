"""Spark's own Kafka connector on our broker: people's Spark jobs work without a change to them.

Promised: a batch query reads a topic whole, with keys, offsets and timestamps, and between offsets
that it names; a batch query writes a topic; and a structured stream goes on from its checkpoint, so
that each record is carried over once.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from deploy import jar_sets
from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.clients.transactional_clients import flat, read_values
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from wire.client.raw_client import KafkaClient, NewTopic

pytestmark = [
    pytest.mark.java,
    pytest.mark.timeout(480),
    pytest.mark.skipif(
        not jar_sets.SPARK_KAFKA.is_there,
        reason=f"Spark's Kafka connector {jar_sets.SPARK_KAFKA.version} is not in the parts folder: `make setup-java` "
        "fetches it by Maven",
    ),
]

STREAM_WITHIN_S = 400
NOW_MS = round(time.time() * 1000)


class Topics:
    """Topics at one broker, and Spark's view of them."""

    def __init__(self, spark: SparkSession, broker: LoneBroker) -> None:
        self.spark = spark
        self.bootstrap = broker.bootstrap

    def create(self, *, partitions: int = 1) -> str:
        """A fresh topic."""
        topic = f"t-{uuid.uuid4().hex[:8]}"

        async def ask() -> None:
            async with KafkaClient(self.bootstrap) as client:
                wanted = NewTopic(name=topic, partition_count=partitions, replication_factor=1)
                (outcome,) = await client.create_topics([wanted])
                assert not outcome.error_code, outcome

        asyncio.run(ask())
        return topic

    def fill(self, topic: str, first: int, end: int, *, partitions: int = 1) -> None:
        """Records with key, value and time by their number, dealt out to the partitions."""
        records = [
            Record(
                value=b"value-%d" % number,
                key=b"key-%d" % number,
                partition=number % partitions,
                timestamp_ms=NOW_MS + number,
            )
            for number in range(first, end)
        ]
        librdkafka_produce(self.bootstrap, topic, records)

    def read(self, topic: str, **options: str) -> DataFrame:
        """A batch query over the topic."""
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        return reader.option("subscribe", topic).options(**options).load()

    def values(self, topic: str, *, partitions: int = 1) -> list[bytes]:
        """All values up to the topic's end as another client reads them, sorted."""
        return flat(read_values(self.bootstrap, topic, partitions))


@pytest.fixture
def topics(spark: SparkSession, brokers: tuple[LoneBroker, LoneBroker]) -> Topics:
    return Topics(spark, brokers[0])


def test_batch_queries_read_and_write_topics(topics: Topics) -> None:
    topic, target = topics.create(partitions=2), topics.create(partitions=2)
    topics.fill(topic, 0, 100, partitions=2)
    rows = topics.read(topic).selectExpr("partition", "offset", "key", "value", "cast(timestamp as double)").collect()
    found = {(row[0], row[1]): (bytes(row[2]), bytes(row[3]), round(row[4] * 1000)) for row in rows}
    assert len(rows) == 100
    assert found == {
        (number % 2, number // 2): (b"key-%d" % number, b"value-%d" % number, NOW_MS + number) for number in range(100)
    }
    starts, ends = {"0": 20, "1": 50}, {"0": 40, "1": 50}
    bounded = topics.read(
        topic, startingOffsets=json.dumps({topic: starts}), endingOffsets=json.dumps({topic: ends})
    ).selectExpr("key", "concat('seen ', cast(value as string)) as value")
    bounded.write.format("kafka").option("kafka.bootstrap.servers", topics.bootstrap).option("topic", target).save()
    assert topics.values(target, partitions=2) == sorted(b"seen value-%d" % (2 * number) for number in range(20, 40))
    since = topics.read(topic, startingTimestamp=str(NOW_MS + 90))
    assert sorted((row.partition, row.offset) for row in since.select("partition", "offset").collect()) == [
        (partition, offset) for partition in range(2) for offset in range(45, 50)
    ]


def carried_over(topics: Topics, source: str, target: str, checkpoint: Path) -> None:
    """Run a stream over what is there now, and end."""
    stream = topics.spark.readStream.format("kafka").option("kafka.bootstrap.servers", topics.bootstrap)
    limited = (
        stream.option("subscribe", source).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 40)
    )
    writer: Any = limited.load().select("key", "value").writeStream.format("kafka")
    query = (
        writer.option("kafka.bootstrap.servers", topics.bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(STREAM_WITHIN_S), "the stream did not end"
    finally:
        query.stop()


def test_a_stream_goes_on_from_its_checkpoint_and_carries_each_record_over_once(topics: Topics, tmp_path: Path) -> None:
    source, target = topics.create(partitions=2), topics.create()
    for first, end in ((0, 60), (60, 80)):
        topics.fill(source, first, end, partitions=2)
        carried_over(topics, source, target, tmp_path / "checkpoint")
    assert topics.values(target) == sorted(b"value-%d" % number for number in range(80))
