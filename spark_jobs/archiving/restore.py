"""Restores topics from an archive of batches into a site: same ids, offsets, leader epochs and
bytes.

Topics are created and batches are appended as by the mirror of an exact link. So the site must have
a link under which it is passive for these topics; the command creates that link before, and deletes
it afterwards. Each partition is appended in order by one worker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode
from pyspark.sql import SparkSession

from runtime.process import OperationalFailure
from runtime.retries import jittered_backoff
from spark_jobs.archiving.core.manifest import BATCHES, ArchivedTopic
from spark_jobs.archiving.core.restore_plan import LogToRestore, RestorePlan, refusals, restore_plan
from spark_jobs.archiving.range_files import joined, stored_batches
from spark_jobs.archiving.site_topics import site_topics
from spark_jobs.archiving.store import ArchiveStore
from spark_jobs.archiving.worker_waves import in_waves
from spark_jobs.logs.log_reader import RETRY_BUDGET_MS, client
from spark_jobs.logs.survey import log_ends, topic_filter
from spark_jobs.session import Progress
from wire.batches.record_batch import BatchHeader
from wire.client.client_errors import TRANSIENT, broker_error
from wire.client.raw_client import KafkaClient
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable
from wire.protocol.ids import SITE_DEFAULT
from wire.protocol.messages.mirror_append_codec import MirrorAppend, PartitionToMirror, TopicToMirror
from wire.protocol.messages.mirror_append_messages import MIRROR_APPEND
from wire.rules.topic_configs import COPY_BEGINS

APPEND_BYTES: Final = 1024 * 1024
CALL_TIMEOUT_MS: Final = 10_000
EPOCHS_WITHIN_S: Final = 30.0


class LinkClaim(NamedTuple):
    """The claim with which batches are appended: a link at an epoch."""

    name: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """The result of a restore. `offsets` counts the records where an archive of records was
    restored.
    """

    archive: str
    topics: tuple[str, ...]
    partitions: int
    offsets: int
    skipped: tuple[str, ...]
    elapsed_ms: int


def archive_format(address: str) -> str:
    """The format of an archive's files. Raises OperationalFailure when there is no archive."""
    manifests = ArchiveStore.at(address).manifests()
    if not manifests:
        raise OperationalFailure(f"there is no archive at {address}: it holds no manifest")
    return manifests[0].format


def planned(address: str, bootstrap: str, topics: str) -> RestorePlan:
    """The plan of a restore. Raises OperationalFailure when the archive or the site does not allow
    it.
    """
    manifests = ArchiveStore.at(address).manifests()
    if not manifests:
        raise OperationalFailure(f"there is no archive at {address}: it holds no manifest")
    is_wanted = topic_filter([topics], [])
    plan = restore_plan(manifests, is_wanted)
    if not plan.topics:
        raise OperationalFailure(f"no topic of the archive matches {topics!r}: nothing was restored")
    offsets: dict[str, int] = {}
    for (name, _), ends in log_ends(bootstrap, is_wanted).items():
        offsets[name] = offsets.get(name, 0) + ends.end_offset
    there = {topic.name: topic for topic in site_topics(bootstrap, is_wanted).topics}
    if problems := refusals(plan, there, offsets, is_of_batches=manifests[0].format == BATCHES):
        raise OperationalFailure("; ".join(problems))
    return plan


async def create_topics(topics: Sequence[ArchivedTopic], controllers: Sequence[str], link: LinkClaim) -> None:
    """Create the topics with their ids under the link's name. Raises OperationalFailure."""
    wanted = [
        pb.NewTopic(
            name=topic.name,
            partition_count=topic.partition_count,
            replication_factor=SITE_DEFAULT,
            configs={name: value for name, value in topic.configs.items() if name != COPY_BEGINS},
            topic_id=UUID(topic.topic_id).bytes,
            link=link.name,
            link_epoch=link.epoch,
        )
        for topic in topics
    ]
    controller = ControllerClient(lambda: list(controllers), timeout_ms=CALL_TIMEOUT_MS)
    try:
        reply = await controller.create_topics(pb.CreateTopicsRequest(topics=wanted, timeout_ms=CALL_TIMEOUT_MS))
    except ControllerUnavailable as error:
        raise OperationalFailure(f"the site's controller does not answer: {error}") from error
    finally:
        await controller.close()
    for topic, result in zip(topics, reply.results, strict=True):
        if result.error_code not in (0, ErrorCode.topic_already_exists):
            raise OperationalFailure(f"topic {topic.name} cannot be created: {result.error_message}")


def restore_logs(
    spark: SparkSession, plan: RestorePlan, *, address: str, bootstrap: str, link: LinkClaim, progress: Progress
) -> None:
    """Append every log. Raises OperationalFailure when one does not end where the archive does."""
    append_one = partial(append_log, address, bootstrap, link)
    for log, end in in_waves(lambda: spark, plan.logs, append_one, "restored partitions:", progress):
        if end != log.end_offset:
            raise OperationalFailure(f"{log.topic}-{log.partition} ends at {end}, the archive at {log.end_offset}")


def append_log(address: str, bootstrap: str, link: LinkClaim, log: LogToRestore) -> int:
    """Append one log's files in order; returns where the log ends. KafkaClientError, InvalidBatch,
    OSError.
    """
    store = ArchiveStore.at(address)
    batches = (batch for paths in log.ranges for path in paths for batch in stored_batches(store.chunks(path)))
    return asyncio.run(_appended(bootstrap, link, log, joined(batches, APPEND_BYTES)))


async def _appended(
    bootstrap: str, link: LinkClaim, log: LogToRestore, appends: Iterator[tuple[BatchHeader, bytes]]
) -> int:
    end = start = -1
    async with client(bootstrap) as target:
        for first, records in appends:
            if start < 0:
                # The first batch may begin below the log start; the restored log begins with the
                # whole batch.
                start = end = min(first.base_offset, log.first_offset)
            end = await _append(target, link, log, expected=end, start=start, records=records)
        if start < log.first_offset:
            end = await _append(target, link, log, expected=end, start=log.first_offset, records=None)
    return end


async def _append(
    target: KafkaClient, link: LinkClaim, log: LogToRestore, *, expected: int, start: int, records: bytes | None
) -> int:
    """Append once, and return the log end; the broker recognises repeated batches."""
    part = PartitionToMirror(
        partition_index=log.partition,
        expected_log_end_offset=expected,
        source_high_watermark=log.end_offset,
        source_log_start_offset=start,
        source_seen_at_ms=round(time.time() * 1000),
        records=records,
    )
    request = MirrorAppend(link.name, link.epoch, [TopicToMirror(log.topic, log.topic_id, [part])])
    end = -1
    async for attempt in jittered_backoff(retry_on=TRANSIENT, budget_ms=RETRY_BUDGET_MS):
        with attempt:
            leader = await target.leader(log.topic, log.partition)
            answer: Any = (await target.mirror_append(leader, request)).topics[0].partitions[0]
            if answer.error_code:
                target.forget_leaders([log.topic])
                message = f"{log.topic}-{log.partition} at offset {expected}: {answer.error_message}"
                raise broker_error(answer.error_code, message=message, api_key=MIRROR_APPEND)
            end = answer.log_end_offset
    return end


async def wait_for_leader_epochs(bootstrap: str, topics: Sequence[str], floor: int) -> None:
    """Wait until every partition's leader epoch is above those of the archive.
    OperationalFailure.
    """
    await _eventually(
        bootstrap,
        lambda topic: all(partition.leader_epoch >= floor for partition in topic.partitions.values()),
        topics,
        f"the site's controller does not raise the leader epochs to {floor}",
    )


async def wait_for_leaders(bootstrap: str, topics: Sequence[ArchivedTopic]) -> None:
    """Wait until every partition has a leader. OperationalFailure."""
    counts = {topic.name: topic.partition_count for topic in topics}
    await _eventually(
        bootstrap,
        lambda topic: len([one for one in topic.partitions.values() if one.leader_id >= 0]) >= counts[topic.name],
        list(counts),
        "the restored topics have no leaders",
    )


async def _eventually(bootstrap: str, is_so: Callable[[Any], bool], topics: Sequence[str], problem: str) -> None:
    async with client(bootstrap) as target:
        async for attempt in jittered_backoff(
            retry_on=_NotYet, initial_ms=20, max_ms=500, budget_ms=EPOCHS_WITHIN_S * 1000
        ):
            with attempt:
                found = (await target.metadata(topics)).topics
                if not all(name in found and found[name].partitions and is_so(found[name]) for name in topics):
                    raise _NotYet(problem)


class _NotYet(OperationalFailure):
    """The awaited state is not reached yet."""
