"""One partition's flow while batches stream: fetched, queued, acknowledged or refused. Pure
functions of the facts.
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from mirror.flow.core.divergence import begins_within
from mirror.flow.core.flow_decisions import (
    HELD,
    RUNNING,
    Decision,
    FlowOptions,
    corrupt,
    halt,
    hold,
    restart,
    running_label,
    wait,
)
from mirror.flow.core.flow_effects import (
    CheckSource,
    Fetch,
    QueueBatches,
    RefreshLink,
    RefreshMetadata,
    Side,
    StopFetching,
)
from mirror.flow.core.flow_events import (
    Acknowledged,
    AppendRefused,
    BatchesFetched,
    ClockWentBack,
    FetchFailed,
    NotEnqueued,
    NothingFetched,
    SourceLeaderChanged,
    SourceTrouble,
    TargetRefusal,
    TargetWaiting,
    TombstonesKept,
)
from mirror.flow.core.flow_positions import retry_due
from mirror.flow.core.flow_state import FlowFacts, FlowState, Step
from mirror.flow.core.lag import moved, put_back, received
from mirror.flow.core.tombstones import tombstone_risk
from mirror.link.core.link_roles import LinkRole
from wire.protocol.ids import UNKNOWN


def batches_fetched(facts: FlowFacts, command: BatchesFetched, *, now_ms: int, options: FlowOptions) -> Decision:
    """The source has answered with batches."""
    run = command.run
    # This answers an earlier fetch; the chain has changed since.
    if facts.step is not Step.STREAMING or command.fetch_offset != facts.fetch_offset:
        return Decision(facts)
    is_within = begins_within(facts, run)
    may_begin_before = is_within or facts.rereads_last_batch
    if (run.first_offset < facts.chain_offset and not may_begin_before) or run.first_epoch < facts.chain_epoch:
        return halt(
            facts,
            FlowState.FAULTED,
            f"the source's batch at offset {run.first_offset} (leader epoch {run.first_epoch}) does not continue the "
            f"mirror, which ends at {facts.chain_offset} (leader epoch {facts.chain_epoch}){options.way_out}",
        )
    doubt = tombstone_risk(facts, run, now_ms=now_ms)
    expected = run.first_offset if is_within else facts.chain_offset
    new = replace(
        facts,
        reason=doubt or facts.reason,
        restart_offset=expected if is_within else facts.restart_offset,
        chain_offset=run.next_offset,
        chain_epoch=run.last_epoch,
        source_log_start_offset=command.log_start_offset,
        progress=received(facts.progress, command.high_watermark, command.asked_at_ms, now_ms),
        may_lack_tombstones=facts.may_lack_tombstones or bool(doubt),
        is_resuming=facts.is_resuming and run.is_repetition,
        rereads_last_batch=False,
        # Without a repetition the source has nothing to compare: it has compacted the last batch
        # away.
        awaits_comparison=facts.awaits_comparison and (run.repeated_bytes > 0 or not facts.rereads_last_batch),
    )
    queue = QueueBatches(generation=facts.generation, expected_log_end_offset=expected)
    return Decision(new, (queue, Fetch(generation=facts.generation, offset=run.next_offset)), doubt)


def source_leader_changed(facts: FlowFacts, command: SourceLeaderChanged) -> Decision:
    """Another broker leads the source's partition."""
    if facts.state is FlowState.PAUSED:
        return Decision(replace(facts, is_chained=False))
    if facts.step is Step.WAITING:
        # It is what most flows wait for, and the time of another attempt may be seconds away.
        return retry_due(facts)
    if facts.step is not Step.STREAMING:
        return Decision(facts)
    # After an unclean election the new leader may have other records at the end of the chain.
    new = replace(facts, state=FlowState.PREPARING, reason=command.reason, step=Step.CHECKING_SOURCE)
    check = CheckSource(generation=facts.generation, epoch=facts.chain_epoch)
    return Decision(new, (StopFetching(), check), command.reason)


def tombstones_kept(facts: FlowFacts, command: TombstonesKept) -> Decision:
    """The time for which the source keeps tombstones is known."""
    return Decision(replace(facts, tombstones_kept_ms=command.kept_ms))


def clock_went_back(facts: FlowFacts, command: ClockWentBack) -> Decision:
    """The wall clock was set back: stored times are shifted with it."""
    began_ms = facts.copy_began_ms if facts.copy_began_ms == UNKNOWN else facts.copy_began_ms - command.by_ms
    return Decision(replace(facts, progress=put_back(facts.progress, command.by_ms), copy_began_ms=began_ms))


def nothing_fetched(facts: FlowFacts, command: NothingFetched, *, now_ms: int) -> Decision:
    """The source has answered that it has no further batches."""
    if facts.step is not Step.STREAMING:
        return Decision(facts)
    progress = received(facts.progress, command.high_watermark, command.asked_at_ms, now_ms)
    is_complete = progress.target_log_end_offset >= facts.chain_offset
    # The batch for the comparison did not arrive, because the source has deleted it.
    is_due = facts.rereads_last_batch and command.high_watermark >= facts.chain_offset
    is_unanswered = is_due and not command.may_have_more
    is_beyond_doubt = facts.state is FlowState.FAULTED and is_unanswered
    new = replace(
        facts,
        state=running_label(facts) if is_beyond_doubt else facts.state,
        reason="the source has compacted the last batch of the copy away" if is_beyond_doubt else facts.reason,
        source_log_start_offset=command.log_start_offset,
        progress=progress,
        attempts=0 if is_complete else facts.attempts,
        awaits_comparison=facts.awaits_comparison and not is_unanswered,
    )
    return Decision(new)


def fetch_failed(facts: FlowFacts, command: FetchFailed) -> Decision:
    """The source has answered a fetch with an error, or not at all."""
    if facts.step is not Step.STREAMING:
        return Decision(facts)
    match command.trouble:
        case SourceTrouble.UNREACHABLE:
            return wait(facts, command.reason, RefreshMetadata(side=Side.SOURCE), state=FlowState.SOURCE_UNAVAILABLE)
        case SourceTrouble.MOVED:
            # The source may have become the passive site.
            return wait(facts, command.reason, RefreshMetadata(side=Side.SOURCE), RefreshLink())
        case SourceTrouble.OUT_OF_RANGE:
            # The check of the source shows whether its log begins later or ends earlier.
            return wait(facts, command.reason)
        case SourceTrouble.MALFORMED:
            return corrupt(facts, command.reason)
        case _:
            assert_never(command.trouble)


def not_enqueued(facts: FlowFacts, command: NotEnqueued) -> Decision:
    """The queue had no room: the chain ends earlier again."""
    rereads = command.rereads_last_batch
    is_same_end = command.offset == facts.chain_offset and rereads is facts.rereads_last_batch
    if not facts.is_chained or command.offset > facts.chain_offset or is_same_end:
        return Decision(facts)
    if facts.step is Step.CHECKING_SOURCE:
        # The answer of the running check would concern another end of the chain.
        return restart(facts, "the queue stayed full during the check of the source")
    new = replace(
        facts,
        chain_offset=command.offset,
        chain_epoch=command.epoch,
        restart_offset=command.restart_offset,
        rereads_last_batch=rereads,
    )
    fetch = (Fetch(generation=facts.generation, offset=new.fetch_offset),) if facts.step is Step.STREAMING else ()
    return Decision(new, fetch)


def acknowledged(facts: FlowFacts, command: Acknowledged) -> Decision:
    """The target has acknowledged batches, or has answered a report."""
    before = facts.progress
    progress = moved(
        before,
        # Answers may arrive out of order; the higher end is the newer one.
        target_log_end_offset=max(before.target_log_end_offset, command.log_end_offset),
        mirrored_bytes=before.mirrored_bytes + command.size_bytes,
        mirrored_records=before.mirrored_records + command.record_count,
        skipped_bytes=before.skipped_bytes + command.skipped_bytes,
        skipped_records=before.skipped_records + command.skipped_records,
        mirrored_timestamp_ms=max(before.mirrored_timestamp_ms, command.max_timestamp_ms),
    )
    awaits_comparison = facts.awaits_comparison and not command.has_compared
    if facts.step is not Step.STREAMING:
        return Decision(replace(facts, progress=progress, awaits_comparison=awaits_comparison))
    label = running_label(facts)
    reason = facts.reason if facts.state is label else f"mirroring; the target acknowledged {command.log_end_offset}"
    logged = "" if facts.state is label else reason
    new = replace(facts, state=label, reason=reason, attempts=0, progress=progress, awaits_comparison=awaits_comparison)
    return Decision(new, (), logged)


def append_refused(facts: FlowFacts, command: AppendRefused, *, options: FlowOptions) -> Decision:
    """The target has refused batches permanently."""
    # The refused batches belong to a chain that has ended; the next restart finds the cause.
    if not facts.is_chained:
        return Decision(facts)
    if facts.state in HELD:
        return hold(facts, facts.state, facts.reason)
    again = facts.attempts + 1
    match command.refusal:
        case TargetRefusal.OFFSET_MISMATCH:
            return restart(facts, command.reason, attempts=again)
        case TargetRefusal.DIVERGED:
            return halt(facts, FlowState.FAULTED, f"{command.reason}{options.way_out}")
        case TargetRefusal.UNACCEPTABLE:
            return halt(facts, FlowState.FAULTED, command.reason)
        case TargetRefusal.STALE_LINK:
            return restart(facts, command.reason, RefreshLink(), attempts=again)
        case TargetRefusal.ACTIVE:
            return hold(facts, FlowState.PROMOTED, command.reason, RefreshLink(), role=LinkRole.TURNED)
        case TargetRefusal.CORRUPT:
            return corrupt(facts, command.reason)
        case TargetRefusal.UNKNOWN_TOPIC:
            return restart(facts, command.reason, RefreshMetadata(side=Side.TARGET), attempts=again)
        case _:
            assert_never(command.refusal)


def target_waiting(facts: FlowFacts, command: TargetWaiting) -> Decision:
    """The target could not take batches; they are sent again."""
    refresh = RefreshMetadata(side=Side.TARGET)
    if facts.state not in RUNNING:
        return Decision(facts, (refresh,))
    new = replace(facts, state=FlowState.PREPARING, reason=command.reason)
    return Decision(new, (refresh,), command.reason)
