"""The group machine: the groups of one partition of `__consumer_offsets`. Decide, commit, apply,
act.

`decide` reads the state and changes nothing; `apply` is the only way to change it, for live records
and for the replay of the log alike. The shell (`broker/groups/coordinator.py`) appends the durable
records of a decision, applies all of them once the append is committed, and then acts on the
effects. It decides one group's commands one after the other, each after the records of the previous
one were applied; only commits of offsets need not wait for each other. Reads of offsets return only
applied offsets.

Invariants: (a) only EMPTY groups without members and STABLE ones with them are stored (held by
`apply`); (b) every group is valid (`Group.violations`); (c) a group is listed under its own name;
(d) offsets belong to a group that is listed (`check_invariants`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from kio.schema.errors import ErrorCode
from msgspec import structs
from msgspec.structs import replace

from broker.groups.core import group_handover, group_offsets
from broker.groups.core import group_membership as membership
from broker.groups.core.consumer_protocol import (
    classic_members,
    consumer_group_turn,
    consumer_groups,
    consumer_targets,
    group_migration,
)
from broker.groups.core.consumer_protocol.consumer_group_states import JOINING_EPOCH, ConsumerGroup
from broker.groups.core.consumer_protocol.consumer_groups import HeartbeatReply
from broker.groups.core.consumer_protocol.group_migration import MEMBER_TIMERS, NotConvertible
from broker.groups.core.group_messages import (
    Answer,
    CodeReply,
    Command,
    CommitOffsets,
    CommitTransactionOffsets,
    ConsumerHeartbeat,
    Decision,
    DeleteGroup,
    DeleteOffsets,
    EndProducerTransaction,
    EvictMembers,
    ExpireOffsets,
    FireTimer,
    ForgetTopics,
    GroupRecord,
    GroupRemoved,
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    MirrorOffsets,
    PartitionsReply,
    ResumeGroup,
    SyncGroup,
    TakeMembers,
    TransactionEnded,
)
from broker.groups.core.group_offsets import Offsets
from broker.groups.core.group_states import NO_GENERATION, Group, GroupState
from broker.groups.core.group_tables import GroupTables
from broker.groups.core.group_turn import GroupLimits, Turn
from broker.settings.core.group_configs import SESSION_TIMEOUT, in_force
from runtime.invariants import InvariantBroken
from wire.protocol.ids import TopicPartition
from wire.znodes.group_configs import GroupConfigs


class Groups(GroupTables):
    """The groups of one partition: `decide`, then `apply`."""

    def __init__(self, limits: GroupLimits, configs_of: Callable[[str], GroupConfigs] = lambda _group_id: {}) -> None:
        super().__init__()
        self._limits = limits
        self._configs_of = configs_of

    # --- deciding

    def decide(self, command: Command, *, now_ms: int, token: int = 0) -> Decision:
        """Decide a command. `now_ms` is Unix time; `token` identifies the request that waits for
        the answer (0: none).
        """
        decision = self._decide(command, now_ms=now_ms, token=token)
        if decision.reason:
            self._story.append(f"{command.group_id}: {decision.reason}")
        return decision

    def _decide(self, command: Command, *, now_ms: int, token: int) -> Decision:
        # a marker affects all groups of the partition in which the producer has pending offsets
        if isinstance(command, EndProducerTransaction):
            return _end_transaction(command, token)
        consumers = self._consumers.get(command.group_id)
        if isinstance(command, TakeMembers):
            known, limits = self._groups.get(command.group_id), self._limits_of(command.group_id)
            return group_handover.take(known, consumers, command, limits, token)
        if isinstance(command, ConsumerHeartbeat):
            return self._consumer_heartbeat(consumers, command, now_ms=now_ms, token=token)
        if consumers is not None:
            return self._decide_for_consumers(consumers, command, now_ms=now_ms, token=token)
        return self._decide_for_classic(command, now_ms=now_ms, token=token)

    def _consumer_heartbeat(
        self, known: ConsumerGroup | None, command: ConsumerHeartbeat, *, now_ms: int, token: int
    ) -> Decision:
        classic, limits = self._groups.get(command.group_id), self._limits_of(command.group_id)
        before: Decision | None = None
        # a simple group has only offsets: they stay, and the group need not be converted, unless a
        # client with a member id is awaited in it
        if known is None and classic is not None and (classic.pending or not classic.is_simple):
            try:
                known, before = self._upgraded(classic, command)
            except NotConvertible as error:
                refusal = HeartbeatReply(error=ErrorCode.group_id_not_found, message=str(error))
                return Decision(effects=(Answer(token=token, reply=refusal),))
        group = known or ConsumerGroup(command.group_id)
        decision = consumer_group_turn.heartbeat(group, command, limits, token=token, now_ms=now_ms)
        if before is None or not decision.records:
            return decision
        return Decision(
            records=(*before.records, *decision.records),
            effects=(*before.effects, *decision.effects),
            reason=f"{before.reason}; {decision.reason}" if before.reason else decision.reason,
        )

    def _limits_of(self, group_id: str) -> GroupLimits:
        """The limits, with the configs of the group."""
        configs, limits = self._configs_of(group_id), self._limits
        if not configs:
            return limits
        timeout_ms = in_force(configs, SESSION_TIMEOUT, limits.group_bounds)
        return replace(limits, consumer_session_timeout_ms=timeout_ms)

    def _upgraded(self, classic: Group, command: ConsumerHeartbeat) -> tuple[ConsumerGroup | None, Decision]:
        """The classic group is removed and its offsets stay; its members, if any, continue in a
        KIP-848 group. NotConvertible.
        """
        removed = GroupRemoved(group_id=classic.group_id)
        effects = tuple(group_migration.leaving_classic(classic))
        if not classic.members:
            return None, Decision(records=(removed,), effects=effects)
        # only a joining member converts a group: a heartbeat with another epoch belongs to a former
        # group
        if not self._limits.may_upgrade or command.said.member_epoch != JOINING_EPOCH:
            raise NotConvertible(f"{classic.group_id} has members of the classic protocol")
        turn = group_migration.upgraded(classic, command.topics)
        reason = f"{len(classic.members)} members move from the classic to the consumer protocol"
        return turn.group, Decision(records=(removed, *turn.facts), effects=effects, reason=reason)

    def _decide_for_consumers(self, consumers: ConsumerGroup, command: Command, *, now_ms: int, token: int) -> Decision:
        is_timer = isinstance(command, FireTimer)
        if isinstance(command, FireTimer) and command.key.kind in MEMBER_TIMERS:
            return consumer_group_turn.fire(consumers, command, self._limits, now_ms=now_ms)
        if isinstance(command, ResumeGroup):
            return consumer_group_turn.resume(consumers, self._limits_of(command.group_id))
        # a KIP-848 group serves its classic members itself
        if consumers.members and isinstance(command, JoinGroup | SyncGroup | Heartbeat | LeaveGroup):
            return classic_members.decide(consumers, command, self._limits, token=token, now_ms=now_ms)
        refused = consumer_group_turn.refuse(consumers, command, token)
        if refused is not None or is_timer:
            return refused or Decision()
        if isinstance(command, CommitOffsets):
            # the member was checked above; from here on the group has no members
            command = structs.replace(command, member_id="", group_instance_id=None, generation=NO_GENERATION)
        decision = self._decide_for_classic(command, now_ms=now_ms, token=token)
        if isinstance(command, JoinGroup | DeleteGroup):
            return structs.replace(decision, records=(*consumer_groups.removal(consumers), *decision.records))
        # offsets may be removed; the group itself stays as long as it has members
        kept = tuple(record for record in decision.records if not isinstance(record, GroupRemoved))
        if isinstance(command, ExpireOffsets) and not consumers.members and len(kept) < len(decision.records):
            # neither members nor offsets remain
            kept = (*kept, *consumer_groups.removal(consumers))
        return structs.replace(decision, records=kept)

    def _decide_for_classic(self, command: Command, *, now_ms: int, token: int) -> Decision:
        known = self._groups.get(command.group_id)
        if known is None and not self._concerns_unlisted(command):
            return self._without_group(command, token)
        # a member of a group that does not exist: its generation cannot be right
        if known is None and isinstance(command, CommitOffsets) and command.generation >= 0:
            return group_offsets.commit_without_group(command, token)
        if known is None and isinstance(command, JoinGroup) and command.member_id:
            reply = JoinReply(error=ErrorCode.unknown_member_id, member_id=command.member_id)
            return Decision(effects=(Answer(token=token, reply=reply),))
        group = known or Group(group_id=command.group_id, state_since_ms=now_ms)
        turn = Turn(group, now_ms=now_ms, token=token, limits=self._limits)
        records = self._take(turn, command)
        return turn.decision(records)

    def _concerns_unlisted(self, command: Command) -> bool:
        """True if a group that is not listed can take the command: one that the command may create,
        or one of which only open transactions have offsets.
        """
        if isinstance(command, DeleteGroup | DeleteOffsets | ForgetTopics):
            return bool(self._pending.of(command.group_id))
        return isinstance(command, JoinGroup | CommitOffsets | MirrorOffsets | LeaveGroup | Heartbeat)

    def _without_group(self, command: Command, token: int) -> Decision:
        match command:
            case SyncGroup():
                turn = Turn(Group(group_id=command.group_id), now_ms=0, token=token, limits=self._limits)
                membership.sync(turn, command)
                return turn.decision()
            case DeleteGroup():
                return _refusal(token, CodeReply(error=ErrorCode.group_id_not_found))
            case DeleteOffsets():
                return _refusal(token, PartitionsReply(error=ErrorCode.group_id_not_found))
            case _:
                return Decision()

    def _take(self, turn: Turn, command: Command) -> list[GroupRecord]:
        match command:
            case CommitTransactionOffsets():
                return group_offsets.commit_pending(turn, command)
            case CommitOffsets():
                return group_offsets.commit(turn, command)
            case JoinGroup():
                membership.join(turn, command)
            case SyncGroup():
                membership.sync(turn, command)
            case Heartbeat():
                membership.heartbeat(turn, command)
            case LeaveGroup():
                membership.leave(turn, command)
            case FireTimer():
                membership.fire(turn, command)
            case EvictMembers():
                membership.evict(turn, command)
            case ResumeGroup():
                membership.resume(turn)
            case MirrorOffsets():
                return group_offsets.mirror(turn, command, self._offsets.of(command.group_id))
            case _:
                return self._forget(turn, command)
        return []

    def _forget(self, turn: Turn, command: Command) -> list[GroupRecord]:
        group, offsets = turn.group, self._offsets.of(command.group_id)
        match command:
            case DeleteGroup():
                return _delete(turn, offsets, pending=self._pending.of(group.group_id))
            case DeleteOffsets():
                is_subscribed, pending = self._subscription(group), self._pending.of(group.group_id)
                return group_offsets.delete_offsets(turn, command.partitions, offsets, is_subscribed, pending)
            case ForgetTopics():
                gone: Collection[TopicPartition] = [found for found in offsets if found.topic in command.topics]
                turn.reason = f"{len(gone)} offsets belonged to deleted topics" if gone else ""
                pending = {found for found in self._pending.of(group.group_id) if found.topic in command.topics}
                voided = group_offsets.voided(group, pending.difference(gone))
                return [*voided, *group_offsets.removals(group, gone, offsets)] if gone else voided
            case ExpireOffsets():
                over = group_offsets.expired(
                    group,
                    offsets,
                    now_ms=turn.now_ms,
                    retention_ms=turn.limits.offsets_retention_ms,
                    counted_from_ms=command.counted_from_ms,
                )
                gone = self._unwanted(group, over)
                turn.reason = f"{len(gone)} offsets expired" if gone else ""
            case _:
                raise InvariantBroken(f"no rule for command {command!r}")
        if not gone and offsets:
            return []
        return group_offsets.removals(group, gone, offsets)

    def _subscription(self, group: Group) -> group_offsets.Subscription:
        consumers = self._consumers.get(group.group_id)
        if consumers is not None:
            return consumer_targets.subscription(consumers)
        return group_offsets.subscription(group)

    def _unwanted(self, group: Group, over: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Return the offsets that neither a member nor an open transaction needs."""
        if not over:
            return over
        is_subscribed = self._subscription(group)
        return [
            partition
            for partition in over
            # the commit of its transaction would restore a pending offset
            if not is_subscribed(partition.topic) and not self._pending.holds(group.group_id, partition)
        ]


def _refusal(token: int, reply: CodeReply | PartitionsReply) -> Decision:
    return Decision(effects=(Answer(token=token, reply=reply),))


def _end_transaction(command: EndProducerTransaction, token: int) -> Decision:
    ended = TransactionEnded(
        producer_id=command.producer_id,
        producer_epoch=command.producer_epoch,
        is_commit=command.is_commit,
        coordinator_epoch=command.coordinator_epoch,
    )
    return Decision(records=(ended,), effects=(Answer(token=token, reply=CodeReply()),))


def _delete(turn: Turn, offsets: Offsets, *, pending: set[TopicPartition]) -> list[GroupRecord]:
    group = turn.group
    if group.state is not GroupState.EMPTY or group.pending:
        turn.answer(turn.token, CodeReply(error=ErrorCode.non_empty_group))
        return []
    turn.answer(turn.token, CodeReply())
    turn.reason = "deleted"
    voided = group_offsets.voided(group, pending.difference(offsets))
    return [*voided, *group_offsets.removals(group, offsets, offsets)]
