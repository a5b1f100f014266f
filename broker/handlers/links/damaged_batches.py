"""DamagedBatches (private): the batches that the scrubber has found damaged on this broker's disks.

Behaviour: answered by every broker, of any role of the site, for all its replicas. A finding stays
until the next pass over its log, a repair, or a truncation below it. Versions: 0.
"""

from __future__ import annotations

from typing import Any

from kio.schema.types import TopicName
from kio.static.primitive import i32, i64
from msgspec import Struct

from broker.metadata.request_context import RequestContext
from broker.replication.replicas import Replicas
from wire.protocol.messages.damaged_batch_messages import (
    BATCHES_MAX,
    DAMAGED_BATCHES,
    DamagedBatch,
    DamagedBatchesResponse,
)
from wire.protocol.messages.private import PRIVATE_VERSIONS

API_KEY = DAMAGED_BATCHES
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[DAMAGED_BATCHES]


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    replicas: Replicas


async def handle(_request: Any, _context: RequestContext, doors: Doors) -> Any:
    """Answer a DamagedBatches request."""
    found = [
        DamagedBatch(
            topic=TopicName(hosted.topic),
            index=i32(hosted.index),
            is_leader=hosted.state.is_leader,
            base_offset=i64(batch.base_offset),
            last_offset=i64(batch.last_offset),
            reason=batch.reason,
        )
        for hosted in doors.replicas
        for batch in hosted.log.corrupt_batches
        if batch.base_offset < hosted.log.log_end_offset and batch.last_offset >= hosted.log.log_start_offset
    ]
    found.sort(key=lambda one: (one.topic, one.index, one.base_offset))
    return DamagedBatchesResponse(count=i32(len(found)), batches=tuple(found[:BATCHES_MAX]))
