"""Moves the members of a group to another site's coordinator, as of a fence (decision 131). Pure.

A planned move changes only the coordinator: the members keep their ids, generation and assignment,
so that no rebalance begins and each member continues at its position. The members are sent as the
records from which a coordinator would load them.
"""

from __future__ import annotations

from collections.abc import Iterable

from kio.schema.errors import ErrorCode

from broker.groups.core.consumer_protocol import consumer_group_turn, consumer_groups
from broker.groups.core.consumer_protocol.consumer_group_states import ConsumerFact, ConsumerGroup, partitions_of
from broker.groups.core.group_messages import (
    Answer,
    CodeReply,
    Decision,
    Effect,
    GroupRecord,
    GroupRemoved,
    GroupStored,
    MemberRecord,
    StartTimer,
    TakeMembers,
    TimerKey,
    TimerKind,
)
from broker.groups.core.group_states import Group, GroupState
from broker.groups.core.group_turn import GroupLimits
from wire.batches.consumer_group_records import (
    CURRENT_KIND,
    GROUP_KIND,
    MEMBER_KIND,
    TARGET_EPOCH_KIND,
    TARGET_KIND,
    ConsumerGroupKey,
    CurrentAssignment,
    GroupEpoch,
    TargetAssignment,
    TargetEpoch,
)


def member_records(group: Group, consumers: ConsumerGroup | None) -> tuple[MemberRecord, ...]:
    """The records that restore the members at the other site; none for a group without members, or
    in the middle of a rebalance of the classic protocol: its members join again anyway.
    """
    if consumers is not None:
        return tuple(_facts(consumers)) if consumers.members else ()
    if group.state is not GroupState.STABLE:
        return ()
    return (GroupStored(group=group.durable()),)


def _facts(consumers: ConsumerGroup) -> Iterable[ConsumerFact]:
    name = consumers.group_id
    yield ConsumerFact(ConsumerGroupKey(GROUP_KIND, name), GroupEpoch(consumers.epoch, consumers.metadata_hash))
    for member_id, metadata in consumers.members.items():
        yield ConsumerFact(ConsumerGroupKey(MEMBER_KIND, name, member_id), metadata)
    yield ConsumerFact(ConsumerGroupKey(TARGET_EPOCH_KIND, name), TargetEpoch(consumers.target_epoch))
    for member_id, target in consumers.targets.items():
        yield ConsumerFact(ConsumerGroupKey(TARGET_KIND, name, member_id), TargetAssignment(partitions_of(target)))
    for member_id, reached in consumers.reached.items():
        current = CurrentAssignment(
            epoch=reached.epoch,
            previous_epoch=reached.previous_epoch,
            state=int(reached.state),
            assigned=partitions_of(reached.assigned),
            pending_revocation=partitions_of(reached.pending_revocation),
        )
        yield ConsumerFact(ConsumerGroupKey(CURRENT_KIND, name, member_id), current)


def take(
    known: Group | None, consumers: ConsumerGroup | None, command: TakeMembers, limits: GroupLimits, token: int
) -> Decision:
    """Store the members of the other site's group; each has one session timeout to contact this
    site. A group that already has members here keeps them; storing the same members again changes
    nothing.
    """
    has_classic_members = known is not None and bool(known.members or known.pending)
    if has_classic_members or (consumers is not None and consumers.members):
        is_taken = known is not None and member_records(known, consumers) == command.records
        return _answered(token, ErrorCode.none if is_taken else ErrorCode.non_empty_group)
    before: list[GroupRecord] = [] if consumers is None else [*consumer_groups.removal(consumers)]
    facts = [record for record in command.records if isinstance(record, ConsumerFact)]
    stored = [record for record in command.records if isinstance(record, GroupStored)]
    built = ConsumerGroup(command.group_id)
    for fact in facts:
        built.put(fact.key, fact.value)
    names = {fact.key.group for fact in facts} | {record.group.group_id for record in stored}
    is_sound = not any((*built.violations(), *(wrong for record in stored for wrong in record.group.violations())))
    if names != {command.group_id} or bool(facts) is bool(stored) or not is_sound:
        return _answered(token, ErrorCode.invalid_record)
    if facts and known is not None and not known.is_simple:
        before.append(GroupRemoved(group_id=command.group_id))
    timers: list[Effect] = [*consumer_group_turn.resume(built, limits).effects]
    for member in (member for record in stored for member in record.group.members.values()):
        key = TimerKey(TimerKind.SESSION, command.group_id, member.member_id)
        timers.append(StartTimer(key=key, delay_ms=member.session_timeout_ms))
    return Decision(
        records=(*before, *command.records),
        effects=(*timers, Answer(token=token, reply=CodeReply())),
        reason="its members come from the other site",
    )


def _answered(token: int, error: ErrorCode) -> Decision:
    return Decision(effects=(Answer(token=token, reply=CodeReply(error=error)),))
