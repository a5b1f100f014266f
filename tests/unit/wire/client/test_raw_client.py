"""The client finds the responsible broker, and finds the next one after a change."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from runtime.addresses import HostPort
from tests.support.clients.scripted_broker import NO_TIME, ScriptedBroker, late
from wire.batches.records import Record, encode_batch
from wire.client.client_errors import BrokerError, TransientBrokerError, Unreachable, broker_error
from wire.client.connection import Connection, ConnectionOptions
from wire.client.raw_client import (
    KafkaClient,
    NewTopic,
    call_client,
)
from wire.client.requests.broker_requests import EpochQuery
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.client.requests.group_requests import CommittedOffset, FetchedOffset, GroupListing
from wire.client.topic_calls import DYNAMIC_TOPIC_CONFIG, RESOURCE_TOPIC, TOPICS_DESCRIBED_AT_ONCE
from wire.protocol.ids import LATEST_TIMESTAMP, PartitionKey
from wire.protocol.messages.group_offset_messages import MIRROR_GROUP_OFFSETS
from wire.protocol.messages.private import MIRROR_OFFSET_COMMIT, SITE_METADATA, parse_link_claim
from wire.protocol.streams.frames import VersionRange

TOPIC_ID = uuid.UUID(int=7)
BATCH = encode_batch([Record(b"k", b"v")])


class Site:
    """Two scripted brokers with one topic of one partition, whose leader and coordinator can be
    moved.
    """

    def __init__(self, *brokers: ScriptedBroker) -> None:
        self.brokers = dict(enumerate(brokers, start=1))
        self.leader_id = 1
        self.coordinator_id = 1
        self.errors: list[ErrorCode] = []
        for node_id, broker in self.brokers.items():
            broker.on(3, self.metadata)
            broker.on(0, lambda request, header, node_id=node_id: self.produced(node_id))  # type: ignore[misc]
            broker.on(2, lambda request, header, node_id=node_id: self.offsets(node_id))  # type: ignore[misc]
            broker.on(10, self.found_coordinator)
            broker.on(8, lambda request, header, node_id=node_id: self.committed(node_id))  # type: ignore[misc]

    @property
    def bootstrap(self) -> tuple[HostPort, ...]:
        return tuple(broker.address for broker in self.brokers.values())

    def metadata(self, request: Any, header: Any) -> dict[str, Any]:
        partition = {
            "error_code": ErrorCode.none,
            "partition_index": 0,
            "leader_id": self.leader_id,
            "leader_epoch": 4,
            "replica_nodes": (1,),
            "isr_nodes": (1,),
            "offline_replicas": (),
        }
        topic = {"error_code": ErrorCode.none, "name": "t", "topic_id": TOPIC_ID, "is_internal": False}
        wanted = request.topics is None or any(asked.name == "t" for asked in request.topics)
        return {
            "throttle_time": NO_TIME,
            "brokers": [
                {"node_id": node_id, "host": broker.address.host, "port": broker.address.port, "rack": None}
                for node_id, broker in self.brokers.items()
            ],
            "cluster_id": "c",
            "controller_id": -1,
            "topics": [{**topic, "partitions": [partition]}] if wanted else [],
        }

    def _code(self, node_id: int, responsible_id: int, otherwise: ErrorCode) -> ErrorCode:
        if self.errors:
            return self.errors.pop(0)
        return ErrorCode.none if node_id == responsible_id else otherwise

    def produced(self, node_id: int) -> dict[str, Any]:
        code = self._code(node_id, self.leader_id, ErrorCode.not_leader_or_follower)
        partition = {"index": 0, "error_code": code, "base_offset": node_id, "record_errors": ()}
        topic = {"name": "t", "topic_id": TOPIC_ID, "partition_responses": [partition]}
        return {"responses": [topic], "throttle_time": NO_TIME}

    def offsets(self, node_id: int) -> dict[str, Any]:
        code = self._code(node_id, self.leader_id, ErrorCode.not_leader_or_follower)
        partition = {"partition_index": 0, "error_code": code, "offset": 70 + node_id}
        return {"throttle_time": NO_TIME, "topics": [{"name": "t", "partitions": [partition]}]}

    def found_coordinator(self, request: Any, header: Any) -> dict[str, Any]:
        address = self.brokers[self.coordinator_id].address
        where = {"node_id": self.coordinator_id, "host": address.host, "port": address.port}
        found = {"key": "g", "error_code": ErrorCode.none, **where}
        return {"throttle_time": NO_TIME, "coordinators": [found]}

    def committed(self, node_id: int) -> dict[str, Any]:
        code = self._code(node_id, self.coordinator_id, ErrorCode.not_coordinator)
        partition = {"partition_index": 0, "error_code": code}
        return {"throttle_time": NO_TIME, "topics": [{"name": "t", "partitions": [partition]}]}


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with ScriptedBroker() as first, ScriptedBroker() as second:
        yield Site(first, second)


async def test_a_batch_is_not_sent_again_while_the_leader_may_wait_for_others(site: Site) -> None:
    """The leader takes longer than another request may take, and less than this one allows it."""

    options = ConnectionOptions(request_timeout_ms=300)
    site.brokers[1].on(0, late(site.produced(1), delay_ms=3 * options.request_timeout_ms))
    async with KafkaClient(site.bootstrap, options) as client:
        await client.produce("t", 0, BATCH, timeout_ms=60_000)
    assert [header.api_key for header, _ in site.brokers[1].seen].count(0) == 1


@pytest.fixture
async def client(site: Site) -> AsyncIterator[KafkaClient]:
    async with KafkaClient(site.bootstrap, retry_budget_ms=20_000) as running:
        yield running


async def test_metadata_comes_from_whichever_bootstrap_broker_answers(site: Site, unused_tcp_port: int) -> None:
    dead = HostPort("127.0.0.1", unused_tcp_port)
    async with KafkaClient([dead, site.bootstrap[1]]) as client:
        cluster = await client.metadata()
    assert set(cluster.brokers) == {1, 2}
    assert cluster.topics["t"].topic_id == TOPIC_ID
    assert cluster.topics["t"].partitions[0].leader_epoch == 4


async def test_cluster_that_cannot_be_reached_is_named(unused_tcp_port: int) -> None:
    async with KafkaClient(f"127.0.0.1:{unused_tcp_port}", retry_budget_ms=100) as client:
        with pytest.raises(Unreachable, match=f"no broker can be reached: 127.0.0.1:{unused_tcp_port}"):
            await client.metadata()


async def test_producer_follows_the_leader(site: Site, client: KafkaClient) -> None:
    assert (await client.produce("t", 0, BATCH)).base_offset == 1
    site.leader_id = 2
    assert (await client.produce("t", 0, BATCH)).base_offset == 2
    assert site.brokers[2].requests(0)[-1].topic_data[0].partition_data[0].records == BATCH


async def test_producer_survives_the_death_of_the_leader(site: Site, client: KafkaClient) -> None:
    await client.produce("t", 0, BATCH)
    await site.brokers[1].stop()
    site.leader_id = 2
    assert (await client.produce("t", 0, BATCH)).base_offset == 2
    await site.brokers[1].start()


async def test_lasting_error_is_raised_with_node_api_and_code(site: Site, client: KafkaClient) -> None:
    site.errors = [ErrorCode.message_too_large]
    with pytest.raises(BrokerError, match="node 1 produce: message_too_large") as raised:
        await client.produce("t", 0, BATCH)
    assert raised.value.code is ErrorCode.message_too_large
    assert not isinstance(raised.value, TransientBrokerError)


async def test_passing_errors_are_retried_within_the_budget(site: Site) -> None:
    async with KafkaClient(site.bootstrap, retry_budget_ms=10_000) as client:
        site.errors = [ErrorCode.not_enough_replicas] * 2
        assert (await client.produce("t", 0, BATCH)).base_offset == 1
    async with KafkaClient(site.bootstrap, retry_budget_ms=300) as client:
        site.errors = [ErrorCode.not_enough_replicas] * 1000
        with pytest.raises(TransientBrokerError):
            await client.produce("t", 0, BATCH)


async def test_acks_zero_waits_for_nothing(site: Site, client: KafkaClient) -> None:
    site.brokers[1].on(0, lambda request, header: None)
    assert (await client.produce("t", 0, BATCH, acks=0)).error_code == 0


async def test_offsets_are_asked_of_the_leader(site: Site, client: KafkaClient) -> None:
    assert await client.offsets_at([("t", 0)], LATEST_TIMESTAMP) == {("t", 0): 71}
    site.leader_id = 2
    assert await client.offsets_at([("t", 0)], LATEST_TIMESTAMP, replica_id=-2) == {("t", 0): 72}
    assert site.brokers[2].requests(2)[-1].replica_id == -2


async def test_unknown_topic_is_a_transient_error_of_metadata(client: KafkaClient) -> None:
    with pytest.raises(TransientBrokerError, match="metadata: unknown_topic_or_partition: nope-0"):
        await client.leader("nope", 0)


@pytest.mark.parametrize("highest", [4, 11, 12, 13, 17])
@pytest.mark.parametrize("topic_id", [TOPIC_ID, None])
async def test_fetched_topics_carry_names_whatever_the_version(
    site: Site, client: KafkaClient, highest: int, topic_id: uuid.UUID | None
) -> None:
    def fetched(request: Any, header: Any) -> dict[str, Any]:
        common = {"partition_index": 0, "error_code": ErrorCode.none, "high_watermark": 1, "records": BATCH}
        topic = {"topic": "t", "topic_id": TOPIC_ID, "partitions": [common]}
        return {"throttle_time": NO_TIME, "error_code": ErrorCode.none, "responses": [topic]}

    site.brokers[1].on(1, fetched, VersionRange(4, highest))
    topic = TopicToFetch("t", topic_id, [PartitionToFetch(0, 0, 1000)])
    response = await client.fetch(1, FetchRequest([topic], max_wait_ms=1))
    assert response.topics[0].name == "t"
    assert bytes(response.topics[0].partitions[0].records) == BATCH  # type: ignore[arg-type]
    assert len(site.brokers[1].requests(1)) == 1


async def test_group_is_followed_to_its_new_coordinator(site: Site, client: KafkaClient) -> None:
    offsets = {("t", 0): CommittedOffset(7)}
    assert await client.commit("g", offsets) == {("t", 0): ErrorCode.none}
    site.coordinator_id = 2
    assert await client.commit("g", offsets) == {("t", 0): ErrorCode.none}
    assert len(site.brokers[2].requests(8)) == 1


async def test_site_local_metadata_is_used_where_it_is_offered(site: Site) -> None:
    async with KafkaClient(site.bootstrap[:1], site_local=True) as client:
        await client.metadata()
        assert len(site.brokers[1].requests(3)) == 1
    site.brokers[1].on(SITE_METADATA, site.metadata)
    async with KafkaClient(site.bootstrap[:1], site_local=True) as client:
        assert set((await client.metadata(["t"])).topics) == {"t"}
    assert len(site.brokers[1].requests(SITE_METADATA)) == 1


async def test_an_unchanged_answer_about_all_topics_is_not_decoded_again(site: Site) -> None:
    async with KafkaClient(site.bootstrap[:1]) as client:
        first = await client.metadata()
        client.forget_leaders(["t"])
        assert await client.metadata() is first
        assert client.cluster.leader_of("t", 0) == 1
        site.leader_id = 2
        changed = await client.metadata()
        assert changed.leader_of("t", 0) == client.cluster.leader_of("t", 0) == 2
        assert (await client.metadata(["t"])).topics == changed.topics
        assert await client.metadata() is changed


async def test_mirror_commit_carries_its_link(site: Site, client: KafkaClient) -> None:
    site.brokers[1].on(MIRROR_OFFSET_COMMIT, lambda request, header: site.committed(1))
    await client.mirror_offset_commit("g", {("t", 0): CommittedOffset(7, 2, "m")}, link="a-b", link_epoch=5)
    request = site.brokers[1].requests(MIRROR_OFFSET_COMMIT)[0]
    assert parse_link_claim(request.group_instance_id) == ("a-b", 5)
    assert request.topics[0].partitions[0].committed_leader_epoch == 2


def mirrored(request: Any, header: Any) -> dict[str, Any]:
    """Refuses the offsets of group "full", and knows nothing of group "moved"."""
    codes = {"moved": ErrorCode.not_coordinator, "busy": ErrorCode.non_empty_group}
    refused = {"topic": "t", "partition_index": 0, "error_code": ErrorCode.offset_metadata_too_large}
    return {
        "outcomes": [
            {
                "error_code": codes.get(group.group_id, ErrorCode.none),
                "refused": [refused] if group.group_id == "full" else [],
            }
            for group in request.groups
        ]
    }


async def test_a_mirror_commits_many_groups_in_one_request(site: Site, client: KafkaClient) -> None:
    broker = site.brokers[1]
    broker.on(MIRROR_GROUP_OFFSETS, mirrored)
    broker.on(MIRROR_OFFSET_COMMIT, lambda request, header: site.committed(1))
    wanted = {name: {("t", 0): CommittedOffset(7, 2, "m")} for name in ("g", "busy", "full", "moved")}
    found = await client.mirror_group_offsets(wanted, link="a-b", link_epoch=5)
    at = ("t", 0)
    assert found == {
        "g": {at: ErrorCode.none},
        "busy": {at: ErrorCode.non_empty_group},
        "full": {at: ErrorCode.offset_metadata_too_large},
        "moved": {at: ErrorCode.none},
    }
    (request,) = broker.requests(MIRROR_GROUP_OFFSETS)
    assert (request.link, request.link_epoch, len(request.groups)) == ("a-b", 5, 4)
    (alone,) = broker.requests(MIRROR_OFFSET_COMMIT)
    assert alone.group_id == "moved", "the coordinator was asked for again"


async def test_a_broker_that_does_not_know_the_request_takes_each_group_alone(site: Site, client: KafkaClient) -> None:
    site.brokers[1].on(MIRROR_OFFSET_COMMIT, lambda request, header: site.committed(1))
    wanted = {name: {("t", 0): CommittedOffset(7)} for name in ("g0", "g1")}
    found = await client.mirror_group_offsets(wanted, link="a-b", link_epoch=5)
    assert found == {name: {("t", 0): ErrorCode.none} for name in wanted}
    assert len(site.brokers[1].requests(MIRROR_OFFSET_COMMIT)) == 2


async def test_topics_are_created_with_their_outcomes(site: Site, client: KafkaClient) -> None:
    def created(request: Any, header: Any) -> dict[str, Any]:
        topics = [
            {"name": t.name, "topic_id": TOPIC_ID, "error_code": ErrorCode.topic_already_exists, "error_message": "is"}
            for t in request.topics
        ]
        return {"throttle_time": NO_TIME, "topics": topics}

    for broker in site.brokers.values():
        broker.on(19, created)
    outcomes = await client.create_topics([NewTopic(name="t", partition_count=3, configs={"a": "b"})])
    assert [(o.name, o.error_code, o.error_message) for o in outcomes] == [("t", ErrorCode.topic_already_exists, "is")]
    request = next(request for broker in site.brokers.values() for request in broker.requests(19))
    assert request.topics[0].num_partitions == 3
    assert request.topics[0].configs[0].value == "b"


async def test_configs_of_many_topics_are_asked_for_piece_by_piece_and_those_that_are_gone_left_out(
    site: Site, client: KafkaClient
) -> None:
    def described(request: Any, header: Any) -> dict[str, Any]:
        return {"throttle_time": NO_TIME, "results": [result(asked.resource_name) for asked in request.resources]}

    def result(name: str) -> dict[str, Any]:
        is_gone = name == "t0"
        values = {"read_only": False, "is_sensitive": False, "synonyms": (), "config_type": 2, "documentation": None}
        configs = [
            {"name": "retention.ms", "value": name[1:], "config_source": DYNAMIC_TOPIC_CONFIG, **values},
            {"name": "segment.ms", "value": "1", "config_source": 5, **values},
        ]
        return {
            "error_code": ErrorCode.unknown_topic_or_partition if is_gone else ErrorCode.none,
            "error_message": None,
            "resource_type": RESOURCE_TOPIC,
            "resource_name": name,
            "configs": [] if is_gone else configs,
        }

    for broker in site.brokers.values():
        broker.on(32, described)
    names = [f"t{number}" for number in range(2 * TOPICS_DESCRIBED_AT_ONCE + 1)]
    assert await client.topic_configs(names) == {name: {"retention.ms": name[1:]} for name in names[1:]}
    asked = [len(request.resources) for broker in site.brokers.values() for request in broker.requests(32)]
    assert asked == [TOPICS_DESCRIBED_AT_ONCE, TOPICS_DESCRIBED_AT_ONCE, 1]
    assert await client.topic_configs([]) == {}


async def test_epoch_ends_are_asked_as_the_given_replica(site: Site, client: KafkaClient) -> None:
    def ends(request: Any, header: Any) -> dict[str, Any]:
        found = {"error_code": ErrorCode.none, "partition": 0, "leader_epoch": 3, "end_offset": 9}
        return {"throttle_time": NO_TIME, "topics": [{"topic": "t", "partitions": [found]}]}

    site.brokers[1].on(23, ends)
    found = await client.epoch_ends(1, {("t", 0): EpochQuery(4, 5)}, replica_id=-2)
    assert found[("t", 0)][1:] == (3, 9)
    request = site.brokers[1].requests(23)[0]
    assert (request.replica_id, request.topics[0].partitions[0].current_leader_epoch) == (-2, 5)


def test_code_without_a_loop_can_call(unused_tcp_port: int) -> None:
    async def nothing(client: KafkaClient) -> str:
        return "done"

    assert call_client(f"127.0.0.1:{unused_tcp_port}", nothing) == "done"


async def test_a_failure_of_one_group_or_coordinator_is_that_groups_answer_alone(
    client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def coordinator(group_id: str) -> int:
        if group_id == "new":
            raise broker_error(ErrorCode.coordinator_not_available)
        return 2 if group_id == "away" else 1

    async def connection(node_id: int) -> int:
        if node_id == 2:
            raise Unreachable("connection refused")
        return node_id

    async def committed(_: object, group_ids: list[str]) -> dict[str, dict[PartitionKey, FetchedOffset]]:
        return {group_id: {} for group_id in group_ids}

    monkeypatch.setattr(client, "coordinator", coordinator)
    monkeypatch.setattr(client, "connection", connection)
    monkeypatch.setattr("wire.client.group_calls.request_committed_by_groups", committed)
    found = await client.committed_by_groups(["well", "new", "away", "other"])
    assert {group: type(answer) for group, answer in found.items()} == {
        "well": dict,
        "other": dict,
        "new": TransientBrokerError,
        "away": Unreachable,
    }


async def test_a_broker_that_does_not_tell_its_groups_does_not_hide_those_of_the_others(
    site: Site, client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def groups(connection: Connection) -> list[GroupListing]:
        if connection.address == site.bootstrap[0]:
            raise Unreachable("connection reset")
        return [GroupListing("billing", "consumer", "Stable")]

    monkeypatch.setattr("wire.client.group_calls.request_groups", groups)
    found = await client.groups_by_broker()
    assert sorted(str(answer) for answer in found.values()) == sorted(
        ["connection reset", str([GroupListing("billing", "consumer", "Stable")])]
    )
    (reported,) = [node_id for node_id, answer in found.items() if isinstance(answer, list)]
    assert (await client.groups_by_broker(leave_out=found.keys() - {reported})).keys() == {reported}
