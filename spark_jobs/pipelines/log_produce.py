"""Log lines into a topic, as several clients would send them.

    spark-submit spark_jobs/pipelines/log_produce.py --bootstrap-server host:port --topic lines
        --clients 3 --count 1000

Each client has a producer of its own, and its name as the key of its lines.
"""

from __future__ import annotations

import argparse
import time

from pyspark.sql import SparkSession

from spark_jobs.pipelines.catalogue import at_least, submitted, topic_parser
from spark_jobs.pipelines.core.log_lines import client_name, log_lines
from spark_jobs.pipelines.producers import idempotent_producer, send_all


def parser() -> argparse.ArgumentParser:
    """The job's options."""
    found = topic_parser("Write generated log lines of several clients to a topic.")
    found.add_argument("--topic", required=True, help="the topic of the lines")
    found.add_argument("--clients", type=at_least(1), default=3, help="how many clients")
    found.add_argument("--count", type=at_least(1), default=1_000, help="how many lines of each client")
    found.topics = ("topic",)
    return found


def run(spark: SparkSession, given: argparse.Namespace) -> str:  # noqa: ARG001  every job has it
    """Produce, and wait until all is acknowledged."""
    at_ms = round(time.time() * 1000) - 1_000 * given.count
    for client in range(given.clients):
        lines = log_lines(client, given.count, at_ms=at_ms)
        records = ((client_name(client).encode(), line.encode()) for line in lines)
        send_all(idempotent_producer(given.bootstrap_server), given.topic, records)
    return f"wrote {given.clients * given.count:,} lines of {given.clients} clients to {given.topic}"


if __name__ == "__main__":
    submitted(parser(), run)
