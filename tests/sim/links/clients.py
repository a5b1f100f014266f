"""Clients of two sites, by the project's own client over merged metadata: producers that follow the
active site, and a consumer group that commits offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from kio.schema.errors import ErrorCode

from tests.sim.ledger import body_of
from tests.sim.links.ledger import LinkLedger
from tests.sim.links.plan import GROUP
from tests.sim.world import EPOCH_MS, World
from tests.support.disks.log_batches import batch
from wire.client.client_errors import KafkaClientError
from wire.client.connection import ConnectionOptions
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset
from wire.protocol.messages.produce_codec import PartitionRecords, ProduceRequest, TopicRecords

OPTIONS: Final = ConnectionOptions(client_id="simulated", software_name="simulated", connect_timeout_ms=500)
TIMEOUT_MS: Final = 2_500
PATIENCE_MS: Final = 30_000
"""The timeout of clients by default, longer than a failover takes."""
BUDGET_MS: Final = 1_000
UNANSWERED: Final = ErrorCode.network_exception


def open_client(bootstrap: str, *, request_timeout_ms: int) -> KafkaClient:
    """A client of both sites."""
    options = replace(OPTIONS, request_timeout_ms=request_timeout_ms)
    return KafkaClient(bootstrap, options, retry_budget_ms=BUDGET_MS)


@dataclass
class LinkProducer:
    """Writes to one partition with acks=all: a batch is repeated until it is acknowledged."""

    world: World
    ledger: LinkLedger
    client: KafkaClient
    name: str
    topic: str
    index: int
    pace_s: float
    timeout_ms: int
    is_wanted: bool = True
    is_waiting: bool = False
    sent: int = 0

    async def run(self) -> None:
        """Batch after batch."""
        while True:
            await self.world.pause(self.world.chance.uniform(0, 2 * self.pace_s))
            if not self.is_wanted:
                continue
            self.is_waiting = True
            self.sent += 1
            content = batch([f"{self.name}:{self.sent}.".encode()], timestamp_ms=EPOCH_MS)
            while not await self._attempt(content):
                self.client.forget_leaders([self.topic])
                await self.world.pause(self.world.chance.uniform(0.02, 0.2))
            self.is_waiting = False

    async def _attempt(self, content: bytes) -> bool:
        records = TopicRecords(self.topic, None, [PartitionRecords(self.index, content)])
        try:
            node = await self.client.leader(self.topic, self.index)
            response = await self.client.produce_to(node, ProduceRequest(None, -1, self.timeout_ms, [records]))
        except KafkaClientError:
            return False
        assert response is not None
        produced = response.topics[0].partitions[0]
        if produced.error_code:
            return False
        self.ledger.acknowledge((self.topic, self.index), produced.base_offset, body_of(content), node)
        return True


@dataclass
class LinkCommitter:
    """Commits growing offsets of a group without members, up to the end of its partition."""

    world: World
    client: KafkaClient
    producer: LinkProducer
    pace_s: float
    is_wanted: bool = True
    is_waiting: bool = False
    acknowledged: int = -1
    unanswered: set[int] = field(default_factory=set)

    async def run(self) -> None:
        """Commit after commit."""
        place = (self.producer.topic, self.producer.index)
        while True:
            await self.world.pause(self.world.chance.uniform(0, 2 * self.pace_s))
            offset = max(
                (one.base_offset for one in self.producer.ledger.acknowledged if one.place == place), default=0
            )
            if not self.is_wanted or offset <= self.acknowledged:
                continue
            self.is_waiting = True
            while not await self._commit(place, offset):
                await self.world.pause(self.world.chance.uniform(0.02, 0.2))
            self.is_waiting = False

    async def _commit(self, place: tuple[str, int], offset: int) -> bool:
        self.unanswered.add(offset)
        try:
            outcome = await self.client.commit(GROUP, {place: CommittedOffset(offset)})
        except KafkaClientError:
            return False
        if outcome[place] is not ErrorCode.none:
            return False
        self.acknowledged = offset
        self.unanswered.clear()
        return True
