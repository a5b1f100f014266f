"""The measured systems: a broker or a site of either product with its addresses and processes,
ended with the block that started it.

Both products run as shipped, on loopback, with eight partitions a topic. Both may run at the same
time, but only one has load at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from bench.measuring.figures import Side
from runtime.children import Child
from runtime.process import OperationalFailure
from wire.client.raw_client import KafkaClient, NewTopic, call_client
from wire.protocol.ids import DEBUGGING_CONSUMER, LATEST_TIMESTAMP, PartitionKey

PARTITION_COUNT = 8
BROKER_SETTINGS = {"log.segment.delete.delay.ms": "1000", "log.retention.check.interval.ms": "1000"}
"""Settings of both products: deleted topics leave disk and page cache soon. All other settings are
the defaults.
"""
STOP_TIMEOUT_MS = 60_000
DELETED_WITHIN_S = 60
POLL_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBroker:
    """A broker that serves."""

    side: Side
    bootstrap_servers: str
    child: Child

    @property
    def pid(self) -> int:
        """Its process. OperationalFailure when it has ended."""
        pid = self.child.pid()
        if pid is None:
            raise OperationalFailure(f"{self.child.name} has ended: {self.child.log_tail()}")
        return pid


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSite:
    """Several brokers that serve as one site, by node id. Each broker can be stopped and started
    separately.
    """

    side: Side
    addresses: Mapping[int, str]
    children: Mapping[int, Child]

    @property
    def bootstrap_servers(self) -> str:
        """Every broker."""
        return ",".join(self.addresses.values())

    def pid(self, node_id: int) -> int:
        """The process of one broker. OperationalFailure when it has ended."""
        return MeasuredBroker(
            side=self.side, bootstrap_servers=self.addresses[node_id], child=self.children[node_id]
        ).pid

    def wait_complete(self, *, within_s: float) -> None:
        """Wait until each broker's own metadata names all of them."""
        for node_id, address in self.addresses.items():
            wait_until(
                lambda: call_client(address, _known_brokers) >= set(self.addresses),  # noqa: B023 (called at once)
                within_s=within_s,
                what=f"the site as {self.children[node_id].name} sees it",
                child=self.children[node_id],
            )


async def _known_brokers(client: KafkaClient) -> set[int]:
    return set((await client.metadata([])).brokers)


@contextmanager
def ended_with_the_block(site: MeasuredSite) -> Iterator[None]:
    """At the end of the block, stop all running processes of the site, in parallel."""
    try:
        yield
    finally:
        with ThreadPoolExecutor(max_workers=len(site.children)) as threads:
            list(threads.map(lambda child: child.stop(timeout_ms=STOP_TIMEOUT_MS), site.children.values()))


@contextmanager
def running(
    child: Child, is_ready: Callable[[], bool], *, within_s: float, stop_timeout_ms: int = STOP_TIMEOUT_MS
) -> Iterator[None]:
    """Start a process, wait until it is ready, end it with the block."""
    try:
        child.start()
        wait_until(is_ready, within_s=within_s, what=child.name, child=child)
        yield
    finally:
        child.stop(timeout_ms=stop_timeout_ms)


def wait_until(
    is_ready: Callable[[], bool],
    *,
    within_s: float,
    what: str,
    child: Child | None = None,
    every_s: float = POLL_S,
) -> None:
    """Ask until it is so. Raises OperationalFailure if the time is over or the process has
    ended.
    """
    deadline = time.monotonic() + within_s
    while not is_ready():
        if child is not None and child.pid() is None:
            raise OperationalFailure(f"{what} ended while it was starting: {child.log_tail()}")
        if time.monotonic() > deadline:
            raise OperationalFailure(f"{what} is not ready after {within_s:g} s")
        time.sleep(every_s)


def create_topic(
    bootstrap_servers: str,
    topic: str,
    *,
    replication_factor: int = 1,
    partition_count: int = PARTITION_COUNT,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Create a topic and wait until each partition has a leader. Raises OperationalFailure with the
    broker's answer.
    """

    async def create(client: KafkaClient) -> None:
        (outcome,) = await client.create_topics(
            [
                NewTopic(
                    name=topic,
                    partition_count=partition_count,
                    replication_factor=replication_factor,
                    configs=configs or {},
                )
            ]
        )
        if outcome.error_code is not ErrorCode.none:
            raise OperationalFailure(f"topic {topic} cannot be created: {outcome.error_code.name}")
        await client.offsets_at([(topic, index) for index in range(partition_count)], LATEST_TIMESTAMP)

    call_client(bootstrap_servers, create)


def delete_topic(bootstrap_servers: str, topic: str) -> None:
    """Delete a topic. Its files leave the disk a moment later."""

    async def delete(client: KafkaClient) -> None:
        await client.delete_topics([topic])

    call_client(bootstrap_servers, delete)


def delete_topic_and_files(broker: MeasuredBroker, topic: str) -> None:
    """Delete a topic and wait until its files have left the disk: the broker itself frees the
    pages of a deleted file, which takes a third of the CPU of a load, and no next load may be
    charged for it. OperationalFailure after a minute.
    """
    delete_topic(broker.bootstrap_servers, topic)
    wait_until(
        lambda: not any(broker.child.directory.rglob(f"{topic}-*")),
        within_s=DELETED_WITHIN_S,
        what=f"the deletion of topic {topic} at {broker.child.name}",
    )


def record_count(bootstrap_servers: str, topic: str) -> int:
    """The number of records in a topic from offset 0 on."""

    async def ask(client: KafkaClient) -> int:
        return await end_offset_sum(client, topic)

    return call_client(bootstrap_servers, ask)


async def end_offset_sum(client: KafkaClient, topic: str) -> int:
    """Sum of the end offsets of a topic's partitions."""
    ends = await client.offsets_at(_partitions(topic), LATEST_TIMESTAMP, replica_id=DEBUGGING_CONSUMER)
    return sum(ends.values())


def check_complete(bootstrap_servers: str, topic: str, count: int) -> None:
    """Raises OperationalFailure unless the topic holds exactly this many records: the figure of a
    run that lost records is not used.
    """
    found = record_count(bootstrap_servers, topic)
    if found != count:
        raise OperationalFailure(f"{count} records were sent to {topic}, but it has {found}")


def _partitions(topic: str) -> list[PartitionKey]:
    return [(topic, partition) for partition in range(PARTITION_COUNT)]
