"""Append a mirror's batches to one partition exactly once, also when they are sent again.

The answers follow the table in `wire/protocol/messages/private.py`. Called by the MirrorAppend
handler, which has checked link, epoch and role.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from broker.log.core.batch_checks import BatchRejected
from broker.log.errors import OffsetOutOfRange, StorageError
from broker.replication.core.mirror_continuity import Continuity, first_difference, meet
from broker.replication.core.wake_ups import Change
from broker.replication.hosted_partition import HostedPartition, PartitionFailure
from broker.replication.partition_failures import failure_of
from broker.replication.replicas import Replicas
from runtime.logs import get_logger
from wire.batches.record_batch import BatchHeader, Buffer, InvalidBatch, iterate_headers
from wire.protocol.messages.mirror_append_codec import PartitionToMirror

log = get_logger(__name__)


class Diverged(PartitionFailure):
    """The log's history contradicts what the source has; says what the log knows."""

    def __init__(self, reason: str, *, epoch: int, end_offset: int) -> None:
        super().__init__(ErrorCode.offset_out_of_range, reason)
        self.epoch = epoch
        self.end_offset = end_offset


def append_mirrored(replicas: Replicas, hosted: HostedPartition, sent: PartitionToMirror, *, now_ms: int) -> None:
    """Append the batches that are new, follow the source's log start, remember what the source
    said. PartitionFailure.
    """
    try:
        _append(replicas, hosted, sent, now_ms)
        _follow_log_start(replicas, hosted, sent)
    except (BatchRejected, InvalidBatch, OffsetOutOfRange, StorageError) as error:
        hosted.metrics.failed_produce += 1
        raise failure_of(error) from error
    # after the append, so that the report is about a log that has these records
    hosted.source.high_watermark = sent.source_high_watermark
    hosted.source.seen_at_ms = sent.source_seen_at_ms
    hosted.source.log_epoch = hosted.last_record_epoch


def _append(replicas: Replicas, hosted: HostedPartition, sent: PartitionToMirror, now_ms: int) -> None:
    records = sent.records
    placed = list(iterate_headers(records)) if records else []
    batches = [header for _, header in placed]
    target = hosted.log
    meeting = meet(
        batches,
        expected_log_end_offset=sent.expected_log_end_offset,
        log_end_offset=target.log_end_offset,
        latest_epoch=target.latest_epoch,
    )
    # a gap is allowed only where the source itself has nothing for it
    if meeting.continuity is Continuity.GAP and not _is_gap_of_the_source(sent):
        raise PartitionFailure(ErrorCode.offset_out_of_range, f"the log ends at {target.log_end_offset}")
    if meeting.continuity is Continuity.TRUNCATED_THROUGH:
        raise PartitionFailure(
            ErrorCode.offset_out_of_range, f"the log ends at {target.log_end_offset}, within a batch"
        )
    # repeated ones are compared before the new ones: a divergence below shows first
    repeated = batches[: meeting.repeated_count]
    differing = _differing(hosted, repeated)
    if differing is not None:
        reason = f"the log has another batch at offset {differing.base_offset}, under leader epoch"
        raise _divergence(hosted, batches, f"{reason} {differing.partition_leader_epoch}")
    if meeting.continuity is Continuity.DIVERGES:
        first = batches[meeting.repeated_count]
        reason = f"the batch at offset {first.base_offset} under leader epoch {first.partition_leader_epoch}"
        raise _divergence(hosted, batches, f"{reason} does not continue the log, which ends at {target.log_end_offset}")
    # an empty request carries only the source's ends
    if records is None or meeting.repeated_count == len(batches):
        return
    if meeting.continuity is Continuity.GAP:
        _restart_at(replicas, hosted, sent.expected_log_end_offset)
    fresh: Buffer = memoryview(records)[placed[meeting.repeated_count][0] :] if repeated else records
    # the broker's clock and not the records' decides when a segment is rolled
    info = target.append_replicated(fresh, now_ms=now_ms)
    hosted.metrics.mirrored_bytes_in += len(fresh)
    hosted.metrics.mirrored_messages_in += info.record_count
    replicas.record_growth(hosted, len(fresh))


def restart_wanted(hosted: HostedPartition, sent: PartitionToMirror) -> int | None:
    """The offset above its end at which the log restarts empty; None if the log continues without a
    gap.
    """
    is_gap = sent.expected_log_end_offset > hosted.log.log_end_offset and _is_gap_of_the_source(sent)
    return sent.expected_log_end_offset if is_gap else None


async def restart_in_threads(replicas: Replicas, hosted: HostedPartition, sent: PartitionToMirror) -> None:
    """Restart the log where that is wanted, before `append_mirrored`, which would do it holding the
    loop. StorageError.
    """
    offset = restart_wanted(hosted, sent)
    if offset is None:
        return
    # other tasks ran in between: the log may have grown, or its leader changed
    async with hosted.log.truncation(offset):
        if restart_wanted(hosted, sent) == offset and hosted.state.is_leader:
            _restart_at(replicas, hosted, offset)


def _is_gap_of_the_source(sent: PartitionToMirror) -> bool:
    """The source has none of the missing records: its log begins where the mirror continues. If it
    began earlier, there would be batches in between that this log did not accept or has lost.
    """
    return sent.source_log_start_offset == sent.expected_log_end_offset


def _differing(hosted: HostedPartition, repeated: list[BatchHeader]) -> BatchHeader | None:
    """The first repeated batch that differs from the log's batch at the same offset; None if all
    are the same.
    """
    target = hosted.log
    wanted = [batch for batch in repeated if batch.base_offset >= target.log_start_offset]
    if not wanted:
        return None
    size = sum(batch.size_bytes for batch in wanted)
    with target.read(wanted[0].base_offset, max_bytes=size, end_offset=wanted[-1].next_offset) as piece:
        stored = [header for _, header in iterate_headers(piece.read_bytes())]
    return first_difference(
        wanted, stored, log_start_offset=target.log_start_offset, is_compacted=hosted.config.is_compacted
    )


def _divergence(hosted: HostedPartition, batches: list[BatchHeader], reason: str) -> Diverged:
    epoch, end_offset = hosted.log.epoch_end_offset(batches[0].partition_leader_epoch)
    if epoch < 0:
        epoch, end_offset = max(hosted.log.latest_epoch, 0), hosted.log.log_end_offset
    log.error(
        "mirrored history diverges",
        topic=hosted.topic,
        partition=hosted.index,
        reason=reason,
        epoch=epoch,
        end_offset=end_offset,
    )
    return Diverged(reason, epoch=epoch, end_offset=end_offset)


def _follow_log_start(replicas: Replicas, hosted: HostedPartition, sent: PartitionToMirror) -> None:
    start = sent.source_log_start_offset
    if start <= hosted.log.log_start_offset:
        return
    if sent.expected_log_end_offset > hosted.log.log_end_offset:
        _restart_at(replicas, hosted, start)
    else:
        hosted.log.advance_log_start_offset(min(start, hosted.state.high_watermark))
        replicas.changed(hosted, Change.LOG_START)


def _restart_at(replicas: Replicas, hosted: HostedPartition, offset: int) -> None:
    """The source deleted everything that this log has and more: the log goes on empty where the
    source begins.
    """
    log.warning(
        "log restarts at the source's log start offset, which is above this log's end",
        topic=hosted.topic,
        partition=hosted.index,
        log_end_offset=hosted.log.log_end_offset,
        restart_at=offset,
    )
    hosted.log.truncate_fully_and_start_at(offset)
    replicas.act(hosted, hosted.state.restart_at(offset))
