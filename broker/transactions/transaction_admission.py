"""Ask a transaction's coordinator whether a partition takes part, or add the partition (KIP-890).

A leader asks before a transaction's first batch enters a partition; producers of the newer protocol
leave the adding to the leader altogether. The coordinator may be this broker or another one of the
site. Called by the Produce and TxnOffsetCommit handlers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from broker.coordination.state_shard import CoordinatorRefusal
from broker.network.peer_brokers import PeerBrokers
from broker.transactions.core.transaction_messages import AddPartitions, AddReply, VerifyPartitions
from broker.transactions.core.transaction_states import BUMPING_CLIENT_VERSION
from broker.transactions.transaction_coordinator import TransactionCoordinator
from broker.transactions.transaction_routing import TransactionRouting
from wire.client.client_errors import KafkaClientError
from wire.protocol.ids import NO_NODE, TopicPartition

ADD_PARTITIONS_TO_TXN: Final = 24
_VERSION: Final = 5
QUESTIONS_MAX: Final = 5
"""The number of attempts while markers overtake the question: the last transaction's markers do so
once; more come from another producer.
"""


class Writer(NamedTuple):
    """The identity of a transactional write."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionAdmission:
    """Asks coordinators, of this broker and of others."""

    def __init__(
        self, node_id: int, routing: TransactionRouting, coordinator: TransactionCoordinator, peers: PeerBrokers
    ) -> None:
        self._node_id = node_id
        self._routing = routing
        self._coordinator = coordinator
        self._peers = peers

    async def admit(
        self, writer: Writer, partitions: Collection[TopicPartition], *, is_added: bool
    ) -> Mapping[TopicPartition, ErrorCode]:
        """The outcome by partition; with `is_added` they become part of the transaction."""
        node_id = self._routing.coordinator(writer.transactional_id)
        if node_id == NO_NODE:
            # retriable: the image names a coordinator after the next election
            return dict.fromkeys(partitions, ErrorCode.coordinator_not_available)
        try:
            if node_id == self._node_id:
                reply = await self._ask_here(writer, partitions, is_added=is_added)
            else:
                reply = await self._ask_there(node_id, writer, partitions, is_added=is_added)
        except CoordinatorRefusal as refusal:
            return dict.fromkeys(partitions, refusal.code)
        except KafkaClientError:
            return dict.fromkeys(partitions, ErrorCode.coordinator_not_available)
        return _by_partition(reply, partitions)

    def admit_now(
        self, writer: Writer, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode] | None:
        """Check that the partitions are part of the transaction, as `admit` does without
        `is_added`. None when the answer takes a while: another broker coordinates, or the
        coordinator is busy with the transaction.
        """
        question = VerifyPartitions(
            transactional_id=writer.transactional_id,
            producer_id=writer.producer_id,
            producer_epoch=writer.producer_epoch,
            partitions=frozenset(partitions),
        )
        try:
            reply = self._coordinator.verified_now(question)
        except CoordinatorRefusal as refusal:
            # a refusal counts only where this broker coordinates; elsewhere the other one is asked
            is_here = self._routing.coordinator(writer.transactional_id) == self._node_id
            return dict.fromkeys(partitions, refusal.code) if is_here else None
        return None if reply is None else _by_partition(reply, partitions)

    async def _ask_here(self, writer: Writer, partitions: Collection[TopicPartition], *, is_added: bool) -> AddReply:
        named = frozenset(partitions)
        if not is_added:
            return await self._coordinator.verify_partitions(VerifyPartitions(**writer._asdict(), partitions=named))
        command = AddPartitions(**writer._asdict(), partitions=named, client_version=BUMPING_CLIENT_VERSION)
        return await self._coordinator.add_partitions(command)

    async def _ask_there(
        self, node_id: int, writer: Writer, partitions: Collection[TopicPartition], *, is_added: bool
    ) -> AddReply:
        by_topic: dict[str, list[int]] = {}
        for partition in partitions:
            by_topic.setdefault(partition.topic, []).append(partition.partition)
        topics = [{"name": topic, "partitions": indexes} for topic, indexes in by_topic.items()]
        transaction: dict[str, Any] = {**writer._asdict(), "verify_only": not is_added, "topics": topics}
        response = await self._peers.call(
            node_id, ADD_PARTITIONS_TO_TXN, {"transactions": [transaction]}, version=_VERSION
        )
        errors = {
            TopicPartition(topic.name, found.partition_index): found.partition_error_code
            for result in response.results_by_transaction
            for topic in result.topic_results
            for found in topic.results_by_partition
        }
        return AddReply(error=response.error_code, errors=errors)


def _by_partition(reply: AddReply, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, ErrorCode]:
    return reply.errors if reply.error is ErrorCode.none else dict.fromkeys(partitions, reply.error)
