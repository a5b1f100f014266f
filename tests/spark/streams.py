"""Topics at one broker or site, and streaming queries over them."""

from __future__ import annotations

import asyncio
import time
import uuid
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.streaming import run_queries
from wire.batches.records import Record, encode_batch
from wire.client.raw_client import KafkaClient, NewTopic
from wire.protocol.ids import PartitionKey

NOW_MS = round(time.time() * 1000)


class Streams:
    """Topics at one broker, and queries over them."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.servers = {"kafka.bootstrap.servers": bootstrap}

    def create(self, *, partitions: int = 1) -> str:
        """A fresh topic."""
        topic = f"s-{uuid.uuid4().hex[:8]}"

        async def ask() -> None:
            async with KafkaClient(self.bootstrap) as client:
                wanted = NewTopic(name=topic, partition_count=partitions, replication_factor=1)
                (outcome,) = await client.create_topics([wanted])
                assert not outcome.error_code, outcome

        asyncio.run(ask())
        return topic

    def fill(self, topic: str, first: int, end: int, *, partitions: int) -> None:
        """Records by number, dealt out to the partitions."""

        async def write() -> None:
            async with KafkaClient(self.bootstrap) as client:
                for partition in range(partitions):
                    mine = [number for number in range(first, end) if number % partitions == partition]
                    records = [Record(b"key-%d" % number, b"%d" % number, NOW_MS) for number in mine]
                    for at in range(0, len(records), 25):
                        await client.produce(topic, partition, encode_batch(records[at : at + 25]))

        asyncio.run(write())

    def carry(self, source: str, target: str, checkpoint: Path, *, reader: str = "antipode", **options: str) -> None:
        """Run a query from topic to topic over what is there now, and end."""
        writer = self._rows(source, reader, options).writeStream.format("antipode")
        self._run(writer.options(**self.servers, topic=target), checkpoint)

    def carry_as(self, query: str, source: str, target: str, checkpoint: Path) -> None:
        """As `carry`, with a name for the sink's transactions."""
        writer = self._rows(source, "antipode", {}).writeStream.format("antipode")
        self._run(writer.options(**self.servers, topic=target, **{"antipode.query": query}), checkpoint)

    def store(self, source: str, directory: Path, checkpoint: Path, **options: str) -> None:
        """Run a query from a topic to files over what is there now, and end."""
        writer = self._rows(source, "antipode", options).writeStream.format("parquet")
        self._run(writer.option("path", str(directory)), checkpoint)

    def _rows(self, source: str, reader: str, options: dict[str, str]) -> Any:
        given = self.servers | {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "90"}
        stream = self.spark.readStream.format(reader).options(**(given | options))
        return stream.load().selectExpr("key", "cast(value as string) as value")

    def _run(self, writer: Any, checkpoint: Path) -> None:
        run_queries(writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start)

    def committed(self, group: str) -> dict[PartitionKey, int]:
        """The offsets of a group."""

        async def ask() -> dict[PartitionKey, int]:
            async with KafkaClient(self.bootstrap) as client:
                return {key: found.offset for key, found in (await client.committed(group)).items()}

        return asyncio.run(ask())

    def values(self, topic: str) -> list[int]:
        """The values of the committed records, sorted."""
        committed = {"kafka.isolation.level": "read_committed", "subscribe": topic}
        rows = self.spark.read.format("antipode").options(**self.servers, **committed).load()
        return sorted(int(row.value) for row in rows.select("value").collect())


def newest_file(directory: Path) -> Path:
    """The file of the last batch in a part of a checkpoint."""
    return max((file for file in directory.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
