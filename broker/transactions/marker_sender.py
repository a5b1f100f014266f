"""Send the decision of a transaction to its partitions until each one has it.

Partitions led here get a marker directly, others by WriteTxnMarkers, or by EndTransactions where
links mirror several of them: such a marker names the others. A partition is done when its
leader has committed the marker, when it is deleted, when it knows a newer producer epoch (then its
transaction is over), or when another site leads it (that site aborts open transactions). All other
outcomes are retried. Called by `transaction_shard.py`, which cancels running work when it ends; the
next coordinator starts again, and a repeated marker does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import ClusterImage, LinkRole
from broker.network.peer_brokers import PeerBrokers
from broker.transactions.core.transaction_states import Transaction, TransactionState
from broker.transactions.marker_groups import TransactionEnd
from broker.transactions.transaction_markers import TransactionMarkers
from runtime.logs import get_logger
from runtime.retries import jittered_backoff
from wire.batches.transaction_members import SINK_PREFIX, TransactionMembers, encode_members
from wire.client.client_errors import KafkaClientError, UnsupportedApi
from wire.protocol.ids import TopicPartition
from wire.protocol.messages.transaction_end_messages import END_TRANSACTIONS

log = get_logger(__name__)

WRITE_TXN_MARKERS: Final = 27
_VERSION: Final = 2
BACKOFF_INITIAL_MS: Final = 20
BACKOFF_MAX_MS: Final = 1000

_SETTLED: Final = (
    ErrorCode.none,
    ErrorCode.invalid_producer_epoch,
    ErrorCode.transaction_coordinator_fenced,
)
_UNREACHED: Final = ErrorCode.network_exception


class _PartitionsLeft(Exception):
    """Some partitions have no marker yet."""


class MarkerSender:
    """Sends the markers of decided transactions."""

    def __init__(self, image: Callable[[], ClusterImage], markers: TransactionMarkers, peers: PeerBrokers) -> None:
        self._image = image
        self._markers = markers
        self._peers = peers

    async def send(self, transaction: Transaction, coordinator_epoch: int) -> None:
        """Return when every partition of the transaction is done."""
        end = TransactionEnd(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            is_commit=transaction.state is TransactionState.PREPARE_COMMIT,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction.client_version,
            members=_members(transaction, self._image()),
        )
        left = set(transaction.partitions)
        # The first round starts at once, because most transactions end with it.
        left -= await self._round(end, left)
        if not left:
            return
        retrying = jittered_backoff(retry_on=_PartitionsLeft, initial_ms=BACKOFF_INITIAL_MS, max_ms=BACKOFF_MAX_MS)
        async for attempt in retrying:
            with attempt:
                left -= await self._round(end, left)
                if left:
                    raise _PartitionsLeft(f"{len(left)} partitions of {transaction.transactional_id}")

    async def _round(self, end: TransactionEnd, left: Collection[TopicPartition]) -> set[TopicPartition]:
        """Try once for all; those that are done."""
        # a new image for each round: leaders may have moved since the last one
        image = self._image()
        done: set[TopicPartition] = set()
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in sorted(left):
            found = image.partition(*partition)
            # A topic that a complete image lacks is deleted, unless the controller cannot read it
            # now. For a topic that is active at the other site, that site aborts open transactions.
            is_deleted = found is None and image.is_complete and partition.topic not in image.quarantined
            if is_deleted or image.role_of_topic(partition.topic) is LinkRole.PASSIVE:
                done.add(partition)
            # without a leader the partition waits for the next round
            elif found is not None and found.leader >= 0:
                by_leader.setdefault(found.leader, []).append(partition)
        asked = [self._ask(image.node_id, leader, end, partitions) for leader, partitions in by_leader.items()]
        # most transactions end at one broker, which needs no task of its own
        answers = [await asked[0]] if len(asked) == 1 else await asyncio.gather(*asked)
        for outcomes in answers:
            for partition, error in outcomes.items():
                if error in _SETTLED:
                    done.add(partition)
                if error is not ErrorCode.none:
                    log.info(
                        "transaction marker refused",
                        topic=partition.topic,
                        partition=partition.partition,
                        producer_id=end.producer_id,
                        producer_epoch=end.producer_epoch,
                        error=error.name,
                    )
        return done

    async def _ask(
        self, own_node_id: int, leader: int, end: TransactionEnd, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        if leader == own_node_id:
            return await self._markers.write(end, partitions)
        try:
            if end.members is not None:
                with suppress(UnsupportedApi):  # a broker of an earlier release writes markers without the header
                    request = {"link": "", "link_epoch": -1, "transactions": [_ended(end, partitions)]}
                    # a marker names its partitions only where every leader can write that
                    reply = await self._peers.call(leader, END_TRANSACTIONS, request, version=0)
                    return {TopicPartition(one.topic, one.index): one.error_code for one in reply.outcomes}
            response = await self._peers.call(leader, WRITE_TXN_MARKERS, _request(end, partitions), version=_VERSION)
        except KafkaClientError as error:
            log.warning("transaction markers could not be sent", node_id=leader, reason=str(error))
            # the outcome is unknown, so the next round sends the marker again
            return dict.fromkeys(partitions, _UNREACHED)
        return {
            TopicPartition(topic.name, found.partition_index): found.error_code
            for marker in response.markers
            for topic in marker.topics
            for found in topic.partitions
        }


def _request(end: TransactionEnd, partitions: Collection[TopicPartition]) -> Mapping[str, object]:
    marker = {
        "producer_id": end.producer_id,
        "producer_epoch": end.producer_epoch,
        "transaction_result": end.is_commit,
        "coordinator_epoch": end.coordinator_epoch,
        "transaction_version": end.transaction_version,
        "topics": _by_topic(partitions),
    }
    return {"markers": [marker]}


def _ended(end: TransactionEnd, partitions: Collection[TopicPartition]) -> Mapping[str, object]:
    return {**end._asdict(), "topics": _by_topic(partitions)}


def _by_topic(partitions: Collection[TopicPartition]) -> list[dict[str, object]]:
    by_topic: dict[str, list[int]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    return [{"name": topic, "partition_indexes": indexes} for topic, indexes in by_topic.items()]


def _members(transaction: Transaction, image: ClusterImage) -> bytes | None:
    """The header for a transaction over several mirrored partitions, or of Spark's sink."""
    # one partition alone cannot be torn, so its marker needs no header; most transactions end here
    is_alone = len(transaction.partitions) < 2
    if not image.links or (is_alone and not transaction.transactional_id.startswith(SINK_PREFIX)):
        return None
    mirrored = frozenset(
        (at.topic, at.partition) for at in transaction.partitions if image.link_of(at.topic) is not None
    )
    if not mirrored:
        return None
    return encode_members(TransactionMembers(transaction.transactional_id, transaction.updated_ms, mirrored))
