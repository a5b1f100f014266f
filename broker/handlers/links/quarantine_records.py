"""QuarantineRecords (private): stores the ends of logs in quarantine at this broker before a mirror
has their copies deleted, or has the logs truncated.

Behaviour: as MirrorAppend for the checks of the link's epoch, the role, the topic's id and the
leader. A failover to a time also truncates the logs of the promoted site in the new epoch, before
that site takes writes. Answered when the records are on disk, or with the reason why they are not.
A truncation follows only then. A failover's request is answered when the in-sync replicas have
removed the records as well: one of them may lead next, and would have them again. For offsets
beyond the end of a log nothing is stored. A repeated request stores nothing twice. Versions: 0. Not
done: copies of an entry at the followers; only the leader's disk has it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.static.primitive import i64
from msgspec import Struct

from broker.log.directories.log_store import LogStore
from broker.log.errors import StorageError
from broker.metadata.cluster import Cluster
from broker.metadata.core.access import truncation_error
from broker.metadata.request_context import RequestContext
from broker.network.entities import topic_id_bytes
from broker.replication.following.copy_truncation import truncate_copy
from broker.replication.hosted_partition import HostedPartition, PartitionFailure
from broker.replication.mirror_append import require_led, require_mirrored
from broker.replication.quarantine import Origin, QuarantineFull
from broker.replication.replicas import Replicas
from runtime.clock import Clock
from runtime.logs import state_change_logger
from wire.protocol.messages.private import PRIVATE_VERSIONS
from wire.protocol.messages.quarantine_messages import (
    QUARANTINE_RECORDS,
    QuarantineRecordsOutcome,
    QuarantineRecordsResponse,
)

API_KEY = QUARANTINE_RECORDS
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[QUARANTINE_RECORDS]

UNTRUNCATED: Final = -1
FOLLOWED_MS_MAX: Final = 10_000
"""The time (ms) in which the in-sync replicas have to remove what a failover removes."""
POLL_S: Final = 0.01

_state_change = state_change_logger()


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    clock: Clock
    cluster: Cluster
    logs: LogStore
    replicas: Replicas


async def handle(request: Any, _context: RequestContext, doors: Doors) -> Any:
    """Answer a QuarantineRecords request."""
    outcomes = [
        await _keep(doors, request, topic, partition) for topic in request.topics for partition in topic.partitions
    ]
    if any(outcome.log_end_offset != UNTRUNCATED for outcome in outcomes):
        # A restarting broker must not apply a high watermark from before the truncation to records
        # that were appended after it.
        await doors.logs.checkpoint_high_watermarks()
    if _is_failover(doors, request):
        deadline_ms = doors.clock.monotonic_ms() + FOLLOWED_MS_MAX
        outcomes = [await _followed(doors, outcome, deadline_ms) for outcome in outcomes]
    return QuarantineRecordsResponse(outcomes=tuple(outcomes))


async def _followed(doors: Doors, outcome: QuarantineRecordsOutcome, deadline_ms: float) -> QuarantineRecordsOutcome:
    """The outcome once no in-sync replica has records beyond the end of the log, or the reason why
    that is not known.
    """
    while not outcome.error_code:
        hosted = doors.replicas.find(outcome.topic, outcome.index)
        if hosted is None or not hosted.state.is_leader:
            return replace(outcome, error_code=ErrorCode.not_leader_or_follower, error_message="the leader has changed")
        exceeding = hosted.state.exceeding_in_sync
        if not exceeding:
            break
        if doors.clock.monotonic_ms() >= deadline_ms:
            nodes = ", ".join(map(str, exceeding))
            message = f"in-sync replicas may still have the removed records (brokers {nodes})"
            return replace(outcome, error_code=ErrorCode.request_timed_out, error_message=message)
        await asyncio.sleep(POLL_S)
    return outcome


async def _keep(doors: Doors, request: Any, topic: Any, partition: Any) -> QuarantineRecordsOutcome:
    def outcome(code: ErrorCode, message: str | None = None) -> QuarantineRecordsOutcome:
        return QuarantineRecordsOutcome(topic=topic.name, index=partition.index, error_code=code, error_message=message)

    try:
        name, log_end_offset = await _kept(doors, request, topic, partition)
    except PartitionFailure as failure:
        return outcome(failure.code, failure.reason)
    except QuarantineFull as full:
        return outcome(ErrorCode.policy_violation, str(full))
    except StorageError as error:
        doors.replicas.storage_failed(error)
        return outcome(ErrorCode.kafka_storage_error, str(error))
    except OSError as error:
        return outcome(ErrorCode.kafka_storage_error, f"the quarantine cannot be written: {error.strerror or error}")
    return replace(outcome(ErrorCode.none), name=name, log_end_offset=i64(log_end_offset))


async def _kept(doors: Doors, request: Any, topic: Any, partition: Any) -> tuple[str, int]:
    """The name of the entry, empty if nothing was stored, and the end of the truncated log.
    PartitionFailure, QuarantineFull, StorageError, OSError.
    """

    def permitted() -> HostedPartition:
        place, link = (topic.name, topic_id_bytes(topic.topic_id), partition.index), request.link
        if _is_failover(doors, request):
            return _find_untouched(doors, *place, link=link, link_epoch=request.link_epoch)
        here = doors.replicas.find(topic.name, partition.index)
        return require_mirrored(doors.cluster.image, here, *place, link=link, link_epoch=request.link_epoch)

    hosted, first_offset = permitted(), partition.first_offset
    log_end_offset, log_start_offset = hosted.log.log_end_offset, hosted.log.log_start_offset
    # the log has nothing there: an interrupted request has already done this
    if first_offset >= log_end_offset:
        return "", log_end_offset if request.must_truncate else UNTRUNCATED
    # a log cannot end before it begins: only a reset of the copy would help
    if request.must_truncate and first_offset < log_start_offset:
        raise PartitionFailure(
            ErrorCode.offset_out_of_range, f"the log starts at {log_start_offset} and cannot end at {first_offset}"
        )
    _check_thinned(hosted, first_offset, request, is_failover=_is_failover(doors, request))
    removed = "undone" if _is_failover(doors, request) else "reinstated"
    origin = Origin(
        kind=removed if request.must_truncate else "reset",
        reason=request.reason,
        origin_site=doors.cluster.image.site,
        link=request.link,
        link_epoch=request.link_epoch,
    )
    entry = await doors.replicas.cuts.quarantine.keep(
        hosted.log, first_offset, origin, topic_id=hosted.topic_id, now_ms=doors.clock.now_ms()
    )
    _state_change.warning(
        "records copied to the quarantine",
        topic=entry.topic,
        partition=entry.partition,
        first_offset=entry.first_offset,
        end_offset=entry.end_offset,
        name=entry.name,
        reason=request.reason,
    )
    if not request.must_truncate:
        return entry.name, UNTRUNCATED
    return entry.name, await truncate_copy(
        doors.replicas,
        hosted,
        first_offset,
        kept_end_offset=entry.end_offset,
        # checked at the moment of the truncation: copying may have taken minutes
        check_permission=permitted,
        reason=request.reason,
    )


def _check_thinned(hosted: HostedPartition, first_offset: int, request: Any, *, is_failover: bool) -> None:
    """PartitionFailure if a copy would lack records that compaction has removed for newer ones,
    which only this copy has. The promoted site itself has no other log: it keeps what compaction
    has left, and the broker's log names the partition.
    """
    thinned_to = hosted.log.thinned_to
    if not request.must_truncate or first_offset >= thinned_to:
        return
    if not is_failover:
        raise PartitionFailure(
            ErrorCode.offset_out_of_range,
            f"the copy is compacted up to {thinned_to}: below {first_offset} it lacks records whose newer ones "
            "would go; antipode links reset copies the topic again",
        )
    _state_change.warning(
        "keys may be missing: compaction removed records whose newer ones are truncated",
        topic=hosted.topic,
        partition=hosted.index,
        first_offset=first_offset,
        compacted_to=thinned_to,
        reason=request.reason,
    )


def _is_failover(doors: Doors, request: Any) -> bool:
    """True if a failover removes the ends of logs, before the promoted site accepts writes."""
    link = doors.cluster.image.links.get(request.link)
    return bool(request.must_truncate) and link is not None and link.active_site == doors.cluster.image.site


def _find_untouched(
    doors: Doors, name: str, topic_id: bytes, index: int, *, link: str, link_epoch: int
) -> HostedPartition:
    """The partition, if this broker leads it and nothing was written to it since the promotion;
    else raises PartitionFailure.
    """
    error = truncation_error(doors.cluster.image, name, link_name=link, link_epoch=link_epoch)
    if error is not ErrorCode.none:
        raise PartitionFailure(error, f"logs of link {link} are not truncated here in epoch {link_epoch}")
    hosted = require_led(doors.cluster.image, doors.replicas.find(name, index), name, topic_id, index)
    promoted_at = hosted.log.first_offset_since_epoch(doors.cluster.image.links[link].leader_epoch_floor)
    # a failover to a time must never remove a client's record of the new epoch
    if promoted_at is not None and promoted_at < hosted.log.log_end_offset:
        raise PartitionFailure(
            ErrorCode.policy_violation, f"the log has records since the promotion, from {promoted_at} on"
        )
    return hosted
