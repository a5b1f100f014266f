"""Producers, consumers and an administrator: our own wire client over simulated connections, with
endless patience.

A producer repeats a batch until it is acknowledged and sends the next one only then; so an
idempotent producer gets OUT_OF_ORDER_SEQUENCE only if an acknowledged batch was lost. Consumers
read up to the high watermark and never give up a position.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from runtime.addresses import HostPort
from tests.sim.broker_process import KAFKA_PORT, METADATA_PATH, RPC_PORT
from tests.sim.ledger import Key, Ledger, body_of
from tests.sim.rpc import RpcChannel
from tests.sim.virtual_loop import Process
from tests.sim.world import EPOCH_MS, World
from tests.support.disks.log_batches import batch
from wire.batches.record_batch import iterate_headers
from wire.client.client_errors import KafkaClientError
from wire.client.connection import Connection, ConnectionOptions, open_connection
from wire.client.requests.broker_requests import request_fetch, request_produce
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.protocol.messages.produce_codec import PartitionRecords, ProduceRequest, TopicRecords

OPTIONS: Final = ConnectionOptions(
    client_id="simulated", software_name="simulated", connect_timeout_ms=500, request_timeout_ms=1500
)
NO_LEADER: Final = (-1, -1, "")
BATCHES_APART_S_MAX: Final = 0.01
"""Between two batches of a producer that are under way at the same time."""


class Router:
    """The leaders as one client knows them, and its connections."""

    def __init__(self, world: World, nodes: tuple[int, ...]) -> None:
        self.world = world
        self._nodes = nodes
        self._leaders: dict[str, tuple[int, int, str]] = {}
        self._connections: dict[int, Connection] = {}

    def leader_of(self, partition: str) -> tuple[int, int, str]:
        """Node, leader epoch and topic id in hexadecimal; the node is -1 while the leader is
        unknown.
        """
        return self._leaders.get(partition, NO_LEADER)

    async def refresh(self) -> None:
        """Ask some broker; a leader epoch never goes back."""
        node = self.world.chance.choice(self._nodes)
        channel = RpcChannel(self.world.network, f"b{node}:{RPC_PORT}")
        call = channel.unary_unary(METADATA_PATH, bytes, bytes)
        try:
            found = json.loads(await call(b"", timeout=0.5))
        except Exception as error:
            if isinstance(error, KeyError):
                raise
            return
        finally:
            await channel.close()
        for partition, (leader, epoch, topic_id) in found.items():
            known = self._leaders.get(partition, NO_LEADER)
            if epoch >= known[1] or topic_id != known[2]:
                self._leaders[partition] = (leader, epoch, topic_id)

    async def connection(self, node: int) -> Connection:
        """The open connection to a node. KafkaClientError."""
        known = self._connections.get(node)
        if known is None or not known.is_open:
            known = self._connections[node] = await open_connection(HostPort(f"b{node}", KAFKA_PORT), OPTIONS)
        return known


@dataclass
class Producer:
    """Writes to one partition for as long as it is wanted."""

    world: World
    ledger: Ledger
    router: Router
    name: str
    topic: str
    index: int
    acks: int
    producer_id: int
    pace_s: float
    window: int = 1
    """Batches that may be under way at a time."""
    is_wanted: bool = True
    sent: int = 0
    sequence: int = 0
    unanswered: list[bytes] = field(default_factory=list)

    @property
    def is_waiting(self) -> bool:
        """True while a record is not acknowledged."""
        return bool(self.unanswered)

    async def run(self) -> None:
        """Write batch after batch, as many at a time as the window allows."""
        while self.is_wanted:
            await self.world.pause(self.world.chance.uniform(0, 2 * self.pace_s))
            self.unanswered = [self._batch() for _ in range(self._how_many())]
            while self.unanswered:
                await self._deliver()

    def _how_many(self) -> int:
        """The number of batches to send at once; one at first, because a partition accepts any
        sequence from an unknown producer.
        """
        return self.world.chance.randint(1, self.window) if self.sequence else 1

    def _batch(self) -> bytes:
        self.sent += 1
        count = self.world.chance.choice((1, 1, 1, 2, 3))
        is_idempotent = self.producer_id >= 0
        content = batch(
            [f"{self.name}:{self.sent}.{part}".encode() for part in range(count)],
            timestamp_ms=EPOCH_MS,
            producer_id=self.producer_id,
            producer_epoch=0 if is_idempotent else -1,
            sequence=self.sequence if is_idempotent else -1,
        )
        self.sequence += count
        return content

    async def _deliver(self) -> None:
        """Make one attempt for all records without a response, in order."""
        leader, _, topic_id = self.router.leader_of(f"{self.topic}-{self.index}")
        if leader >= 0:
            key = (bytes.fromhex(topic_id), self.index)
            codes = await self._attempt_all(leader, key[0])
            self._judge(codes, is_waived=key in self.ledger.waived)
            if not self.unanswered:
                return
        await self.world.pause(self.world.chance.uniform(0.01, 0.1))
        await self.router.refresh()

    def _judge(self, codes: list[ErrorCode], *, is_waived: bool) -> None:
        if codes[0] is ErrorCode.out_of_order_sequence_number and self.acks == -1:
            # everything before it was acknowledged
            if is_waived:
                self.producer_id = -1
                self.unanswered = []
                return
            self.world.violate("acknowledged-records-stay", f"{self.name} is told that its sequence is out of order")
        pairs = zip(self.unanswered, codes, strict=True)
        self.unanswered = [content for content, code in pairs if code is not ErrorCode.none]

    async def _attempt_all(self, leader: int, topic_id: bytes) -> list[ErrorCode]:
        try:
            connection = await self.router.connection(leader)
        except KafkaClientError:
            return [ErrorCode.network_exception for _ in self.unanswered]
        chance = self.world.chance
        # a client sends each batch when it is full, so the leader may refuse one and take the next
        delays_s = accumulate(chance.uniform(0, BATCHES_APART_S_MAX) for _ in self.unanswered[1:])
        sent = zip(self.unanswered, (0.0, *delays_s), strict=True)
        return await asyncio.gather(
            *(self._attempt(connection, content, topic_id, delay_s=delay_s) for content, delay_s in sent)
        )

    async def _attempt(self, connection: Connection, content: bytes, topic_id: bytes, *, delay_s: float) -> ErrorCode:
        if delay_s:
            await self.world.pause(delay_s)
        records = TopicRecords(self.topic, UUID(bytes=topic_id), [PartitionRecords(self.index, content)])
        try:
            response = await request_produce(connection, ProduceRequest(None, self.acks, 1000, [records]))
        except KafkaClientError:
            return ErrorCode.network_exception
        assert response is not None
        produced = response.topics[0].partitions[0]
        code = ErrorCode(produced.error_code)
        if code is ErrorCode.none and self.acks == -1:
            self.ledger.acknowledge((topic_id, self.index), produced.base_offset, body_of(content))
        return code


@dataclass
class Consumer:
    """Reads one partition."""

    world: World
    ledger: Ledger
    router: Router
    topic: str
    index: int
    position: int = 0
    topic_id: str = ""
    isolation_level: int = 0
    failures: dict[str, int] = field(default_factory=dict)

    async def run(self) -> None:
        """Read without end."""
        while True:
            leader, epoch, topic_id = self.router.leader_of(f"{self.topic}-{self.index}")
            if topic_id != self.topic_id:
                self.topic_id, self.position = topic_id, 0
            has_read = leader >= 0 and await self._read(leader, epoch, bytes.fromhex(topic_id))
            if not has_read:
                await self.world.pause(self.world.chance.uniform(0.02, 0.2))
                await self.router.refresh()

    async def _read(self, leader: int, epoch: int, topic_id: bytes) -> bool:
        at = PartitionToFetch(self.index, self.position, 1 << 20, epoch)
        wanted = FetchRequest(
            [TopicToFetch(self.topic, UUID(bytes=topic_id), [at])], 400, isolation_level=self.isolation_level
        )
        try:
            response = await request_fetch(await self.router.connection(leader), wanted)
        except KafkaClientError:
            return False
        if response.error_code or not response.topics:
            return False
        fetched = response.topics[0].partitions[0]
        code = ErrorCode(fetched.error_code)
        if code is ErrorCode.offset_out_of_range and (topic_id, self.index) in self.ledger.waived:
            self.position = 0
        elif code is ErrorCode.offset_out_of_range:
            self.world.violate(
                "read-records-never-change",
                f"{self.topic}-{self.index} was read up to {self.position}, which its leader {leader} of epoch {epoch} does not have",
            )
        if code is not ErrorCode.none:
            return False
        self._take((topic_id, self.index), fetched)
        return True

    def _take(self, key: Key, fetched: Any) -> None:
        records = fetched.records or b""
        if fetched.high_watermark < self.position:
            return  # a new leader does not know yet how far it is
        for position, header in iterate_headers(records):
            if header.base_offset >= self.position:
                content = bytes(records[position : position + header.size_bytes])
                self.ledger.consume(key, header.base_offset, body_of(content))
                self.position = header.next_offset


def client_process(world: World, name: str) -> Process:
    """A process for clients, on a host of its own."""
    return Process(world.loop, name, name)
