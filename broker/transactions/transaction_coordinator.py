"""The transaction coordinator of a broker: a shard for each partition of `__transaction_state` that
it leads.

Handlers call its methods. If this broker cannot serve a request now, the method raises
CoordinatorRefusal with the code for the client. A request that comes before the former transaction
has all its markers waits for them for a moment, so that a producer seldom gets
CONCURRENT_TRANSACTIONS and backs off. Unused transactional ids are removed in the background.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeVar

from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from broker.coordination.shard_leadership import ShardLeadership
from broker.coordination.state_shard import CoordinatorRefusal, InternalLog
from broker.metadata.core.cluster_image import ClusterImage
from broker.settings.config import BrokerSettings
from broker.transactions.core.transaction_machine import TransactionLimits
from broker.transactions.core.transaction_messages import (
    AddPartitions,
    AddReply,
    CarryProducer,
    EndTransaction,
    Expire,
    InitProducer,
    ProducerReply,
    TransactionCommand,
    TransactionReply,
    VerifyPartitions,
)
from broker.transactions.core.transaction_states import Transaction, TransactionState
from broker.transactions.transaction_routing import TransactionRouting
from broker.transactions.transaction_shard import Markers, TransactionShard
from runtime.clock import Clock
from wire.batches.transaction_records import TRANSACTIONS_TOPIC
from wire.control.clients import ControllerUnavailable

MARKERS_WAIT_MS: Final = 200
"""Time (ms) that a request waits for the markers of the previous transaction."""
IDS_PER_TURN: Final = 256
OTHER_PRODUCER_ERRORS: Final = frozenset(
    {
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.invalid_txn_state,
        ErrorCode.producer_fenced,
        ErrorCode.transaction_abortable,
    }
)
"""Errors that say that the transactional id is in another state than the producer supposes. A
client gives up its transaction after them.
"""

ReplyT = TypeVar("ReplyT", bound=TransactionReply)


class ProducerIdSource(Protocol):
    """The source of producer ids."""

    async def next_id(self) -> int:
        """A unique id; ControllerUnavailable."""
        ...


def transaction_limits(settings: BrokerSettings) -> TransactionLimits:
    """The machine's bounds from the broker's settings."""
    return TransactionLimits(
        timeout_ms_max=settings.transaction_timeout_ms_max, expiration_ms=settings.transactional_id_expiration_ms
    )


class TransactionCoordinator:
    """The coordinator of all transactional ids whose partitions this broker leads. Made inside the
    running loop.
    """

    def __init__(
        self,
        limits: TransactionLimits,
        internal_log: InternalLog,
        routing: TransactionRouting,
        clock: Clock,
        *,
        producer_ids: ProducerIdSource,
        markers: Markers,
        may_answer: Callable[[], bool] = lambda: True,
        expiry_interval_ms: float = 3_600_000,
    ) -> None:
        self._limits = limits
        self._log = internal_log
        self._routing = routing
        self._clock = clock
        self._producer_ids = producer_ids
        self._markers = markers
        self._expiry_interval_ms = expiry_interval_ms
        self._was_elsewhere = False
        self._led: ShardLeadership[TransactionShard] = ShardLeadership(
            TRANSACTIONS_TOPIC,
            internal_log,
            clock,
            partition_count=routing.partition_count,
            make=self._made,
            may_answer=may_answer,
        )

    # --- leadership

    def start(self) -> None:
        """Begin to forget unused transactional ids."""
        self._led.keep("expiry of transactional ids", self._expire_again_and_again)

    async def on_image(self, _before: ClusterImage, _after: ClusterImage) -> None:
        """Take over a new image (an `ImageListener`). When another site becomes active, abort what
        is open here.
        """
        # First of all: a shard that is lost must not abandon any entry here.
        self._led.refresh()
        is_elsewhere = self._is_elsewhere()
        # Only at the change: later images repeat it, and a shard that is loaded later checks it
        # itself.
        if is_elsewhere and not self._was_elsewhere:
            for shard in self._led:
                if shard.is_loaded:
                    shard.abandon()
        self._was_elsewhere = is_elsewhere

    def _is_elsewhere(self) -> bool:
        return self._routing.active_elsewhere() is not None

    def _made(self, partition: int, leader_epoch: int) -> TransactionShard:
        return TransactionShard(
            partition,
            leader_epoch,
            limits=self._limits,
            internal_log=self._log,
            clock=self._clock,
            markers=self._markers,
            on_failure=self._led.shard_failed,
            is_elsewhere=self._is_elsewhere,
        )

    async def stop(self) -> None:
        """Write what is decided, answer all waiting requests, and end all timers and tasks."""
        await self._led.stop()

    # --- producers

    async def init_producer(self, command: InitProducer) -> ProducerReply:
        """InitProducerId with a transactional id: its former producer is fenced and its open
        transaction aborted.
        """
        return await self._ask_patiently(command, ProducerReply)

    async def add_partitions(self, command: AddPartitions) -> AddReply:
        """AddPartitionsToTxn; answers when the partitions are in the log."""
        return await self._ask_patiently(command, AddReply)

    async def verify_partitions(self, command: VerifyPartitions) -> AddReply:
        """Ask whether the partitions take part in the transaction."""
        return await self._ask(command, AddReply)

    def verified_now(self, command: VerifyPartitions) -> AddReply | None:
        """Verify like `verify_partitions`; None when the answer takes a while. Raises
        CoordinatorRefusal.
        """
        return self._shard(command.transactional_id).answer_now(command)

    async def end(self, command: EndTransaction) -> ProducerReply:
        """EndTxn; answers when the decision is in the log. Its markers follow. Nothing is committed
        under a link's fence.
        """
        return await self._ask_patiently(command, ProducerReply)

    async def carry(self, command: CarryProducer, *, link: str, link_epoch: int) -> ErrorCode:
        """MirrorTransactionalIds: only while another site coordinates, at the link's epoch.
        CoordinatorRefusal.
        """
        error = self._routing.mirror_error(link=link, link_epoch=link_epoch)
        if error is not ErrorCode.none:
            raise CoordinatorRefusal(error)
        partition = self._routing.partition_of(command.transactional_id)
        if partition is None:
            raise CoordinatorRefusal(ErrorCode.coordinator_not_available)
        reply = await self._led.loaded(partition).ask(command)
        return reply.error

    def _is_held(self, command: TransactionCommand) -> bool:
        """True if the command waits until the fence ends or the other site is active: the standby
        receives the producers as of the fence.
        """
        if isinstance(command, InitProducer):
            return self._routing.is_moving()
        return self._routing.is_fenced(self._committed_topics(command))

    def _committed_topics(self, command: TransactionCommand) -> frozenset[str]:
        """The topics of the open transaction that the command commits; none for another command."""
        if not isinstance(command, EndTransaction) or not command.is_commit:
            return frozenset()
        known = self.describe(command.transactional_id)
        if known is None or known.state is not TransactionState.ONGOING:
            return frozenset()
        return frozenset(at.topic for at in known.partitions)

    async def _ask_patiently(self, command: TransactionCommand, reply_type: type[ReplyT]) -> ReplyT:
        reply = await self._ask(command, reply_type)
        if reply.error is not ErrorCode.concurrent_transactions:
            return reply
        # Checked again, because the coordinator may have moved while the command ran.
        shard = self._shard(command.transactional_id)
        await shard.wait_until_over(command.transactional_id, timeout_ms=MARKERS_WAIT_MS)
        return await self._ask(command, reply_type)

    async def _ask(self, command: TransactionCommand, reply_type: type[ReplyT]) -> ReplyT:
        reply = await self._ask_once(command)
        if isinstance(reply, ProducerReply) and reply.needs_producer_id:
            # Only when an id is needed: ids come in blocks and must not be wasted.
            fresh = await self._fresh_producer_id()
            if isinstance(command, InitProducer | EndTransaction):
                reply = await self._ask_once(replace(command, fresh_producer_id=fresh))
        if not isinstance(reply, reply_type):
            raise TypeError(f"{command!r} was answered with {reply!r}")
        return reply

    async def _ask_once(self, command: TransactionCommand) -> TransactionReply:
        """Send the command to its shard. After every wait this checks again that this broker
        coordinates the transactional id and that no fence and no doubt forbid the command.
        """
        shard = self._shard(command.transactional_id)
        if self._is_held(command):
            # Every client retries after this code, and the fence ends soon.
            raise CoordinatorRefusal(ErrorCode.coordinator_load_in_progress)
        # A site that returns does not know yet whether another one was promoted, which has aborted
        # the transaction, or goes on with the producer: clients look for the coordinator again.
        if self._routing.is_unconfirmed(self._committed_topics(command)):
            raise CoordinatorRefusal(ErrorCode.not_coordinator)
        reply = await shard.ask(command)
        if reply.error in OTHER_PRODUCER_ERRORS and self._routing.is_in_doubt():
            raise CoordinatorRefusal(ErrorCode.not_coordinator)
        return reply

    async def _fresh_producer_id(self) -> int:
        try:
            return await self._producer_ids.next_id()
        except ControllerUnavailable as error:
            # without a controller there is no id; the client waits as for a load
            raise CoordinatorRefusal(ErrorCode.coordinator_load_in_progress) from error

    # --- reading

    def describe(self, transactional_id: str) -> Transaction | None:
        """The transactional id, None when it is not known. CoordinatorRefusal."""
        return self._shard(transactional_id).transactions.get(transactional_id)

    def list_transactions(self) -> Iterator[Transaction]:
        """Transactional ids coordinated here."""
        for shard in self._led:
            if shard.is_loaded:
                yield from shard.transactions

    @property
    def loaded_partitions(self) -> list[int]:
        """Partitions of `__transaction_state` whose transactions are known here."""
        return self._led.loaded_partitions

    async def settled(self) -> None:
        """Wait until every decision that was taken so far is in the log or has failed."""
        await asyncio.gather(*(shard.settled() for shard in self._led))

    @property
    def is_loading(self) -> bool:
        """True while some partition is not loaded yet."""
        return self._led.is_loading

    @property
    def count(self) -> int:
        """Transactional ids here, for the metrics (called from their thread)."""
        return sum(len(shard.transactions) for shard in self._led)

    def _shard(self, transactional_id: str) -> TransactionShard:
        partition = self._routing.partition_of(transactional_id)
        if partition is None or self._routing.active_elsewhere() is not None:
            raise CoordinatorRefusal(ErrorCode.not_coordinator)
        return self._led.loaded(partition)

    # --- expiry

    async def _expire_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(self._expiry_interval_ms / 1000)
            await self.expire()

    async def expire(self) -> None:
        """Forget transactional ids that were not used for the expiration time."""
        handled = 0
        for shard in self._led:
            for transaction in shard.transactions if shard.is_loaded else ():
                if shard.is_ended:
                    break
                shard.submit(Expire(transactional_id=transaction.transactional_id))
                handled += 1
                if handled % IDS_PER_TURN == 0:
                    await asyncio.sleep(0)
