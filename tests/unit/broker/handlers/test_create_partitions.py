"""CreatePartitions: a topic that is named twice, and lists of assignments that are empty; the
answers are those of Apache Kafka 4.3.1.
"""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.handlers.topics import create_partitions
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from wire.control import controller_pb2 as pb
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo, TopicInfo
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity

INVALID, ASSIGNMENT = ErrorCode.invalid_request, ErrorCode.invalid_replica_assignment


class Controller:
    """Refuses what is named twice."""

    async def create_partitions(self, request: pb.CreatePartitionsRequest) -> pb.CreatePartitionsReply:
        names = [topic.name for topic in request.topics]
        return pb.CreatePartitionsReply(
            results=[
                pb.TopicResult(name=name, error_code=INVALID if names.count(name) > 1 else ErrorCode.none)
                for name in names
            ]
        )


async def no_other_site(*_: object, **__: object) -> None:
    """No other site answers."""


@pytest.mark.parametrize(
    ("topics", "wanted"),
    [
        ([("orders", 3, None)], [("orders", ErrorCode.none)]),
        ([("orders", 3, []), ("paid", 3, None)], [("orders", ASSIGNMENT), ("paid", ErrorCode.none)]),
        ([("orders", 3, None), ("orders", 4, None)], [("orders", INVALID)]),
        ([("unknown", 3, [])], [("unknown", ErrorCode.none)]),
    ],
    ids=["without assignments", "with an empty list", "named twice", "unknown to the broker"],
)
async def test_new_partitions_are_refused_as_by_kafka(
    topics: list[tuple[str, int, list[Any] | None]], wanted: list[tuple[str, ErrorCode]]
) -> None:
    known = [TopicInfo(name=name, topic_id=bytes([number] * 16)) for number, name in enumerate(("orders", "paid"), 1)]
    batch = ControlBatch(is_full=True, controller_epoch=1, brokers=[BrokerInfo(node_id=1)], topics=known)
    permits = SimpleNamespace(take=lambda _count: True, throttle_time_ms=0)
    doors: Any = SimpleNamespace(
        active_site=SimpleNamespace(answer=no_other_site),
        cluster=SimpleNamespace(image=apply_batch(ClusterImage(site="a", node_id=1), batch)),
        controller=Controller(),
        quotas=SimpleNamespace(mutation_permits=lambda *_, **__: permits),
    )
    context: Any = SimpleNamespace(api_version=create_partitions.MAX_VERSION, is_own_tool=False, is_forwarded=False)
    values = {
        "topics": [{"name": name, "count": count, "assignments": listed} for name, count, listed in topics],
        "timeout": timedelta(seconds=1),
        "validate_only": True,
    }
    request = build_entity(schemas.request_type(create_partitions.API_KEY, create_partitions.MAX_VERSION), values)
    answer = await create_partitions.handle(request, context, doors)
    assert [(one.name, one.error_code) for one in answer.results] == wanted
