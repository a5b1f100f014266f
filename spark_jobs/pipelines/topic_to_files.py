"""A topic to Parquet files, by ranges of offsets: each run writes what came since the last one.

    spark-submit spark_jobs/pipelines/topic_to_files.py --bootstrap-server host:port --topic orders
        --to /var/orders

    TO/run=00000000000000000002/*.parquet    the records of a run
    TO/_ranges/00000000000000000002.json     its offsets, written last: a run counts when it is there

The next run begins where the newest ranges end. A run that was killed has no ranges; the next one
reads the same offsets and overwrites its files, so each record is in the files once. Ranges keep
leader epochs, by which a run notices records that an unplanned failover has lost. Read the files
with `spark.read.parquet`, which leaves out `_ranges`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from kio.schema.errors import ErrorCode
from pyspark.sql import DataFrame, SparkSession

from runtime.process import OperationalFailure
from spark_jobs.connector.cluster import ClusterReader
from spark_jobs.connector.core.offsets import by_topic
from spark_jobs.connector.core.options import Subscription
from spark_jobs.connector.core.stream_positions import LostRecords, RecordsLost, lost_records
from spark_jobs.connector.topic_frames import TopicSource, records_of
from spark_jobs.logs.core.cluster_options import ClusterOptions
from spark_jobs.pipelines.catalogue import submitted, topic_parser
from spark_jobs.pipelines.core.file_ranges import (
    SKIP_LOST,
    FileRange,
    ends_of,
    lost_sentence,
    ranges_in,
    ranges_of,
    text_of,
)
from wire.client.client_errors import BrokerError, KafkaClientError
from wire.protocol.ids import NO_EPOCH, PartitionKey

Ranges = Mapping[PartitionKey, FileRange]
RANGES: Final = "_ranges"


def parser() -> argparse.ArgumentParser:
    """The job's options."""
    found = topic_parser("Write what a topic has got since the last run to Parquet files.")
    found.add_argument("--topic", required=True, help="the topic")
    found.add_argument("--to", required=True, type=Path, help="directory for the files, on a file system of the driver")
    found.add_argument(
        SKIP_LOST,
        action="store_true",
        help="continue where a failover has lost records that are in the files; without it the run stops",
    )
    found.topics = ("topic",)
    return found


class TopicLogs:
    """The logs of the topic, as the present active site has them. Use as a context."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._cluster = ClusterReader(ClusterOptions(bootstrap=bootstrap))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()

    def planned(self, last: Ranges, *, is_skipping_lost: bool) -> tuple[Ranges, str]:
        """The ranges behind those of the last run, and what the site lacks of these. Raises
        OperationalFailure for a topic that is not there, or lost records.
        """
        try:
            partitions = self._cluster.partitions(Subscription(topics=frozenset([self._topic])))
            logs = self._cluster.logs(partitions).ranges
            lost = self.lost({key: one for key, one in last.items() if key in logs})
            ranges = ranges_of(last, logs, lost, is_skipping_lost=is_skipping_lost)
            grown = {key: one.end for key, one in ranges.items() if one.start < one.end}
            epochs = self._cluster.epochs_before(grown)
        except BrokerError as error:
            if error.code is ErrorCode.unknown_topic_or_partition:
                raise OperationalFailure(f"topic {self._topic} is not there") from error
            raise self._failure(error) from error
        except KafkaClientError as error:
            raise self._failure(error) from error
        except RecordsLost as error:
            raise OperationalFailure(str(error)) from error
        found = {
            key: one._replace(leader_epoch=epochs.get(key, NO_EPOCH)) if key in grown else one
            for key, one in ranges.items()
        }
        return found, lost_sentence(lost)

    def lost(self, ranges: Ranges) -> list[LostRecords]:
        """What the ranges have and the logs do not. KafkaClientError."""
        ends, epochs = ends_of(ranges)
        epoch_ends = {key: (end.leader_epoch, end.end_offset) for key, end in self._cluster.epoch_ends(epochs).items()}
        logs = self._cluster.logs(ends).ranges
        return lost_records(ends, epochs, epoch_ends, {key: log.end_offset for key, log in logs.items()})

    def check_kept(self, ranges: Ranges) -> None:
        """Raises OperationalFailure if a failover came while the ranges were read: the files may
        have records of both sites.
        """
        try:
            lost = self.lost(ranges)
        except KafkaClientError as error:
            raise self._failure(error) from error
        if lost:
            raise OperationalFailure(
                f"a failover came in this run: {lost_sentence(lost)}. Accepted: start it again; this run does not count"
            )

    def _failure(self, error: KafkaClientError) -> OperationalFailure:
        return OperationalFailure(f"the site at {self._bootstrap} cannot be asked: {error}")


def ranges_kept(directory: Path, topic: str) -> tuple[list[Path], Ranges]:
    """The files of ranges in their order, and the last ranges."""
    done = sorted((directory / RANGES).glob("*.json"))
    return done, ranges_in(done[-1].read_text(), topic) if done else {}


def records_in(spark: SparkSession, bootstrap: str, topic: str, ranges: Ranges) -> DataFrame:
    """The records of the ranges."""
    options = {
        "startingOffsets": json.dumps(by_topic({key: one.start for key, one in ranges.items()})),
        "endingOffsets": json.dumps(by_topic({key: one.end for key, one in ranges.items()})),
    }
    return records_of(spark, TopicSource(bootstrap=bootstrap, topics=topic, is_list=True, options=options))


def run(spark: SparkSession, given: argparse.Namespace) -> str:
    """One run; a sentence about it."""
    topic, directory = given.topic, given.to
    done, last = ranges_kept(directory, topic)
    number = int(done[-1].stem) + 1 if done else 0
    with TopicLogs(given.bootstrap_server, topic) as logs:
        ranges, lost = logs.planned(last, is_skipping_lost=given.skip_lost)
        if all(one.start == one.end for one in ranges.values()) and not lost:
            return f"{topic} has nothing new"
        target = directory / f"run={number:020d}"
        shutil.rmtree(target, ignore_errors=True)
        records_in(spark, given.bootstrap_server, topic, ranges).write.parquet(str(target))
        logs.check_kept(ranges)
    keep_ranges(directory, number, ranges)
    deleted = {
        key: FileRange(last[key].end, one.start)
        for key, one in ranges.items()
        if key in last and one.start > last[key].end
    }
    gone = f"; the topic has deleted offsets {_sentence(deleted)} before a run" if deleted else ""
    written = (
        f"wrote offsets {named} of {topic} to {target}" if (named := _sentence(ranges)) else f"{topic} has nothing new"
    )
    return f"{written}{gone}{lost and f'; {lost}'}"


def keep_ranges(directory: Path, number: int, ranges: Ranges) -> None:
    """Make the run count: in one step, durable."""
    file = directory / RANGES / f"{number:020d}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    with part.open("w", encoding="utf-8") as written:
        written.write(text_of(ranges))
        written.flush()
        os.fsync(written.fileno())
    part.replace(file)


def _sentence(ranges: Ranges) -> str:
    """The offsets of each partition that has any, from the first to the last."""
    return ", ".join(
        f"{one.start} to {one.end - 1} of partition {key}"
        for (_, key), one in sorted(ranges.items())
        if one.start < one.end
    )


if __name__ == "__main__":
    submitted(parser(), run)
