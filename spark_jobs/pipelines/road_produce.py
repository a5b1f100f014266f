"""Records of road checkpoints into a topic: what devices and recognition servers would send.

    spark-submit spark_jobs/pipelines/road_produce.py --bootstrap-server host:port --topic road-data
        --route device --count 1000

A device sends each record by itself, under its address as key; a server sends those of several
devices in batches.
"""

from __future__ import annotations

import argparse
import json
import time

from pyspark.sql import SparkSession

from spark_jobs.pipelines.catalogue import at_least, submitted, topic_parser
from spark_jobs.pipelines.core.road_records import DEVICE, SERVER, road_records
from spark_jobs.pipelines.producers import idempotent_producer, send_all

GATHER_MS = 100
BATCH_BYTES_MAX = 32_768
"""The data contract gives the data topic a max.message.bytes of 65,536, which is for whole batches.
"""


def parser() -> argparse.ArgumentParser:
    """The job's options."""
    found = topic_parser("Write generated records of road checkpoints to a topic.")
    found.add_argument("--topic", default="road-data", help="the data topic")
    found.add_argument("--route", choices=(DEVICE, SERVER), default=DEVICE, help="who sends")
    found.add_argument("--count", type=at_least(1), default=1_000, help="how many records")
    found.add_argument("--bad-every", type=at_least(0), default=0, help="every N-th record is a bad one; 0: none is")
    found.add_argument("--first", type=at_least(0), default=0, help="number of the first record, which its plate has")
    found.topics = ("topic",)
    return found


def run(spark: SparkSession, given: argparse.Namespace) -> str:  # noqa: ARG001  every job has it
    """Produce, and wait until all is acknowledged."""
    linger_ms = 0 if given.route == DEVICE else GATHER_MS
    producer = idempotent_producer(given.bootstrap_server, linger_ms=linger_ms, batch_bytes_max=BATCH_BYTES_MAX)
    at_ms = round(time.time() * 1000) - 1_000 * given.count
    values = road_records(given.count, at_ms=at_ms, route=given.route, first=given.first, bad_every=given.bad_every)
    send_all(producer, given.topic, ((json.loads(value)["device_address"].encode(), value) for value in values))
    return f"wrote {given.count:,} records of route {given.route} to {given.topic}"


if __name__ == "__main__":
    submitted(parser(), run)
