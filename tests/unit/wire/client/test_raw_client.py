"""The client finds the responsible broker, and finds the next one after a change."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from runtime.addresses import HostPort
from tests.support.clients.scripted_broker import NO_TIME, late
from tests.support.clients.scripted_site import TOPIC_ID, Site
from wire.batches.records import Record, encode_batch
from wire.client.client_errors import BrokerError, TransientBrokerError, Unreachable
from wire.client.connection import ConnectionOptions
from wire.client.raw_client import (
    KafkaClient,
    NewTopic,
    call_client,
)
from wire.client.requests.broker_requests import EpochQuery
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.client.topic_calls import DYNAMIC_TOPIC_CONFIG, RESOURCE_TOPIC, TOPICS_DESCRIBED_AT_ONCE
from wire.protocol.ids import LATEST_TIMESTAMP
from wire.protocol.messages.private import SITE_METADATA
from wire.protocol.streams.frames import VersionRange

BATCH = encode_batch([Record(b"k", b"v")])


async def test_a_batch_is_not_sent_again_while_the_leader_may_wait_for_others(site: Site) -> None:
    """The leader takes longer than another request may take, and less than this one allows it."""

    options = ConnectionOptions(request_timeout_ms=300)
    site.brokers[1].on(0, late(site.produced(1), delay_ms=3 * options.request_timeout_ms))
    async with KafkaClient(site.bootstrap, options) as client:
        await client.produce("t", 0, BATCH, timeout_ms=60_000)
    assert [header.api_key for header, _ in site.brokers[1].seen].count(0) == 1


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
