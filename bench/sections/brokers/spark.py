"""Our data source for Spark beside Spark's own Kafka connector: in turns, in one session, with the
same topics of one Antipode broker.

Records are written just before, so that the page cache has them. A first query of each kind warms
Spark up and does not count. "Count" is a count of records: the connector must read the records,
while our source adds up the counts in the batch headers, which brokers send alone. "Read" makes
rows of all records and drops them (Spark's noop sink). A stream reads the existing records in
several batches; the latency is the median time of its batches. Sinks write rows that Spark
generates; ours writes a stream exactly once, in transactions, where the connector writes it at
least once.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pyspark.sql.streaming.query import StreamingQuery

from bench.loads import librdkafka
from bench.loads.payloads import payloads
from bench.measuring.figures import Side
from bench.measuring.plan import Plan
from bench.measuring.processes import metered
from bench.peers.sides import broker_of
from bench.peers.systems import MeasuredBroker, check_complete, create_topic, delete_topic_and_files
from deploy import jar_sets
from deploy.parts import spark_environment
from spark_jobs.session import MORE_JAVA_OPTIONS, noise_into, session
from spark_jobs.streaming import run_queries

SOURCES: Final = {Side.ANTIPODE: "antipode", Side.PEER: "kafka"}
COUNTED_RECORDS: Final = {100: 10_000_000, 1_000: 5_000_000}
"""By size in bytes. So many that the start of a query, which takes 0.15 to 0.3 s on both sides, is
not most of the time of a count.
"""
READ_RECORDS: Final = {100: 3_000_000, 1_000: 1_000_000}
"""By size in bytes; a read of so many takes both sides seconds."""
SIZES: Final = {100: "100 B", 1_000: "1 KB"}
STREAM_TOPIC: Final = "spark-stream"
STREAM_RECORDS: Final = 200_000
LOAD_RECORDS_MIN: Final = 20_000
STREAM_BATCHES: Final = 6
SINK_ROWS: Final = 500_000
COUNTING: Final = {"mode": "headers", "antipode.verify.checksums": "false"}
"""The options that docs/spark.md recommends for counting records."""
SUBMIT_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
OPTIMISED: Final = "-XX:TieredStopAtLevel=4"
"""Our short sessions do without Java's last compiler; the connector, which is Java, needs it."""


class Load(NamedTuple):
    """A topic, and the number of its records."""

    topic: str
    records: int


def measure(plan: Plan) -> None:
    """Measure both connectors, and record the samples in the plan."""
    with broker_of(Side.ANTIPODE, plan.directory / "spark-broker") as broker:
        bench = SparkBench(plan, broker)
        try:
            bench.measure()
        finally:
            bench.spark.stop()


class SparkBench:
    """One session and one broker."""

    def __init__(self, plan: Plan, broker: MeasuredBroker) -> None:
        self._plan = plan
        self._broker = broker
        self._servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        os.environ.update(spark_environment())
        os.environ[MORE_JAVA_OPTIONS] = f"{os.environ.get(MORE_JAVA_OPTIONS, '')} {OPTIMISED}"
        jars = ",".join(str(jar) for jar in jar_sets.SPARK_KAFKA.jars())
        os.environ[SUBMIT_ARGUMENTS] = f"--jars {jars} pyspark-shell"
        with noise_into(plan.directory / "spark.log"):
            self.spark = session("antipode bench", is_local=True)
        os.environ.pop(SUBMIT_ARGUMENTS, None)

    def measure(self) -> None:
        """All cases."""
        for size_bytes, size in SIZES.items():
            counted = self._filled(f"spark-counted-{size_bytes}", size_bytes, COUNTED_RECORDS[size_bytes])
            read = self._filled(f"spark-read-{size_bytes}", size_bytes, READ_RECORDS[size_bytes])
            for is_measured in (False, *[True] * self._plan.repeats):
                for side in self._plan.sides:
                    self._count(side, counted, f"count, {size}", is_measured=is_measured)
                    self._read(side, read, f"read, {size}", is_measured=is_measured)
                self._digests(counted, size, is_measured=is_measured)
            for load in (counted, read):
                delete_topic_and_files(self._broker, load.topic)
        self._filled(STREAM_TOPIC, 1_000, STREAM_RECORDS)
        for is_measured in (False, *[True] * self._plan.repeats):
            for side in self._plan.sides:
                self._stream(side, is_measured=is_measured)
                self._sink(side, is_measured=is_measured)
                self._stream_sink(side, is_measured=is_measured)

    def _filled(self, topic: str, size_bytes: int, wanted: int) -> Load:
        """A new topic with so many records at this run's scale."""
        count = self._plan.scaled(wanted, least=LOAD_RECORDS_MIN)
        self._plan.say(f"writing {count:,} records of {size_bytes} bytes")
        create_topic(self._broker.bootstrap_servers, topic)
        librdkafka.produce(self._broker.bootstrap_servers, topic, payloads(size_bytes), count, {"acks": "1"})
        check_complete(self._broker.bootstrap_servers, topic, count)
        return Load(topic, count)

    def _frame(self, side: Side, topic: str, **options: str) -> Any:
        return self.spark.read.format(SOURCES[side]).options(**self._servers, subscribe=topic, **options).load()

    def _timed(
        self, side: Side, case: str, work: Callable[[], dict[str, float]], *, count: int, is_measured: bool
    ) -> None:
        """Run the work; return records per second together with its values."""
        began = time.monotonic()
        with metered(self._broker.pid) as usage:
            values = work()
        values = {"per_s": count / (time.monotonic() - began)} | values if count else values
        if is_measured:
            self._plan.record("spark", case, side, usage, **values)

    def _count(self, side: Side, load: Load, case: str, *, is_measured: bool) -> None:
        def work() -> dict[str, float]:
            if side is Side.ANTIPODE:
                found = self._frame(side, load.topic, **COUNTING).selectExpr("sum(record_count)").first()[0]
            else:
                found = self._frame(side, load.topic).count()
            assert found == load.records, f"{found} of {load.records} records were counted"
            return {}

        self._timed(side, case, work, count=load.records, is_measured=is_measured)

    def _read(self, side: Side, load: Load, case: str, *, is_measured: bool) -> None:
        def work() -> dict[str, float]:
            self._frame(side, load.topic).write.format("noop").mode("overwrite").save()
            return {}

        self._timed(side, case, work, count=load.records, is_measured=is_measured)

    def _digests(self, load: Load, size: str, *, is_measured: bool) -> None:
        """Seconds, and bytes, of reading digests; the connector has none."""
        began = time.monotonic()
        with metered(self._broker.pid) as usage:
            digests = self._frame(Side.ANTIPODE, load.topic, mode="digests").collect()
        values = {"digests_s": time.monotonic() - began, "digest_bytes": sum(len(row.digest) for row in digests)}
        if is_measured:
            self._plan.record("spark", f"digests, {size}", Side.ANTIPODE, usage, **values)

    @property
    def _stream_count(self) -> int:
        return self._plan.scaled(STREAM_RECORDS, least=LOAD_RECORDS_MIN)

    def _stream(self, side: Side, *, is_measured: bool) -> None:
        def work() -> dict[str, float]:
            return self._run_stream(side, "noop", {})

        self._timed(side, "stream, 1 KB", work, count=self._stream_count, is_measured=is_measured)

    def _sink(self, side: Side, *, is_measured: bool) -> None:
        count = self._plan.scaled(SINK_ROWS, least=LOAD_RECORDS_MIN)
        target = self._target()
        rows = self.spark.range(count).selectExpr("cast(id as string) as key", "repeat('x', 100) as value")

        def work() -> dict[str, float]:
            rows.write.format(SOURCES[side]).options(**self._servers, topic=target).mode("append").save()
            return {}

        self._timed(side, "write, 100 B", work, count=count, is_measured=is_measured)
        check_complete(self._broker.bootstrap_servers, target, count)

    def _stream_sink(self, side: Side, *, is_measured: bool) -> None:
        options = {**self._servers, "topic": self._target()}

        def work() -> dict[str, float]:
            return self._run_stream(side, SOURCES[side], options)

        self._timed(side, "topic to topic, 1 KB", work, count=self._stream_count, is_measured=is_measured)

    def _run_stream(self, side: Side, sink: str, options: dict[str, str]) -> dict[str, float]:
        """Run a query over the topic to its end, and again from its checkpoint where Spark's Python
        worker was late; return the median time of its batches.
        """
        limit = str(-(-self._stream_count // STREAM_BATCHES))
        stream = self.spark.readStream.format(SOURCES[side]).options(
            **self._servers, subscribe=STREAM_TOPIC, startingOffsets="earliest", maxOffsetsPerTrigger=limit
        )
        with tempfile.TemporaryDirectory(dir=self._plan.directory) as checkpoint:
            writer = stream.load().select("key", "value").writeStream.format(sink).options(**options)
            triggered = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
            queries: list[StreamingQuery] = []

            def start() -> StreamingQuery:
                queries.append(triggered.start())
                return queries[-1]

            run_queries(start)
            progress = [one for query in queries for one in query.recentProgress]
            batches = [one.durationMs["triggerExecution"] for one in progress if one.numInputRows]
        return {"trigger_ms": statistics.median(batches)}

    def _target(self) -> str:
        """A fresh topic to write to."""
        topic = f"spark-out-{time.monotonic_ns()}"
        create_topic(self._broker.bootstrap_servers, topic)
        return topic
