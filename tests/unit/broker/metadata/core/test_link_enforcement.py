"""A broker says whether the partitions of a link have leaders above the floor of a record."""

from __future__ import annotations

import pytest

from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from broker.metadata.core.link_enforcement import has_leaders_above_floor, is_in_force
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import LinkRecord, PartitionState, TopicInfo

FLOOR = 1 << 20
RECORD = LinkRecord(
    name="a-b",
    source_site="a",
    target_site="b",
    active_site="b",
    epoch=2,
    leader_epoch_floor=FLOOR,
    topic_whitelist=["orders.*"],
)


def image(*states: tuple[str, int, int], link: LinkRecord = RECORD) -> ClusterImage:
    """An image with these topics of one partition: name, leader and leader epoch."""
    topics = [
        TopicInfo(
            name=name,
            topic_id=name.encode().ljust(16),
            partitions=[PartitionState(partition=0, leader=leader, leader_epoch=epoch, replicas=[1], isr=[1])],
        )
        for name, leader, epoch in states
    ]
    return apply_batch(
        ClusterImage(site="b", node_id=1), ControlBatch(is_full=True, controller_epoch=1, topics=topics, links=[link])
    )


@pytest.mark.parametrize(
    ("states", "has_leaders"),
    [
        ([], True),
        ([("orders", 1, FLOOR), ("orders-old", 1, FLOOR + 7)], True),
        ([("orders", 1, FLOOR), ("orders-old", 1, FLOOR - 1)], False),
        ([("orders", 1, FLOOR), ("orders-old", -1, FLOOR)], False),
        ([("orders", 1, FLOOR), ("local", -1, 0)], True),
    ],
)
def test_only_partitions_of_the_link_need_leaders_above_the_floor(
    states: list[tuple[str, int, int]], has_leaders: bool
) -> None:
    assert has_leaders_above_floor(image(*states), RECORD) is has_leaders


@pytest.mark.parametrize(("epoch", "is_expected"), [(1, False), (2, True), (3, True)])
def test_a_later_record_is_in_force_in_place_of_the_awaited_one(epoch: int, is_expected: bool) -> None:
    stored = LinkRecord()
    stored.CopyFrom(RECORD)
    stored.epoch = epoch
    assert is_in_force(image(link=stored), RECORD) is is_expected
    assert not is_in_force(ClusterImage(site="b", node_id=1), RECORD)
