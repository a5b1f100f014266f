"""Cursors of DescribeTopicPartitions, with the answers of Apache Kafka 4.3.1."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.handlers.topics import describe_topic_partitions
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from tests.support.memory.no_authorizer import NO_AUTHORIZER
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo, PartitionState, TopicInfo
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity

Page = list[tuple[str, ErrorCode, list[int]]]


async def page(names: Sequence[str], cursor: tuple[str, int] | None, limit: int = 2000) -> tuple[Page, Any]:
    """Topics with their errors and partitions, and the next cursor."""
    topics = [
        TopicInfo(
            name=name,
            topic_id=bytes([number] * 16),
            partitions=[PartitionState(partition=index, leader=1, replicas=[1], isr=[1]) for index in range(3)],
        )
        for number, name in enumerate(("orders", "paid"), 1)
    ]
    batch = ControlBatch(is_full=True, controller_epoch=1, brokers=[BrokerInfo(node_id=1)], topics=topics)
    doors: Any = SimpleNamespace(
        active_site=None,
        authorizer=NO_AUTHORIZER,
        cluster=SimpleNamespace(image=apply_batch(ClusterImage(site="a", node_id=1), batch)),
    )
    values = {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": limit,
        "cursor": None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]},
    }
    request = build_entity(schemas.request_type(describe_topic_partitions.API_KEY, 0), values)
    context: Any = SimpleNamespace(api_version=0, is_forwarded=True)
    answer = await describe_topic_partitions.handle(request, context, doors)
    answer = schemas.decode(schemas.response_type(describe_topic_partitions.API_KEY, 0), schemas.encode(answer))
    found = [(one.name, one.error_code, [part.partition_index for part in one.partitions]) for one in answer.topics]
    return found, answer.next_cursor and (answer.next_cursor.topic_name, answer.next_cursor.partition_index)


BOTH = ("orders", "paid")


@pytest.mark.parametrize("cursor", [("orders", -1), ("zzz", 0), ("ordersx", 7), ("", 1)])
async def test_a_cursor_must_be_at_a_partition_of_a_named_topic(cursor: tuple[str, int]) -> None:
    refused: Page = [(name, ErrorCode.invalid_request, []) for name in BOTH]
    assert await page(BOTH, cursor, limit=2) == (refused, None)


@pytest.mark.parametrize(
    ("names", "cursor", "limit", "wanted"),
    [
        (BOTH, ("orders", 1), 1, ([("orders", ErrorCode.none, [1])], ("orders", 2))),
        (BOTH, ("orders", 9), 9, ([("orders", ErrorCode.none, []), ("paid", ErrorCode.none, [0, 1, 2])], None)),
        ((), ("ordersx", 7), 9, ([("paid", ErrorCode.none, [0, 1, 2])], None)),
        ((), ("orders", -1), 9, ([], None)),
    ],
    ids=["in a topic", "behind a topic", "of a topic that is gone, in a list of all", "below 0, in a list of all"],
)
async def test_a_page_begins_at_its_cursor(
    names: Sequence[str], cursor: tuple[str, int], limit: int, wanted: tuple[Page, Any]
) -> None:
    assert await page(names, cursor, limit) == wanted
