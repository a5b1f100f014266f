"""The messages to brokers and the stored states, without the connections that carry them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.brokers.images import PendingChanges, TopicMessages
from controller.config import ControllerSettings
from controller.core import commands as ask
from controller.core.decisions import Decision, Publish
from controller.core.state.cluster import Cluster
from controller.stored.multis import STEP_OVERHEAD_BYTES, split_steps
from runtime.configuration import ConfigurationError, load_settings
from runtime.zookeeper.nodes import CreateNode
from tests.support.memory.site_model import SiteModel, link_record, topic_request
from wire.control.cluster_pb2 import LinkPhase
from wire.protocol.ids import NO_NODE


def site_with_topics(*names: str) -> SiteModel:
    model = SiteModel()
    model.alive(1, 2)
    model.take_over()
    model.give(ask.CreateTopics(topics=tuple(topic_request(name, 2) for name in names)))
    return model


def publications(decision: Decision) -> Sequence[Publish]:
    return [effect for effect in decision.effects if isinstance(effect, Publish)]


def test_a_full_image_names_everything_but_topics_that_are_being_deleted() -> None:
    model = site_with_topics("t", "u")
    model.give(ask.LinksListed(links={"b-a": link_record(active="a")}))
    model.give(ask.DeleteTopics(names=("u",)))
    pending = PendingChanges()
    pending.add_image()
    batch = pending.batch(model.cluster, node_id=1, broker_epoch=7, topics=TopicMessages())
    assert (batch.is_full, batch.broker_epoch, batch.controller_epoch) == (True, 7, 1)
    assert [topic.name for topic in batch.topics] == ["t"]
    assert [deleted.name for deleted in batch.deleted_topics] == ["u"]
    assert [link.name for link in batch.links] == ["b-a"]
    assert [broker.node_id for broker in batch.brokers] == [1, 2]


def test_many_changes_of_a_partition_are_reported_once_in_their_present_state() -> None:
    model = site_with_topics("t")
    pending = PendingChanges()
    for nodes in ((1,), (1, 2), (1,), (1, 2)):
        decision = model.give(ask.BrokersListed(brokers=model.alive(*nodes)))
        for publish in publications(decision):
            pending.add(publish)
    batch = pending.batch(model.cluster, node_id=1, broker_epoch=1, topics=TopicMessages())
    (topic,) = batch.topics
    (state,) = topic.partitions
    assert (batch.is_full, state.partition, state.leader, state.leader_epoch) == (False, 1, 2, 4)


def test_an_image_built_for_one_broker_is_sent_to_the_next_until_the_cluster_changes() -> None:
    model, topics = site_with_topics("t"), TopicMessages()
    (partition, *_) = model.cluster.topics["t"].partitions()
    first = topics.about(model.cluster, model.cluster.topics["t"], (partition,))
    assert topics.about(model.cluster, model.cluster.topics["t"], (partition,)) is first
    model.give(ask.BrokersListed(brokers=model.alive(2)))
    (state,) = topics.about(model.cluster, model.cluster.topics["t"], (partition,)).partitions
    assert state.leader == NO_NODE
    assert len(topics.about(model.cluster, model.cluster.topics["t"], ()).partitions) == 0


def test_a_topic_deleted_and_created_again_before_the_report_is_reported_as_both() -> None:
    model = site_with_topics("t")
    pending = PendingChanges()
    first_id = model.cluster.topics["t"].topic_id
    for publish in publications(model.give(ask.DeleteTopics(names=("t",)))):
        pending.add(publish)
    model.answer_deletions()
    again = topic_request("t")
    for publish in publications(
        model.give(ask.CreateTopics(topics=(ask.TopicRequest(name="t", topic_id=bytes(16), partition_count=1),)))
    ):
        pending.add(publish)
    batch = pending.batch(model.cluster, node_id=1, broker_epoch=1, topics=TopicMessages())
    assert again.topic_id == first_id
    assert [deleted.topic_id for deleted in batch.deleted_topics] == [first_id]
    assert [topic.topic_id for topic in batch.topics] == [bytes(16)]


def test_a_raise_and_a_later_election_are_reported_together() -> None:
    """The raise names topics alone, and the partition's state has what came after it."""
    model, pending = site_with_topics("orders.x", "local"), PendingChanges()
    raised = {"b-a": link_record(active="a", epoch=2, floor=1 << 20)}
    for command in (ask.LinksListed(links=raised), ask.BrokersListed(brokers=model.alive(2))):
        for publish in publications(model.give(command)):
            pending.add(publish)
    batch = pending.batch(model.cluster, node_id=1, broker_epoch=1, topics=TopicMessages())
    assert [(one.floor, list(one.topics)) for one in batch.epoch_raises] == [(1 << 20, ["orders.x"])]
    states = {(topic.name, one.partition): one.leader_epoch for topic in batch.topics for one in topic.partitions}
    assert states == {("orders.x", 0): (1 << 20) + 1, ("local", 0): 1}
    pending.add_image()
    image = pending.batch(model.cluster, node_id=1, broker_epoch=1, topics=TopicMessages())
    assert not image.epoch_raises


@pytest.mark.parametrize(
    ("change", "raised"),
    [
        ({"phase": LinkPhase.FENCED}, []),
        ({"floor": 2 << 20}, ["orders.x"]),
        ({"topic_whitelist": ["orders.*", "local"]}, ["local"]),
        ({"topic_blacklist": []}, ["orders.y"]),
    ],
)
def test_topics_are_raised_where_a_link_changes_a_floor(
    change: dict[str, Any], raised: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fence changes none, so the controller looks at no partition while writers wait."""
    model = site_with_topics("orders.x", "orders.y", "local")
    known: dict[str, Any] = {"active": "a", "epoch": 2, "floor": 1 << 20, "topic_blacklist": [".*y"]}
    model.give(ask.LinksListed(links={"b-a": link_record(**known)}))
    looked_at: list[str] = []
    floor_of = Cluster.leader_epoch_floor

    def floor(cluster: Cluster, topic: str) -> int:
        looked_at.append(topic)
        return floor_of(cluster, topic)

    monkeypatch.setattr(Cluster, "leader_epoch_floor", floor)
    decision = model.give(ask.LinksListed(links={"b-a": link_record(**{**known, **change})}))
    assert [sorted(one.topics) for publish in publications(decision) for one in publish.raises] == [
        [topic] for topic in raised
    ]
    assert bool(looked_at) == bool(raised)


@given(sizes=st.lists(st.lists(st.integers(0, 400), max_size=4), max_size=15))
def test_steps_are_split_in_order_below_the_bound(sizes: list[list[int]]) -> None:
    groups = [
        [CreateNode(path=f"/{number}/{index}", value=bytes(size)) for index, size in enumerate(group)]
        for number, group in enumerate(sizes)
    ]
    chunks = list(split_steps(groups, bytes_max=1000))
    assert [step for chunk in chunks for step in chunk] == [step for group in groups for step in group]
    assert all(len(chunk) == 1 or _bytes_of(chunk) <= 1000 for chunk in chunks)
    for group in groups:
        # a group that fits is in one multi
        assert _bytes_of(group) > 1000 or sum(any(step in chunk for step in group) for chunk in chunks) <= 1


def _bytes_of(steps: Sequence[Any]) -> int:
    return sum(STEP_OVERHEAD_BYTES + len(step.path) + len(step.value) for step in steps)


def test_a_setting_out_of_range_is_named() -> None:
    given_ = {"node.id": "-1", "zookeeper.connect": "z:1", "antipode.site.name": "a", "antipode.site.number": "1"}
    with pytest.raises(ConfigurationError, match=r"node\.id"):
        load_settings(ControllerSettings, given_)
    settings = load_settings(ControllerSettings, {**given_, "node.id": "5"})
    assert (settings.rules().replication_factor_max, settings.first_producer_id) == (32_767, 1 << 40)
