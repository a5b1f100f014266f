"""Partitions that a standby's clients have the active site create or delete, and their quota."""

from __future__ import annotations

from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from broker.handlers.topics import create_partitions, create_topics, delete_topics
from broker.handlers.topics.mutation_quota import is_led_elsewhere
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from broker.metadata.core.peer_topics import PeerTopics
from broker.metadata.core.topic_images import PartitionImage, TopicImage
from broker.metadata.request_context import RequestContext
from broker.network.entities import NO_THROTTLE, builder
from broker.quotas.client_throttling import Quotas
from broker.settings.loading import load_broker_settings
from tests.support.clock import ManualClock
from tests.support.memory.site_model import link_record
from wire.control.broker_pb2 import ControlBatch
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity
from wire.rules.client_quotas import CONTROLLER_MUTATION_RATE, USER

PARTITIONS = 4
REQUESTS: list[tuple[ModuleType, dict[str, Any]]] = [
    (
        create_topics,
        {
            "topics": [
                {
                    "name": "orders.new",
                    "num_partitions": PARTITIONS,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
            ],
            "validate_only": False,
        },
    ),
    (
        create_partitions,
        {"topics": [{"name": "orders.old", "count": 2 * PARTITIONS, "assignments": None}], "validate_only": False},
    ),
    (delete_topics, {"topics": [{"name": "orders.old", "topic_id": None}]}),
]


def standby() -> ClusterImage:
    """Site b's image: a link carries `orders.*` from site a, which has `orders.old`."""
    link = link_record("a-b", active="a", is_routed=True)
    image = apply_batch(ClusterImage(site="b", node_id=1), ControlBatch(is_full=True, links=[link]))
    partitions = {
        index: PartitionImage(index=index, leader=7, leader_epoch=0, partition_epoch=0, replicas=(7,), isr=(7,))
        for index in range(PARTITIONS)
    }
    old = TopicImage(name="orders.old", topic_id=bytes(15) + b"o", configs={}, partitions=partitions)
    return replace(image, peer_topics={"a": PeerTopics().with_view([old])})


class ActiveSite:
    """Does what it is asked."""

    def __init__(self) -> None:
        self.asked_count = 0

    async def answer(self, _: object, context: RequestContext, *__: object, **___: object) -> Any:
        self.asked_count += 1
        build = builder(context.api_key, context.api_version)
        fields = "results" if context.api_key == create_partitions.API_KEY else "topics"
        return build.response(**{fields: (), "responses": (), "throttle_time": NO_THROTTLE})


async def quotas_of_alice(rate: float) -> Quotas:
    settings = load_broker_settings(
        {"node.id": "1", "listeners": "CLIENT://:0", "log.dirs": "none", "zookeeper.connect": "none:1"}
    )
    quotas, before = Quotas(settings, ManualClock()), ClusterImage(site="b", node_id=1)
    await quotas.on_image(before, replace(before, quotas={((USER, "ANONYMOUS"),): {CONTROLLER_MUTATION_RATE: rate}}))
    return quotas


@pytest.mark.parametrize(("api", "values"), REQUESTS, ids=["create", "grow", "delete"])
async def test_the_broker_that_hands_a_request_on_counts_its_partitions(
    api: ModuleType, values: dict[str, Any]
) -> None:
    """The other site sees that broker and not its client: any client could pass its quota by."""
    active_site = ActiveSite()
    # a burst of 11 windows: less than one request
    quotas = await quotas_of_alice(rate=PARTITIONS / 22)
    doors: Any = SimpleNamespace(
        active_site=active_site,
        cluster=SimpleNamespace(image=standby()),
        configs=SimpleNamespace(current=SimpleNamespace(default_partition_count=1)),
        quotas=quotas,
    )
    context = RequestContext(
        api_key=api.API_KEY,
        api_version=api.MAX_VERSION,
        correlation_id=1,
        client_id="c",
        listener="CLIENT",
        client_address="10.0.0.1:50000",
    )
    request = build_entity(
        schemas.request_type(api.API_KEY, api.MAX_VERSION), {**values, "timeout": timedelta(seconds=1)}
    )
    first = await api.handle(request, context, doors)
    assert (active_site.asked_count, first.throttle_time) == (1, NO_THROTTLE)
    second = await api.handle(request, context, doors)
    (refused,) = next(found for name in ("topics", "results", "responses") if (found := getattr(second, name, None)))
    assert refused.error_code is ErrorCode.throttling_quota_exceeded
    assert (active_site.asked_count, second.throttle_time > NO_THROTTLE) == (1, True)
    forwarded = replace(context, client_id="antipode-forwarded")
    assert not is_led_elsewhere(doors.cluster.image, forwarded, ["orders.old"])
