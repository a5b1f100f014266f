"""The reading half of a classic group's member: its streams, the reader below them, and the
consumed offsets that are not committed yet.

Fetchers stop before a partition is released and start after it is claimed; the consumed offsets are
kept in between, so that a failed rebalance loses none of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from kazoo.exceptions import KazooException

from clients.classic.classic_settings import ZooKeeperConsumerOptions
from clients.classic.offset_stores import OffsetsRefused, OffsetStore, offset_store
from clients.classic.streams import Stream, ThreadStreams
from clients.reader.core.positions import Position
from clients.reader.core.readings import Start
from clients.reader.reader import Reader
from runtime.addresses import HostPort
from runtime.clock import Clock
from runtime.zookeeper.client import ZooKeeper
from wire.client.client_errors import KafkaClientError
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import PartitionKey

NewClient = Callable[[Sequence[HostPort]], KafkaClient]


class MemberReading:
    """`open` makes the reader as soon as brokers are known; `on_failure` gets the error that ended
    it.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        options: ZooKeeperConsumerOptions,
        new_client: NewClient,
        clock: Clock,
        *,
        name: str,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._zookeeper = zookeeper
        self._options = options
        self._new_client = new_client
        self._clock = clock
        self._name = name
        self._on_failure = on_failure
        self._router = ThreadStreams()
        self._clients: list[KafkaClient] = []
        self.reader: Reader | None = None
        self.store: OffsetStore | None = None
        self.streams: dict[str, Stream] = {}
        self.uncommitted: dict[PartitionKey, int] = {}

    @property
    def places(self) -> list[PartitionKey]:
        """The partitions that are fetched now."""
        return [] if self.reader is None else self.reader.readings.places

    def positions(self) -> dict[PartitionKey, int]:
        """Consumed offsets of the own partitions."""
        if self.reader is None:
            return {}
        return {place: at.offset for place, at in self.reader.readings.positions().items()}

    def add_stream(self, thread: str) -> None:
        """Add the stream of a thread."""
        self.streams[thread] = Stream(
            chunks_max=self._options.queued_chunks_max,
            timeout_ms=self._options.consumer_timeout_ms,
            reader=lambda: self.reader,
        )

    def end_streams(self, error: Exception | None) -> None:
        """End all streams; an error is raised in each of them."""
        for stream in self.streams.values():
            stream.end(error)

    def open(self, brokers: Sequence[HostPort]) -> None:
        """Make the reader and the store of offsets when brokers are known for the first time."""
        if self.reader is not None:
            return
        self._clients = [self._new_client(brokers) for _ in range(2 + self._options.reader.fetchers)]
        client, offsets_client, *fetchers = self._clients
        self.store = offset_store(
            self._options.group_id,
            self._zookeeper,
            offsets_client,
            storage=self._options.offsets_storage,
            is_dual_commit=self._options.is_dual_commit,
        )
        self.reader = Reader(client, fetchers, self._router, self._options.reader, self._clock, name=self._name)
        self.reader.on_failure = self._on_failure
        self.reader.start()

    async def stop_fetchers(self) -> None:
        """Stop the fetchers and drop the queued chunks; the positions stay for the commit."""
        if self.reader is None:
            return
        self.uncommitted.update(self.positions())
        await self.reader.stop_fetchers()
        for stream in self.streams.values():
            stream.clear()

    def start(self, own: Mapping[PartitionKey, str], offsets: Mapping[PartitionKey, int]) -> None:
        """Fetch the own partitions for the streams of their threads, from these offsets on."""
        assert self.reader is not None, "call open before"
        self._router.by_partition = {place: self.streams[thread] for place, thread in own.items()}
        known = {place: Start(Position(offset)) for place, offset in offsets.items()}
        self.reader.begin({place: known.get(place, Start()) for place in own})

    async def commit_once(self, offsets: Mapping[PartitionKey, int]) -> None:
        """Commit; the store's errors."""
        if self.store is not None and offsets:
            await self.store.commit(offsets)

    async def commit_patiently(self, offsets: Mapping[PartitionKey, int]) -> None:
        """Commit, with a few retries while that may help; raises the store's last error."""
        for attempt in range(1, self._options.commit_attempts_max + 1):
            try:
                await self.commit_once(offsets)
            except (KazooException, KafkaClientError, OffsetsRefused) as error:
                is_final = isinstance(error, OffsetsRefused) and not error.is_retriable
                if is_final or attempt == self._options.commit_attempts_max:
                    raise
                await asyncio.sleep(self._options.commit_backoff_ms / 1000)
            else:
                return

    async def close_reader(self) -> None:
        """Stop reading; the last positions stay for the commit."""
        self.uncommitted.update(self.positions())
        if self.reader is not None:
            await self.reader.close()

    async def close_clients(self) -> None:
        """Close the connections, after the last commit."""
        for client in self._clients:
            await client.close()
