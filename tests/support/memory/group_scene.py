"""The group machine with a log, a clock and timers of its own, driven by lines of text or by calls.

Durable records go through their bytes into `log`, and are applied from the decision, as the shell
does; invariants are checked after each record. `restart` replays the log into a new machine.
Commands of scripts (`key=value` in any order):

    join GROUP client=a [member=a-1] [instance=i] [protocols=range,sticky] [session=10000] [rebalance=60000] [version=9] [type=consumer]
        [topics=t,u]        (a consumer's subscription; without it the metadata is nothing that a
                            broker can read)
    sync GROUP member=a-1 generation=1 [assign=a-1:x,b-2:y] [instance=i] [protocol=range]
    heartbeat GROUP member=a-1 generation=1 [instance=i]        leave GROUP member=a-1[/i],b-2
    pend GROUP producer=7/0 t-0=5 [member=a-1 generation=1]       end producer=7/0 commit|abort
    commit GROUP t-0=5 [t-1=7@3] [member=a-1 generation=1] [metadata=text] [retention=1000]
    beat GROUP member=a epoch=0 [topics=t,u] [regex=..] [owns=t-0,t-1|none] [instance=i] [assignor=range] [timeout=MS]
    topics t=2,u=3          (what there is; KIP-848 members are given partitions of it)
    mirror GROUP t-0=5      fetch GROUP      show GROUP      advance MS      restart      move
    delete GROUP      forget GROUP t-0       topics-gone GROUP t       expire GROUP      evict GROUP
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.groups.core import group_handover, group_records
from broker.groups.core.consumer_protocol.consumer_groups import HeartbeatReply, MemberHeartbeat
from broker.groups.core.consumer_protocol.server_assignors import Owned, TopicIdPartition
from broker.groups.core.group_machine import Groups
from broker.groups.core.group_messages import (
    Answer,
    CancelTimer,
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
    GroupChanged,
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeavingMember,
    MirrorOffsets,
    OffsetCommitted,
    OffsetPending,
    Reply,
    ResumeGroup,
    StartTimer,
    SyncGroup,
    TakeMembers,
    TimerKey,
    TransactionEnded,
)
from broker.groups.core.group_states import AssignmentProtocol
from broker.groups.core.group_turn import GroupLimits
from tests.support.memory.group_lines import (
    group_text,
    key_text,
    offsets_in,
    partition_of,
    partition_text,
    record_line,
    reply_text,
    values_of,
)
from wire.batches.consumer_protocol import Subscription, encode_subscription

START_MS = 1_000_000


LIMITS = GroupLimits(
    session_timeout_ms_min=1000,
    session_timeout_ms_max=300_000,
    size_max=4,
    initial_rebalance_delay_ms=3000,
    offset_metadata_bytes_max=8,
    offsets_retention_ms=60_000,
)


_UNANSWERED = (ForgetTopics, ExpireOffsets, EvictMembers)


class GroupScene:
    """See the module."""

    def __init__(self, limits: GroupLimits = LIMITS) -> None:
        self.limits = limits
        self.now_ms = START_MS
        self.groups = Groups(limits)
        self.log: list[TransactionEnded | tuple[bytes, bytes | None, tuple[int, int] | None]] = []
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
        if not isinstance(command, _UNANSWERED):
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
                    self.log.append((*group_records.encode(record), (producer_id, producer_epoch)))
                case _:
                    self.log.append((*group_records.encode(record), None))

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
            key, value, producer = logged
            record = group_records.decode(key, value, producer=producer)
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
                taken = [group_records.decode(*group_records.encode(record)) for record in records]
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

    # --- scripts

    def answer(self, line: str) -> str:
        """Run one line of a script, and return the events as text."""
        self.lines = []
        verb, *words = line.split()
        verbs: dict[str, Callable[..., None]] = {
            "join": self._join,
            "sync": self._sync,
            "heartbeat": self._heartbeat,
            "leave": self._leave,
            "commit": self._commit,
            "mirror": self._mirror,
            "pend": self._pend,
            "beat": self._beat,
            "topics": self._set_topics,
            "end": self._end,
            "delete": lambda group: self._asked(DeleteGroup(group_id=group)),
            "forget": lambda group, *names: self._asked(
                DeleteOffsets(group_id=group, partitions=tuple(partition_of(name) for name in names))
            ),
            "topics-gone": lambda group, *names: self._asked(ForgetTopics(group_id=group, topics=frozenset(names))),
            "expire": lambda group: self._asked(ExpireOffsets(group_id=group)),
            "evict": lambda group: self._asked(EvictMembers(group_id=group)),
            "fetch": self._fetch,
            "show": self._show,
            "advance": lambda elapsed: self.advance(int(elapsed)),
            "restart": self.restart,
            "move": self.move,
        }
        verbs[verb](*words)
        return "\n".join(self.lines) or "nothing"

    def _asked(self, command: Command) -> None:
        if self.ask(command) is None and not isinstance(command, _UNANSWERED):
            self.lines.append(f"#{self._token} waits")

    def _join(self, group: str, *words: str) -> None:
        values: dict[str, Any] = values_of(words)
        for name in ("session", "rebalance", "version"):
            if name in values:
                values[name] = int(values[name])
        self._asked(self.join_command(group, **values))

    def _sync(self, group: str, *words: str) -> None:
        values = values_of(words)
        given = (pair.split(":") for pair in values.get("assign", "").split(",") if pair)
        self._asked(
            SyncGroup(
                group_id=group,
                member_id=values["member"],
                group_instance_id=values.get("instance"),
                generation=int(values["generation"]),
                protocol_type=None,
                protocol=values.get("protocol"),
                assignments={member: assignment.encode() for member, assignment in given},
            )
        )

    def _heartbeat(self, group: str, *words: str) -> None:
        values = values_of(words)
        self._asked(
            Heartbeat(
                group_id=group,
                member_id=values["member"],
                group_instance_id=values.get("instance"),
                generation=int(values["generation"]),
            )
        )

    def _leave(self, group: str, *words: str) -> None:
        leaving = []
        for name in values_of(words)["member"].split(","):
            member, _, instance = name.partition("/")
            leaving.append(LeavingMember(member, instance or None))
        self._asked(LeaveGroup(group_id=group, members=tuple(leaving)))

    def _commit(self, group: str, *words: str) -> None:
        values = values_of(words)
        self._asked(
            CommitOffsets(
                group_id=group,
                member_id=values.pop("member", ""),
                group_instance_id=values.pop("instance", None),
                generation=int(values.pop("generation", "-1")),
                offsets=offsets_in(values),
            )
        )

    def _set_topics(self, text: str) -> None:
        given = (pair.split("=") for pair in text.split(","))
        self.topics = {name: (name.encode() * 16, int(count)) for name, count in given}

    def beat(self, group_id: str, said: MemberHeartbeat) -> HeartbeatReply:
        """ConsumerGroupHeartbeat."""
        reply = self.ask(ConsumerHeartbeat(group_id=group_id, said=said, topics=self.topics))
        assert isinstance(reply, HeartbeatReply)
        return reply

    def _beat(self, group: str, *words: str) -> None:
        values = values_of(words)
        topics, owns = values.get("topics"), values.get("owns")
        said = MemberHeartbeat(
            member_id=values["member"],
            member_epoch=int(values["epoch"]),
            instance_id=values.get("instance"),
            rack_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=int(values.get("timeout", "60000" if values["epoch"] == "0" else "-1")),
            topic_names=None if topics is None else tuple(topics.split(",")),
            topic_regex=values.get("regex"),
            server_assignor=values.get("assignor"),
            owned=None if owns is None else self._owned(owns),
        )
        self._asked(ConsumerHeartbeat(group_id=group, said=said, topics=self.topics))

    def _owned(self, text: str) -> Owned:
        named = [] if text == "none" else [partition_of(name) for name in text.split(",")]
        return frozenset(TopicIdPartition(self.topics[found.topic][0], found.partition) for found in named)

    def _pend(self, group: str, *words: str) -> None:
        values = values_of(words)
        producer_id, producer_epoch = values.pop("producer").split("/")
        self._asked(
            CommitTransactionOffsets(
                group_id=group,
                member_id=values.pop("member", ""),
                group_instance_id=values.pop("instance", None),
                generation=int(values.pop("generation", "-1")),
                offsets=offsets_in(values),
                producer_id=int(producer_id),
                producer_epoch=int(producer_epoch),
                guard=0,
            )
        )

    def _end(self, producer: str, outcome: str) -> None:
        producer_id, producer_epoch = producer.removeprefix("producer=").split("/")
        self._asked(
            EndProducerTransaction(
                group_id="",
                producer_id=int(producer_id),
                producer_epoch=int(producer_epoch),
                is_commit=outcome == "commit",
                coordinator_epoch=0,
            )
        )

    def _mirror(self, group: str, *words: str) -> None:
        self._asked(MirrorOffsets(group_id=group, offsets=offsets_in(values_of(words))))

    def _fetch(self, group: str) -> None:
        for partition, value in sorted(self.groups.offsets_of(group).items()):
            age_ms = self.now_ms - value.commit_timestamp_ms
            self.lines.append(
                f"{partition_text(partition)}={value.offset}@{value.leader_epoch} {value.metadata!r} {age_ms} ms old"
            )

    def _show(self, group: str) -> None:
        found = self.groups.get(group)
        self.lines.append("Dead" if found is None else group_text(found))
