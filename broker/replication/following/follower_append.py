"""Apply a leader's answer to one follower's log: append, truncate, follow the leader's offsets.

These are plain calls on the event loop without network; `replica_fetcher.py` fetches the answers
and truncates within `PartitionLog.truncation`, which works on the disk in threads. Appended batches
keep the leader's offsets and epochs. A crash in between undoes nothing: the next fetch starts from
the content of the log.
"""

from __future__ import annotations

from broker.log.core.leader_epochs import EpochEnd
from broker.log.errors import StorageError
from broker.replication.core.fetch_sessions import UNWATCHED
from broker.replication.following.core.follower import OutOfRange, Position, truncation_offset
from broker.replication.hosted_partition import HostedPartition
from broker.replication.hosted_partitions import HostedPartitions
from broker.replication.replicas import Replicas
from broker.replication.truncated_records import TruncationCounts
from runtime.logs import get_logger, state_change_logger
from wire.protocol.messages.fetch_codec import PartitionFetched

log = get_logger(__name__)
state_change = state_change_logger()


def position_of(hosted: HostedPartition, *, now_ms: float) -> Position:
    """The position to fetch from the leader."""
    return Position(
        fetch_offset=hosted.log.log_end_offset,
        leader_epoch=hosted.state.leader_epoch,
        last_fetched_epoch=hosted.last_record_epoch,
        log_start_offset=hosted.log.log_start_offset,
        high_watermark=hosted.state.high_watermark if hosted.is_read_by_clients(now_ms) else UNWATCHED,
    )


def apply_answer(
    replicas: Replicas, hosted: HostedPartition, fetched: PartitionFetched, *, now_ms: int, kept_bytes: int = 0
) -> None:
    """Append the records, or truncate the log where the leader's history is another; follow high
    watermark and log start. `kept_bytes` were copied from the part to be truncated.

    BatchRejected, InvalidBatch or StorageError when the records cannot be appended; nothing of them
    is then.
    """
    if truncation_wanted(hosted, fetched) is not None:
        leader_end = EpochEnd(*fetched.diverging_epoch)
        truncate_where_histories_differ(replicas, hosted, leader_end, now_ms=now_ms, kept_bytes=kept_bytes)
        return
    records = fetched.records
    if isinstance(records, memoryview) and len(records):
        hosted.log.append_replicated(records, now_ms=now_ms)
        hosted.log.note_copied(fetched.high_watermark)
        hosted.metrics.replicated_bytes_in += len(records)
        replicas.record_growth(hosted, len(records))
    # after the append: the high watermark may not pass the own log's end
    replicas.act(hosted, hosted.state.follow_high_watermark(fetched.high_watermark))
    if fetched.log_start_offset > hosted.log.log_start_offset:
        # the log start may not pass the high watermark, which this answer may just have moved
        hosted.log.advance_log_start_offset(min(fetched.log_start_offset, hosted.state.high_watermark))


def truncation_wanted(hosted: HostedPartition, fetched: PartitionFetched) -> int | None:
    """The offset to which the leader's response has this replica truncate its log; None if it does
    not ask for that.
    """
    # both -1: the leader names no divergence (KIP-595's tagged field is absent)
    if fetched.diverging_epoch.epoch < 0 and fetched.diverging_epoch.end_offset < 0:
        return None
    return hosted.end_of_truncation(where_histories_part(hosted, EpochEnd(*fetched.diverging_epoch)))


def truncate_where_histories_differ(
    replicas: Replicas, hosted: HostedPartition, leader_end: EpochEnd, *, now_ms: int, kept_bytes: int = 0
) -> None:
    """The leader knows another end of the last epoch here."""
    offset = where_histories_part(hosted, leader_end)
    reason = f"epoch {leader_end.epoch} ends at {leader_end.end_offset} at the leader"
    truncate_replica(replicas, hosted, offset, reason=reason, now_ms=now_ms, kept_bytes=kept_bytes)


def where_histories_part(hosted: HostedPartition, leader_end: EpochEnd) -> int:
    """The offset from which the log has other records than the leader, whose response has this
    end of an epoch.
    """
    return truncation_offset(
        leader_end=leader_end,
        own_end=hosted.log.epoch_end_offset(leader_end.epoch) if leader_end.epoch >= 0 else EpochEnd(-1, -1),
        log_end_offset=hosted.log.log_end_offset,
        high_watermark=hosted.state.high_watermark,
    )


def truncate_replica(
    replicas: HostedPartitions, hosted: HostedPartition, offset: int, *, reason: str, now_ms: int, kept_bytes: int
) -> None:
    """Truncate the log at `offset`, or empty it for a new copy if compaction went further. A
    truncation below the high watermark is the cost of an unclean election. The caller has copied
    the records from `offset` on, as many bytes as there was room for (`TruncatedRecords.keep`):
    records that were acknowledged with acks=1 can still be exported.
    """
    end, high_watermark = hosted.log.log_end_offset, hosted.state.high_watermark
    if offset >= end:
        return
    removed_bytes = hosted.log.bytes_between(max(offset, hosted.log.log_start_offset), end)
    whole_end = hosted.end_of_truncation(offset)
    hosted.log.truncate_to(whole_end)
    truncated_end = hosted.log.log_end_offset
    replicas.act(hosted, hosted.state.record_truncation(truncated_end))
    first_offset = truncated_end
    if whole_end < offset:
        # the leader has what the log had below the offset
        first_offset, reason = offset, f"{reason}; compaction went further, so the log is copied anew"
    made = TruncationCounts(
        count=1,
        records=end - first_offset,
        bytes=removed_bytes,
        kept_bytes=kept_bytes,
        first_offset=first_offset,
        at_ms=now_ms,
    )
    replicas.cuts.record(hosted.log, made)
    # below the high watermark acknowledged records go: an operator has to know
    tell = state_change.warning if offset < high_watermark else state_change.info
    tell(
        "log truncated",
        topic=hosted.topic,
        partition=hosted.index,
        log_end_offset=end,
        truncated_to=truncated_end,
        truncated_bytes=made.bytes,
        kept_bytes=kept_bytes,
        high_watermark=high_watermark,
        leader=hosted.state.leader,
        reason=reason,
    )


def resume_in_range(
    replicas: Replicas, hosted: HostedPartition, found: OutOfRange, *, now_ms: int, kept_bytes: int = 0
) -> None:
    """Go on where the leader's log begins or ends. `kept_bytes` were copied from the part behind
    the leader's end.
    """
    if not found.must_restart:
        reason = "the leader's log ends there"
        truncate_replica(replicas, hosted, found.offset, reason=reason, now_ms=now_ms, kept_bytes=kept_bytes)
        return
    state_change.warning(
        "log restarts at the leader's log start offset",
        topic=hosted.topic,
        partition=hosted.index,
        log_end_offset=hosted.log.log_end_offset,
        restart_at=found.offset,
        leader=hosted.state.leader,
    )
    hosted.log.truncate_fully_and_start_at(found.offset)
    replicas.act(hosted, hosted.state.restart_at(found.offset))


async def flush_if_demanded(replicas: Replicas, hosted: HostedPartition) -> None:
    """Flush if flush.messages demands it, before the next fetch reports the records as replicated:
    the config holds for followers too.
    """
    if not hosted.log.needs_flush:
        return
    try:
        await hosted.log.flush()
    except StorageError as error:
        log.warning("follower could not flush its log", topic=hosted.topic, partition=hosted.index, reason=str(error))
        replicas.storage_failed(error)
