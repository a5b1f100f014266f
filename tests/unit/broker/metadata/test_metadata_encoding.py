"""kio reads the broker's own encoding of metadata, in every version. The broker keeps encoded parts
and renews them after a change.
"""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch, with_peer_view
from broker.metadata.metadata_encoding import MetadataCache, MetadataWriter
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo, Endpoint, LinkPhase, LinkRecord, PartitionState, SiteView, TopicInfo
from wire.protocol.schemas import decode, encode, response_type

METADATA = 3
VERSIONS = range(14)


def broker(node_id: int, *, rack: str = "") -> BrokerInfo:
    endpoints = [
        Endpoint(listener="CLIENT", host=f"h{node_id}", port=node_id),
        Endpoint(listener="LINK", host="l", port=1),
    ]
    return BrokerInfo(node_id=node_id, rack=rack, endpoints=endpoints)


def topic(name: str, *leaders: int) -> TopicInfo:
    states = [
        PartitionState(partition=index, leader=leader, leader_epoch=4, replicas=[leader, 9], isr=[leader])
        for index, leader in enumerate(leaders)
    ]
    return TopicInfo(name=name, topic_id=name[:1].encode() * 16, partitions=states)


def image(*topics: TopicInfo, site: str = "a", links: list[LinkRecord] | None = None) -> ClusterImage:
    batch = ControlBatch(
        is_full=True,
        controller_id=1,
        cluster_id="cluster",
        brokers=[broker(1, rack="r1"), broker(2)],
        topics=topics,
        links=links or [],
    )
    return apply_batch(ClusterImage(site=site, node_id=1), batch)


def read(body: bytes, version: int) -> Any:
    entity_type = response_type(METADATA, version)
    found = decode(entity_type, body)
    assert encode(found) == body
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_what_kio_reads(version: int) -> None:
    known = image(topic("t", 1, 2, 7), topic("__consumer_offsets", 1))
    found = read(MetadataCache(is_merged=True).full_answer(MetadataWriter(version), known, "CLIENT"), version)
    assert [(entry.node_id, entry.host, entry.port) for entry in found.brokers] == [(1, "h1", 1), (2, "h2", 2)]
    if version >= 1:
        assert [entry.rack for entry in found.brokers] == ["r1", None]
        assert found.controller_id == 1
        assert [entry.is_internal for entry in found.topics] == [False, True]
    if version >= 2:
        assert found.cluster_id == "cluster"
    partitions = found.topics[0].partitions
    assert [partition.leader_id for partition in partitions] == [1, 2, -1]
    assert [partition.error_code for partition in partitions] == [
        ErrorCode.none,
        ErrorCode.none,
        ErrorCode.leader_not_available,
    ]
    if version >= 5:
        assert partitions[0].offline_replicas == (9,)
    if version >= 7:
        assert partitions[0].leader_epoch == 4
    if version >= 10:
        assert found.topics[0].topic_id.bytes == b"t" * 16


@pytest.mark.parametrize("version", VERSIONS)
def test_missing_topics_are_what_kio_reads(version: int) -> None:
    known, cache, writer = image(), MetadataCache(is_merged=True), MetadataWriter(version)
    missing = writer.topic(
        error=ErrorCode.unknown_topic_or_partition, name="gone", topic_id=bytes(16), partitions=(), live=()
    )
    found = read(cache.answer(writer, known, "CLIENT", [missing]), version)
    assert (found.topics[0].name, found.topics[0].error_code) == ("gone", ErrorCode.unknown_topic_or_partition)


def test_a_topic_asked_for_by_an_unknown_id_has_no_name() -> None:
    writer = MetadataWriter(12)
    missing = writer.topic(error=ErrorCode.unknown_topic_id, name=None, topic_id=b"u" * 16, partitions=(), live=())
    found = read(MetadataCache(is_merged=True).answer(writer, image(), "CLIENT", [missing]), 12)
    assert found.topics[0].name is None
    assert found.topics[0].topic_id.bytes == b"u" * 16


def test_an_answer_has_the_addresses_of_the_listener_that_was_asked() -> None:
    found = read(MetadataCache(is_merged=True).full_answer(MetadataWriter(9), image(), "LINK"), 9)
    assert {entry.host for entry in found.brokers} == {"l"}


def test_a_changed_topic_and_a_lost_broker_are_seen() -> None:
    cache, known = MetadataCache(is_merged=True), image(topic("t", 2))
    assert read(cache.full_answer(MetadataWriter(9), known, "CLIENT"), 9).topics[0].partitions[0].leader_id == 2
    moved = apply_batch(known, ControlBatch(brokers=[broker(1), broker(2)], topics=[topic("t", 1)]))
    assert read(cache.full_answer(MetadataWriter(9), moved, "CLIENT"), 9).topics[0].partitions[0].leader_id == 1
    lost = apply_batch(moved, ControlBatch(brokers=[broker(2)]))
    assert read(cache.full_answer(MetadataWriter(9), lost, "CLIENT"), 9).topics[0].partitions[0].leader_id == -1


def test_unmerged_metadata_leaves_the_peer_out() -> None:
    link = LinkRecord(
        name="a-b",
        source_site="a",
        target_site="b",
        epoch=1,
        active_site="a",
        phase=LinkPhase.MIRRORING,
        topic_whitelist=[".*"],
        is_routed=True,
    )
    view = SiteView(site="a", version=1, brokers=[broker(1001)], topics=[topic("t", 1001)])
    known = with_peer_view(image(topic("t", 1), site="b", links=[link]), view)
    merged = read(MetadataCache(is_merged=True).full_answer(MetadataWriter(12), known, "CLIENT"), 12)
    own = read(MetadataCache(is_merged=False).full_answer(MetadataWriter(12), known, "CLIENT"), 12)
    assert {entry.node_id for entry in merged.brokers} == {1, 2, 1001}
    assert merged.topics[0].partitions[0].leader_id == 1001
    assert {entry.node_id for entry in own.brokers} == {1, 2}
    assert own.topics[0].partitions[0].leader_id == 1
