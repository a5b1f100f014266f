"""The driver's requests to a cluster before and between reads: its partitions, their logs, sizes
and leader epochs. Callers: the readers of the data source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple, Self, TypeVar

from kio.schema.errors import ErrorCode

from runtime.retries import jittered_backoff
from spark_jobs.connector.core.offsets import LogRange, PartitionOffsets
from spark_jobs.connector.core.options import Subscription
from spark_jobs.logs.cluster_client import RETRY_BUDGET_MS, open_client, replica_id_of
from spark_jobs.logs.core.cluster_options import ClusterOptions
from spark_jobs.logs.epoch_ends import epoch_ends
from spark_jobs.logs.log_sizes import log_bytes
from wire.batches.record_batch import iterate_headers
from wire.client.client_errors import TRANSIENT, broker_error
from wire.client.raw_client import KafkaClient
from wire.client.requests.broker_requests import EpochEndOffset, OffsetQuery
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.client.requests.group_requests import CommittedOffset
from wire.protocol.ids import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, PartitionKey
from wire.rules.topic_names import is_internal_topic

Answer = TypeVar("Answer")


class Logs(NamedTuple):
    """The partitions of a read and where their logs start and end."""

    ranges: Mapping[PartitionKey, LogRange]

    def only(self, has: Callable[[str, int], bool]) -> Logs:
        """Return the logs that a read is narrowed to."""
        return Logs({key: log for key, log in self.ranges.items() if has(*key)})


class ClusterReader:
    """One cluster, or one site of a link, from code without an event loop. Use as a context, or
    call `close`.
    """

    def __init__(self, options: ClusterOptions, *, isolation_level: int = 0) -> None:
        self._options = options
        self._replica_id = replica_id_of(options)
        self._isolation_level = isolation_level
        self._runner = asyncio.Runner()
        self._client: KafkaClient | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            self._runner.run(self._client.close())
            self._client = None
        self._runner.close()

    def partitions(self, subscription: Subscription) -> list[PartitionKey]:
        """The partitions that a subscription names, sorted. KafkaClientError; BrokerError for a
        topic that is not there.
        """
        return self._run(lambda client: _partitions(client, subscription))

    def existing(self, partitions: Iterable[PartitionKey]) -> set[PartitionKey]:
        """Those of the partitions that the cluster has. KafkaClientError."""
        wanted = set(partitions)

        async def ask(client: KafkaClient) -> set[PartitionKey]:
            topics = (await client.metadata(sorted({topic for topic, _ in wanted}))).topics
            return {(topic, one) for topic, one in wanted if topic in topics and one in topics[topic].partitions}

        return self._run(ask)

    def logs(self, partitions: Iterable[PartitionKey]) -> Logs:
        """The start of each log, and the end of the part that may be read."""
        wanted = list(partitions)

        async def ask(client: KafkaClient) -> Logs:
            first = await client.offsets_at(wanted, EARLIEST_TIMESTAMP, replica_id=self._replica_id)
            last = await client.offsets_at(
                wanted, LATEST_TIMESTAMP, replica_id=self._replica_id, isolation_level=self._isolation_level
            )
            return Logs({key: LogRange(first[key], last[key]) for key in wanted})

        return self._run(ask)

    def at_times(self, times: Mapping[PartitionKey, int]) -> PartitionOffsets:
        """The first offset at or after each partition's time (Unix ms) in the part that may be
        read, NO_OFFSET without one.
        """

        async def attempt(client: KafkaClient) -> PartitionOffsets:
            by_leader: dict[int, dict[PartitionKey, OffsetQuery]] = {}
            for key, time_ms in times.items():
                by_leader.setdefault(await client.leader(*key), {})[key] = OffsetQuery(time_ms)
            found: PartitionOffsets = {}
            for node, queries in by_leader.items():
                listing = client.list_offsets(
                    node, queries, replica_id=self._replica_id, isolation_level=self._isolation_level
                )
                for key, listed in (await listing).items():
                    _check(client, key, listed.error_code)
                    found[key] = listed.offset
            return found

        return self._run(lambda client: _retried(client, times, attempt))

    def epoch_ends(self, epochs: Mapping[PartitionKey, int]) -> dict[PartitionKey, EpochEndOffset]:
        """The end offset of each partition's leader epoch in its log."""
        if not epochs:
            return {}
        return self._run(lambda client: epoch_ends(client, epochs, replica_id=self._replica_id))

    def epochs_before(self, offsets: Mapping[PartitionKey, int]) -> PartitionOffsets:
        """The leader epoch of the last record below each offset, without partitions that have
        none.
        """

        async def attempt(client: KafkaClient) -> PartitionOffsets:
            found: PartitionOffsets = {}
            for key, offset in offsets.items():
                records = await self._record_at(client, key, offset - 1)
                for _, header in iterate_headers(records, may_end_in_partial=True):
                    if header.base_offset < offset:
                        found[key] = header.partition_leader_epoch
            return found

        return self._run(lambda client: _retried(client, offsets, attempt)) if offsets else {}

    def log_bytes(self, partitions: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """The size of each log at its leader, in bytes; without the logs whose broker does not
        report it.
        """
        wanted = list(partitions)
        return self._run(lambda client: log_bytes(client, wanted))

    def note_progress(
        self, group: str, offsets: Mapping[PartitionKey, int], epochs: Mapping[PartitionKey, int]
    ) -> None:
        """Write offsets of a group that has no members. KafkaClientError."""

        async def ask(client: KafkaClient) -> None:
            positions = {key: CommittedOffset(offset, epochs.get(key, -1)) for key, offset in offsets.items()}
            for (topic, partition), code in (await client.commit(group, positions)).items():
                if code:
                    raise broker_error(code, message=f"{topic}-{partition}")

        self._run(ask)

    async def _record_at(self, client: KafkaClient, key: PartitionKey, offset: int) -> memoryview:
        """The batch at an offset; empty when the log does not have it."""
        topic, partition = key
        leader = await client.leader(topic, partition)
        known = client.cluster.topics.get(topic)
        wanted = TopicToFetch(topic, known.topic_id if known else None, [PartitionToFetch(partition, offset, 1)])
        request = FetchRequest([wanted], max_wait_ms=0, max_bytes=1, replica_id=self._replica_id)
        fetched = (await client.fetch(leader, request)).topics[0].partitions[0]
        if fetched.error_code == ErrorCode.offset_out_of_range:
            return memoryview(b"")
        _check(client, key, ErrorCode(fetched.error_code))
        return fetched.records if isinstance(fetched.records, memoryview) else memoryview(b"")

    def _run(self, ask: Callable[[KafkaClient], Coroutine[Any, Any, Answer]]) -> Answer:
        async def answered() -> Answer:
            if self._client is None:
                self._client = await open_client(self._options)
            return await ask(self._client)

        return self._runner.run(answered())


async def _partitions(client: KafkaClient, subscription: Subscription) -> list[PartitionKey]:
    if subscription.partitions:
        return list(subscription.partitions)
    names = sorted(subscription.topics) or None
    topics = (await client.metadata(names)).topics
    for name, topic in topics.items():
        if names and topic.error_code:
            raise broker_error(topic.error_code, message=name, api_key=3)
    return [
        (name, partition)
        for name, topic in sorted(topics.items())
        if subscription.has(name) and (names or not is_internal_topic(name))
        for partition in sorted(topic.partitions)
    ]


async def _retried(
    client: KafkaClient,
    keys: Iterable[PartitionKey],
    attempt: Callable[[KafkaClient], Awaitable[Answer]],
) -> Answer:
    topics = sorted({topic for topic, _ in keys})

    async def once() -> Answer:
        try:
            return await attempt(client)
        except TRANSIENT:
            client.forget_leaders(topics)
            raise

    result: Answer = await jittered_backoff(retry_on=TRANSIENT, budget_ms=RETRY_BUDGET_MS)(once)
    return result


def _check(client: KafkaClient, key: PartitionKey, code: ErrorCode) -> None:
    if code:
        client.forget_leaders([key[0]])
        raise broker_error(code, message=f"{key[0]}-{key[1]}")
