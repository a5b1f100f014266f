"""A stored partition state says which registrations its writer knew."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from controller.core import commands as ask
from controller.core.state import facts
from controller.core.state.site_values import Leadership
from controller.stored.cluster_reader import _leadership
from controller.stored.cluster_writer import ClusterWriter
from runtime.zookeeper.nodes import NodeStat, SetNode
from tests.support.memory.site_model import SiteModel, topic_request
from wire.protocol.ids import TopicPartition
from wire.znodes.topic_znodes import StoredPartitionState, encode_partition_state

T0 = TopicPartition("t", 0)
MOVED = Leadership(leader=1, leader_epoch=1, isr=(1, 2), controller_epoch=1, partition_epoch=1)


class Transactions:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.steps: list[Any] = []

    async def transaction(self, steps: Sequence[Any]) -> None:
        self.steps += steps


def stat(mzxid: int) -> NodeStat:
    return SimpleNamespace(version=1, mzxid=mzxid)  # type: ignore[return-value]


async def test_a_write_after_an_unknown_registration_does_not_make_that_broker_one_that_stayed() -> None:
    """A controller that gets nothing from ZooKeeper may still write: its write is younger than a
    registration that it does not know, and the next controller must not trust that broker.
    """
    model = SiteModel()
    model.alive(1, 2)
    model.take_over()
    model.give(ask.CreateTopics(topics=(topic_request("t", 1, 2),)))
    known = max(broker.epoch for broker in model.cluster.brokers.values())
    zookeeper: Any = Transactions()
    tenure: Any = SimpleNamespace(epoch_version=1)
    change = facts.LeadershipChanged(partition=T0, leadership=MOVED)
    await ClusterWriter(zookeeper, tenure).commit([change], before=model.cluster)
    (written,) = [step for step in zookeeper.steps if isinstance(step, SetNode)]
    assert json.loads(written.value)["registrations_zxid"] == known
    assert _leadership(T0, written.value, stat(known + 10)).known_zxid == known


def test_a_state_of_an_older_controller_counts_from_its_write() -> None:
    state = StoredPartitionState(leader=1, leader_epoch=0, isr=(1,), controller_epoch=1)
    assert _leadership(T0, encode_partition_state(state), stat(77)).known_zxid == 77
