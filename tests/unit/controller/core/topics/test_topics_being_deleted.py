"""No event at a site changes a topic that is being deleted: one test for each guard."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kio.schema.errors import ErrorCode

from controller.core import commands as ask
from controller.core.decisions import Decision, Publish
from controller.core.state import facts
from controller.core.state.replica_states import ReplicaPhase
from tests.support.memory.site_model import SiteModel, link_record, topic_request
from wire.protocol.ids import TopicPartition

DOOMED = TopicPartition("orders", 0)


@pytest.fixture
def model() -> SiteModel:
    """`orders` on brokers 1, 2 and 3 is being deleted; broker 3 has not answered, so that it cannot
    be complete.
    """
    model = SiteModel()
    model.alive(1, 2, 3, 4)
    model.take_over()
    model.give(ask.CreateTopics(topics=(topic_request("orders", 2, 3), topic_request("kept", 4, 2))))
    for partition in list(model.cluster.partition_phases):
        target = (1, 2, 3) if partition.topic == "orders" else (1, 2)
        model.give(ask.AlterReassignments(targets=((partition, target),)))
    model.catch_up()
    model.give(ask.ElectLeaders())
    model.give(ask.DeleteTopics(names=("orders",)))
    assert model.cluster.is_deleting("orders")
    return model


def take_orderly_stop(model: SiteModel) -> Decision:
    return model.give(ask.ControlledShutdown(node_id=1, broker_epoch=model.brokers[1].epoch))


def take_death(model: SiteModel) -> Decision:
    return model.give(ask.BrokersListed(brokers=model.alive(2, 3, 4)))


def take_return(model: SiteModel) -> Decision:
    model.give(ask.BrokersListed(brokers=model.alive(2, 3, 4)))
    return model.give(ask.BrokersListed(brokers=model.alive(1, 2, 3, 4)))


def take_refused_connection(model: SiteModel) -> Decision:
    return model.give(ask.BrokerUnreachable(node_id=1, broker_epoch=model.brokers[1].epoch))


def take_lost_directory(model: SiteModel) -> Decision:
    lost = frozenset({DOOMED, TopicPartition("kept", 0)})
    return model.give(ask.ReplicasOffline(node_id=1, broker_epoch=model.brokers[1].epoch, partitions=lost))


def take_balance(model: SiteModel) -> Decision:
    return model.give(ask.BalanceLeaders(imbalance_percentage=0))


def take_elections_of_all(model: SiteModel) -> Decision:
    return model.give(ask.ElectLeaders())


def take_unclean_permission(model: SiteModel) -> Decision:
    return model.give(ask.UncleanElectionRead(is_allowed=True))


def take_floor(model: SiteModel) -> Decision:
    return model.give(ask.LinksListed(links={"b-a": link_record(active="a", floor=1 << 20)}))


def take_new_controller(model: SiteModel) -> Decision:
    model.machine = None
    model.alive(2, 3, 4)
    return model.take_over()


def take_configs_of_another_tool(model: SiteModel) -> Decision:
    return model.give(ask.TopicConfigsRead(topic="orders", configs={"unclean.leader.election.enable": "true"}))


EVENTS = [
    take_orderly_stop,
    take_death,
    take_return,
    take_refused_connection,
    take_lost_directory,
    take_balance,
    take_elections_of_all,
    take_unclean_permission,
    take_floor,
    take_new_controller,
    take_configs_of_another_tool,
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_an_event_neither_elects_nor_moves_nor_publishes_it(
    event: Callable[[SiteModel], Decision], model: SiteModel
) -> None:
    leadership = model.leaderships[DOOMED]
    decision = event(model)
    for change in decision.facts:
        match change:
            case facts.LeadershipChanged(partition=partition):
                assert partition.topic != "orders"
            case facts.PartitionsReassigned(topic=topic) | facts.PartitionsAdded(topic=topic):
                assert topic != "orders"
            case facts.ReplicaMoved(replica=replica, phase=phase) if replica.topic == "orders":
                assert phase not in (ReplicaPhase.NEW, ReplicaPhase.ONLINE)
            case _:
                pass
    for effect in decision.effects:
        if isinstance(effect, Publish):
            assert "orders" not in effect.topics
            assert all(partition.topic != "orders" for partition in effect.partitions)
    assert model.leaderships[DOOMED] == leadership
    assert model.cluster.is_deleting("orders")


def test_growth_is_refused(model: SiteModel) -> None:
    decision = model.give(ask.CreatePartitions(topics=(ask.GrowthRequest(name="orders", total_count=9),)))
    assert decision.reply[0].error is ErrorCode.unknown_topic_or_partition
    assert not decision.facts


def test_configs_are_refused(model: SiteModel) -> None:
    change = ask.ConfigChange(name="orders", set_configs={"retention.ms": "1"})
    decision = model.give(ask.AlterTopicConfigs(changes=(change,)))
    assert decision.reply[0].error is ErrorCode.unknown_topic_or_partition
    assert not decision.facts


def test_partitions_that_another_tool_adds_are_not_taken(model: SiteModel) -> None:
    version = model.cluster.topics["orders"].version + 1
    decision = model.give(
        ask.PartitionsFound(topic="orders", assignment={0: (1, 2, 3), 1: (1, 2, 3), 2: (1, 2, 3)}, version=version)
    )
    assert all(not isinstance(change, facts.PartitionsAdded | facts.LeadershipChanged) for change in decision.facts)


@pytest.mark.parametrize("target", [(4, 2, 3), None], ids=["begin", "cancel"])
def test_a_reassignment_is_refused(target: tuple[int, ...] | None, model: SiteModel) -> None:
    decision = model.give(ask.AlterReassignments(targets=((DOOMED, target),)))
    assert decision.partitions[0].error is ErrorCode.unknown_topic_or_partition
    assert not decision.facts


@pytest.mark.parametrize("is_unclean", [False, True])
def test_an_election_that_names_it_is_refused(is_unclean: bool, model: SiteModel) -> None:
    decision = model.give(ask.ElectLeaders(partitions=(DOOMED,), is_unclean=is_unclean))
    assert decision.partitions[0].error is ErrorCode.unknown_topic_or_partition
    assert not decision.facts


def test_in_sync_replicas_are_not_proposed(model: SiteModel) -> None:
    outcome = model.propose(DOOMED, (1,))
    assert outcome.error is not ErrorCode.none
    assert model.leaderships[DOOMED].isr == model.cluster.leaderships[DOOMED].isr


def test_a_deletion_ends_the_reassignment_of_its_topic_and_asks_old_and_new_replicas() -> None:
    model = SiteModel()
    model.alive(1, 2, 3)
    model.take_over()
    model.give(ask.CreateTopics(topics=(topic_request("orders", 1, 2),)))
    old = model.cluster.replicas_of(DOOMED)
    (new,) = {1, 2, 3} - set(old)
    model.give(ask.AlterReassignments(targets=((DOOMED, (new,)),)))
    model.give(ask.DeleteTopics(names=("orders",)))
    asked = {
        replica.node
        for replica, phase in model.cluster.replica_phases.items()
        if phase is ReplicaPhase.DELETION_STARTED
    }
    assert asked == {1, 2, 3}
    model.answer_deletions()
    assert "orders" not in model.cluster.topics
    assert "orders" not in model.topics
