"""The coordinator of a group struck in the middle of each phase, of the classic protocol and of
that of KIP-848.

Promised: an acknowledged commit is never lost and committed offsets never go back, no partition is
held by two members at one time or given to two of one generation, and the group gets on with the
next coordinator by itself (S1 to S7 of `tests/support/histories/group_history.py`). Each phase is
reached exactly, request by request; `-k kill` and `-k pause` pick what is done to the broker.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from tests.support.clients.member_holdings import History, SentCommit
from tests.support.clients.raw_client import RawClient
from tests.support.clients.scripted_members import (
    SESSION,
    ClassicMember,
    ConsumerMember,
    Member,
    Stage,
    reach,
    read_and_commit,
    settle,
)
from tests.support.eventually import eventually_sync
from tests.support.histories.coordinator_calls import GROUP, WITHIN_MS, CoordinatorCalls
from tests.support.histories.coordinator_strikes import Blow, Strike, lasting_site, make_whole
from tests.support.histories.group_history import generation_violations, violations
from tests.support.processes.zookeeper import ZooKeeperProcess
from tests.support.sites.replicated_site import ReplicatedSite
from wire.batches.group_records import OFFSETS_TOPIC

pytestmark = pytest.mark.chaos

TOPIC, PARTITIONS = "t", 4
SHORT_SESSION = dt.timedelta(seconds=6)


@dataclass(slots=True)
class Scene:
    """One group at the site."""

    site: ReplicatedSite
    blow: Blow
    struck: set[int]
    topic_id: uuid.UUID
    group: str
    history: History = field(default_factory=History)
    members: list[Member] = field(default_factory=list)
    in_flight: list[tuple[Member, SentCommit]] = field(default_factory=list)
    strike: Strike = field(init=False)

    def __post_init__(self) -> None:
        calls = self.calls()
        values = {"groups": [{"group_id": self.group, "topics": []}]}
        calls.ask(9, 8, values, lambda found: found.groups[0].error_code)  # the coordinator has loaded
        self.strike = Strike(self.site, self.struck, self.blow, topic=OFFSETS_TOPIC, key=self.group)

    def calls(self) -> CoordinatorCalls:
        return CoordinatorCalls(self.site, self.struck, key=self.group, key_type=GROUP)

    def classic(self, name: str, *, is_cooperative: bool = False, session: dt.timedelta = SESSION) -> ClassicMember:
        member = ClassicMember(
            self.calls(),
            self.history,
            name=name,
            group=self.group,
            topic=TOPIC,
            partition_count=PARTITIONS,
            is_cooperative=is_cooperative,
            session=session,
        )
        self.members.append(member)
        return member

    def consumer(self, name: str) -> ConsumerMember:
        member = ConsumerMember(
            self.calls(), self.history, name=name, group=self.group, topic=TOPIC, topic_id=self.topic_id
        )
        self.members.append(member)
        return member

    def get_on(self, members: Sequence[Member]) -> None:
        """The group settles, reads and commits."""
        settle(members, PARTITIONS)
        read_and_commit(members, PARTITIONS)

    def strike_down(self) -> None:
        self.strike.hit()
        self.strike.wait_succeeded()


# --- the phases: each drives its members to one point, and strikes there


def join_waits(scene: Scene) -> None:
    first, second = scene.classic("a"), scene.classic("b")
    scene.get_on([first])
    reach([second], Stage.JOINING)
    # the member gets its id first; then its join waits, and the waiting join makes the coordinator
    # ask the other member to rejoin
    eventually_sync(lambda: (second.advance(), first.advance(), first.is_told_to_rebalance)[-1], WITHIN_MS)
    assert second.stage is Stage.JOINING
    scene.strike_down()


def joined_and_not_synced(scene: Scene) -> None:
    first, second = scene.classic("a"), scene.classic("b")
    scene.get_on([first])
    reach([first, second], Stage.JOINED)
    scene.strike_down()


def sync_of_the_leader(scene: Scene) -> None:
    first, second = scene.classic("a"), scene.classic("b")
    scene.get_on([first])
    reach([first, second], Stage.JOINED)

    def sync() -> None:
        first.advance()
        second.advance()

    scene.strike.in_flight(sync)


def commits_in_flight(scene: Scene) -> None:
    members = [scene.classic("a"), scene.classic("b")]
    scene.get_on(members)
    send_commits(scene, members)


def send_commits(scene: Scene, members: Sequence[Member]) -> None:
    for member in members:
        member.holdings.read()

    def commit() -> None:
        for member in members:
            sent = member.send_commit()
            assert sent is not None
            scene.in_flight.append((member, sent))

    scene.strike.in_flight(commit)


def member_has_left(scene: Scene) -> None:
    # a coordinator writes down who is left with the next generation: its successor waits for the
    # session of the one that went
    first, second = scene.classic("a"), scene.classic("b", session=SHORT_SESSION)
    scene.get_on([first, second])
    second.leave()
    scene.members.remove(second)
    eventually_sync(lambda: (first.advance(), first.is_told_to_rebalance)[-1], WITHIN_MS)
    scene.strike_down()


def second_cooperative_round(scene: Scene) -> None:
    first, second = scene.classic("a", is_cooperative=True), scene.classic("b", is_cooperative=True)
    scene.get_on([first])
    reach([first, second], Stage.JOINED)
    reach([first], Stage.OUT)  # it has given a half up, and has everybody join again
    assert len(first.partitions) == PARTITIONS // 2
    reach([second], Stage.STABLE)
    reach([first], Stage.JOINING)
    eventually_sync(lambda: (second.advance(), second.is_told_to_rebalance)[-1], WITHIN_MS)
    scene.strike_down()


def first_heartbeat(scene: Scene) -> None:
    member = scene.consumer("a")
    scene.strike.in_flight(member.advance)


def assigned_and_not_acknowledged(scene: Scene) -> None:
    member = scene.consumer("a")
    eventually_sync(lambda: (member.advance(), len(member.partitions) == PARTITIONS)[-1], WITHIN_MS)
    assert not member.is_settled
    scene.strike_down()


def asked_to_give_up(scene: Scene) -> None:
    first, second = scene.consumer("a"), scene.consumer("b")
    scene.get_on([first])

    def is_asked() -> bool:
        second.advance()
        if not first.asked_to_give_up:
            first.advance()
        return bool(first.asked_to_give_up)

    eventually_sync(is_asked, WITHIN_MS)
    assert not second.partitions, "given away before its owner has said that it gave it up"
    scene.strike_down()


def consumers_commits_in_flight(scene: Scene) -> None:
    members = [scene.consumer("a"), scene.consumer("b")]
    scene.get_on(members)
    send_commits(scene, members)


IN_EVERY_RUN = {(sync_of_the_leader, Blow.KILL), (asked_to_give_up, Blow.KILL), (commits_in_flight, Blow.PAUSE)}
PHASES = [
    join_waits,
    joined_and_not_synced,
    sync_of_the_leader,
    commits_in_flight,
    member_has_left,
    second_cooperative_round,
    first_heartbeat,
    assigned_and_not_acknowledged,
    asked_to_give_up,
    consumers_commits_in_flight,
]


@pytest.fixture(scope="module")
def site(zookeeper_server: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedSite]:
    with lasting_site(zookeeper_server, tmp_path_factory.mktemp("site"), {}) as made:
        made.create(TOPIC, PARTITIONS)
        yield made


@pytest.mark.parametrize(
    ("phase", "blow"),
    [
        pytest.param(
            phase,
            blow,
            id=f"{phase.__name__}-{blow.value}",
            marks=() if (phase, blow) in IN_EVERY_RUN else pytest.mark.long,
        )
        for phase in PHASES
        for blow in Blow
    ],
)
def test_a_group_outlives_its_coordinator(site: ReplicatedSite, phase: Callable[[Scene], None], blow: Blow) -> None:
    struck: set[int] = set()
    make_whole(site, struck)
    with RawClient(site.nodes[1001].port) as client:
        topic_id = client.metadata(TOPIC).topics[0].topic_id
    scene = Scene(site, blow, struck, topic_id, f"g-{uuid.uuid4().hex}")
    try:
        phase(scene)
        for member in scene.members:
            member.coordinator_lost()
        scene.get_on(scene.members)
        scene.strike.heal()
        for member, commit in scene.in_flight:  # a broker that was only paused may still answer: then it must be true
            member.holdings.settle_commit(commit)
        scene.get_on(scene.members)
        check(scene)
    finally:
        for member in scene.members:
            member.coordinator_lost()


def check(scene: Scene) -> None:
    """A last member takes everything over and finds every commit; then the history is looked
    through.
    """
    for member in scene.members:
        member.leave()
    is_classic = isinstance(scene.members[0], ClassicMember)
    last = scene.classic("last") if is_classic else scene.consumer("last")
    scene.get_on([last])
    committed = last.holdings.committed(range(PARTITIONS))
    last.leave()
    assert min(committed.values()) > 0
    found = violations(scene.history.ownerships, scene.history.commits, committed)
    assert not found + generation_violations(scene.history.given), "\n".join(found)
