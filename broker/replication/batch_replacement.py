"""Overwrite a batch whose bytes on disk have changed, with the bytes from another copy of the log.

`core/batch_replacement.py` decides; the damaged bytes go into quarantine first, and the write is on
disk before the answer. Nothing else of the log changes: offsets, epochs, indexes and the followers'
logs stay unchanged. A write that is interrupted leaves a damaged batch, and the request may be
repeated. A concurrent reader gets either the damaged or the new bytes; their checksum shows which.
Called by `broker/handlers/links/replace_batches.py`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from broker.log.errors import CorruptLog
from broker.log.partition_log import PartitionLog
from broker.log.segments.log_slice import LogSlice
from broker.log.threads import in_thread
from broker.replication.core.batch_replacement import Replacement, judge_replacement
from broker.replication.hosted_partition import HostedPartition, PartitionFailure
from broker.replication.quarantine import Origin, Quarantine
from runtime.logs import state_change_logger
from wire.batches.record_batch import BatchHeader

_state_change = state_change_logger()


async def replace_batch(
    hosted: HostedPartition,
    header: BatchHeader,
    offered: bytes,
    *,
    quarantine: Quarantine,
    origin: Origin,
    now_ms: int,
) -> str:
    """Replace the stored batch by `offered`, which `header` describes; return the name of the
    quarantine entry with the damaged bytes, empty if they were not damaged. PartitionFailure,
    QuarantineFull, StorageError, OSError.
    """
    log = hosted.log
    if not _must_write(log, header, offered):
        return ""
    # kept before it is overwritten: no other copy of a record may exist
    entry = await quarantine.keep(
        log,
        header.base_offset,
        origin,
        topic_id=hosted.topic_id,
        now_ms=now_ms,
        end_offset=header.next_offset,
    )
    with _place(log, header, len(offered)) as place:
        # The log may have changed while the quarantine was written.
        if _must_write(log, header, offered):
            place.overwrite(offered)
            await in_thread(place.sync)
    # also if the batch is undamaged by now: its finding is outdated
    log.note_replaced(header.base_offset)
    _state_change.warning(
        "a damaged batch was replaced",
        topic=hosted.topic,
        partition=hosted.index,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        entry=entry.name,
        reason=origin.reason,
    )
    return entry.name


def _place(log: PartitionLog, header: BatchHeader, size_bytes: int) -> LogSlice:
    """The batch's position in the log. Raises PartitionFailure if the log has no such batch."""
    reason = f"the log has no batch at offset {header.base_offset}"
    if log.log_start_offset <= header.base_offset < log.log_end_offset:
        try:
            found = log.read(header.base_offset, max_bytes=size_bytes)
        except CorruptLog as error:
            reason = f"the log cannot be read at offset {header.base_offset}: {error.reason}"
        else:
            if found.base_offset == header.base_offset:
                return found
            found.release()
    raise PartitionFailure(ErrorCode.invalid_record, reason)


def _must_write(log: PartitionLog, header: BatchHeader, offered: bytes) -> bool:
    """Raises PartitionFailure if the batch on disk is not proven to be the offered one."""
    with _place(log, header, len(offered)) as place:
        stored = place.read_bytes()[: len(offered)]
    judged = judge_replacement(stored, offered)
    if judged.replacement is Replacement.REFUSE:
        raise PartitionFailure(ErrorCode.invalid_record, f"offset {header.base_offset}: {judged.reason}")
    return judged.replacement is Replacement.WRITE
