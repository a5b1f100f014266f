"""Detects that the source may have dropped tombstones that the target never got. In that case
deleted keys would still exist at the target. Pure.

A compacted topic keeps a tombstone for `delete.retention.ms` at least, counted from when it was
cleaned first. A mirror that is never behind for longer than that copies all of them. How long it
was behind is known since the last moment at which it had everything, or since it began a copy; a
mirror that has just started knows neither, and judges by the first batches: records older than
that, or a hole before them.
"""

from __future__ import annotations

from collections.abc import Mapping

from mirror.flow.core.flow_state import FlowFacts
from mirror.link.core.partitions import BatchRun
from mirror.link.core.topic_plan import WAY_OUT
from wire.protocol.ids import UNKNOWN

NOT_COMPACTED = -1
DELETE_RETENTION_MS = 86_400_000
"""Kafka's default of `delete.retention.ms`."""


def tombstones_kept_ms(configs: Mapping[str, str]) -> int:
    """The time (ms) for which the topic keeps tombstones, from its own configs; NOT_COMPACTED when
    it keeps none.
    """
    if "compact" not in configs.get("cleanup.policy", ""):
        return NOT_COMPACTED
    try:
        return max(0, int(configs.get("delete.retention.ms", DELETE_RETENTION_MS)))
    except ValueError:
        return DELETE_RETENTION_MS


def tombstone_risk(facts: FlowFacts, run: BatchRun, *, now_ms: int) -> str:
    """The reason why keys that were deleted at the source may stay at the target, when these
    batches show it for the first time; empty otherwise.
    """
    kept_ms = facts.tombstones_kept_ms
    if kept_ms == NOT_COMPACTED or facts.may_lack_tombstones or run.is_repetition:
        return ""
    since_ms = facts.copy_began_ms if facts.progress.caught_up_at_ms == UNKNOWN else facts.progress.caught_up_at_ms
    if since_ms == UNKNOWN:
        # The process does not know since when the copy lags. Old records, or a hole in the offsets,
        # show that the source may have compacted the topic meanwhile.
        is_old = 0 <= run.max_timestamp_ms < now_ms - kept_ms
        is_doubtful = facts.is_resuming and (is_old or run.first_new_offset > facts.chain_offset)
        behind = "a time that it does not know"
    else:
        is_doubtful, behind = now_ms - since_ms > kept_ms, f"{now_ms - since_ms} ms"
    if not is_doubtful:
        return ""
    return (
        f"the mirror was behind for {behind}, the source keeps tombstones for {kept_ms} ms: keys deleted in that time may remain "
        f"at the target until {WAY_OUT}"
    )
