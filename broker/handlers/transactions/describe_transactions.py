"""DescribeTransactions: state, producer, age and partitions of transactional ids that this broker
coordinates.

Behaviour: TRANSACTIONAL_ID_NOT_FOUND for one that is not known here. Versions: 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta
from msgspec import Struct

from broker.coordination.state_shard import CoordinatorRefusal
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.transactions.core.transaction_states import Transaction
from broker.transactions.transaction_coordinator import TransactionCoordinator
from wire.protocol.ids import TopicPartition

API_KEY = 65
MIN_VERSION = 0
MAX_VERSION = 0


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    transactions: TransactionCoordinator


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a DescribeTransactions request."""
    build = builder(API_KEY, context.api_version)
    states = tuple(_described(doors, build, name) for name in request.transactional_ids)
    return build.response(transaction_states=states)


def _described(doors: Doors, build: Any, transactional_id: str) -> Any:
    try:
        known = doors.transactions.describe(transactional_id)
    except CoordinatorRefusal as refusal:
        return _state(build, transactional_id, refusal.code)
    if known is None:
        return _state(build, transactional_id, ErrorCode.transactional_id_not_found)
    return _state(build, transactional_id, ErrorCode.none, known)


def _state(build: Any, transactional_id: str, error: ErrorCode, known: Transaction | None = None) -> Any:
    return build.part(
        "TransactionState",
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="" if known is None else known.state.label,
        transaction_timeout=i32Timedelta.parse(timedelta(milliseconds=0 if known is None else known.timeout_ms)),
        transaction_start_time=datetime.fromtimestamp((0 if known is None else known.started_ms) / 1000, UTC),
        producer_id=0 if known is None else known.producer_id,
        producer_epoch=0 if known is None else known.producer_epoch,
        topics=_topics(build, () if known is None else known.partitions),
    )


def _topics(build: Any, partitions: Iterable[TopicPartition]) -> tuple[Any, ...]:
    by_topic = groupby(sorted(partitions), key=lambda partition: partition.topic)
    return tuple(
        build.part("TopicData", topic=topic, partitions=tuple(found.partition for found in members))
        for topic, members in by_topic
    )
