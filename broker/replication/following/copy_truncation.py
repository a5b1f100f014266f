"""Truncate a copy where its history differs from the source's, after its own records are in
quarantine.

Only the leader of a passive site's copy does this, for the link's mirror, and the high watermark
goes back with the log. Each fetch of a follower has the leader epoch of its last batch (KIP-595),
and the follower truncates as the response says. A follower that is down does so after its restart.
A follower that is elected before that leads with the old end; the mirror then finds the same
divergence there, and makes that broker quarantine and truncate it. Called by
`broker/handlers/links/quarantine_records.py`, which has checked link, epoch and role.
"""

from __future__ import annotations

from collections.abc import Callable

from kio.schema.errors import ErrorCode

from broker.replication.hosted_partition import HostedPartition, PartitionFailure
from broker.replication.replicas import Replicas
from runtime.logs import state_change_logger

_state_change = state_change_logger()


async def truncate_copy(
    replicas: Replicas,
    hosted: HostedPartition,
    offset: int,
    *,
    kept_end_offset: int,
    check_permission: Callable[[], object],
    reason: str,
) -> int:
    """Remove whole batches from `offset` on; return the new log end when that is on disk.
    PartitionFailure, StorageError.

    `kept_end_offset` is the log end when its records were put into quarantine. A log that has grown
    since is not truncated. `check_permission` raises PartitionFailure if the mirror has lost the
    right to change the copy; it is called immediately before the truncation.
    """
    log = hosted.log
    # lowering the recovery point on disk takes time, so everything is checked again inside
    async with log.truncation(offset):
        check_permission()
        former_end, high_watermark = log.log_end_offset, hosted.state.high_watermark
        # records appended since were not kept: they must not be removed
        if former_end != kept_end_offset:
            raise PartitionFailure(
                ErrorCode.offset_out_of_range,
                f"the log ended at {kept_end_offset} when its records were kept, and ends at {former_end} now",
            )
        log.truncate_to(offset)
        replicas.act(hosted, hosted.state.record_copy_truncation(log.log_end_offset))
    # the mirror appends other records here next: a crash must not restore the removed ones
    await log.flush()
    _state_change.warning(
        "copy truncated to the history that both sites have",
        topic=hosted.topic,
        partition=hosted.index,
        former_end=former_end,
        log_end_offset=log.log_end_offset,
        high_watermark=high_watermark,
        reason=reason,
    )
    return log.log_end_offset
