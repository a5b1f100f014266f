"""Classic high-level consumers for tests: a broker with a ZooKeeper chroot of its own, members, the
owner of each partition, background readers.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

from clients.classic.classic_settings import ZooKeeperConsumerOptions
from clients.classic.streams import Stream
from clients.classic.zookeeper_consumer import ZooKeeperConsumer
from clients.reader.core.positions import ResetPolicy
from clients.reader.reader_options import ReaderOptions
from runtime.zookeeper.client import ZooKeeper
from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.eventually import eventually
from tests.support.sites.site_node import SiteNode
from wire.client.raw_client import KafkaClient, NewTopic
from wire.znodes.consumer_znodes import owner_path, owners_path

WITHIN_MS = 120_000


class Site:
    """A broker with a ZooKeeper chroot of its own."""

    def __init__(self, node: SiteNode, connect: str) -> None:
        self.node = node
        self.connect = connect

    async def new_topic(self, partitions: int, prefix: str = "t") -> str:
        """The name of a topic that no other test uses."""
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        async with KafkaClient(self.node.bootstrap) as client:
            await client.create_topics([NewTopic(name=name, partition_count=partitions)])
        return name

    async def produce(self, topic: str, first: int, end: int, partitions: int) -> None:
        """These numbers, to the partitions in turn."""
        records = [Record(value=b"%d" % number, partition=number % partitions) for number in range(first, end)]
        await asyncio.to_thread(librdkafka_produce, self.node.bootstrap, topic, records)


def options_of(group: str, **options: Any) -> ZooKeeperConsumerOptions:
    """Options of a member that soon tries a failed rebalance again; `options` replace them."""
    given = {
        "rebalance_backoff_ms": 50,
        "rebalance_attempts_max": 1000,  # another member may be slow to let go
        "auto_commit_interval_ms": 60_000,
        "session_timeout_ms": 20_000,  # a machine that stands still for a moment ends none
        "reader": ReaderOptions(policy=ResetPolicy.EARLIEST, max_wait_ms=50, leader_backoff_ms=50),
        **options,
    }
    return ZooKeeperConsumerOptions(group_id=group, **given)


@contextlib.asynccontextmanager
async def member(
    connect: str, group: str, on_step: Any = None, listener: Any = None, **options: Any
) -> AsyncIterator[ZooKeeperConsumer]:
    """A member for as long as the block runs."""
    given = options_of(group, **options)
    zookeeper = ZooKeeper(connect, session_timeout_ms=given.session_timeout_ms)
    await zookeeper.start()
    async with ZooKeeperConsumer(zookeeper, given, on_step=on_step, listener=listener) as consumer:
        yield consumer


async def owners(connect: str, group: str, topic: str) -> dict[int, str]:
    """The owners' nodes, read directly."""
    zookeeper = ZooKeeper(connect)
    await zookeeper.start()
    try:
        if await zookeeper.exists(owners_path(group, topic)) is None:
            return {}
        found = {}
        for name in await zookeeper.children(owners_path(group, topic)):
            reported = await zookeeper.get_or_none(owner_path(group, topic, int(name)))
            if reported is not None:
                found[int(name)] = reported[0].decode()
        return found
    finally:
        await zookeeper.stop()


class Read:
    """Reads streams in the background and keeps what came."""

    def __init__(self, *streams: Stream) -> None:
        self.values: list[int] = []
        self._tasks = [asyncio.create_task(self._read(stream)) for stream in streams]

    async def _read(self, stream: Stream) -> None:
        async for _, record in stream.records():
            self.values.append(int(record.value or b""))

    async def has(self, count: int) -> None:
        """Wait until so many values have come. Raises the error that ended a stream."""

        def enough() -> bool:
            for task in self._tasks:
                if task.done():
                    task.result()
            return len(self.values) >= count

        await eventually(enough, WITHIN_MS)
