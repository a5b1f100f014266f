"""A transaction coordinator over a log in memory, with producer ids and markers that a test can
hold back.
"""

from __future__ import annotations

import asyncio

from kio.schema.errors import ErrorCode

from broker.coordination.state_shard import CoordinatorRefusal
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from broker.transactions.core.transaction_machine import TransactionLimits
from broker.transactions.core.transaction_messages import AddPartitions, EndTransaction, InitProducer, ProducerReply
from broker.transactions.core.transaction_states import Transaction, TransactionState
from broker.transactions.transaction_coordinator import TransactionCoordinator
from broker.transactions.transaction_routing import TransactionRouting
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.memory.memory_log import MemoryLog
from wire.batches.transaction_records import TRANSACTIONS_TOPIC
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo, PartitionState, TopicInfo
from wire.protocol.ids import TopicPartition

T0 = TopicPartition("t", 0)


class Ids:
    """Producer ids from 7 on."""

    def __init__(self) -> None:
        self.last = 6
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0

    async def next_id(self) -> int:
        self.waiting += 1
        await self.gate.wait()
        self.last += 1
        return self.last


class Markers:
    """Notes what is to be marked; `gate` holds it back while it is cleared."""

    def __init__(self) -> None:
        self.sent: list[tuple[TransactionState, int, int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0

    async def send(self, transaction: Transaction, coordinator_epoch: int) -> None:
        self.waiting += 1
        try:
            await self.gate.wait()
        finally:
            self.waiting -= 1
        self.sent.append((transaction.state, transaction.producer_epoch, coordinator_epoch))


class TransactionSite:
    """A broker that leads every partition of `__transaction_state`."""

    def __init__(self, clock: ManualClock) -> None:
        self.log = MemoryLog()
        self.log.epochs = {0: 1}
        self.markers = Markers()
        self.ids = Ids()
        partitions = [PartitionState(partition=0, leader=1)]
        batch = ControlBatch(
            is_full=True,
            brokers=[BrokerInfo(node_id=1)],
            topics=[TopicInfo(name=TRANSACTIONS_TOPIC, topic_id=b"x" * 16, partitions=partitions)],
        )
        self.image = apply_batch(ClusterImage(site="a", node_id=1), batch)
        self.routing = TransactionRouting(lambda: self.image)
        self.coordinator = TransactionCoordinator(
            TransactionLimits(),
            self.log,
            self.routing,
            clock,
            producer_ids=self.ids,
            markers=self.markers,
        )

    async def loaded(self) -> None:
        await self.coordinator.on_image(self.image, self.image)
        await eventually(lambda: not self.coordinator.is_loading)

    async def init(self) -> ProducerReply:
        return await self.coordinator.init_producer(InitProducer(transactional_id="tx", timeout_ms=10_000))

    async def add(self, epoch: int) -> ErrorCode:
        command = AddPartitions(
            transactional_id="tx", producer_id=7, producer_epoch=epoch, partitions=frozenset((T0,)), client_version=2
        )
        return (await self.coordinator.add_partitions(command)).error

    async def end(self, epoch: int, *, is_commit: bool = True) -> ProducerReply:
        command = EndTransaction(
            transactional_id="tx", producer_id=7, producer_epoch=epoch, is_commit=is_commit, is_bumped=True
        )
        return await self.coordinator.end(command)

    def state(self) -> TransactionState | None:
        try:
            known = self.coordinator.describe("tx")
        except CoordinatorRefusal:
            return None
        return None if known is None else known.state
