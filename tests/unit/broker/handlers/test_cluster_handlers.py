"""Requests about brokers and their log directories, with the errors of Apache Kafka 4.3.1."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.handlers.cluster import alter_replica_log_dirs, describe_cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo, PartitionState, TopicInfo
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity


def cluster() -> Any:
    topic = TopicInfo(
        name="orders",
        topic_id=bytes([1] * 16),
        partitions=[PartitionState(partition=0, leader=2, replicas=[2], isr=[2])],
    )
    batch = ControlBatch(is_full=True, controller_epoch=1, brokers=[BrokerInfo(node_id=1)], topics=[topic])
    return SimpleNamespace(image=apply_batch(ClusterImage(site="a", node_id=1), batch))


async def answer(handler: Any, doors: Any, values: dict[str, Any]) -> Any:
    request = build_entity(schemas.request_type(handler.API_KEY, handler.MAX_VERSION), values)
    context: Any = SimpleNamespace(api_version=handler.MAX_VERSION, listener="CLIENT")
    return await handler.handle(request, context, doors)


@pytest.mark.parametrize(
    ("endpoint_type", "error"),
    [
        (1, ErrorCode.none),
        (2, ErrorCode.mismatched_endpoint_type),
        (0, ErrorCode.unsupported_endpoint_type),
        (3, ErrorCode.unsupported_endpoint_type),
    ],
)
async def test_a_broker_has_no_endpoints_but_the_brokers(endpoint_type: int, error: ErrorCode) -> None:
    flags = {"include_cluster_authorized_operations": False, "include_fenced_brokers": False}
    values = {**flags, "endpoint_type": endpoint_type}
    doors = SimpleNamespace(cluster=cluster())
    assert (await answer(describe_cluster, doors, values)).error_code is error


@pytest.mark.parametrize(
    ("topic", "partition", "error"),
    [
        ("orders", 0, ErrorCode.replica_not_available),
        ("orders", 9, ErrorCode.unknown_topic_or_partition),
        ("nowhere", 0, ErrorCode.unknown_topic_or_partition),
    ],
)
async def test_a_directory_is_chosen_for_a_partition_that_is_not_here(
    topic: str, partition: int, error: ErrorCode
) -> None:
    wishes: list[tuple[str, int, str]] = []

    def wish_home(topic: str, partition: int, directory: str) -> bool:
        wishes.append((topic, partition, directory))
        return False

    logs = SimpleNamespace(directory_at=str.upper, is_offline=lambda *_: False, wish_home=wish_home)
    values = {"dirs": [{"path": "/fast", "topics": [{"name": topic, "partitions": [partition]}]}]}
    found = await answer(alter_replica_log_dirs, SimpleNamespace(cluster=cluster(), logs=logs), values)
    assert [one.error_code for one in found.results[0].partitions] == [error]
    assert wishes == [(topic, partition, "/FAST")]
