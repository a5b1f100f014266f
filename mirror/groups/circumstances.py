"""The circumstances under which a link's groups are decided on: the link's role and filters, and
the copies on the board.
"""

from __future__ import annotations

from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_state import FlowFacts, FlowState
from mirror.groups.core.group_state import Circumstances, Copy
from mirror.link.core.link_roles import LinkRole
from mirror.link.link_watch import LinkView
from wire.protocol.ids import TopicPartition
from wire.rules.links import carries_topic


def circumstances(board: FlowBoard, link: LinkView, *, now_ms: float, is_kept_at_target: bool = False) -> Circumstances:
    """The circumstances at this moment of the monotonic clock; copies are looked up when asked."""
    return Circumstances(
        now_ms=now_ms,
        is_routed=link.record.is_routed,
        is_draining=link.role is LinkRole.DRAINING,
        is_kept_at_target=is_kept_at_target,
        copy_of=lambda key: _copy_of(board, key, is_exact=link.record.mode != "translate"),
        is_carried=lambda topic: carries_topic(link.record, topic),
    )


def _copy_of(board: FlowBoard, key: TopicPartition, *, is_exact: bool) -> Copy | None:
    if key not in board:
        return None
    row = board.row(key)
    facts = row.facts
    return Copy(
        is_ours=row.is_ours,
        is_mirroring=facts.state is FlowState.MIRRORING,
        log_start_offset=_log_start(facts) if is_exact else facts.target_log_start_offset,
        log_end_offset=facts.progress.target_log_end_offset,
        losses=facts.target_losses,
    )


def _log_start(facts: FlowFacts) -> int:
    """The log start of an exact copy. The target reports it only when a flow begins; since then the
    copy has followed the source's log start, as far as it has records.
    """
    followed = min(facts.source_log_start_offset, facts.progress.target_log_end_offset - 1)
    return max(facts.target_log_start_offset, followed)
