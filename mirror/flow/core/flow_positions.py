"""Finds one partition's position before it fetches: the flow settles, asks the target for its end
and the source for its history, and has a diverged copy reinstated. Pure functions of the facts.
"""

from __future__ import annotations

from msgspec.structs import replace

from mirror.flow.core.divergence import find_divergence, promised_from, rereads_last_batch
from mirror.flow.core.flow_decisions import (
    HELD,
    NEEDS_A_PERSON,
    Decision,
    FlowOptions,
    halt,
    restart,
    running_label,
    wait,
)
from mirror.flow.core.flow_effects import (
    CheckSource,
    Fetch,
    FindTarget,
    RefreshMetadata,
    ReinstateCopy,
    RetryLater,
    Side,
)
from mirror.flow.core.flow_events import (
    CopyBegins,
    CopyNotReinstated,
    CopyReinstated,
    SourceChecked,
    SourceNotFound,
    Start,
    TargetDiffers,
    TargetFound,
    TargetNotFound,
)
from mirror.flow.core.flow_state import FlowFacts, FlowState, Step
from mirror.flow.core.lag import moved, received
from mirror.link.core.link_roles import GapPolicy, LinkRole
from wire.protocol.ids import UNKNOWN

SKIPPING = ", or with antipode.gap.policy=skip-and-record mirroring continues after them"


def start(facts: FlowFacts, command: Start) -> Decision:
    """A worker asks for a new start."""
    # A restart of a worker must not end a state that an operator or the topic has caused.
    if facts.role in (LinkRole.TURNED, LinkRole.GONE) or facts.state in HELD or facts.waits_for_topic:
        return Decision(facts)
    return restart(facts, command.reason)


def settled(facts: FlowFacts) -> Decision:
    """No request of an earlier generation is in flight."""
    if facts.step is not Step.SETTLING:
        return Decision(facts)
    if facts.attempts > 0:
        new = replace(facts, step=Step.WAITING)
        is_slow = facts.state in NEEDS_A_PERSON
        retry = RetryLater(generation=facts.generation, attempt=facts.attempts, is_slow=is_slow)
        return Decision(new, (retry,))
    return Decision(replace(facts, step=Step.FINDING_TARGET), (FindTarget(generation=facts.generation),))


def retry_due(facts: FlowFacts) -> Decision:
    """The wait before another try is over."""
    if facts.step is not Step.WAITING:
        return Decision(facts)
    if facts.is_chained:
        # Fetched batches are still being delivered, so the flow continues at the end of the chain
        # and not at the target's log end.
        check = CheckSource(generation=facts.generation, epoch=facts.chain_epoch)
        return Decision(replace(facts, step=Step.CHECKING_SOURCE), (check,))
    return Decision(replace(facts, step=Step.FINDING_TARGET), (FindTarget(generation=facts.generation),))


def copy_begins(facts: FlowFacts, command: CopyBegins) -> Decision:
    """The mirror knows the offset of the source at which the copy begins."""
    return Decision(replace(facts, begins_offset=command.offset))


def target_found(facts: FlowFacts, command: TargetFound) -> Decision:
    """The target has answered where its log ends."""
    if facts.step is not Step.FINDING_TARGET:
        return Decision(facts)
    # The target ends below its acknowledged end, so it has lost records or is another copy.
    has_lost = command.log_end_offset < facts.progress.target_log_end_offset
    new = replace(
        facts,
        step=Step.CHECKING_SOURCE,
        target_losses=facts.target_losses + has_lost,
        chain_offset=command.log_end_offset,
        chain_epoch=command.last_epoch,
        target_log_start_offset=command.log_start_offset,
        progress=moved(facts.progress, target_log_end_offset=command.log_end_offset),
    )
    return Decision(new, (CheckSource(generation=facts.generation, epoch=command.last_epoch),))


def target_not_found(facts: FlowFacts, command: TargetNotFound) -> Decision:
    """The target does not answer where its log ends."""
    if facts.step is not Step.FINDING_TARGET:
        return Decision(facts)
    state = FlowState.SOURCE_UNAVAILABLE if command.is_for_source else None
    return wait(facts, command.reason, RefreshMetadata(side=Side.TARGET), state=state)


def target_differs(facts: FlowFacts, command: TargetDiffers) -> Decision:
    """The target's log cannot be the copy."""
    if facts.step is not Step.FINDING_TARGET:
        return Decision(facts)
    return halt(facts, FlowState.FAULTED, command.reason)


def source_not_found(facts: FlowFacts, command: SourceNotFound) -> Decision:
    """The source does not answer about its log."""
    if facts.step is not Step.CHECKING_SOURCE:
        return Decision(facts)
    return wait(facts, command.reason, RefreshMetadata(side=Side.SOURCE), state=FlowState.SOURCE_UNAVAILABLE)


def source_checked(facts: FlowFacts, command: SourceChecked, *, now_ms: int, options: FlowOptions) -> Decision:
    """The source has compared its log with the end of the copy."""
    if facts.step is not Step.CHECKING_SOURCE:
        return Decision(facts)
    divergence = find_divergence(facts, command)
    if divergence:
        return _diverged(facts, divergence)
    missing = max(0, command.log_start_offset - facts.chain_offset)
    expired = max(0, command.log_start_offset - promised_from(facts, command))
    progress = received(facts.progress, command.high_watermark, command.asked_at_ms, now_ms)
    # The batches in flight still contain the records that the source has expired meanwhile.
    is_in_hand = facts.is_chained and facts.progress.target_log_end_offset < facts.chain_offset
    if expired and options.gap_policy is GapPolicy.HALT:
        gap = (
            f"the source's log starts at {command.log_start_offset}, the mirror ends at {facts.chain_offset}: "
            f"{expired} offsets expired before they were mirrored{options.way_out}{SKIPPING if options.way_out else ''}"
        )
        halted = wait(facts, gap, state=FlowState.GAP) if is_in_hand else halt(facts, FlowState.GAP, gap)
        return replace(halted, facts=replace(halted.facts, progress=progress))
    if missing and is_in_hand:
        return wait(
            facts,
            f"the source's log starts at {command.log_start_offset}: batches fetched before that are delivered first",
        )
    offset = facts.chain_offset + missing
    is_new = facts.chain_offset == 0 and not facts.has_streamed
    rereads = options.target_compares and rereads_last_batch(facts, command)
    reason = f"mirroring from offset {offset}"
    if expired:
        reason += f"; {expired} offsets before it had expired at the source"
    elif missing:
        reason += "; the source had deleted the earlier records when the copy was made"
    # The flow may be FAULTED by an earlier run of this comparison; the result replaces that state.
    is_in_doubt = rereads and facts.state is FlowState.FAULTED
    new = replace(
        facts,
        state=facts.state if is_in_doubt else running_label(facts),
        reason=facts.reason if is_in_doubt else reason,
        step=Step.STREAMING,
        is_chained=True,
        has_streamed=True,
        rereads_last_batch=rereads,
        awaits_comparison=rereads,
        # The copy begins with its first batch, so earlier tombstones are not missing.
        copy_began_ms=now_ms if is_new and facts.copy_began_ms == UNKNOWN else facts.copy_began_ms,
        is_resuming=facts.is_resuming or not facts.has_streamed,
        chain_offset=offset,
        # The records in between are missing, so epochs cannot be compared across them.
        chain_epoch=-1 if missing else facts.chain_epoch,
        restart_offset=offset if missing else facts.restart_offset,
        source_log_start_offset=command.log_start_offset,
        skipped_records=facts.skipped_records + expired,
        progress=progress,
    )
    return Decision(new, (Fetch(generation=facts.generation, offset=new.fetch_offset),), new.reason)


def _diverged(facts: FlowFacts, divergence: str) -> Decision:
    if facts.is_chained:
        # The copy is truncated only if its log end is known.
        return restart(facts, divergence)
    new = replace(facts, step=Step.REINSTATING, reason=divergence)
    return Decision(new, (ReinstateCopy(generation=facts.generation, reason=divergence),), divergence)


def copy_reinstated(facts: FlowFacts, command: CopyReinstated) -> Decision:
    """The target has truncated a diverged copy, or found nothing to truncate."""
    if facts.step is not Step.REINSTATING:
        return Decision(facts)
    if command.has_truncated:
        reason = f"the copy was truncated to offset {command.log_end_offset}; the records that only the copy had are in quarantine"
    else:
        reason = f"the copy, which ends at offset {command.log_end_offset}, has nothing alone; the histories are compared again"
    return restart(facts, reason, attempts=facts.attempts + 1)


def copy_not_reinstated(facts: FlowFacts, command: CopyNotReinstated, *, options: FlowOptions) -> Decision:
    """The target has not truncated a diverged copy."""
    if facts.step is not Step.REINSTATING:
        return Decision(facts)
    reason = f"{facts.reason}; {command.advice}" if command.advice else f"{facts.reason}{options.way_out}"
    if not command.is_final:
        return restart(facts, reason, attempts=facts.attempts + 1)
    return halt(facts, FlowState.FAULTED, reason)
