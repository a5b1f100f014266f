"""The coordinator of a transaction, or of the group whose offsets it commits, struck in the middle
of each phase.

Promised: a transaction is read whole or not at all, a committed one is never lost and an aborted
one never read, offsets count with their transaction, and a coordinator that resumes too late ends
no transaction (T1 to T5 of `tests/support/histories/transaction_history.py`). Each phase is reached
exactly, request by request.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from confluent_kafka.cimpl import NewTopic
from kio.schema.errors import ErrorCode

from tests.support.clients.raw_client import RawClient
from tests.support.clients.scripted_producer import ScriptedProducer, TopicPartition
from tests.support.clients.transactional_clients import read_values
from tests.support.eventually import eventually_sync
from tests.support.histories.coordinator_calls import GROUP, WITHIN_MS, CoordinatorCalls, Sent
from tests.support.histories.coordinator_strikes import Blow, Strike, lasting_site, make_whole
from tests.support.histories.transaction_history import offset_violations, transaction_violations
from tests.support.processes.zookeeper import ZooKeeperProcess
from tests.support.sites.replicated_site import NODES, ReplicatedSite
from wire.batches.group_records import OFFSETS_TOPIC
from wire.batches.transaction_records import TRANSACTIONS_TOPIC

pytestmark = pytest.mark.chaos

LIST_OFFSETS, LIST_OFFSETS_VERSION = 2, 7
LATEST = -1
PARTITIONS = 2
FENCED = (ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch)


@dataclass(slots=True)
class Scene:
    """One producer at the site, a topic for its records and a group for its offsets."""

    site: ReplicatedSite
    blow: Blow
    struck: set[int]
    is_newer_flow: bool
    name: str = field(default_factory=lambda: f"t-{uuid.uuid4().hex}")
    strike: Strike | None = None
    sent: list[Sent] = field(default_factory=list)
    producer: ScriptedProducer = field(init=False)

    def __post_init__(self) -> None:
        self.producer = self.new_producer()

    def new_producer(self) -> ScriptedProducer:
        return ScriptedProducer(
            self.site, self.struck, transactional_id=self.name, group=self.name, is_newer_flow=self.is_newer_flow
        )

    @property
    def partitions(self) -> list[TopicPartition]:
        return [(self.name, partition) for partition in range(PARTITIONS)]

    def create_topic(self) -> None:
        self.site.create(self.name, PARTITIONS)

    def fill(self, number: int) -> None:
        """Everything but the end."""
        self.producer.add(self.partitions)
        self.producer.write(number, self.partitions)
        self.producer.add_group()
        self.producer.commit_offsets(self.name, number)

    def run(self, number: int, *, is_commit: bool = True) -> None:
        self.fill(number)
        self.producer.end(number, is_commit=is_commit)

    def aim(self, topic: str = TRANSACTIONS_TOPIC) -> Strike:
        self.strike = Strike(self.site, self.struck, self.blow, topic=topic, key=self.name)
        return self.strike

    def strike_down(self, topic: str = TRANSACTIONS_TOPIC) -> None:
        strike = self.aim(topic)
        strike.hit()
        strike.wait_succeeded()

    def strike_in_flight(self, send: Callable[[], Sent], topic: str = TRANSACTIONS_TOPIC) -> None:
        self.aim(topic).in_flight(lambda: self.sent.append(send()))


# --- the phases: each runs transaction 2 up to one point, strikes there, and brings it to its end


def id_in_flight(scene: Scene) -> None:
    scene.strike_in_flight(scene.producer.send_init)
    scene.producer.init()
    scene.run(2)


def id_given(scene: Scene) -> None:
    scene.producer.init()
    scene.strike_down()
    scene.run(2)


def partitions_in_flight(scene: Scene) -> None:
    scene.strike_in_flight(lambda: scene.producer.send_add(scene.partitions))
    scene.run(2)


def partitions_added(scene: Scene) -> None:
    scene.producer.add(scene.partitions)
    scene.strike_down()
    scene.run(2)


def records_written(scene: Scene) -> None:
    scene.producer.add(scene.partitions)
    scene.producer.write(2, scene.partitions)
    scene.strike_down()
    scene.producer.add_group()
    scene.producer.commit_offsets(scene.name, 2)
    scene.producer.end(2, is_commit=True)


def offsets_in_flight(scene: Scene) -> None:
    scene.producer.add(scene.partitions)
    scene.producer.write(2, scene.partitions)
    scene.producer.add_group()
    # with the first ones the group's coordinator asks that of the transaction, which could not
    # answer then
    scene.producer.commit_offsets(scene.name, 1)
    scene.strike_in_flight(lambda: scene.producer.send_offsets(scene.name, 2), OFFSETS_TOPIC)
    scene.producer.commit_offsets(scene.name, 2)
    scene.producer.end(2, is_commit=True)


def offsets_committed(scene: Scene) -> None:
    scene.fill(2)
    scene.strike_down()
    scene.producer.end(2, is_commit=True)


def offsets_committed_and_their_group_struck(scene: Scene) -> None:
    scene.fill(2)
    scene.strike_down(OFFSETS_TOPIC)
    scene.producer.end(2, is_commit=True)


def commit_in_flight(scene: Scene) -> None:
    scene.fill(2)
    scene.strike_in_flight(lambda: scene.producer.send_end(is_commit=True))
    scene.producer.end(2, is_commit=True)


def abort_in_flight(scene: Scene) -> None:
    scene.fill(2)
    scene.strike_in_flight(lambda: scene.producer.send_end(is_commit=False))
    scene.producer.end(2, is_commit=False)


def no_marker_written(scene: Scene) -> None:
    decide_without(scene, reached=0, is_commit=True)


def markers_half_written(scene: Scene) -> None:
    decide_without(scene, reached=1, is_commit=True)


def abort_markers_half_written(scene: Scene) -> None:
    decide_without(scene, reached=1, is_commit=False)


def decide_without(scene: Scene, *, reached: int, is_commit: bool) -> None:
    """The transaction is decided while the leader of some of its partitions is down; its
    coordinator is struck before that one is back.
    """
    away = the_other_brokers(scene)[0]
    scene.producer.add(scene.partitions)
    scene.producer.write(2, scene.partitions)
    scene.site.nodes[away].process.kill()
    scene.struck.add(away)
    left = tuple(node_id for node_id in NODES if node_id != away)
    scene.site.wait_in_sync(TRANSACTIONS_TOPIC, left)
    scene.producer.end(2, is_commit=is_commit)
    for partition in range(reached):
        eventually_sync(lambda index=partition: not has_open_transaction(scene, index), WITHIN_MS)  # type: ignore[misc]
    scene.strike_down()
    scene.site.nodes[away].restart()
    scene.struck.discard(away)


def the_other_brokers(scene: Scene) -> list[int]:
    coordinator = Strike(scene.site, scene.struck, scene.blow, topic=TRANSACTIONS_TOPIC, key=scene.name).node_id
    return [node_id for node_id in NODES if node_id != coordinator]


def create_lone_replicas(scene: Scene, *, reached: int) -> None:
    """Neither partition is at the coordinator; the first `reached` ones are at a broker that stays,
    the others at one that goes.
    """
    away, stays = the_other_brokers(scene)
    assignment = [[stays] if partition < reached else [away] for partition in range(PARTITIONS)]
    wanted = NewTopic(scene.name, PARTITIONS, replica_assignment=assignment)
    scene.site.admin.create_topics([wanted])[scene.name].result(120)


def has_open_transaction(scene: Scene, partition: int) -> bool:
    leader = scene.site.leaders(scene.name)[partition]
    with RawClient(scene.site.nodes[leader].port) as client:
        ends = []
        for isolation in (0, 1):
            asked = {"name": scene.name, "partitions": [{"partition_index": partition, "timestamp": LATEST}]}
            values = {"replica_id": -1, "isolation_level": isolation, "topics": [asked]}
            ends.append(client.call(LIST_OFFSETS, LIST_OFFSETS_VERSION, values).topics[0].partitions[0].offset)
    return bool(ends[0] != ends[1])


LONE_REPLICAS = {no_marker_written: 0, markers_half_written: 1, abort_markers_half_written: 1}
PHASES = [
    id_in_flight,
    id_given,
    partitions_in_flight,
    partitions_added,
    records_written,
    offsets_in_flight,
    offsets_committed,
    offsets_committed_and_their_group_struck,
    commit_in_flight,
    abort_in_flight,
    *LONE_REPLICAS,
]
IN_NEWER_FLOW = [
    records_written,
    offsets_in_flight,
    offsets_committed,
    commit_in_flight,
    abort_in_flight,
    markers_half_written,
]
IN_EVERY_RUN = {
    (commit_in_flight, Blow.KILL, False),
    (offsets_in_flight, Blow.KILL, True),
    (markers_half_written, Blow.PAUSE, False),
}
CASES = [(phase, blow, False) for phase in PHASES for blow in Blow]
CASES += [(phase, blow, True) for phase in IN_NEWER_FLOW for blow in Blow]


@pytest.fixture(scope="module")
def site(zookeeper_server: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedSite]:
    with lasting_site(zookeeper_server, tmp_path_factory.mktemp("site"), {}) as made:
        yield made


@pytest.mark.parametrize(
    ("phase", "blow", "is_newer_flow"),
    [
        pytest.param(
            *case,
            id=f"{case[0].__name__}-{case[1].value}-{'newer' if case[2] else 'older'}",
            marks=() if case in IN_EVERY_RUN else pytest.mark.long,
        )
        for case in CASES
    ],
)
def test_transactions_outlive_their_coordinator(
    site: ReplicatedSite, phase: Callable[[Scene], None], blow: Blow, is_newer_flow: bool
) -> None:
    struck: set[int] = set()
    make_whole(site, struck)
    scene = Scene(site, blow, struck, is_newer_flow)
    scene.producer.init()
    if phase in LONE_REPLICAS:
        create_lone_replicas(scene, reached=LONE_REPLICAS[phase])
    else:
        scene.create_topic()
    scene.run(1)
    scene.producer.wait_over()
    phase(scene)
    scene.run(3)
    scene.fill(4)
    assert scene.strike is not None
    scene.strike.heal()  # one that was only paused wakes up to find this one open
    scene.producer.end(4, is_commit=False)
    scene.run(5)
    check(scene)


def test_a_coordinator_that_wakes_up_too_late_answers_nothing_from_its_old_memory(site: ReplicatedSite) -> None:
    struck: set[int] = set()
    make_whole(site, struck)
    scene = Scene(site, Blow.PAUSE, struck, is_newer_flow=False)
    scene.producer.init()
    scene.create_topic()
    scene.run(1)
    scene.producer.wait_over()
    scene.strike_down()
    scene.fill(2)
    assert scene.strike is not None
    # in its memory the transaction before is the last one: it was committed, and cannot be aborted
    late = scene.producer.send_end_to(scene.strike.node_id, is_commit=False)
    scene.strike.heal()
    assert late.answer().error_code is ErrorCode.not_coordinator
    scene.producer.end(2, is_commit=True)
    check(scene)


def check(scene: Scene) -> None:
    """A successor fences the producer; then what is there is read."""
    successor = scene.new_producer()
    successor.init()
    assert scene.producer.refused_end() in FENCED
    for sent in scene.sent:
        sent.drop()
    read = {
        partition: [int(value) for value in values]
        for partition, values in read_values(scene.site.bootstrap, scene.name, PARTITIONS).items()
    }
    committed, aborted = scene.producer.committed, scene.producer.aborted
    found = transaction_violations(read, committed=committed, aborted=aborted)
    found += offset_violations(group_offset(scene), committed=committed)
    assert not found, "\n".join(found)


def group_offset(scene: Scene) -> int:
    calls = CoordinatorCalls(scene.site, scene.struck, key=scene.name, key_type=GROUP)
    asked = {"group_id": scene.name, "topics": [{"name": scene.name, "partition_indexes": [0]}]}
    values = {"groups": [asked], "require_stable": True}
    answer = calls.ask(9, 8, values, lambda found: ErrorCode(found.groups[0].error_code))
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)
