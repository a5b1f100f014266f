"""A topic to Parquet files, by ranges of offsets: each run writes what came since the last one.

    spark-submit spark_jobs/pipelines/topic_to_files.py --bootstrap-server host:port --topic orders
        --to /var/orders

    TO/run=00000000000000000002/*.parquet    the records of a run
    TO/_ranges/00000000000000000002.json     its offsets, written last: a run counts when it is there

The next run begins where the newest ranges end. A run that was killed has no ranges; the next one
reads the same offsets and overwrites its files, so each record is in the files once. Read the files
with `spark.read.parquet`, which leaves out `_ranges`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from runtime.process import OperationalFailure
from spark_jobs.connector.topic_frames import TopicSource, records_of
from spark_jobs.logs.core.splits import LogEnds
from spark_jobs.logs.survey import log_ends
from spark_jobs.pipelines.catalogue import submitted, topic_parser
from wire.protocol.ids import PartitionKey

RANGES: Final = "_ranges"


def parser() -> argparse.ArgumentParser:
    """The job's options."""
    found = topic_parser("Write what a topic has got since the last run to Parquet files.")
    found.add_argument("--topic", required=True, help="the topic")
    found.add_argument("--to", required=True, type=Path, help="directory for the files, on a file system of the driver")
    found.topics = ("topic",)
    return found


def run(spark: SparkSession, given: argparse.Namespace) -> str:
    """One run; a sentence about it."""
    topic, directory = given.topic, given.to
    done = sorted((directory / RANGES).glob("*.json"))
    number = int(done[-1].stem) + 1 if done else 0
    first = {int(key): end for key, (_, end) in json.loads(done[-1].read_text()).items()} if done else {}
    ends = log_ends(given.bootstrap_server, lambda name: name == topic)
    if not ends:
        raise OperationalFailure(f"topic {topic} is not there")
    ranges = ranges_of(first, ends)
    if all(start == end for start, end in ranges.values()):
        return f"{topic} has nothing new"
    target = directory / f"run={number:020d}"
    shutil.rmtree(target, ignore_errors=True)
    options = {
        "startingOffsets": json.dumps({topic: {str(key): start for key, (start, _) in ranges.items()}}),
        "endingOffsets": json.dumps({topic: {str(key): end for key, (_, end) in ranges.items()}}),
    }
    source = TopicSource(bootstrap=given.bootstrap_server, topics=topic, is_list=True, options=options)
    records_of(spark, source).write.parquet(str(target))
    keep_ranges(directory, number, ranges)
    deleted = {key: (first[key], start) for key, (start, _) in ranges.items() if start > first.get(key, start)}
    lost = f"; the topic has deleted offsets {_sentence(deleted)} before a run" if deleted else ""
    return f"wrote offsets {_sentence(ranges)} of {topic} to {target}{lost}"


def ranges_of(first: Mapping[int, int], ends: Mapping[PartitionKey, LogEnds]) -> dict[int, tuple[int, int]]:
    """The offsets that a run writes, by partition; `first` has the ends of the last run. Raises
    OperationalFailure for a log that ends before them.
    """
    ranges = {}
    for (topic, partition), found in ends.items():
        start = max(first.get(partition, 0), found.start_offset)
        if start > found.end_offset:
            raise OperationalFailure(
                f"{topic}-{partition} ends at offset {found.end_offset}, and the files have its offsets up to {start}: a "
                "failover has lost records, or this is another topic of that name. Accepted: another directory (--to)"
            )
        ranges[partition] = (start, found.end_offset)
    return ranges


def keep_ranges(directory: Path, number: int, ranges: dict[int, tuple[int, int]]) -> None:
    """Make the run count: in one step, durable."""
    file = directory / RANGES / f"{number:020d}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    with part.open("w", encoding="utf-8") as written:
        json.dump(ranges, written)
        written.flush()
        os.fsync(written.fileno())
    part.replace(file)


def _sentence(ranges: dict[int, tuple[int, int]]) -> str:
    """The offsets of each partition that has any, from the first to the last."""
    return ", ".join(
        f"{start} to {end - 1} of partition {key}" for key, (start, end) in sorted(ranges.items()) if start < end
    )


if __name__ == "__main__":
    submitted(parser(), run)
