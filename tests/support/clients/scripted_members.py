"""Members of a consumer group that a test drives step by step, of either protocol. A history has
their partitions and commits.

A member is in one `Stage` at a time and moves by `advance`, which never waits: it sends the next
request, or looks whether the last one has been answered. `reach` drives several members to a stage,
where a test can break their coordinator; a member that it keeps in JOINED has joined and not yet
synced. `member_holdings.py` has their partitions.
"""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from tests.support.clients.member_holdings import History, Holdings, SentCommit
from tests.support.eventually import eventually_sync
from tests.support.histories.coordinator_calls import TRY_AGAIN, WITHIN_MS, ConnectionLost, CoordinatorCalls, Sent
from tests.support.histories.group_history import Given
from wire.batches.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

JOIN, HEARTBEAT, LEAVE, SYNC, CONSUMER_HEARTBEAT = 11, 12, 13, 14, 68
VERSIONS: Final = {JOIN: 9, HEARTBEAT: 4, LEAVE: 5, SYNC: 5, CONSUMER_HEARTBEAT: 1}
SESSION = dt.timedelta(seconds=60)

FORGOTTEN = frozenset({ErrorCode.unknown_member_id, ErrorCode.illegal_generation, ErrorCode.fenced_member_epoch})
NOT_NOW = frozenset({ErrorCode.rebalance_in_progress, ErrorCode.stale_member_epoch, *FORGOTTEN})


class Stage(enum.Enum):
    """The state of a member."""

    OUT = "out"
    JOINING = "joining"
    JOINED = "joined"
    SYNCING = "syncing"
    STABLE = "stable"


class ClassicMember:
    """A member of the classic protocol: eager, or cooperative in two rounds (KIP-429)."""

    def __init__(
        self,
        calls: CoordinatorCalls,
        history: History,
        *,
        name: str,
        group: str,
        topic: str,
        partition_count: int,
        is_cooperative: bool = False,
        session: dt.timedelta = SESSION,
    ) -> None:
        self._calls, self._history, self.name, self._group, self._topic = calls, history, name, group, topic
        self._partition_count = partition_count
        self._is_cooperative, self._session = is_cooperative, session
        self.holdings = Holdings(calls, history, name=name, group=group, topic=topic)
        self.stage = Stage.OUT
        self.member_id = ""
        self.generation = -1
        self.is_told_to_rebalance = False
        self._members: Mapping[str, bytes] = {}
        self._is_leader = False
        self._sent: Sent | None = None

    @property
    def partitions(self) -> set[int]:
        """The partitions that it owns."""
        return set(self.holdings.owned)

    @property
    def is_settled(self) -> bool:
        """True if it has its assignment, and the coordinator has not asked it to rejoin."""
        return self.stage is Stage.STABLE and not self.is_told_to_rebalance

    def advance(self) -> None:
        """One step, without waiting for an answer."""
        try:
            if self._sent is not None and not self._sent.is_settled:
                return
            match self.stage:
                case Stage.OUT:
                    self._send_join()
                case Stage.JOINING:
                    self._joined(self._answer())
                case Stage.JOINED:
                    self._send_sync()
                case Stage.SYNCING:
                    self._synced(self._answer())
                case Stage.STABLE:
                    self._beat()
        except ConnectionLost:
            self._begin_anew()

    def coordinator_lost(self) -> None:
        """Abandon the pending request, as a client does when it learns that its coordinator does
        not answer.
        """
        if self._sent is not None:
            self._sent.drop()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._sent = None
        if self.stage is not Stage.STABLE:
            self.stage = Stage.OUT

    def _answer(self) -> Any:
        assert self._sent is not None
        sent, self._sent = self._sent, None
        return sent.answer()

    def _send(self, api_key: int, values: Mapping[str, Any]) -> None:
        self._sent = self._calls.send(api_key, VERSIONS[api_key], {"group_id": self._group, **values})

    def _send_join(self) -> None:
        if not self._is_cooperative:
            self.holdings.give_up(self.partitions)
        owned = {self._topic: tuple(sorted(self.partitions))} if self.partitions else {}
        subscription = encode_subscription(Subscription(1, (self._topic,), owned))
        self._send(
            JOIN,
            {
                "session_timeout": self._session,
                "rebalance_timeout": SESSION,
                "member_id": self.member_id,
                "protocol_type": "consumer",
                "protocols": [{"name": "scripted", "metadata": subscription}],
            },
        )
        self.is_told_to_rebalance = False
        self.stage = Stage.JOINING

    def _joined(self, answer: Any) -> None:
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.member_id_required:
            self.member_id = answer.member_id
        elif error in FORGOTTEN:
            self._forget()
        if error:
            assert error in FORGOTTEN | TRY_AGAIN | NOT_NOW | {ErrorCode.member_id_required}, error
            self.stage = Stage.OUT
            return
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self._is_leader = answer.leader == answer.member_id
        self._members = {member.member_id: member.metadata for member in answer.members}
        self.stage = Stage.JOINED

    def _send_sync(self) -> None:
        assignments = self._shared_out() if self._is_leader else {}
        self._send(
            SYNC,
            {
                **self._identity(),
                "protocol_type": "consumer",
                "protocol_name": "scripted",
                "assignments": [{"member_id": member, "assignment": given} for member, given in assignments.items()],
            },
        )
        self.stage = Stage.SYNCING

    def _synced(self, answer: Any) -> None:
        error = ErrorCode(answer.error_code)
        if error:
            assert error in FORGOTTEN | TRY_AGAIN | NOT_NOW, error
            if error is ErrorCode.unknown_member_id:
                self._forget()
            self.stage = Stage.OUT
            return
        wanted = {index for indexes in decode_assignment(answer.assignment).values() for index in indexes}
        self._history.given.append(
            Given(member=self.member_id, generation=self.generation, partitions=frozenset(wanted))
        )
        revoked = self.partitions - wanted
        self.holdings.give_up(revoked)
        self.holdings.begin(wanted - self.partitions)
        # In the cooperative protocol a member that revoked partitions makes the group rejoin
        # (KIP-429).
        self.stage = Stage.OUT if revoked and self._is_cooperative else Stage.STABLE

    def _beat(self) -> None:
        if self._sent is None:
            if self.is_told_to_rebalance:
                self.stage = Stage.OUT
            else:
                self._send(HEARTBEAT, self._identity())
            return
        error = ErrorCode(self._answer().error_code)
        assert not error or error in FORGOTTEN | TRY_AGAIN | NOT_NOW, error
        if error is ErrorCode.rebalance_in_progress:
            self.is_told_to_rebalance = True
        elif error in FORGOTTEN:
            if error is ErrorCode.unknown_member_id:
                self._forget()
            self.holdings.give_up(self.partitions, is_lost=True)
            self.stage = Stage.OUT

    def _forget(self) -> None:
        self.member_id = ""
        self.holdings.give_up(self.partitions, is_lost=True)

    def _identity(self) -> dict[str, Any]:
        return {"generation_id": self.generation, "member_id": self.member_id}

    def _shared_out(self) -> dict[str, bytes]:
        """Evenly in the order of the ids; in the cooperative protocol no member gets a partition
        that another one still holds.
        """
        members = sorted(self._members)
        held = {
            index: member
            for member, metadata in self._members.items()
            for indexes in decode_subscription(metadata).owned.values()
            for index in indexes
        }
        given: dict[str, list[int]] = {member: [] for member in members}
        for index in range(self._partition_count):
            wanted = members[index % len(members)]
            if not self._is_cooperative or held.get(index, wanted) == wanted:
                given[wanted].append(index)
        return {
            member: encode_assignment(1, {self._topic: tuple(indexes)} if indexes else {})
            for member, indexes in given.items()
        }

    def send_commit(self) -> SentCommit | None:
        """Send what has been read; None without anything to commit. ConnectionLost."""
        return self.holdings.send_commit(self.member_id, self.generation)

    def leave(self) -> None:
        """Leave in order, after releasing all partitions."""
        self.coordinator_lost()
        self.holdings.give_up(self.partitions)
        if self.member_id:
            values = {"group_id": self._group, "members": [{"member_id": self.member_id}]}
            self._calls.ask(LEAVE, VERSIONS[LEAVE], values, lambda answer: ErrorCode(answer.error_code))
        self.member_id, self.stage = "", Stage.OUT


class ConsumerMember:
    """A member of the protocol of KIP-848: everything by heartbeats."""

    def __init__(
        self, calls: CoordinatorCalls, history: History, *, name: str, group: str, topic: str, topic_id: uuid.UUID
    ) -> None:
        self._calls, self.name, self._group = calls, name, group
        self._topic, self._topic_id = topic, topic_id
        self.holdings = Holdings(calls, history, name=name, group=group, topic=topic)
        self.member_id = str(uuid.uuid4())
        self.generation = 0
        self.asked_to_give_up: frozenset[int] = frozenset()
        self.is_settled = False
        self._is_new = True
        self._said: set[int] | None = None
        self._sent: Sent | None = None

    @property
    def partitions(self) -> set[int]:
        """The partitions that it owns."""
        return set(self.holdings.owned)

    def advance(self) -> None:
        """Send a heartbeat, or take its answer when it is there. It releases revoked partitions
        with the next call.
        """
        try:
            if self._sent is None:
                self.holdings.give_up(self.asked_to_give_up)
                self.asked_to_give_up = frozenset()
                self._send()
            elif self._sent.is_settled:
                sent, self._sent = self._sent, None
                self._received(sent.answer())
        except ConnectionLost:
            self.coordinator_lost()

    def coordinator_lost(self) -> None:
        """Have the next heartbeat send all fields again."""
        if self._sent is not None:
            self._sent.drop()
        self._sent, self._said, self.is_settled = None, None, False

    def _send(self) -> None:
        says_all = self._is_new or self._said is None
        values: dict[str, Any] = {
            "group_id": self._group,
            "member_id": self.member_id,
            "member_epoch": self.generation,
            "topic_partitions": None,
        }
        if says_all:
            values |= {"rebalance_timeout": SESSION, "subscribed_topic_names": [self._topic]}
        if says_all or self._said != self.partitions:
            owned = [{"topic_id": self._topic_id, "partitions": sorted(self.partitions)}] if self.partitions else []
            values["topic_partitions"] = owned
        self._sent = self._calls.send(CONSUMER_HEARTBEAT, VERSIONS[CONSUMER_HEARTBEAT], values)
        self._said = self.partitions

    def _received(self, answer: Any) -> None:
        error = ErrorCode(answer.error_code)
        if error:
            assert error in FORGOTTEN | TRY_AGAIN | {ErrorCode.unreleased_instance_id}, error
            self._said, self.is_settled = None, False
            if error in FORGOTTEN:
                self.holdings.give_up(self.partitions, is_lost=True)
                self.asked_to_give_up = frozenset()
                self.generation, self._is_new = 0, True
            return
        is_same_epoch = not self._is_new and self.generation == answer.member_epoch
        self.generation, self._is_new = answer.member_epoch, False
        if answer.assignment is not None:
            wanted = {index for topic in answer.assignment.topic_partitions for index in topic.partitions}
            self.asked_to_give_up = frozenset(self.partitions - wanted)
            self.holdings.begin(wanted - self.partitions)
        self.is_settled = is_same_epoch and self._said == self.partitions and not self.asked_to_give_up

    def send_commit(self) -> SentCommit | None:
        """Send what has been read; None without anything to commit. ConnectionLost."""
        return self.holdings.send_commit(self.member_id, self.generation)

    def leave(self) -> None:
        """Leave in order: give up the partitions first."""
        self.coordinator_lost()
        self.holdings.give_up(self.partitions)
        values = {"group_id": self._group, "member_id": self.member_id, "member_epoch": -1, "topic_partitions": None}
        version = VERSIONS[CONSUMER_HEARTBEAT]
        self._calls.ask(CONSUMER_HEARTBEAT, version, values, lambda answer: ErrorCode(answer.error_code))


Member = ClassicMember | ConsumerMember


def reach(members: Sequence[ClassicMember], *stages: Stage) -> None:
    """Drive the members until each is in one of the stages; members that are there already stay as
    they are.
    """

    def are_there() -> bool:
        for member in members:
            if member.stage not in stages:
                member.advance()
        return all(member.stage in stages for member in members)

    eventually_sync(are_there, WITHIN_MS)


def settle(members: Sequence[Member], partition_count: int) -> None:
    """Drive the members until they share all partitions and the assignment is stable."""

    def are_settled() -> bool:
        for member in members:
            member.advance()
        held = sorted(index for member in members for index in member.partitions)
        return all(member.is_settled for member in members) and held == list(range(partition_count))

    eventually_sync(are_settled, WITHIN_MS)


def read_and_commit(members: Sequence[Member], partition_count: int) -> None:
    """Each reads a little of all that it holds and commits it; refused or lost commits are sent
    again once the group has settled.
    """
    for member in members:
        member.holdings.read()

    def is_committed(member: Member) -> bool:
        settle(members, partition_count)
        try:
            commit = member.send_commit()
        except ConnectionLost:
            return False
        return commit is None or member.holdings.settle_commit(commit) is ErrorCode.none

    for member in members:
        eventually_sync(lambda member=member: is_committed(member), WITHIN_MS)  # type: ignore[misc]
