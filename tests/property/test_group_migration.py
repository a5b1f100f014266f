"""Groups that change their protocol while clients of both come, go, are rolled from one to the
other, and coordinators crash.

Clients are modelled as real ones: eager ones release everything before they join again, cooperative
ones report their partitions, leaders assign by these reports, and members of the newer protocol
release before they acknowledge. At no time do two valid members own one partition; in the end all
partitions are owned by those who live.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from broker.groups.core.consumer_protocol.consumer_groups import HeartbeatReply, MemberHeartbeat
from broker.groups.core.consumer_protocol.server_assignors import TopicIdPartition
from broker.groups.core.group_messages import (
    CodeReply,
    Command,
    Heartbeat,
    JoinedMember,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
    SyncReply,
)
from broker.groups.core.group_states import AssignmentProtocol, GroupState
from tests.support.examples import examples
from tests.support.memory.group_scene import LIMITS, GroupScene
from wire.batches.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

NAMES = st.sampled_from(["a", "b", "c"])
TOPIC, TOPIC_ID, COUNT = "t", b"t" * 16, 5
ALL = frozenset(range(COUNT))
SESSION_MS, REBALANCE_MS = 10_000, 20_000
Partitions = frozenset[int]


@dataclass
class Consumer:
    """A client of the newer protocol."""

    scene: GroupScene
    name: str
    epoch: int = 0
    owned: Partitions = frozenset()
    says_owned: bool = True

    def step(self) -> None:
        reply = self.scene.beat("g", self._said(self.epoch))
        self.take(reply)

    def _said(self, epoch: int) -> MemberHeartbeat:
        is_joining = epoch == 0
        owned = frozenset(TopicIdPartition(TOPIC_ID, index) for index in self.owned)
        return MemberHeartbeat(
            member_id=self.name,
            member_epoch=epoch,
            instance_id=None,
            rack_id=None,
            client_id=self.name,
            client_host="/127.0.0.1",
            rebalance_timeout_ms=REBALANCE_MS if is_joining else -1,
            topic_names=(TOPIC,) if is_joining else None,
            topic_regex=None,
            server_assignor=None,
            owned=None if epoch < 0 else frozenset() if is_joining else owned if self.says_owned else None,
        )

    def take(self, reply: HeartbeatReply) -> None:
        self.says_owned = False
        if reply.error:
            assert reply.error in (
                ErrorCode.unknown_member_id,
                ErrorCode.fenced_member_epoch,
                ErrorCode.group_id_not_found,
            ), reply
            self.epoch, self.owned, self.says_owned = 0, frozenset(), True
            return
        self.epoch = reply.member_epoch
        if reply.assigned is not None:
            assigned = frozenset(found.partition for found in reply.assigned)
            self.says_owned = assigned != self.owned
            self.owned = assigned

    def step_in_vain(self) -> None:
        """The answer comes too late: the same heartbeat will be sent again."""
        self.scene.beat("g", self._said(self.epoch))

    def leave(self) -> None:
        if self.epoch > 0:
            self.scene.beat("g", self._said(-1))

    def coordinator_restarted(self) -> None:
        self.says_owned = True

    @property
    def is_valid(self) -> bool:
        group = self.scene.groups.consumers("g")
        return group is not None and self.name in group.members


@dataclass
class Classic:
    """A client of the classic protocol."""

    scene: GroupScene
    name: str
    is_cooperative: bool
    member_id: str = ""
    generation: int = -1
    owned: Partitions = frozenset()
    phase: str = "out"
    token: int = 0
    assignments: dict[str, bytes] = field(default_factory=dict)

    def step(self) -> None:
        match self.phase:
            case "out":
                self._join()
            case "stable":
                self._heartbeat()
            case _:
                self._look()

    def _ask(self, command: Command) -> None:
        self.scene.ask(command)
        self.token = self.scene._token
        self._look()

    def _look(self) -> None:
        reply = self.scene.replies.get(self.token)
        match reply:
            case JoinReply():
                self._joined(reply)
            case SyncReply():
                self._synced(reply)
            case CodeReply():
                self._beaten(reply)

    def _join(self) -> None:
        if not self.is_cooperative:
            self.owned = frozenset()
        owned = {TOPIC: tuple(sorted(self.owned))} if self.owned else {}
        metadata = encode_subscription(Subscription(3, (TOPIC,), owned))
        self.phase = "joining"
        self._ask(
            JoinGroup(
                group_id="g",
                member_id=self.member_id,
                fresh_member_id=f"{self.name}-{self.scene._token}",
                group_instance_id=None,
                client_id=self.name,
                client_host="/127.0.0.1",
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                protocol_type="consumer",
                protocols=(AssignmentProtocol("range", metadata),),
                requires_known_member=True,
                may_skip_assignment=True,
                topics=self.scene.topics,
            )
        )

    def _lost(self, error: ErrorCode) -> None:
        self.phase = "out"
        if error in (ErrorCode.illegal_generation, ErrorCode.unknown_member_id):
            self.owned, self.generation = frozenset(), -1
        if error is ErrorCode.unknown_member_id:
            self.member_id = ""

    def _joined(self, reply: JoinReply) -> None:
        if reply.error is ErrorCode.member_id_required:
            self.member_id = reply.member_id
        if reply.error:
            self._lost(reply.error)
            return
        self.member_id, self.generation, self.phase = reply.member_id, reply.generation, "syncing"
        given = assigned_by_leader(reply.members) if reply.leader == self.member_id else {}
        self._ask(
            SyncGroup(
                group_id="g",
                member_id=self.member_id,
                group_instance_id=None,
                generation=self.generation,
                protocol_type="consumer",
                protocol="range",
                assignments=given,
                topics=self.scene.topics,
            )
        )

    def _synced(self, reply: SyncReply) -> None:
        if reply.error:
            self._lost(reply.error)
            return
        assigned = frozenset(decode_assignment(reply.assignment).get(TOPIC, ()))
        must_rejoin = self.is_cooperative and bool(self.owned - assigned)
        self.owned = assigned
        self.phase = "out" if must_rejoin else "stable"

    def _heartbeat(self) -> None:
        self.phase = "beating"
        self._ask(self._beat())

    def _beat(self) -> Heartbeat:
        return Heartbeat(group_id="g", member_id=self.member_id, group_instance_id=None, generation=self.generation)

    def _beaten(self, reply: CodeReply) -> None:
        self.phase = "stable"
        if reply.error:
            self._lost(reply.error)

    def step_in_vain(self) -> None:
        """The answer to a heartbeat is lost."""
        if self.phase == "stable":
            self.scene.ask(self._beat())

    def leave(self) -> None:
        if self.member_id:
            leaving = (LeavingMember(self.member_id, None),)
            self.scene.ask(LeaveGroup(group_id="g", members=leaving, topics=self.scene.topics))

    def coordinator_restarted(self) -> None:
        if self.phase in ("joining", "syncing"):
            self.phase = "out"

    @property
    def is_valid(self) -> bool:
        """True if the member is in the group at its epoch or generation, so that the group takes
        its commits.
        """
        consumers, classic = self.scene.groups.consumers("g"), self.scene.groups.get("g")
        if consumers is not None:
            return self.member_id in consumers.members and consumers.reached_by(self.member_id).epoch == self.generation
        return classic is not None and self.member_id in classic.members


def assigned_by_leader(members: tuple[JoinedMember, ...]) -> dict[str, bytes]:
    """Round robin, but partitions that another member still owns are assigned in the next
    generation only.
    """
    names = sorted(member.member_id for member in members)
    owners = {
        index: member.member_id
        for member in members
        for index in decode_subscription(member.metadata).owned.get(TOPIC, ())
    }
    given: dict[str, list[int]] = {name: [] for name in names}
    for index in sorted(ALL):
        name = names[index % len(names)]
        if owners.get(index, name) == name:
            given[name].append(index)
    return {name: encode_assignment(0, {TOPIC: tuple(indexes)}) for name, indexes in given.items()}


KINDS = st.sampled_from(["eager", "cooperative", "newer"])


class MigrationHistory(RuleBasedStateMachine):
    """Random histories of one group that changes its protocol. All classic clients of a group use
    the same assignor, as Kafka demands.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scene = GroupScene(replace(LIMITS, initial_rebalance_delay_ms=0))
        self.scene.topics = {TOPIC: (TOPIC_ID, COUNT)}
        self.clients: dict[str, Consumer | Classic] = {}
        self.starts = 0

    def client(self, name: str, kind: str) -> Consumer | Classic:
        self.starts += 1
        if kind == "newer":
            return Consumer(self.scene, f"{name}{self.starts}")
        return Classic(self.scene, name, kind == "cooperative")

    @initialize(kinds=st.lists(KINDS, min_size=1, max_size=3))
    def some_work_already(self, kinds: list[str]) -> None:
        for name, kind in zip("abc", kinds, strict=False):
            self.clients[name] = self.client(name, kind)
        for _ in range(8):
            self.some_time_passes_while_everybody_works(1)

    @rule(name=NAMES, kind=KINDS)
    def start(self, name: str, kind: str) -> None:
        if name not in self.clients:
            self.clients[name] = self.client(name, kind)
        self.clients[name].step()

    @rule()
    def everybody_steps(self) -> None:
        for client in tuple(self.clients.values()):
            client.step()

    @rule(rounds=st.integers(1, 6))
    def some_time_passes_while_everybody_works(self, rounds: int) -> None:
        for _ in range(rounds):
            self.everybody_steps()
            self.scene.advance(300)
            self.no_partition_is_owned_twice()

    @rule(name=NAMES, kind=KINDS)
    def roll(self, name: str, kind: str) -> None:
        if name in self.clients:
            self.clients.pop(name).leave()
            self.clients[name] = self.client(name, kind)
            self.clients[name].step()

    @rule(name=NAMES)
    def step_in_vain(self, name: str) -> None:
        if name in self.clients:
            self.clients[name].step_in_vain()

    @rule(name=NAMES)
    def die(self, name: str) -> None:
        self.clients.pop(name, None)

    @rule()
    def coordinator_crashes(self) -> None:
        self.scene.restart()
        for client in self.clients.values():
            client.coordinator_restarted()

    @rule(elapsed_ms=st.sampled_from([1_000, 9_000, 25_000]))
    def time_passes(self, elapsed_ms: int) -> None:
        self.scene.advance(elapsed_ms)

    @invariant()
    def no_partition_is_owned_twice(self) -> None:
        seen: set[int] = set()
        for client in self.clients.values():
            if client.is_valid:
                assert not seen & client.owned, self.scene.lines[-40:]
                seen |= client.owned

    @invariant()
    def the_log_replays_to_the_same_group(self) -> None:
        replayed, groups = self.scene.replayed(), self.scene.groups
        assert replayed.consumers("g") == groups.consumers("g")
        classic = groups.get("g")
        if classic is not None and classic.state is GroupState.STABLE:
            assert replayed.durable_state()[0]["g"] == classic.durable()

    def teardown(self) -> None:
        for is_lossy in (True, True, False, False):
            self.scene.advance(6_000)
            for turn in range(12):
                for position, client in enumerate(tuple(self.clients.values())):
                    if is_lossy and (turn + position) % 3 == 0:
                        client.step_in_vain()
                    else:
                        client.step()
                self.scene.advance(500)
        owned = sorted(index for client in self.clients.values() for index in client.owned)
        assert owned == (sorted(ALL) if self.clients else [])


MigrationHistory.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None, report_multiple_bugs=False
)
TestMigrationHistory = MigrationHistory.TestCase
