"""The group machine with a log, a clock and timers of its own.

Durable records go through their bytes into `log`, and are applied from the decision, as the shell
does; invariants are checked after each record. `restart` replays the log into a new machine.
"""

from __future__ import annotations

from typing import Any

from broker.groups.core import group_handover, group_records
from broker.groups.core.consumer_protocol.consumer_groups import HeartbeatReply, MemberHeartbeat
from broker.groups.core.group_machine import Groups
from broker.groups.core.group_messages import (
    Answer,
    CancelTimer,
    CodeReply,
    Command,
    ConsumerHeartbeat,
    Decision,
    EvictMembers,
    ExpireOffsets,
    FireTimer,
    ForgetTopics,
    GroupChanged,
    JoinGroup,
    JoinReply,
    OffsetCommitted,
    OffsetPending,
    Reply,
    ResumeGroup,
    StartTimer,
    TakeMembers,
    TimerKey,
    TransactionEnded,
)
from broker.groups.core.group_states import AssignmentProtocol
from broker.groups.core.group_turn import GroupLimits
from tests.support.memory.group_lines import (
    key_text,
    record_line,
    reply_text,
)
from wire.batches.consumer_protocol import Subscription, encode_subscription
from wire.batches.records import Record

START_MS = 1_000_000


LIMITS = GroupLimits(
    session_timeout_ms_min=1000,
    session_timeout_ms_max=300_000,
    size_max=4,
    initial_rebalance_delay_ms=3000,
    offset_metadata_bytes_max=8,
    offsets_retention_ms=60_000,
)


def is_answered(command: Command) -> bool:
    """False for the commands that no caller awaits."""
    return not isinstance(command, ForgetTopics | ExpireOffsets | EvictMembers)


class GroupScene:
    """One group machine and its log."""

    def __init__(self, limits: GroupLimits = LIMITS) -> None:
        self.limits = limits
        self.now_ms = START_MS
        self.groups = Groups(limits)
        self.log: list[TransactionEnded | tuple[Record, tuple[int, int] | None]] = []
        self.timers: dict[TimerKey, int] = {}
        self.replies: dict[int, Reply] = {}
        self.waiting: set[int] = set()
        self._token = 0
        self._ids = 0
        self.lines: list[str] = []
        self.topics: dict[str, tuple[bytes, int]] = {}

    # --- calls

    def ask(self, command: Command) -> Reply | None:
        """Decide, commit, apply, act; the reply, None while it is parked."""
        self._token += 1
        token = self._token
        if is_answered(command):
            self.waiting.add(token)
        self.take(self.groups.decide(command, now_ms=self.now_ms, token=token))
        return self.replies.get(token)

    def take(self, decision: Decision) -> None:
        """Commit the decision's records, apply them, and carry out its actions."""
        self.commit(decision)
        self.finish(decision)

    def commit(self, decision: Decision) -> None:
        """The durable records reach the log."""
        for record in decision.records:
            match record:
                case GroupChanged():
                    pass
                case TransactionEnded():
                    self.log.append(record)
                case OffsetPending(producer_id=producer_id, producer_epoch=producer_epoch):
                    self.log.append((group_records.encode(record), (producer_id, producer_epoch)))
                case _:
                    self.log.append((group_records.encode(record), None))

    def finish(self, decision: Decision) -> None:
        """Apply the records and act on the effects."""
        for record in decision.records:
            self.groups.apply(record)
            self.lines.append(record_line(record))
        self.groups.check_invariants()
        for effect in decision.effects:
            match effect:
                case Answer(token=token, reply=reply):
                    self.replies[token] = reply
                    self.waiting.discard(token)
                    self.lines.append(f"#{token} {reply_text(reply)}")
                case StartTimer(key=key, keeps_running=True) if key in self.timers:
                    pass
                case StartTimer(key=key, delay_ms=delay_ms):
                    self.timers[key] = self.now_ms + delay_ms
                    self.lines.append(f"timer {key_text(key)} {delay_ms}")
                case CancelTimer(key=key):
                    if self.timers.pop(key, None) is not None:
                        self.lines.append(f"cancel {key_text(key)}")

    def advance(self, elapsed_ms: int) -> None:
        """Let time pass. Timers that are due fire in their order."""
        end_ms = self.now_ms + elapsed_ms
        while due := [(deadline, key) for key, deadline in self.timers.items() if deadline <= end_ms]:
            deadline, key = min(due, key=lambda timer: timer[0])
            del self.timers[key]
            self.now_ms = max(self.now_ms, deadline)
            self.lines.append(f"{key_text(key)} fires at +{self.now_ms - START_MS}")
            command = FireTimer(group_id=key.group_id, key=key, topics=self.topics)
            self.take(self.groups.decide(command, now_ms=self.now_ms))
        self.now_ms = end_ms

    def replayed(self) -> Groups:
        """A new machine from the log."""
        groups = Groups(self.limits)
        for logged in self.log:
            if isinstance(logged, TransactionEnded):
                groups.apply(logged)
                continue
            encoded, producer = logged
            record = group_records.decode(encoded.key or b"", encoded.value, headers=encoded.headers, producer=producer)
            assert record is not None
            groups.apply(record)
        groups.settle_replay()
        groups.check_invariants()
        return groups

    def restart(self) -> None:
        """The coordinator moves: it loses the state that was not committed."""
        self.groups = self.replayed()
        self.timers.clear()
        self.waiting.clear()
        for group in self.groups:
            self.take(self.groups.decide(ResumeGroup(group_id=group.group_id), now_ms=self.now_ms))

    def move(self) -> None:
        """Another site coordinates from now on: it has the offsets, and takes the members as bytes.
        Requests that wait here are not answered.
        """
        moved = [
            (group, group_handover.member_records(group, self.groups.consumers(group.group_id)))
            for group in self.groups
        ]
        offsets = {group.group_id: dict(self.groups.offsets_of(group.group_id)) for group, _ in moved}
        self.groups, self.log = Groups(self.limits), []
        self.timers.clear()
        self.waiting.clear()
        for group_id, committed in offsets.items():
            facts = tuple(
                OffsetCommitted(group_id=group_id, partition=partition, value=value)
                for partition, value in committed.items()
            )
            self.take(Decision(records=facts))
        for group, records in moved:
            if records:
                encoded = [group_records.encode(record) for record in records]
                taken = [group_records.decode(one.key or b"", one.value) for one in encoded]
                reply = self.ask(TakeMembers(group_id=group.group_id, records=tuple(taken)))  # type: ignore[arg-type]
                assert reply == CodeReply(), reply

    def join(self, group_id: str = "g", **values: Any) -> JoinReply | None:
        """JoinGroup; see the module for the values."""
        reply = self.ask(self.join_command(group_id, **values))
        assert reply is None or isinstance(reply, JoinReply)
        return reply

    def join_command(
        self,
        group_id: str = "g",
        *,
        client: str = "a",
        member: str = "",
        instance: str | None = None,
        protocols: str = "range",
        session: int = 10_000,
        rebalance: int = 60_000,
        version: int = 9,
        type: str = "consumer",  # noqa: A002  as in scripts
        topics: str = "",
    ) -> JoinGroup:
        """The command; a fresh member id is the client (or instance) and a running number."""
        self._ids += 1
        subscription = encode_subscription(Subscription(1, tuple(topics.split(",")), {})) if topics else b""
        return JoinGroup(
            group_id=group_id,
            member_id=member,
            fresh_member_id=f"{instance or client}-{self._ids}",
            group_instance_id=instance,
            client_id=client,
            client_host="/127.0.0.1",
            session_timeout_ms=session,
            rebalance_timeout_ms=rebalance,
            protocol_type=type,
            protocols=tuple(
                AssignmentProtocol(name, subscription or f"{name}/{client}".encode())
                for name in protocols.split(",")
                if name
            ),
            requires_known_member=version >= 4,
            may_skip_assignment=version >= 9,
        )

    def new_member(self, group_id: str = "g", **values: Any) -> tuple[str, JoinReply | None]:
        """Join as a client of today does, in two steps; the member id and the second answer."""
        first = self.join(group_id, **values)
        assert first is not None
        return first.member_id, self.join(group_id, **{**values, "member": first.member_id})

    def beat(self, group_id: str, said: MemberHeartbeat) -> HeartbeatReply:
        """ConsumerGroupHeartbeat."""
        reply = self.ask(ConsumerHeartbeat(group_id=group_id, said=said, topics=self.topics))
        assert isinstance(reply, HeartbeatReply)
        return reply
