"""WriteTxnMarkers: writes the coordinator's decision into partitions that this broker leads. Sent
by brokers, and by tools that abort.

Behaviour: answered when every in-sync replica has the markers. A repeated marker does no harm.
Versions: 1 and 2, which says whether each transaction has an epoch of its own (KIP-1228).
"""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.transactions.marker_groups import TransactionEnd
from broker.transactions.transaction_markers import TransactionMarkers
from wire.protocol.ids import TopicPartition

API_KEY = 27
MIN_VERSION = 1
MAX_VERSION = 2


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    transaction_markers: TransactionMarkers


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a WriteTxnMarkers request."""
    build = builder(API_KEY, context.api_version)
    # side by side: markers of one turn of the event loop share appends
    results = await asyncio.gather(*(_write(doors, build, marker) for marker in request.markers))
    return build.response(markers=tuple(results))


async def _write(doors: Doors, build: Any, marker: Any) -> Any:
    end = TransactionEnd(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        is_commit=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=getattr(marker, "transaction_version", 0),
    )
    partitions = [TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
    errors = await doors.transaction_markers.write(end, partitions)
    topics = tuple(
        build.part(
            "WritableTxnMarkerTopicResult",
            name=topic.name,
            partitions=tuple(
                build.part(
                    "WritableTxnMarkerPartitionResult",
                    partition_index=index,
                    error_code=errors[TopicPartition(topic.name, index)],
                )
                for index in topic.partition_indexes
            ),
        )
        for topic in marker.topics
    )
    return build.part("WritableTxnMarkerResult", producer_id=marker.producer_id, topics=topics)
