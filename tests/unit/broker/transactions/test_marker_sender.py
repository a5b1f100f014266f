"""Which partitions of a decided transaction need no marker any more."""

from __future__ import annotations

import asyncio
from typing import Any

from broker.metadata.core.cluster_image import ClusterImage
from broker.transactions.core.transaction_states import Transaction, TransactionState
from broker.transactions.marker_sender import MarkerSender
from tests.support.eventually import eventually
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
