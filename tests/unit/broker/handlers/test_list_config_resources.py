"""Resources with configs of their own, listed at one site of a routed link: each site has groups
that its peer does not know.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kio.schema.errors import ErrorCode

from broker.handlers.configs import list_config_resources as handler
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch, with_peer_view
from broker.network.entities import builder
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo, LinkPhase, LinkRecord, SiteView, TopicInfo
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity

TOPIC, BROKER, GROUP = 2, 4, 32
LINK = LinkRecord(
    name="a-b",
    source_site="a",
    target_site="b",
    epoch=1,
    active_site="a",
    phase=LinkPhase.MIRRORING,
    topic_whitelist=[".*"],
    is_routed=True,
)


class Peer:
    """Site a, which lists these resources."""

    def __init__(self, *named: tuple[int, str]) -> None:
        self._named = named

    async def ask_site(self, _: Any, site: str, __: Any, ___: Any, *, timeout_ms: float) -> Any:
        assert site == "a"
        assert timeout_ms > 0
        build = builder(handler.API_KEY, 1)
        parts = (build.part("ConfigResource", resource_name=name, resource_type=kind) for kind, name in self._named)
        return build.response(error_code=ErrorCode.none, config_resources=tuple(parts))


async def listed(peer: Peer, *, is_own_tool: bool = False) -> set[tuple[int, str]]:
    """The resources that a broker of site b lists, which has a copy of `old`."""
    batch = ControlBatch(
        is_full=True, controller_epoch=1, brokers=[BrokerInfo(node_id=1001)], topics=[_topic("old")], links=[LINK]
    )
    image = apply_batch(ClusterImage(site="b", node_id=1001), batch)
    view = SiteView(site="a", version=1, brokers=[BrokerInfo(node_id=1)], topics=[_topic("new")])
    doors: Any = SimpleNamespace(cluster=Cluster(with_peer_view(image, view)), active_site=peer)
    context: Any = SimpleNamespace(api_version=1, is_own_tool=is_own_tool)
    request = build_entity(schemas.request_type(handler.API_KEY, 1), {"resource_types": (TOPIC, BROKER, GROUP)})
    answer = await handler.handle(request, context, doors)
    return {(found.resource_type, found.resource_name) for found in answer.config_resources}


def _topic(name: str) -> TopicInfo:
    return TopicInfo(name=name, topic_id=name.encode().ljust(16))


async def test_groups_that_a_peer_names_are_listed_and_topics_and_brokers_are_those_that_clients_see() -> None:
    assert await listed(Peer((GROUP, "theirs"), (TOPIC, "copy"), (BROKER, "7"))) == {
        (TOPIC, "new"),
        (BROKER, "1"),
        (BROKER, "1001"),
        (GROUP, "theirs"),
    }


async def test_a_tool_of_our_own_is_answered_for_this_site_alone() -> None:
    assert await listed(Peer((GROUP, "theirs")), is_own_tool=True) == {(TOPIC, "old"), (BROKER, "1001")}
