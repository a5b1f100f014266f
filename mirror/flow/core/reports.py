"""The reports of a mirror to the target's log, with or without batches: the source's ends, and its
log start up to the offset that the copy may adopt. Pure; caller: `producers.py`.
"""

from __future__ import annotations

from mirror.flow.core.flow_state import FlowFacts, FlowState, Step

REPORT_INTERVAL_MS = 1000
"""Interval (ms) at which an idle partition reports the source's offsets to the target."""


def reported_log_start(facts: FlowFacts, *, expected_log_end_offset: int, has_batches: bool) -> int:
    """The log start to report with batches that continue the log at `expected_log_end_offset`, or
    without any. The target must not drop its log before the next batches arrive, even if the source
    expires records faster than they are mirrored. So the reported log start passes the end of the
    continued log only where the copy begins anew.
    """
    is_beginning = not has_batches or expected_log_end_offset <= facts.restart_offset
    # One less than the end: a log start at the end would make the target delete its whole log.
    bound = expected_log_end_offset if is_beginning else expected_log_end_offset - 1
    return min(facts.source_log_start_offset, max(bound, facts.restart_offset))


def may_report(facts: FlowFacts) -> bool:
    """True if a report without batches would be right about the copy."""
    # A FAULTED flow that streams has its last batch compared. An answer to a report shows nothing
    # about the histories, and must not end the fault.
    if facts.step is not Step.STREAMING or facts.state is FlowState.FAULTED:
        return False
    # The first batch, which may contain the log start, decides where the copy begins.
    return not facts.progress.target_log_end_offset < facts.restart_offset < facts.progress.source_high_watermark
