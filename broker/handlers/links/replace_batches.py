"""ReplaceBatches (private): replaces batches that are damaged on this broker's disk by the bytes of
another replica or of the other site, for an operator's repair.

Behaviour: answered by any role of the site, by the leader of a partition and by its followers, each
for the replica on its own disk. A batch is replaced only if its checksum proves that the offered
bytes were its content; the damaged bytes go to quarantine. A repeated request replaces nothing
twice. Versions: 0.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.log.errors import StorageError
from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.network.entities import topic_id_bytes
from broker.replication.batch_replacement import replace_batch
from broker.replication.hosted_partition import PartitionFailure
from broker.replication.quarantine import Origin, QuarantineFull
from broker.replication.replicas import Replicas
from runtime.clock import Clock
from wire.batches.record_batch import InvalidBatch, iterate_headers
from wire.protocol.messages.batch_replacement_messages import (
    REPLACE_BATCHES,
    ReplaceBatchesOutcome,
    ReplaceBatchesResponse,
)
from wire.protocol.messages.private import PRIVATE_VERSIONS

API_KEY = REPLACE_BATCHES
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[REPLACE_BATCHES]

NO_LINK_EPOCH = 0


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    clock: Clock
    cluster: Cluster
    replicas: Replicas


async def handle(request: Any, _context: RequestContext, doors: Doors) -> Any:
    """Answer a ReplaceBatches request."""
    outcomes = [await _replace(doors, request.reason, partition) for partition in request.partitions]
    return ReplaceBatchesResponse(outcomes=tuple(outcomes))


async def _replace(doors: Doors, reason: str, partition: Any) -> ReplaceBatchesOutcome:
    entries: list[str] = []

    def outcome(code: ErrorCode, message: str | None = None) -> ReplaceBatchesOutcome:
        return ReplaceBatchesOutcome(
            topic=partition.topic,
            index=partition.index,
            error_code=code,
            error_message=message,
            entries=tuple(filter(None, entries)),
        )

    try:
        await _replace_each(doors, reason, partition, entries)
    except PartitionFailure as failure:
        return outcome(failure.code, failure.reason)
    except InvalidBatch as error:
        return outcome(ErrorCode.invalid_record, f"the offered bytes are not a batch: {error}")
    except QuarantineFull as full:
        return outcome(ErrorCode.policy_violation, str(full))
    except StorageError as error:
        doors.replicas.storage_failed(error)
        return outcome(ErrorCode.kafka_storage_error, str(error))
    except OSError as error:
        return outcome(ErrorCode.kafka_storage_error, f"the quarantine cannot be written: {error.strerror or error}")
    return outcome(ErrorCode.none)


async def _replace_each(doors: Doors, reason: str, partition: Any, entries: list[str]) -> None:
    """Adds the name of each batch's quarantine entry; empty for a batch that was not damaged."""
    hosted = doors.replicas.get(doors.cluster.image, partition.topic, partition.index)
    if not (hosted.state.is_leader or hosted.state.is_follower):
        raise PartitionFailure(ErrorCode.not_leader_or_follower)
    if topic_id_bytes(partition.topic_id) != hosted.topic_id:
        raise PartitionFailure(ErrorCode.inconsistent_topic_id, "the topic with this name has another topic id")
    content = bytes(partition.records or b"")
    origin = Origin(
        kind="damaged", reason=reason, origin_site=doors.cluster.image.site, link="", link_epoch=NO_LINK_EPOCH
    )
    for position, header in iterate_headers(content):
        entry = await replace_batch(
            hosted,
            header,
            content[position : position + header.size_bytes],
            quarantine=doors.replicas.cuts.quarantine,
            origin=origin,
            now_ms=doors.clock.now_ms(),
        )
        entries.append(entry)
