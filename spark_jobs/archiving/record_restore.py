"""Restores topics from an archive of records into any cluster, as an ordinary producer: the records
of each partition in their order, with their keys, values, headers and timestamps, at new offsets.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from kio.schema.errors import ErrorCode
from pyspark.sql import SparkSession

from clients.producer.producer import Producer
from clients.producer.producer_options import Delivered, DeliveryTimedOut, ProducerOptions, ProducerRecord
from runtime.process import OperationalFailure
from spark_jobs.archiving.core.manifest import ArchivedTopic
from spark_jobs.archiving.core.restore_plan import LogToRestore, RestorePlan
from spark_jobs.archiving.core.restored_records import ArchivedRecord, headers_of
from spark_jobs.archiving.restore import RestoreReport
from spark_jobs.archiving.store import ArchiveStore
from spark_jobs.archiving.worker_waves import in_waves
from spark_jobs.logs.log_reader import client
from spark_jobs.session import Progress
from wire.client.client_errors import KafkaClientError
from wire.client.topic_calls import NewTopic
from wire.protocol.ids import LATEST_TIMESTAMP
from wire.rules.topic_configs import COPY_BEGINS

ROWS_PER_READ: Final = 1_000
RECORDS_UNCONFIRMED_MAX: Final = 10_000
_COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers")


def restored_records(
    spark: SparkSession, plan: RestorePlan, *, address: str, bootstrap: str, progress: Progress = lambda _: None
) -> RestoreReport:
    """Create the topics that are not there, and write the records of all logs.
    OperationalFailure.
    """
    started = time.monotonic()
    asyncio.run(_create(bootstrap, plan.topics))
    write_one = partial(write_log, address, bootstrap)
    written = in_waves(lambda: spark, plan.logs, write_one, "restored partitions:", progress)
    return RestoreReport(
        archive=address,
        topics=tuple(topic.name for topic in plan.topics),
        partitions=sum(topic.partition_count for topic in plan.topics),
        offsets=sum(count for _, count in written),
        skipped=plan.skipped,
        elapsed_ms=round((time.monotonic() - started) * 1000),
    )


async def _create(bootstrap: str, topics: Sequence[ArchivedTopic]) -> None:
    wanted = [
        NewTopic(
            name=topic.name,
            partition_count=topic.partition_count,
            configs={name: value for name, value in topic.configs.items() if name != COPY_BEGINS},
        )
        for topic in topics
    ]
    try:
        async with client(bootstrap) as target:
            outcomes = await target.create_topics(wanted)
    except KafkaClientError as error:
        raise OperationalFailure(f"the topics cannot be created: {error}") from error
    for outcome in outcomes:
        if outcome.error_code not in (ErrorCode.none, ErrorCode.topic_already_exists):
            reason = outcome.error_message or outcome.error_code.name
            raise OperationalFailure(f"topic {outcome.name} cannot be created: {reason}")


def write_log(address: str, bootstrap: str, log: LogToRestore) -> int:
    """Write the records of one log in order; returns their number. KafkaClientError, OSError;
    OperationalFailure if the log is not empty, or a record is not acknowledged in time.
    """
    store = ArchiveStore.at(address)
    return asyncio.run(_written(bootstrap, log, (one for paths in log.ranges for one in records_in(store, paths))))


async def _written(bootstrap: str, log: LogToRestore, records: Iterator[ArchivedRecord]) -> int:
    count, waiting = 0, []
    place = (log.topic, log.partition)
    async with client(bootstrap) as target, Producer(target, ProducerOptions()) as producer:
        # Spark repeats a task whose worker has died, and that worker may have written records.
        if (await target.offsets_at([place], LATEST_TIMESTAMP))[place]:
            raise OperationalFailure(
                f"{log.topic}-{log.partition} is not empty: an attempt that did not end has written to it; delete the "
                "topics and restore again"
            )
        for record in records:
            to_send = ProducerRecord(
                topic=log.topic,
                partition=log.partition,
                key=record.key,
                value=record.value,
                headers=headers_of(log.topic, log.partition, record),
                timestamp_ms=record.timestamp_ms,
            )
            waiting.append(await producer.send(to_send))
            count += 1
            if len(waiting) >= RECORDS_UNCONFIRMED_MAX:
                await _confirmed(waiting)
                waiting = []
        await producer.flush()
        await _confirmed(waiting)
    return count


async def _confirmed(waiting: Sequence[asyncio.Future[Delivered]]) -> None:
    try:
        await asyncio.gather(*waiting)
    except DeliveryTimedOut as error:
        raise OperationalFailure(f"records cannot be written: {error}") from error


def records_in(store: ArchiveStore, paths: Sequence[str]) -> Iterator[ArchivedRecord]:
    """The records of one range by offset, from its files: one a day, each in the order of the log.
    OSError.
    """
    with ExitStack() as opened:
        files = [pq.ParquetFile(opened.enter_context(store.opened(path))) for path in paths]
        yield from heapq.merge(*(_rows(file) for file in files), key=lambda record: record.offset)


def _rows(file: pq.ParquetFile) -> Iterator[ArchivedRecord]:
    for batch in file.iter_batches(ROWS_PER_READ, columns=list(_COLUMNS)):
        offsets, times, keys, values, headers = (batch.column(name) for name in _COLUMNS)
        columns = (offsets, times.cast(pa.int64()), keys, values, headers)
        for offset, timestamp_ms, key, value, named in zip(*(one.to_pylist() for one in columns), strict=True):
            yield ArchivedRecord(offset, timestamp_ms, key, value, [(one["key"], one["value"]) for one in named or ()])
