"""Measures how the time between two batches of a streaming query changes the delay of records: from
the moment at which a record is sent until its batch reads it.

    spark-submit spark_jobs/pipelines/trigger_delay.py --bootstrap-server host:port --topic delays
        --intervals-ms 500,5000

For each interval a query of its own reads the topic while a producer sends records at a steady
rate. Records that the query reads in its first batch, which starts Spark's Python workers, are not
measured. The topic should have no other readers or writers; a record is a number.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from runtime.process import OperationalFailure
from spark_jobs.connector.topic_frames import TopicSource, stream_of
from spark_jobs.logs.survey import log_ends
from spark_jobs.pipelines.catalogue import at_least, submitted, topic_parser
from spark_jobs.pipelines.core.delay_distribution import DelayDistribution, delay_distribution
from spark_jobs.pipelines.producers import idempotent_producer
from spark_jobs.streaming import run_queries

ANSWER_WITHIN_S: Final = 60.0
WARM_UP: Final = b"warm-up"


def parser() -> argparse.ArgumentParser:
    """The job's options."""
    found = topic_parser("Measure the delay of records for several intervals between two batches of a query.")
    found.add_argument("--topic", required=True, help="the topic to which records are sent")
    found.add_argument(
        "--intervals-ms",
        type=intervals,
        default=[500, 5_000],
        help="times between two batches, separated by commas; 500,5000",
    )
    found.add_argument("--records", type=at_least(1), default=1_000, help="records that are sent for each interval")
    found.add_argument("--per-second", type=at_least(1), default=100, help="records that are sent in a second")
    found.topics = ("topic",)
    return found


def intervals(text: str) -> list[int]:
    """The numbers of a list. argparse.ArgumentTypeError."""
    return [at_least(1)(part.strip()) for part in text.split(",")]


def run(spark: SparkSession, given: argparse.Namespace) -> str:
    """The distributions as JSON, in the order of the intervals."""
    found = [
        {"interval_ms": interval_ms, **Measurement(spark, given, interval_ms).run()._asdict()}
        for interval_ms in given.intervals_ms
    ]
    return json.dumps({"per_second": given.per_second, "delays": found}, indent=2)


class Measurement:
    """The measurement of one interval; `run` once."""

    def __init__(self, spark: SparkSession, given: argparse.Namespace, interval_ms: int) -> None:
        self._spark, self._given, self._interval_ms = spark, given, interval_ms
        self._delays_ms: list[int] = []
        self._is_warm = threading.Event()
        self._is_sent = threading.Event()
        self._problems: list[str] = []

    def run(self) -> DelayDistribution:
        """Send and read the records. OperationalFailure when records do not arrive."""
        ends = log_ends(self._given.bootstrap_server, lambda name: name == self._given.topic)
        if not ends:
            raise OperationalFailure(f"topic {self._given.topic} is not there")
        starts = {self._given.topic: {str(partition): found.end_offset for (_, partition), found in ends.items()}}
        source = TopicSource(
            bootstrap=self._given.bootstrap_server,
            topics=self._given.topic,
            is_list=True,
            options={"startingOffsets": json.dumps(starts)},
        )
        sender = threading.Thread(target=self._send, daemon=True)
        with tempfile.TemporaryDirectory() as checkpoint:
            writer = (
                stream_of(self._spark, source)
                .writeStream.queryName(f"interval {self._interval_ms} ms")
                .foreachBatch(self._measure)
                .option("checkpointLocation", checkpoint)
                .trigger(processingTime=f"{self._interval_ms} milliseconds")
            )
            sender.start()
            run_queries(writer.start, is_over=self._is_over)
        sender.join()
        if self._problems or len(self._delays_ms) < self._given.records:
            arrived = f"{len(self._delays_ms):,} of {self._given.records:,} records arrived"
            raise OperationalFailure(f"{arrived} through {self._given.topic}: {self._problems[:1]}")
        return delay_distribution(self._delays_ms)

    def _is_over(self) -> bool:
        has_all = len(self._delays_ms) >= self._given.records
        return bool(self._problems) or (self._is_sent.is_set() and has_all)

    def _measure(self, records: DataFrame, _batch: int) -> None:
        rows = records.select("value", F.unix_millis("timestamp").alias("sent_ms")).collect()
        now_ms = round(time.time() * 1000)
        self._delays_ms += [max(0, now_ms - row.sent_ms) for row in rows if bytes(row.value) != WARM_UP]
        if rows:
            self._is_warm.set()

    def _send(self) -> None:
        producer = idempotent_producer(self._given.bootstrap_server, linger_ms=0)

        def note(error: object, _message: object) -> None:
            if error is not None:
                self._problems.append(str(error))

        producer.produce(self._given.topic, WARM_UP, on_delivery=note)
        producer.flush(ANSWER_WITHIN_S)
        if not self._is_warm.wait(ANSWER_WITHIN_S):
            self._problems.append(f"the query has read nothing within {ANSWER_WITHIN_S:g} s")
            return
        began_s = time.monotonic()
        for number in range(self._given.records):
            due_s = began_s + number / self._given.per_second
            producer.poll(max(0.0, due_s - time.monotonic()))
            time.sleep(max(0.0, due_s - time.monotonic()))
            producer.produce(self._given.topic, b"%d" % number, on_delivery=note)
        if left := producer.flush(ANSWER_WITHIN_S):
            self._problems.append(f"{left} records were not acknowledged within {ANSWER_WITHIN_S:g} s")
        self._is_sent.set()


if __name__ == "__main__":
    submitted(parser(), run)
