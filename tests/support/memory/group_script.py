"""The lines of golden group scripts over `group_scene.py`.

The commands (`key=value` in any order):

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

from broker.groups.core.consumer_protocol.consumer_groups import MemberHeartbeat
from broker.groups.core.consumer_protocol.server_assignors import Owned, TopicIdPartition
from broker.groups.core.group_messages import (
    Command,
    CommitOffsets,
    CommitTransactionOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    EndProducerTransaction,
    EvictMembers,
    ExpireOffsets,
    ForgetTopics,
    Heartbeat,
    LeaveGroup,
    LeavingMember,
    MirrorOffsets,
    SyncGroup,
)
from tests.support.memory.group_lines import (
    group_text,
    offsets_in,
    partition_of,
    partition_text,
    values_of,
)
from tests.support.memory.group_scene import GroupScene, is_answered


class GroupScript(GroupScene):
    """A scene that lines of text drive."""

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
        if self.ask(command) is None and is_answered(command):
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
