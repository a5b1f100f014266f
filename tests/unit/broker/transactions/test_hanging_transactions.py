"""Transactions in a mirrored log that a promotion left open."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.topic_images import TopicImage
from broker.transactions.hanging_transactions import HangingTransactions
from tests.support.eventually import eventually
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.rules.links import link_epoch

FLOOR = 1 << 20


class OnePartition:
    """The replicas of a broker that leads one partition, in which a transaction has been open since
    before its promotion.
    """

    def __init__(self) -> None:
        self.looks = 0
        self.open = [SimpleNamespace(producer_id=7, producer_epoch=1, coordinator_epoch=0, transaction_first_offset=3)]
        producers = SimpleNamespace(has_open_transactions=True, open_transactions=lambda: self.open)
        self.hosted: Any = SimpleNamespace(
            key=("t", 0),
            topic="t",
            index=0,
            state=SimpleNamespace(is_leader=True),
            write_error=ErrorCode.none,
            log=SimpleNamespace(producers=producers, first_offset_since_epoch=lambda _: 5),
        )

    def __iter__(self) -> Iterator[Any]:
        self.looks += 1
        return iter([self.hosted])


class Markers:
    """Ends the transactions of the partition."""

    def __init__(self, replicas: OnePartition) -> None:
        self.ended: list[int] = []
        self._replicas = replicas

    async def append(self, hosted: Any, end: Any) -> None:
        assert hosted is self._replicas.hosted
        self.ended.append(end.producer_id)
        self._replicas.open = []


def image(
    *, active: str = "a", phase: LinkPhase = LinkPhase.MIRRORING, floor: int = FLOOR, confirmed: bool = True
) -> Any:
    """The image of site a with topic t, which the link carries."""
    link = LinkRecord(
        name="a-b",
        epoch=2,
        source_site="a",
        target_site="b",
        active_site=active,
        phase=phase,
        leader_epoch_floor=floor,
        topic_whitelist=["t"],
    )
    return ClusterImage(
        site="a",
        node_id=1,
        topics={"t": TopicImage(name="t", topic_id=bytes(16), configs={}, partitions={})},
        links={"a-b": link},
        confirmed_epochs={"a-b": link_epoch(link)} if confirmed else {},
    )


async def test_a_transaction_from_before_the_promotion_is_aborted() -> None:
    replicas: Any = OnePartition()
    markers: Any = Markers(replicas)
    hanging = HangingTransactions(replicas, markers)
    await hanging.on_image(image(confirmed=False), image())
    await eventually(lambda: markers.ended == [7])
    await hanging.stop()


@pytest.mark.parametrize(
    "after",
    [
        image(phase=LinkPhase.FENCED),
        image(active="b"),
        image(confirmed=False),
        image(floor=0),
        ClusterImage(site="a", node_id=1),
    ],
    ids=["fenced", "passive", "not confirmed", "never promoted", "without links"],
)
async def test_nothing_is_looked_for_where_clients_may_not_write_after_a_promotion(after: ClusterImage) -> None:
    """A site may have thousands of partitions, and writers wait for the images of a move."""
    replicas: Any = OnePartition()
    hanging = HangingTransactions(replicas, Markers(replicas))  # type: ignore[arg-type]
    await hanging.on_image(image(), after)
    assert replicas.looks == 0
    await hanging.stop()
