"""QuarantineRecords (private): keeps the ends of logs at this broker before a mirror has their
copies deleted, or truncates the logs there afterwards.

Behaviour: as MirrorAppend for the link's epoch, the role, the topic's id and the leader; answered
when the records are on disk, or with why they are not. Offsets beyond the end of a log keep
nothing. Versions: 0. Not done: copies at the followers; the leader's disk has the only one.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from broker.handlers.links.mirror_append import find_mirrored
from broker.log.errors import StorageError
from broker.metadata.request_context import RequestContext
from broker.replication.copy_truncation import truncate_copy
from broker.replication.hosted_partition import HostedPartition, PartitionFailure
from broker.replication.quarantine import Origin, QuarantineFull
from broker.services import BrokerServices
from runtime.logs import state_change_logger
from wire.protocol.private import PRIVATE_VERSIONS
from wire.protocol.quarantine_messages import QUARANTINE_RECORDS, QuarantineRecordsOutcome, QuarantineRecordsResponse

API_KEY = QUARANTINE_RECORDS
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[QUARANTINE_RECORDS]

_state_change = state_change_logger()


async def handle(services: BrokerServices, _context: RequestContext, request: Any) -> Any:
    """Answer a QuarantineRecords request."""
    outcomes = [
        await _keep(services, request, topic, partition) for topic in request.topics for partition in topic.partitions
    ]
    return QuarantineRecordsResponse(outcomes=tuple(outcomes))


async def _keep(services: BrokerServices, request: Any, topic: Any, partition: Any) -> QuarantineRecordsOutcome:
    def outcome(code: ErrorCode, message: str | None = None, name: str = "") -> QuarantineRecordsOutcome:
        return QuarantineRecordsOutcome(
            topic=topic.name, index=partition.index, error_code=code, error_message=message, name=name
        )

    def find() -> HostedPartition:
        return find_mirrored(
            services,
            topic.name,
            topic.topic_id,
            partition.index,
            link=request.link,
            link_epoch=request.link_epoch,
        )

    def check() -> None:
        if find() is not hosted:
            raise PartitionFailure(ErrorCode.not_leader_or_follower)

    image = services.image
    try:
        hosted = find()
        if partition.first_offset >= hosted.log.log_end_offset:
            return outcome(ErrorCode.none)
        origin = Origin(reason=request.reason, origin_site=image.site, link=request.link, link_epoch=request.link_epoch)
        entry = await services.replicas.cuts.quarantine.keep(
            hosted.log,
            partition.first_offset,
            origin,
            topic_id=hosted.topic_id,
            now_ms=services.clock.now_ms(),
        )
        if request.is_truncated:
            await truncate_copy(
                services.replicas,
                hosted,
                partition.first_offset,
                kept_end=entry.end_offset,
                check=check,
                reason=request.reason,
            )
    except PartitionFailure as failure:
        return outcome(failure.code, failure.reason)
    except QuarantineFull as full:
        return outcome(ErrorCode.policy_violation, str(full))
    except StorageError as error:
        services.replicas.storage_failed(error)
        return outcome(ErrorCode.kafka_storage_error, str(error))
    except OSError as error:
        return outcome(ErrorCode.kafka_storage_error, f"the quarantine cannot be written: {error.strerror or error}")
    _state_change.warning(
        "records copied to the quarantine",
        topic=entry.topic,
        partition=entry.partition,
        first_offset=entry.first_offset,
        end_offset=entry.end_offset,
        name=entry.name,
        reason=request.reason,
    )
    return outcome(ErrorCode.none, name=entry.name)
