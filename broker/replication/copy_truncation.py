"""Truncates the log of a copy at its leader: a site that was failed away from goes back to the
history that it shares with the active site.

Called by `broker/handlers/links/quarantine_records.py`, which has put what is truncated into
quarantine. A follower learns of it by its next fetch: the leader's log ends its last epoch earlier
(KIP-595), so the follower truncates too. A leader that dies before that is replaced by a follower
with the old end; the mirror finds the same divergence there, and asks again.
"""

from __future__ import annotations

from collections.abc import Callable

from kio.schema.errors import ErrorCode

from broker.replication.hosted_partition import HostedPartition, PartitionFailure
from broker.replication.replicas import Replicas
from runtime.logs import state_change_logger

state_change = state_change_logger()


async def truncate_copy(
    replicas: Replicas, hosted: HostedPartition, offset: int, *, kept_end: int, check: Callable[[], None], reason: str
) -> None:
    """Truncate to `offset`; `kept_end` is where the log ended when its end was kept. `check` raises
    PartitionFailure when the mirror may not change the log any more. PartitionFailure,
    StorageError.
    """
    log = hosted.log
    if not log.log_start_offset < offset:
        message = f"the log begins at {log.log_start_offset}: nothing of it would be left below offset {offset}"
        raise PartitionFailure(ErrorCode.invalid_request, message)
    async with log.truncation(offset):
        check()
        if log.log_end_offset != kept_end:
            message = f"the log grew to {log.log_end_offset} after its end was kept at {kept_end}"
            raise PartitionFailure(ErrorCode.request_timed_out, message)
        log.truncate_to(offset)
        hosted.state.record_truncation(log.log_end_offset)
        replicas.notify_all(hosted)
    state_change.warning(
        "copy truncated to the shared history",
        topic=hosted.topic,
        partition=hosted.index,
        former_end_offset=kept_end,
        log_end_offset=log.log_end_offset,
        reason=reason,
    )
