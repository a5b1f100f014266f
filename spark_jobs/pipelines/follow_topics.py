"""Topics to Parquet files by a streaming query, which continues at the other site of a link; at its
end the files are compared with the topics.

    spark-submit spark_jobs/pipelines/follow_topics.py --bootstrap-server host:port
        --topics orders,customers --to /var/orders --checkpoint /var/orders-checkpoint

    TO/records/*.parquet    the records
    TO/stored               made when the first batch is in the files
    TO/comparison.json      the comparison of files and topics, written at the end: `Comparison`

When the file that `--until` names exists, the query reads what the topics hold at that moment, and
ends. When the brokers in the file that `--brokers` names change, the query stops and continues at
those brokers from its checkpoint. A driver that was killed, or lost with its site, is replaced by
another one with the same `--to` and `--checkpoint` and the brokers of the other site.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from runtime.process import OperationalFailure
from spark_jobs.connector.checkpoint_files import Checkpoint
from spark_jobs.connector.core.checkpoints import topic_offsets
from spark_jobs.connector.core.offsets import by_topic
from spark_jobs.connector.topic_frames import TopicSource, records_of, stream_of
from spark_jobs.pipelines.catalogue import add_stream_options, submitted, topic_parser, trigger_of
from spark_jobs.session import interpreted
from spark_jobs.streaming import run_queries
from wire.protocol.ids import PartitionKey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS: Final = "records"
STORED: Final = "stored"
COMPARISON: Final = "comparison.json"
START_AGAIN_AFTER_S: Final = 1
_PLACE: Final = ("topic", "partition", "offset")
_CONTENT: Final = ("key", "value", "timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRecords:
    """The lost records of one partition: their number, and the lowest of their offsets."""

    topic: str
    partition: int
    first_offset: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Counts of records. `stored` are in the files; `missing` of them are in the topics alone,
    `repeated` more than once in the files. `lost` records are in the files and not in the topics as
    they were read: an unplanned failover has lost them, or retention has deleted them; `lost_from`
    has them by partition.
    """

    stored: int
    missing: int
    repeated: int
    lost: int
    lost_from: tuple[LostRecords, ...] = ()

    @property
    def is_exact(self) -> bool:
        """True if each record of the topics is in the files once."""
        return not (self.missing or self.repeated)


def parser() -> argparse.ArgumentParser:
    """The job's options."""
    found = topic_parser("Keep topics as Parquet files, and compare the files with the topics at the end.")
    found.add_argument("--topics", required=True, help="the topics, joined by commas")
    found.add_argument("--to", required=True, type=Path, help="directory, on a file system of the driver")
    found.add_argument("--brokers", type=Path, help="a file with other brokers, which may appear and change")
    found.add_argument("--until", type=Path, help="end when this file exists")
    found.add_argument("--small", action="store_true", help="interpret queries, which saves the time to compile them")
    add_stream_options(found)
    found.brokers_of = brokers_of
    found.topics = ("topics",)
    return found


def brokers_of(given: argparse.Namespace) -> str:
    """The brokers to ask now: those in the file of `--brokers` when it names some."""
    file = given.brokers
    named = file.read_text(encoding="utf-8").strip() if file is not None and file.exists() else ""
    return named or str(given.bootstrap_server)


def run(spark: SparkSession, given: argparse.Namespace) -> str:
    """Run until the file of `--until` exists, or with `--once` up to the current ends of the
    topics; a sentence about the comparison. Raises OperationalFailure if a record is missing in the
    files or repeated.
    """
    with interpreted(spark) if given.small else nullcontext():
        following = _Following(spark, given)
        if given.once:
            run_queries(lambda: following.start({"availableNow": True}))
        else:
            following.run()
        read = _read_so_far(spark, following.source, Path(given.checkpoint))
        found = compared(spark.read.parquet(str(given.to / RECORDS)), read)
    (given.to / COMPARISON).write_text(json.dumps(asdict(found)) + "\n", encoding="utf-8")
    if not found.is_exact:
        raise OperationalFailure(
            f"of {given.topics}, {found.missing} records are missing in {given.to}, and {found.repeated} are repeated"
        )
    lost = f"; {found.lost} of them are not in the topics any more" if found.lost else ""
    return f"{found.stored} records of {given.topics} are in {given.to / RECORDS}, each once{lost}"


class _Following:
    """The query from its start to its end, at the brokers of one moment."""

    def __init__(self, spark: SparkSession, given: argparse.Namespace) -> None:
        self._spark, self._given = spark, given
        self.source = self._source_now()
        self._query: Any = None
        self._has_read_all = False

    def start(self, trigger: dict[str, Any]) -> Any:
        """Start the query, from its checkpoint if it has one."""
        rows = stream_of(self._spark, self.source).select(*_PLACE, *_CONTENT)
        writer = rows.writeStream.format("parquet").option("path", str(self._given.to / RECORDS))
        self._query = writer.option("checkpointLocation", self._given.checkpoint).trigger(**trigger).start()
        return self._query

    def run(self) -> None:
        """Follow the topics until the end. A query that fails, as it does when its site is lost,
        is started again.
        """
        while not self._has_read_all:
            self.source = self._source_now()
            try:
                run_queries(lambda: self.start(trigger_of(self._given)), is_over=self._is_over)
            except StreamingQueryException as error:
                print(f"the query ended: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
                time.sleep(START_AGAIN_AFTER_S)

    def _is_over(self) -> bool:
        stored = self._given.to / STORED
        # Spark's file sink lists the files of each batch that has ended in a file of its number
        if not stored.exists() and any((self._given.to / RECORDS / "_spark_metadata").glob("[0-9]*")):
            stored.touch()
        if self._given.until is not None and self._given.until.exists():
            self._query.processAllAvailable()
            self._has_read_all = True
            return True
        return self._source_now() != self.source

    def _source_now(self) -> TopicSource:
        return TopicSource(
            bootstrap=brokers_of(self._given),
            topics=self._given.topics,
            is_list=True,
            options={"failOnDataLoss": "false"},
        )


def compared(files: DataFrame, topics: DataFrame) -> Comparison:
    """Compare the records of files and topics by place and content: sums of each partition first,
    then the records of partitions whose sums differ.
    """
    content = F.xxhash64(*(one for name in _CONTENT for one in (F.col(name).isNull(), F.col(name)))).alias("content")
    stored, held = (frame.select(*_PLACE, content) for frame in (files, topics))
    stored_sums, held_sums = _sums(stored), _sums(held)
    differing = [key for key in stored_sums.keys() | held_sums.keys() if stored_sums.get(key) != held_sums.get(key)]
    count = sum(records for records, _ in stored_sums.values())
    if not differing:
        return Comparison(stored=count, missing=0, repeated=0, lost=0)
    conditions = [(F.col("topic") == topic) & (F.col("partition") == partition) for topic, partition in differing]
    is_differing = reduce(Column.__or__, conditions)
    times, is_held = F.coalesce("times", F.lit(0)), F.col("held").isNotNull()
    rows = (
        stored.where(is_differing)
        .groupBy(*_PLACE, "content")
        .agg(F.count(F.lit(1)).alias("times"))
        .join(held.where(is_differing).withColumn("held", F.lit(1)), [*_PLACE, "content"], "full_outer")
        .groupBy("topic", "partition")
        .agg(
            F.sum((is_held & (times == 0)).cast("long")).alias("missing"),
            F.sum(F.when(is_held & (times > 1), times - 1).otherwise(0)).alias("repeated"),
            F.sum(F.when(is_held, 0).otherwise(times)).alias("lost"),
            F.min(F.when(~is_held, F.col("offset"))).alias("first_lost"),
        )
        .orderBy("topic", "partition")
        .collect()
    )
    lost_from = tuple(
        LostRecords(topic=row.topic, partition=row.partition, first_offset=row.first_lost, records=row.lost)
        for row in rows
        if row.lost
    )
    return Comparison(
        stored=count,
        missing=sum(row.missing for row in rows),
        repeated=sum(row.repeated for row in rows),
        lost=sum(one.records for one in lost_from),
        lost_from=lost_from,
    )


def _sums(records: DataFrame) -> dict[PartitionKey, tuple[int, int]]:
    """The number of records of each partition, and the sum of their hashes; a decimal sum has no
    overflow.
    """
    one = F.xxhash64("offset", "content").cast("decimal(20)")
    rows = records.groupBy("topic", "partition").agg(F.count(F.lit(1)), F.sum(one)).collect()
    return {(topic, partition): (count, int(total)) for topic, partition, count, total in rows}


def _read_so_far(spark: SparkSession, source: TopicSource, checkpoint: Path) -> DataFrame:
    """The records of the topics up to the offsets of the checkpoint."""
    (line,) = Checkpoint(checkpoint).offsets.sources
    ends = topic_offsets(line)
    if not ends:
        raise OperationalFailure(f"{checkpoint} has no offsets of topics")
    read = {"endingOffsets": json.dumps(by_topic(ends))}
    return records_of(spark, replace(source, options=source.options | read))


if __name__ == "__main__":
    submitted(parser(), run)
