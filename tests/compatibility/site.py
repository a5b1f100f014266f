"""A site for client checks, and the content of its logs and group offsets, read only by our batch
reader.

Values are read as they lie in the leader's log, so a client's own reading proves nothing about its
writing, nor the other way round.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from kio.schema.errors import ErrorCode

from tests.support.eventually import eventually_sync
from tests.support.pairs.site_comparison import batches
from wire.batches.record_batch import Compression
from wire.batches.records import Record, decode_batch, encode_batch
from wire.client.raw_client import KafkaClient, NewTopic, call_client
from wire.client.requests.group_requests import CommittedOffset
from wire.protocol.ids import DEBUGGING_CONSUMER, LATEST_TIMESTAMP

SITE_S_DEFAULT = -1
SETTLE_WITHIN_MS = 60_000
BATCH_RECORDS = 20

Placed = tuple[int, bytes]
"""Offset and value of a record."""


class Site:
    """The addresses that clients connect to, a folder for their files, and the addresses that our
    own tools check the results at, which may be those of another site.
    """

    def __init__(
        self, bootstrap_servers: str, scratch: Path, *, home_servers: str | None = None, replication_factor: int = 1
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.home_servers = home_servers or bootstrap_servers
        """Of the site that leads the topics."""
        self.scratch = scratch
        self.replication_factor = replication_factor
        """Of topics that ask for none."""
        self._run = uuid.uuid4().hex[:4]
        self._numbers = itertools.count(1)

    def fresh(self, purpose: str) -> str:
        """A name that nothing at this site has yet."""
        return f"{purpose}-{self._run}-{next(self._numbers)}"

    def create_topic(self, purpose: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """A fresh topic."""
        name = self.fresh(purpose)

        async def create(client: KafkaClient) -> None:
            wanted = NewTopic(
                name=name, partition_count=partitions, replication_factor=SITE_S_DEFAULT, configs=configs or {}
            )
            (outcome,) = await client.create_topics([wanted])
            # a retry after a lost answer finds the topic that the first request made
            assert outcome.error_code in (ErrorCode.none, ErrorCode.topic_already_exists), outcome

        call_client(self.home_servers, create)
        return name

    def write(
        self, topic: str, values: Sequence[bytes], *, partition: int = 0, compression: Compression = Compression.NONE
    ) -> None:
        """Append these values in batches of a few."""
        now_ms = round(time.time() * 1000)

        async def append(client: KafkaClient) -> None:
            for first in range(0, len(values), BATCH_RECORDS):
                records = [
                    Record(key=None, value=value, timestamp_ms=now_ms)
                    for value in values[first : first + BATCH_RECORDS]
                ]
                await client.produce(topic, partition, encode_batch(records, compression=compression))

        call_client(self.home_servers, append)

    def read(self, topic: str, partition: int = 0) -> list[Placed]:
        """Offset and value of everything in a partition, aborted records included, markers left
        out.
        """

        async def read(client: KafkaClient) -> list[Placed]:
            end = await _log_end(client, topic, partition)
            found: list[Placed] = []
            async for header, batch in batches(client, (topic, partition), 0, end):
                if not header.is_control:
                    found += [(record.offset, record.value or b"") for record in decode_batch(batch, 0, header)]
            return found

        return call_client(self.home_servers, read)

    def compressions(self, topic: str) -> set[Compression]:
        """The codecs of the batches in partition 0."""

        async def ask(client: KafkaClient) -> set[Compression]:
            end = await _log_end(client, topic, 0)
            return {Compression(header.compression) async for header, _ in batches(client, (topic, 0), 0, end)}

        return call_client(self.home_servers, ask)

    def is_transactional(self, topic: str) -> bool:
        """Whether every record of partition 0 is part of a transaction."""

        async def ask(client: KafkaClient) -> bool:
            end = await _log_end(client, topic, 0)
            return all([header.is_transactional async for header, _ in batches(client, (topic, 0), 0, end)])

        return call_client(self.home_servers, ask)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """A group's offsets in a topic, by partition."""

        async def ask(client: KafkaClient) -> dict[int, int]:
            offsets = await client.committed(group)
            return {index: kept.offset for (name, index), kept in offsets.items() if name == topic}

        return call_client(self.home_servers, ask)

    def commit(self, group: str, topic: str) -> None:
        """Make a group that has an offset and no members."""

        async def commit(client: KafkaClient) -> None:
            (error,) = (await client.commit(group, {(topic, 0): CommittedOffset(0)})).values()
            assert not error, error

        call_client(self.home_servers, commit)

    def configs(self, topic: str) -> dict[str, str | None]:
        """The configs set on a topic; empty when it does not exist."""

        async def ask(client: KafkaClient) -> dict[str, str | None]:
            return (await client.topic_configs([topic])).get(topic, {})

        return call_client(self.home_servers, ask)

    def topic_id(self, topic: str) -> uuid.UUID:
        """The topic's id."""

        async def ask(client: KafkaClient) -> uuid.UUID:
            found = (await client.metadata([topic])).topics[topic].topic_id
            assert found is not None, topic
            return found

        return call_client(self.home_servers, ask)

    def replicas(self, topic: str) -> set[int]:
        """How many replicas its partitions have."""

        async def ask(client: KafkaClient) -> set[int]:
            partitions = (await client.metadata([topic])).topics[topic].partitions
            return {len(partition.replicas) for partition in partitions.values()}

        return call_client(self.home_servers, ask)

    def topics(self) -> dict[str, int]:
        """Number of partitions by topic, internal ones left out."""

        async def ask(client: KafkaClient) -> dict[str, int]:
            found = (await client.metadata()).topics
            return {name: len(topic.partitions) for name, topic in found.items() if not name.startswith("__")}

        return call_client(self.home_servers, ask)

    def wait_committed(self, group: str, topic: str, total: int) -> None:
        """Wait until the group's offsets in a topic add up to this: those of a transaction count
        some time after it was committed.
        """
        eventually_sync(lambda: sum(self.committed(group, topic).values()) == total, SETTLE_WITHIN_MS)


async def _log_end(client: KafkaClient, topic: str, partition: int) -> int:
    """Of this partition alone: clients that run beside delete topics of their own."""
    place = (topic, partition)
    return (await client.offsets_at([place], LATEST_TIMESTAMP, replica_id=DEBUGGING_CONSUMER))[place]
