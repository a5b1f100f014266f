"""Asks a site where its logs start and end: the driver's part of every job, without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from runtime.process import OperationalFailure
from spark_jobs.logs.cluster_client import site_of
from spark_jobs.logs.core.splits import LogEnds, is_reached
from spark_jobs.logs.epoch_ends import epoch_ends
from spark_jobs.logs.log_reader import client
from spark_jobs.logs.log_sizes import log_bytes
from wire.client.client_errors import KafkaClientError
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import DEBUGGING_CONSUMER, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, PartitionKey
from wire.rules.links import matches
from wire.rules.topic_names import is_internal_topic

POLL_S = 0.1

TopicFilter = Callable[[str], bool]
Answer = TypeVar("Answer")


def topic_filter(whitelist: Sequence[str], blacklist: Sequence[str]) -> TopicFilter:
    """A filter like a link's: whole names, the blacklist wins, internal topics never match."""
    return lambda name: not is_internal_topic(name) and matches(name, whitelist=whitelist, blacklist=blacklist)


def log_ends(bootstrap: str, is_wanted: TopicFilter) -> dict[PartitionKey, LogEnds]:
    """Every partition's ends. Raises OperationalFailure when the site does not answer for all of
    them.
    """

    async def ask() -> dict[PartitionKey, LogEnds]:
        async with client(bootstrap) as reader:
            return await _ends(reader, is_wanted)

    return asyncio.run(answered(bootstrap, ask))


def log_sizes(bootstrap: str, partitions: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
    """The size of each log at its leader, in bytes; without the logs whose broker does not report
    it. Raises OperationalFailure when the site does not answer.
    """
    wanted = list(partitions)

    async def ask() -> dict[PartitionKey, int]:
        async with client(bootstrap) as reader:
            return await log_bytes(reader, wanted)

    return asyncio.run(answered(bootstrap, ask))


def ends_of_epochs(bootstrap: str, epochs: Mapping[PartitionKey, int]) -> dict[PartitionKey, tuple[int, int]]:
    """The largest leader epoch of each log that is not above the given one, and its end offset; -1
    for both without one. Raises OperationalFailure when the site does not answer for all of them.
    """

    async def ask() -> dict[PartitionKey, tuple[int, int]]:
        async with client(bootstrap) as reader:
            found = await epoch_ends(reader, epochs, replica_id=DEBUGGING_CONSUMER) if epochs else {}
        return {key: (end.leader_epoch, end.end_offset) for key, end in found.items()}

    return asyncio.run(answered(bootstrap, ask))


def first_since(bootstrap: str, is_wanted: TopicFilter, until_ms: int) -> dict[PartitionKey, int]:
    """The first offset of each partition whose record is stamped `until_ms` or later; partitions
    without one are left out.
    """

    async def ask() -> dict[PartitionKey, int]:
        async with client(bootstrap) as reader:
            keys = await _partitions(reader, is_wanted)
            found = await reader.offsets_at(keys, until_ms, replica_id=DEBUGGING_CONSUMER)
        return {key: offset for key, offset in found.items() if offset >= 0}

    return asyncio.run(answered(bootstrap, ask))


def settled_ends(
    bootstrap: str, is_wanted: TopicFilter, snapshot: dict[PartitionKey, LogEnds], *, timeout_ms: int
) -> dict[PartitionKey, LogEnds]:
    """The ends when they have reached the snapshot, or when time is up."""

    async def ask() -> dict[PartitionKey, LogEnds]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        async with client(bootstrap) as reader:
            found = await _ends(reader, is_wanted)
            while not is_reached(snapshot, found) and loop.time() < deadline:
                await asyncio.sleep(POLL_S)
                found = await _ends(reader, is_wanted)
            return found

    return asyncio.run(answered(bootstrap, ask))


def topic_names(bootstrap: str) -> list[str]:
    """All topics of the site that a comparison may be about, sorted."""

    async def ask() -> list[str]:
        async with client(bootstrap) as reader:
            return sorted(name for name in (await reader.metadata()).topics if not is_internal_topic(name))

    return asyncio.run(answered(bootstrap, ask))


def site_name(bootstrap: str) -> str:
    """The name of the brokers' site; empty for brokers of none, as those of Apache Kafka. Raises
    OperationalFailure when they do not answer.
    """

    async def ask() -> str:
        async with client(bootstrap) as reader:
            return await site_of(reader)

    return asyncio.run(answered(bootstrap, ask))


def compacted_topics(bootstrap: str, topics: Sequence[str]) -> set[str]:
    """Return the topics whose cleanup policy compacts them."""

    async def ask() -> set[str]:
        async with client(bootstrap) as reader:
            configs = await reader.topic_configs(list(topics), is_set_only=False) if topics else {}
        return {name for name, values in configs.items() if "compact" in (values.get("cleanup.policy") or "")}

    return asyncio.run(answered(bootstrap, ask))


async def answered(bootstrap: str, ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """The answer of one site. Raises OperationalFailure when the site does not give it."""
    try:
        return await ask()
    except (KafkaClientError, ValueError) as error:
        raise OperationalFailure(f"the site at {bootstrap} cannot be asked: {error}") from error


async def _partitions(reader: KafkaClient, is_wanted: TopicFilter) -> list[PartitionKey]:
    metadata = await reader.metadata()
    return [
        (name, partition)
        for name, topic in sorted(metadata.topics.items())
        if is_wanted(name)
        for partition in sorted(topic.partitions)
    ]


async def _ends(reader: KafkaClient, is_wanted: TopicFilter) -> dict[PartitionKey, LogEnds]:
    keys = await _partitions(reader, is_wanted)
    first = await reader.offsets_at(keys, EARLIEST_TIMESTAMP, replica_id=DEBUGGING_CONSUMER)
    last = await reader.offsets_at(keys, LATEST_TIMESTAMP, replica_id=DEBUGGING_CONSUMER)
    return {key: LogEnds(start_offset=first[key], end_offset=last[key]) for key in keys}
