"""Groups that are rolled from the classic protocol to the newer one (KIP-848) and back while they
work: librdkafka and Java, unmodified.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.clients.group_load import GroupLoad
from tests.support.clients.group_members import GroupMember
from tests.support.clients.java_clients import DUMP_LOG, KafkaPrograms
from tests.support.clients.java_members import JavaMember
from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker

pytestmark = pytest.mark.integration

PARTITIONS = 4
WITHIN_MS = 120_000
SETTINGS = {
    "group_consumer_min_heartbeat_interval_ms": "200",
    "group_consumer_min_session_timeout_ms": "3000",
    "group_consumer_heartbeat_interval_ms": "200",
    "group_initial_rebalance_delay_ms": "0",
    "offsets_topic_num_partitions": "3",
}


@pytest.fixture
def broker(start_broker: Callable[..., LoneBroker]) -> LoneBroker:
    return start_broker(**SETTINGS)


@pytest.fixture
def admin(broker: LoneBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def topic(admin: AdminClient) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(120)
    return name


def member_types(broker: LoneBroker, group: str) -> list[int]:
    """0 for each member of the classic protocol and 1 for the others; empty when the group is not
    one of the newer protocol.
    """
    with RawClient(broker.port) as client:
        (described,) = client.call(69, 1, {"group_ids": [group], "include_authorized_operations": False}).groups
    return sorted(member.member_type for member in described.members)


def work(load: GroupLoad, members: list[GroupMember]) -> None:
    """Everybody reads and commits until the group has read everything, each partition by one member
    alone.
    """
    load.produce(40)

    def is_done() -> bool:
        for member in members:
            member.poll()
            member.try_commit()
        owned = [member.partitions() for member in members]
        # a new member may be late; the group is unchanged until it has its part
        return (
            all(owned)
            and sorted(itertools.chain.from_iterable(owned)) == list(range(PARTITIONS))
            and sum(load.committed().values()) == load.count
        )

    eventually_sync(is_done, WITHIN_MS)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_librdkafkas_group_is_rolled_member_by_member_and_back(broker: LoneBroker, topic: str, strategy: str) -> None:
    load = GroupLoad(broker.bootstrap, topic, PARTITIONS, "g")

    def start(protocol: str) -> GroupMember:
        classic = {"partition_assignment_strategy": strategy}
        more = {"heartbeat_interval_ms": 200, **classic} if protocol == "classic" else {}
        return GroupMember(broker.bootstrap, topic, "g", protocol=protocol, **more)

    members = [start("classic"), start("classic")]
    work(load, members)
    assert member_types(broker, "g") == []
    for position, protocol, types in (
        (0, "consumer", [0, 1]),
        (1, "consumer", [1, 1]),
        (0, "classic", [0, 1]),
        (1, "classic", []),
    ):
        members[position].close()
        members[position] = start(protocol)
        work(load, members)
        assert member_types(broker, "g") == types
    for member in members:
        member.close()


@pytest.mark.long
def test_a_mixed_group_goes_on_after_its_coordinator_was_killed(broker: LoneBroker, topic: str) -> None:
    load = GroupLoad(broker.bootstrap, topic, PARTITIONS, "g")
    members = [
        GroupMember(broker.bootstrap, topic, "g", protocol="classic"),
        GroupMember(broker.bootstrap, topic, "g"),
    ]
    work(load, members)
    assert member_types(broker, "g") == [0, 1]
    broker.process.kill()
    broker.restart()
    work(load, members)
    assert member_types(broker, "g") == [0, 1]
    members.pop().close()
    work(load, members)
    assert member_types(broker, "g") == []
    members.pop().close()


def test_kafkas_dump_tool_reads_what_is_kept_of_a_mixed_group(
    broker: LoneBroker, topic: str, kafka_programs: KafkaPrograms
) -> None:
    members = [
        GroupMember(broker.bootstrap, topic, "g", protocol="classic", session_timeout_ms=6000),
        GroupMember(broker.bootstrap, topic, "g"),
    ]
    work(GroupLoad(broker.bootstrap, topic, PARTITIONS, "g"), members)
    segments = [str(path) for path in broker.data.glob("__consumer_offsets-*/*.log") if path.stat().st_size]
    printed = kafka_programs.run(DUMP_LOG, "--files", ",".join(segments), "--offsets-decoder").decode()
    assert '"classicMemberMetadata":{"sessionTimeoutMs":6000,"supportedProtocols":[{"name":"range"' in printed
    for member in members:
        member.close()


def test_javas_group_is_rolled_to_the_newer_protocol_and_back(
    broker: LoneBroker, topic: str, kafka_programs: KafkaPrograms
) -> None:
    load = GroupLoad(broker.bootstrap, topic, PARTITIONS, "java")
    members: list[JavaMember] = []

    def start(protocol: str) -> JavaMember:
        members.append(JavaMember(kafka_programs, broker.bootstrap, topic, protocol))
        return members[-1]

    def is_everything_committed() -> bool:
        return sum(load.committed().values()) == load.count

    def settle(types: list[int]) -> None:
        load.produce(40)
        eventually_sync(lambda: member_types(broker, "java") == types and is_everything_committed(), WITHIN_MS)

    try:
        first = start("classic")
        eventually_sync(lambda: first.of("partitions_assigned"), WITHIN_MS)
        settle([])
        second = start("consumer")
        eventually_sync(lambda: any(event["partitions"] for event in second.of("partitions_assigned")), WITHIN_MS)
        settle([0, 1])
        first.stop()
        settle([1])
        third = start("classic")
        eventually_sync(lambda: any(event["partitions"] for event in third.of("partitions_assigned")), WITHIN_MS)
        settle([0, 1])
        second.stop()
        settle([])
        third.stop()
    finally:
        for member in members:
            member.end()
    tenures = sorted((*tenure, number) for number, member in enumerate(members) for tenure in member.tenures())
    for (partition, _, until, owner), (next_partition, since, _, next_owner) in itertools.pairwise(tenures):
        if partition == next_partition and owner != next_owner:
            assert since >= until, f"partition {partition} was owned twice: {tenures}"


def test_a_zombie_is_fenced_and_takes_no_commit_back(
    broker: LoneBroker, topic: str, kafka_programs: KafkaPrograms
) -> None:
    """A member that was stopped for longer than its session, and then wakes up with records of
    partitions that others own now.
    """
    load = GroupLoad(broker.bootstrap, topic, PARTITIONS, "java")
    zombie, heir = (JavaMember(kafka_programs, broker.bootstrap, topic, "classic", session_ms=6_000) for _ in range(2))

    def is_everything_committed() -> bool:
        return sum(load.committed().values()) == load.count

    try:
        eventually_sync(lambda: all(member.owned() for member in (zombie, heir)), WITHIN_MS)
        load.produce(40)
        eventually_sync(is_everything_committed, WITHIN_MS)
        zombie.pause()
        load.produce(400)
        eventually_sync(lambda: heir.owned() == set(range(PARTITIONS)) and is_everything_committed(), WITHIN_MS)
        zombie.resume()
        eventually_sync(lambda: zombie.owned() and zombie.owned().isdisjoint(heir.owned()), WITHIN_MS)
        load.produce(40)
        eventually_sync(is_everything_committed, WITHIN_MS)
    finally:
        zombie.end()
        heir.end()
