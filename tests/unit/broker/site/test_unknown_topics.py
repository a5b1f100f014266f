"""The peers that are asked about unknown topics, by name and by id, and the answers that count."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from broker.site.unknown_topics import ask_peers, unknown_topics
from wire.client.cluster_metadata import PartitionMetadata, TopicMetadata
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import LinkPhase, LinkRecord, TopicInfo

KNOWN, NEW, OLD = uuid.uuid4(), uuid.uuid4(), uuid.uuid4()


def image(*, active: str) -> ClusterImage:
    """Site b's, with a topic that no link carries."""
    link = LinkRecord(
        name="a-b",
        source_site="a",
        target_site="b",
        active_site=active,
        epoch=1,
        phase=LinkPhase.MIRRORING,
        topic_whitelist=["orders.*"],
        is_routed=True,
    )
    topics = [TopicInfo(name="home", topic_id=KNOWN.bytes)]
    return apply_batch(ClusterImage(site="b", node_id=1), ControlBatch(is_full=True, links=[link], topics=topics))


class Peers:
    """Brokers of site a, which have these topics."""

    def __init__(self, **topics: uuid.UUID) -> None:
        self._topics = topics
        self.asked: list[tuple[str, list[Any], bool]] = []

    async def topics_of(
        self, _image: ClusterImage, site: str, topics: Sequence[Any], *, may_create: bool, timeout_ms: float
    ) -> list[TopicMetadata]:
        self.asked.append((site, list(topics), may_create))
        partitions = {0: PartitionMetadata(0, ErrorCode.none, 7, 3, (7,), (7,))}
        return [
            TopicMetadata(name, topic_id, ErrorCode.none, False, partitions)
            for name, topic_id in self._topics.items()
            if name in topics or topic_id in topics
        ]


def test_a_topic_that_a_view_has_is_not_asked_about() -> None:
    assert unknown_topics(image(active="a"), ["home", KNOWN, "bad name", "__consumer_offsets"]) == {}


def test_unknown_ids_are_asked_about_wherever_clients_may_have_made_a_topic() -> None:
    for active in ("a", "b"):
        assert unknown_topics(image(active=active), [NEW]) == {"a": [NEW]}


async def reported(known: ClusterImage, peers: Peers, *topics: Any) -> dict[Any, str]:
    answer = await ask_peers(peers, known, unknown_topics(known, topics), may_create=lambda _: True)  # type: ignore[arg-type]
    return {asked: topic.name for asked, topic in answer.items()}


async def test_a_new_topic_is_found_by_its_id_and_never_created() -> None:
    known, peers = image(active="a"), Peers(orders=NEW, local=OLD)
    assert await reported(known, peers, NEW, OLD) == {NEW: "orders", OLD: "local"}
    assert peers.asked == [("a", [NEW, OLD], False)]


async def test_a_new_topic_is_found_by_its_name_and_created_where_its_link_is_active() -> None:
    known, peers = image(active="a"), Peers(orders=NEW, local=OLD)
    assert await reported(known, peers, "orders", "local") == {"orders": "orders", "local": "local"}
    assert sorted(peers.asked, key=repr) == [("a", ["local"], False), ("a", ["orders"], True)]


async def test_a_peers_old_view_of_a_topic_that_only_this_site_may_have_does_not_count() -> None:
    assert await reported(image(active="b"), Peers(orders=OLD), OLD) == {}
