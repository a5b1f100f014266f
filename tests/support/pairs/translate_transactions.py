"""Translate links that write in transactions, for tests: one topic's link, the records that a
read-committed reader finds, and a scenario of kills.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mirror.translate.notes.core.stored_map import StoredLink
from mirror.translate.notes.offset_store import TOPIC_PREFIX, read_topic
from mirror.translate.transactions import TRANSACTIONAL_ID_PREFIX
from runtime.retries import jittered_backoff
from tests.support.eventually import eventually
from tests.support.pairs.mirror_calls import describe_mirror, verify_mirror
from tests.support.pairs.translate_links import (
    EQUAL_WITHIN_MS,
    mirrored_something,
    produce_batches,
    read_partition,
    start_translate_mirror,
    until_a_random_moment,
    wait_equal,
)
from tests.support.processes.processes import Processes, RunningProcess
from wire.client.client_errors import TRANSIENT
from wire.client.raw_client import KafkaClient
from wire.client.requests.transaction_requests import request_identity
from wire.protocol.ids import LATEST_TIMESTAMP, TopicPartition

PARTITIONS = 3
PAUSE_OF_LOAD_S = 0.1
"""Between rounds: what has been written is compared again after each kill."""

TRANSACTIONS = {"antipode.target.transactions": "true"}

States = dict[int, tuple[str, str]]
"""State and reason by partition."""


@dataclass
class TransactionalLink:
    """A link of one topic between two clusters, whose mirrors write in transactions; the topic is
    there.
    """

    processes: Processes
    directory: Path
    source: str
    target: str
    topic: str
    partitions: int = PARTITIONS
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def copy(self) -> str:
        """The topic's name at the target."""
        return f"a.{self.topic}"

    def start_mirror(self, name: str = "mirror", settings: Mapping[str, str] | None = None) -> RunningProcess:
        """Start a mirror of the topic, with these settings over those of the link."""
        given = {
            "link.name": self.topic,
            "whitelist": self.topic,
            "max.partition.fetch.bytes": "20000",
            **TRANSACTIONS,
        }
        given |= dict(self.settings) | dict(settings or {})
        return start_translate_mirror(self.processes, self.directory, name, self.source, self.target, given)

    async def produce(self, first: int, batches: int = 20, *, partitions: Sequence[int] | None = None) -> None:
        """Numbered batches to these partitions; None: to all."""
        for partition in range(self.partitions) if partitions is None else partitions:
            await produce_batches(self.source, self.topic, partition, first, batches)

    @asynccontextmanager
    async def loaded(self) -> AsyncIterator[None]:
        """While the block runs, batches go to all partitions, again and again."""
        stop = asyncio.Event()
        loading = asyncio.create_task(self._load_until(stop))
        try:
            yield
        finally:
            stop.set()
            rounds = await loading
        assert rounds > 0

    async def _load_until(self, stop: asyncio.Event) -> int:
        rounds = 0
        while not stop.is_set():
            for partition in range(self.partitions):
                await produce_batches(self.source, self.topic, partition, rounds * 10, 10, size=100)
            rounds += 1
            await asyncio.sleep(PAUSE_OF_LOAD_S)
        return rounds

    async def mirrored_something(self) -> None:
        """Wait until the target has more than it has now."""
        await mirrored_something(self.target, self.copy, self.partitions)

    async def each_partition_went_on(self) -> None:
        """Wait until read-committed readers see more of each partition than now."""
        before = await self._committed_ends()

        async def have_more() -> bool:
            return all(end > before[place] for place, end in (await self._committed_ends()).items())

        await eventually(have_more)

    async def _committed_ends(self) -> dict[tuple[str, int], int]:
        async with KafkaClient(self.target) as client:
            places = [(self.copy, partition) for partition in range(self.partitions)]
            return dict(await client.offsets_at(places, LATEST_TIMESTAMP, isolation_level=1))

    async def wait_equal(self, within_ms: float = EQUAL_WITHIN_MS) -> None:
        """Wait until the target has as many records as the source, then demand the same ones in the
        same order.
        """
        await wait_equal(self.source, self.target, self.topic, self.partitions, within_ms=within_ms)

    async def demand_prefixes(self) -> None:
        """The visible records of each partition are a prefix of the source's: nothing twice,
        nothing missing, nothing out of order.
        """
        for partition in range(self.partitions):
            ours = await read_partition(self.target, self.copy, partition)
            theirs = await read_partition(self.source, self.topic, partition)
            assert ours.records == theirs.records[: len(ours.records)], f"{self.copy}-{partition}"

    async def demand_agreement(self) -> None:
        """Without an open transaction, the visible records of each partition are those of the
        stored position and map, record by record and offset by offset.
        """
        stored = await self.noted()
        for partition in range(self.partitions):
            key = TopicPartition(self.topic, partition)
            ours = await read_partition(self.target, self.copy, partition)
            theirs = await read_partition(self.source, self.topic, partition)
            translation = stored.translation(key)
            expected = [at for at in theirs.offsets if at < translation.position.source_next]
            assert ours.records == theirs.records[: len(expected)], (
                f"{key}: seen {len(ours.records)}, noted {len(expected)}"
            )
            end = translation.position.target_next
            assert [translation.map.downstream(at, end=end) for at in expected] == ours.offsets, (
                f"{key}: the map differs"
            )

    async def wait_agreement(self) -> None:
        """Wait until nothing is open any more and records and notes agree."""

        async def do_agree() -> bool:
            await self.demand_agreement()
            return True

        await eventually(do_agree)

    async def noted(self) -> StoredLink:
        """The records that a read-committed reader finds in the link's topic."""
        stored = StoredLink()
        async with KafkaClient(self.target) as client:
            await read_topic(client, TOPIC_PREFIX + self.topic, stored.apply)
        return stored

    async def end_what_is_open(self) -> None:
        """The first actions of a successor: the previous writer of the link is fenced, and its
        transaction aborted.
        """
        async with KafkaClient(self.target) as client:

            async def once() -> None:
                name = TRANSACTIONAL_ID_PREFIX + self.topic
                connection = await client.connection(await client.transaction_coordinator(name))
                await request_identity(connection, name, timeout_ms=60_000)

            await jittered_backoff(retry_on=TRANSIENT, initial_ms=10, max_ms=200, budget_ms=60_000)(once)

    async def is_nothing_open(self) -> bool:
        """True if the last stable offset of the first partition is its high watermark."""
        async with KafkaClient(self.target) as client:
            place = (self.copy, 0)
            stable = (await client.offsets_at([place], LATEST_TIMESTAMP, isolation_level=1))[place]
            return stable == (await client.offsets_at([place], LATEST_TIMESTAMP))[place]

    async def states(self, mirror: RunningProcess) -> States:
        """The states of the topic's partitions, as a mirror reports them."""
        reply = await describe_mirror(mirror)
        return {one.partition: (one.state, one.reason) for one in reply.partitions if one.topic == self.topic}

    async def wait_faulted(self, mirror: RunningProcess, reason: str) -> None:
        """Wait until all partitions are FAULTED, for a reason with these words."""

        async def are_faulted() -> bool:
            states = await self.states(mirror)
            assert len(states) == self.partitions
            assert all(state == "FAULTED" and reason in why for state, why in states.values()), states
            return True

        await eventually(are_faulted)


class MakeLink(Protocol):
    """Makes the topic and a link of it; its target is Apache Kafka unless asked for Antipode."""

    async def __call__(
        self,
        topic: str,
        *,
        is_antipode: bool = False,
        target: str = "",
        partitions: int = PARTITIONS,
        settings: Mapping[str, str] | None = None,
    ) -> TransactionalLink:
        """`target`: the address of another one."""
        ...


async def demand_whole_transactions_under_kills(link: TransactionalLink, *, kills: int, chance: random.Random) -> None:
    """After each kill, with the open transaction ended, records and notes agree; at the end
    everything is there, once and in order.
    """
    mirror = link.start_mirror()
    async with link.loaded():
        for _ in range(kills):
            await link.mirrored_something()
            await until_a_random_moment(chance)
            mirror.kill()
            await link.end_what_is_open()
            await link.demand_agreement()
            mirror.start()
    await link.wait_equal()
    found = await verify_mirror(mirror, link.topic)
    assert [one.verdict for one in found] == ["equal"] * link.partitions, found
