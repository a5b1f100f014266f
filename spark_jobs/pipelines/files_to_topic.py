"""Text files to a topic: each line a record.

    spark-submit spark_jobs/pipelines/files_to_topic.py --bootstrap-server host:port
        --from file:///lines --topic lines

A task sends lists of lines that two limits bound and waits until each list is acknowledged by all
in-sync replicas; a send that fails fails the task. Spark runs a task that failed again, so lines
arrive at least once.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from functools import partial

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from runtime.process import OperationalFailure
from spark_jobs.pipelines.catalogue import at_least, submitted, topic_parser
from spark_jobs.pipelines.core.record_list import RECORDS_MAX, RecordList
from spark_jobs.pipelines.producers import idempotent_producer

ANSWER_WITHIN_S = 120.0


def parser() -> argparse.ArgumentParser:
    """The job's options."""
    found = topic_parser("Write the lines of text files to a topic.")
    found.add_argument("--from", dest="source", required=True, help="files or directories, in any Hadoop file system")
    found.add_argument("--topic", required=True, help="the topic")
    found.add_argument("--list-bytes", type=at_least(1), default=1 << 20, help="bytes that a task sends at a time")
    found.add_argument(
        "--list-records", type=at_least(1), default=RECORDS_MAX, help="lines that a task sends at a time"
    )
    found.topics = ("topic",)
    return found


def run(spark: SparkSession, given: argparse.Namespace) -> str:
    """Write; returns how many lines were written."""
    # As bytes: text of another encoding than UTF-8 would not be the same one in Python.
    lines = spark.read.text(given.source).select(F.col("value").cast("binary"))
    write = partial(_write, given.bootstrap_server, given.topic, given.list_bytes, given.list_records)
    written = lines.rdd.mapPartitions(write).sum()
    return f"wrote {written:,} lines to {given.topic}"


def _write(bootstrap: str, topic: str, bytes_max: int, records_max: int, rows: Iterable[Row]) -> Iterable[int]:
    from confluent_kafka import KafkaException

    producer = idempotent_producer(bootstrap)
    problems: list[str] = []

    def note(error: object, _message: object) -> None:
        if error is not None:
            problems.append(str(error))

    def send(values: list[bytes]) -> None:
        for value in values:
            while True:
                try:
                    producer.produce(topic, value, on_delivery=note)
                    break
                except BufferError:
                    producer.poll(1.0)
                except KafkaException as error:
                    reason = error.args[0].str()
                    raise OperationalFailure(
                        f"a line of {len(value):,} bytes cannot go to {topic}: {reason}"
                    ) from error
        left = producer.flush(ANSWER_WITHIN_S)
        if left or problems:
            raise OperationalFailure(f"{left or len(problems)} lines were not written to {topic}: {problems[:1]}")

    records = RecordList(send=send, bytes_max=bytes_max, records_max=records_max)
    count = 0
    for row in rows:
        records.add(bytes(row.value))
        count += 1
    records.close()
    yield count


if __name__ == "__main__":
    submitted(parser(), run)
