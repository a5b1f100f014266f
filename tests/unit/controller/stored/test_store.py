"""Stored partition states and raises of leader epochs: what the next controller makes of them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from controller.brokers.images import broker_info
from controller.core import commands as ask
from controller.core.state import facts
from controller.core.state.site_values import Leadership
from controller.stored.cluster_reader import ClusterReader, _leadership
from controller.stored.cluster_writer import ClusterWriter
from runtime.zookeeper.nodes import CreateNode, NodeStat, SetNode
from tests.support.memory.site_model import SiteModel, link_record, topic_request
from wire.protocol.ids import TopicPartition
from wire.znodes.broker_znodes import BrokerRegistration, encode_broker
from wire.znodes.controller_znodes import EPOCH_RAISES, decode_epoch_raise
from wire.znodes.documents import MalformedZnode
from wire.znodes.topic_znodes import StoredPartitionState, encode_partition_state

T0 = TopicPartition("t", 0)
MOVED = Leadership(leader=1, leader_epoch=1, isr=(1, 2), controller_epoch=1, partition_epoch=1)


class Transactions:
    """Keeps what is written; nothing is there before."""

    def __init__(self) -> None:
        self.steps: list[Any] = []

    async def exists(self, path: str) -> None:
        assert path.startswith(EPOCH_RAISES)

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


async def test_a_registration_under_a_number_that_no_broker_has_stops_no_controller() -> None:
    """No image has room for the number: the brokers would get none."""

    class Registrations:
        async def children_and_stat(self, _path: str, **_: Any) -> tuple[list[str], Any]:
            return ["1", str(2**31)], SimpleNamespace(children_zxid=8)

        async def get(self, path: str, **_: Any) -> tuple[bytes, Any]:
            node_id = int(path.rpartition("/")[2])
            registration = BrokerRegistration(node_id=node_id, endpoints=(), grpc_address="h:1")
            return encode_broker(registration), SimpleNamespace(version=0, czxid=7, mzxid=7)

    zookeeper: Any = Registrations()
    brokers, _ = await ClusterReader(zookeeper).brokers()
    assert [broker_info(broker).node_id for broker in brokers.values()] == [1]


async def test_a_raise_is_one_node_that_every_controller_applies_to_the_states_that_it_loads() -> None:
    model = SiteModel()
    model.alive(1, 2)
    model.take_over()
    model.give(ask.CreateTopics(topics=(topic_request("orders.x", 3, 2),)))
    model.links = {"b-a": link_record(active="a", epoch=2, floor=1 << 20)}
    decision = model.give(ask.LinksListed(links=model.links))
    zookeeper: Any = Transactions()
    tenure: Any = SimpleNamespace(epoch_version=1)
    await ClusterWriter(zookeeper, tenure).commit(decision.facts, before=model.cluster)
    (written,) = [step for step in zookeeper.steps if isinstance(step, CreateNode | SetNode)]
    name = written.path.removeprefix(f"{EPOCH_RAISES}/")
    assert decode_epoch_raise(name, written.value) == (1 << 20, frozenset({"orders.x"}))
    assert {known.leader_epoch for known in model.leaderships.values()} == {0}
    model.take_over()
    assert {known.leader_epoch for known in model.cluster.leaderships.values()} == {1 << 20}
    assert not any(known.is_stored for known in model.cluster.leaderships.values())


@pytest.mark.parametrize("payload", [b"", b"{}", zlib.compress(b"{}"), zlib.compress(b'{"floor":1,"topics":[2]}')])
def test_a_raise_that_cannot_be_decoded_is_named(payload: bytes) -> None:
    with pytest.raises(MalformedZnode, match="/antipode/epoch_raises/1-0"):
        decode_epoch_raise("1-0", payload)


def test_the_names_of_many_topics_are_split_into_several_raises() -> None:
    model = SiteModel()
    model.alive(1)
    model.take_over()
    names = [f"orders.{index:05}.{'x' * 200}" for index in range(2_000)]
    model.give(ask.CreateTopics(topics=tuple(topic_request(name) for name in names)))
    decision = model.give(ask.LinksListed(links={"b-a": link_record(active="a", epoch=2, floor=1 << 20)}))
    raises = [fact.epoch_raise for fact in decision.facts if isinstance(fact, facts.LeaderEpochsRaised)]
    assert len(raises) == 2
    assert {name for one in raises for name in one.topics} == set(names)
    assert {known.leader_epoch for known in model.cluster.leaderships.values()} == {1 << 20}
