"""The classic consumer's watches over a ZooKeeper that loses a question."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss

from runtime.zookeeper import SessionState
from wire.clients.zookeeper_consumer import ZooKeeperConsumer, ZooKeeperConsumerOptions
from wire.consumer_znodes import ids_path
from wire.znodes import BROKER_IDS

GROUP = "g"


class LossyZooKeeper:
    """Has nothing; the nth question after children is lost, with the watch that it was to set."""

    state = SessionState.CONNECTED

    def __init__(self, lost: int) -> None:
        self.watched: dict[str, int] = {}
        self._lost = lost
        self._asked = 0

    async def children(self, path: str, *, watch: Any = None) -> list[str]:
        self._asked += 1
        if self._asked == self._lost:
            raise ConnectionLoss
        if watch is not None:
            self.watched[path] = self.watched.get(path, 0) + 1
        return []

    async def ensure_path(self, path: str) -> None:
        """It is there."""


@pytest.mark.parametrize("lost", range(4))
async def test_a_watch_whose_question_was_lost_is_set_by_the_next_attempt(lost: int) -> None:
    """HC-12, RB-04."""
    zookeeper = LossyZooKeeper(lost)
    options = ZooKeeperConsumerOptions(group_id=GROUP, rebalance_backoff_ms=0)
    consumer = ZooKeeperConsumer(zookeeper, options)  # type: ignore[arg-type]
    await consumer.rebalance()
    await consumer.rebalance()
    assert zookeeper.watched == {ids_path(GROUP): 1, BROKER_IDS: 1}
