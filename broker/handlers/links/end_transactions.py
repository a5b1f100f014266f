"""EndTransactions (private): decided transactions for partitions that this broker leads, from a
coordinator of this site or from a failover.

Behaviour: without a link, the same as WriteTxnMarkers. A failover sends its link and epoch. Between
the raise and the promotion, it ends the transactions that the lost site had decided and not marked
in every partition. Versions: 0. Not done: nothing.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.metadata.cluster import Cluster
from broker.metadata.core.access import promotion_error
from broker.metadata.request_context import RequestContext
from broker.replication.replicas import Replicas
from broker.transactions.marker_groups import TransactionEnd
from broker.transactions.transaction_markers import TransactionMarkers
from wire.protocol.ids import TopicPartition
from wire.protocol.messages.private import PRIVATE_VERSIONS
from wire.protocol.messages.transaction_end_messages import (
    END_TRANSACTIONS,
    EndTransactionsResponse,
    TransactionEndOutcome,
)

API_KEY = END_TRANSACTIONS
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[END_TRANSACTIONS]


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    cluster: Cluster
    replicas: Replicas
    transaction_markers: TransactionMarkers


async def handle(request: Any, _context: RequestContext, doors: Doors) -> Any:
    """Answer an EndTransactions request."""
    # side by side: markers of one turn of the event loop share appends
    ended = await asyncio.gather(*(_end(doors, request, one) for one in request.transactions))
    return EndTransactionsResponse(outcomes=tuple(chain.from_iterable(ended)))


async def _end(doors: Doors, request: Any, ended: Any) -> list[TransactionEndOutcome]:
    partitions = [TopicPartition(topic.name, index) for topic in ended.topics for index in topic.partition_indexes]
    errors = {at: error for at in partitions if (error := _refusal(doors, request, at)) is not ErrorCode.none}
    end = TransactionEnd(
        producer_id=ended.producer_id,
        producer_epoch=ended.producer_epoch,
        is_commit=ended.is_commit,
        coordinator_epoch=ended.coordinator_epoch,
        transaction_version=ended.transaction_version,
        members=ended.members,
    )
    written = await doors.transaction_markers.write(
        end, [at for at in partitions if at not in errors], is_promoting=bool(request.link)
    )
    found = {**written, **errors}
    return [
        TransactionEndOutcome(
            producer_id=ended.producer_id,
            topic=topic.name,
            index=index,
            error_code=found[TopicPartition(topic.name, index)],
        )
        for topic in ended.topics
        for index in topic.partition_indexes
    ]


def _refusal(doors: Doors, request: Any, at: TopicPartition) -> ErrorCode:
    """The error if a failover may not end the transaction in this partition; `none` without a
    link.
    """
    if not request.link:
        return ErrorCode.none
    image = doors.cluster.image
    error = promotion_error(image, at.topic, link_name=request.link, link_epoch=request.link_epoch)
    if error is not ErrorCode.none:
        return error
    hosted = doors.replicas.find(at.topic, at.partition)
    floor = image.links[request.link].leader_epoch_floor
    is_led = hosted is not None and hosted.state.is_leader and hosted.state.leader_epoch >= floor
    return ErrorCode.none if is_led else ErrorCode.not_leader_or_follower
