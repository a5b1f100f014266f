"""Which partitions of a decided transaction need no marker any more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from broker.metadata.core.cluster_image import ClusterImage
from broker.transactions import marker_sender
from broker.transactions.core.transaction_states import Transaction, TransactionState
from broker.transactions.marker_sender import MarkerSender
from tests.support.eventually import eventually
from wire.batches.transaction_members import HEADER, PARTITIONS_MAX, TransactionMembers, encode_members, members_of
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import TopicPartition

COMMITTED = Transaction(
    transactional_id="tx",
    producer_id=7,
    producer_epoch=0,
    timeout_ms=1000,
    state=TransactionState.PREPARE_COMMIT,
    partitions=frozenset([TopicPartition("t", 0)]),
)


class Images:
    """The broker's image, and how often it was looked at."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.looks = 0

    def __call__(self) -> ClusterImage:
        self.looks += 1
        return self.image


async def test_a_topic_in_quarantine_is_not_a_deleted_one() -> None:
    images = Images(ClusterImage(site="a", node_id=1, is_complete=True, quarantined=frozenset(["t"])))
    unused: Any = None
    sending = asyncio.create_task(MarkerSender(images, unused, unused).send(COMMITTED, coordinator_epoch=0))
    await eventually(lambda: images.looks > 3 or sending.done())
    assert not sending.done()
    images.image = ClusterImage(site="a", node_id=1, is_complete=True)
    await sending


def members(transactional_id: str, partitions: int) -> TransactionMembers:
    return TransactionMembers(transactional_id, 5, frozenset(("t", number) for number in range(partitions)))


@pytest.mark.parametrize("partitions", [1, PARTITIONS_MAX + 1])
def test_markers_of_the_sink_of_spark_always_name_the_transaction(partitions: int) -> None:
    assert encode_members(members("booking", partitions)) is None
    for count in (partitions, 2):
        found = members_of([(HEADER, encode_members(members("antipode-spark.q.0", count)))])
        assert found == members("antipode-spark.q.0", 2 if count == 2 else 0)


@pytest.mark.parametrize(("transactional_id", "is_named"), [("tx", False), ("antipode-spark.q.0", True)])
@pytest.mark.parametrize("has_link", [False, True])
def test_a_marker_of_one_partition_names_the_transaction_of_the_sink_where_links_are(
    transactional_id: str, is_named: bool, has_link: bool
) -> None:
    links = {"a-b": LinkRecord(name="a-b", topic_whitelist=["t"])} if has_link else {}
    image = ClusterImage(site="a", node_id=1, links=links)
    found = marker_sender._members(replace(COMMITTED, transactional_id=transactional_id), image)
    assert (found is not None) is (is_named and has_link)
