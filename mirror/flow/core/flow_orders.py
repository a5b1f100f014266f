"""The answers of one partition's flow to operators, links and topics: turned, paused, resumed,
replaced, refused, hidden. Pure functions of the facts.
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from mirror.flow.core.flow_decisions import HELD, RUNNING, Decision, hold, restart
from mirror.flow.core.flow_effects import StopFetching
from mirror.flow.core.flow_events import (
    LinkTurned,
    Pause,
    TopicConflict,
    TopicHidden,
    TopicRefused,
    TopicReplaced,
)
from mirror.flow.core.flow_state import FlowFacts, FlowState, Step
from mirror.flow.core.lag import without_ends
from mirror.link.core.link_roles import LinkRole
from wire.protocol.ids import UNKNOWN


def link_turned(facts: FlowFacts, command: LinkTurned) -> Decision:
    """The link has another role: it mirrors, drains, is turned around, or is gone."""
    match command.role:
        case LinkRole.TURNED:
            if facts.state is FlowState.PROMOTED:
                return Decision(facts)
            return hold(facts, FlowState.PROMOTED, command.reason, role=LinkRole.TURNED)
        case LinkRole.GONE:
            if facts.role is LinkRole.GONE or facts.state is FlowState.PROMOTED:
                return Decision(facts)
            return hold(facts, FlowState.PAUSED, command.reason, role=LinkRole.GONE)
        case LinkRole.MIRRORING | LinkRole.DRAINING:
            return _link_mirrors(facts, command)
        case _:
            assert_never(command.role)


def _link_mirrors(facts: FlowFacts, command: LinkTurned) -> Decision:
    if facts.state is FlowState.PROMOTED or facts.role is LinkRole.GONE:
        label = FlowState.REVERSING if facts.state is FlowState.PROMOTED else FlowState.PREPARING
        restarted = restart(facts, command.reason, state=label)
        progress = facts.progress
        if label is FlowState.REVERSING:
            # Records that this site got since then came from its own clients and not through this
            # flow.
            progress = replace(progress, caught_up_at_ms=UNKNOWN, marker_offset=UNKNOWN, marker_at_ms=UNKNOWN)
        return replace(restarted, facts=replace(restarted.facts, role=command.role, progress=progress))
    if facts.role is command.role:
        return Decision(facts)
    new = replace(facts, role=command.role)
    if facts.state in RUNNING:
        label = FlowState.PROMOTING if command.role is LinkRole.DRAINING else FlowState.MIRRORING
        new = replace(new, state=label, reason=command.reason)
    return Decision(new, (), command.reason)


def pause(facts: FlowFacts, command: Pause) -> Decision:
    """An operator, or the share of another daemon, pauses the partition."""
    if command.is_anothers and (facts.state not in HELD or facts.is_chained):
        return hold(facts, FlowState.PAUSED, command.reason)
    if facts.state is FlowState.PAUSED:
        return Decision(replace(facts, reason=command.reason))
    if facts.state in HELD:
        return Decision(facts)
    # Queued batches may still arrive: only fetching stops.
    new = replace(facts, state=FlowState.PAUSED, reason=command.reason, step=Step.IDLE)
    return Decision(new, (StopFetching(),), command.reason)


def resume(facts: FlowFacts) -> Decision:
    """An operator resumes the partition."""
    if facts.state is not FlowState.PAUSED or facts.role is LinkRole.GONE:
        return Decision(facts)
    return restart(facts, "resumed", state=FlowState.PREPARING)


def topic_replaced(facts: FlowFacts, command: TopicReplaced) -> Decision:
    """The topic was deleted at the source, or has another id there."""
    if facts.state is FlowState.PROMOTED:
        return Decision(facts)
    if facts.state is FlowState.RESET:
        return Decision(replace(facts, reason=command.reason), (), command.reason)
    return hold(facts, FlowState.RESET, command.reason)


def topic_refused(facts: FlowFacts, command: TopicRefused) -> Decision:
    """The target's controller refuses the copy."""
    if facts.state is FlowState.PROMOTED:
        return Decision(facts)
    if facts.state is FlowState.REFUSED:
        return Decision(replace(facts, reason=command.reason), (), command.reason)
    held = hold(facts, FlowState.REFUSED, command.reason)
    # The target has no copy: facts about an earlier one give no lag.
    return replace(held, facts=replace(held.facts, progress=without_ends(facts.progress)))


def copy_renewed(facts: FlowFacts) -> Decision:
    """The target has a new, empty copy."""
    if facts.state is FlowState.PROMOTED:
        return Decision(facts)
    progress = replace(without_ends(facts.progress), caught_up_at_ms=UNKNOWN)
    renewed = replace(facts, has_streamed=False, progress=progress, copy_began_ms=UNKNOWN, may_lack_tombstones=False)
    if facts.state is FlowState.PAUSED:
        return Decision(renewed)
    restarted = restart(facts, "the copy is created again", state=FlowState.PREPARING)
    return replace(
        restarted,
        facts=replace(
            restarted.facts,
            has_streamed=False,
            progress=progress,
            restart_offset=0,
            copy_began_ms=UNKNOWN,
            may_lack_tombstones=False,
        ),
    )


def topic_conflict(facts: FlowFacts, command: TopicConflict) -> Decision:
    """The topics of both sites cannot be mirrored into each other."""
    is_known = facts.state is FlowState.FAULTED and facts.step is Step.IDLE
    # The pause is stronger, as for a hidden topic: otherwise both would change the state in turns.
    if facts.state in (FlowState.PAUSED, FlowState.PROMOTED) or is_known:
        return Decision(facts)
    return hold(facts, FlowState.FAULTED, command.reason)


def topic_hidden(facts: FlowFacts, command: TopicHidden) -> Decision:
    """The source has ceased to list the topic."""
    is_known = facts.state is FlowState.SOURCE_UNAVAILABLE and facts.step is Step.IDLE
    if facts.state in (FlowState.PAUSED, FlowState.PROMOTED) or is_known:
        return Decision(facts)
    # Queued batches may still arrive, and may be the only copies left.
    new = replace(facts, state=FlowState.SOURCE_UNAVAILABLE, reason=command.reason, step=Step.IDLE)
    return Decision(new, (StopFetching(),), command.reason)


def topic_agrees(facts: FlowFacts) -> Decision:
    """Both sites have the same topic again."""
    if not facts.waits_for_topic:
        return Decision(facts)
    new = restart(facts, "both sites have the same topic again", state=FlowState.PREPARING)
    return replace(new, facts=replace(new.facts, has_streamed=False))
