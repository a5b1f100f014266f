"""Leadership changes without a failure, and brokers that are only presumed dead."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from controller.core import commands as ask
from controller.core.decisions import Decision
from tests.support.memory.site_model import SiteModel, topic_request
from wire.protocol.ids import TopicPartition

PARTITIONS = [TopicPartition("t", index) for index in range(3)]


@pytest.fixture
def model() -> SiteModel:
    site = SiteModel()
    site.alive(1, 2, 3)
    site.take_over()
    site.give(ask.CreateTopics(topics=(topic_request("t", 3, 3),)))
    return site


def leaders(model: SiteModel) -> list[int]:
    return [model.cluster.leaderships[partition].leader for partition in PARTITIONS]


def led_by(model: SiteModel, node: int) -> TopicPartition:
    return next(partition for partition in PARTITIONS if model.cluster.leaderships[partition].leader == node)


def shut_down(model: SiteModel, node: int) -> Decision:
    return model.give(ask.ControlledShutdown(node_id=node, broker_epoch=model.brokers[node].epoch))


def test_a_broker_that_is_about_to_stop_leads_nothing_and_is_in_no_isr(model: SiteModel) -> None:
    decision = shut_down(model, 1)
    assert (decision.error, decision.partitions) == (ErrorCode.none, ())
    assert 1 not in leaders(model)
    assert all(1 not in model.cluster.leaderships[partition].isr for partition in PARTITIONS)


def test_a_stop_asked_for_twice_changes_nothing_more(model: SiteModel) -> None:
    shut_down(model, 1)
    assert shut_down(model, 1).facts == ()


def test_a_partition_without_another_replica_in_sync_stays_and_is_reported(model: SiteModel) -> None:
    partition = led_by(model, 1)
    model.propose(partition, (1,))
    decision = shut_down(model, 1)
    assert [outcome.partition for outcome in decision.partitions] == [partition]
    assert model.cluster.leaderships[partition].leader == 1


def test_a_stop_asked_for_by_an_older_registration_is_refused(model: SiteModel) -> None:
    command = ask.ControlledShutdown(node_id=1, broker_epoch=model.brokers[1].epoch - 1)
    assert model.give(command).error is ErrorCode.stale_broker_epoch
    assert not model.cluster.leaving


def test_the_last_two_brokers_may_stop_one_after_the_other(model: SiteModel) -> None:
    shut_down(model, 1)
    shut_down(model, 2)
    assert leaders(model) == [3, 3, 3]
    assert len(shut_down(model, 3).partitions) == 3


def test_a_broker_that_came_back_is_elected_again(model: SiteModel) -> None:
    shut_down(model, 1)
    model.give(ask.BrokersListed(brokers=model.alive(2, 3)))
    model.give(ask.BrokersListed(brokers=model.alive(1, 2, 3)))
    assert not model.cluster.leaving
    model.catch_up()
    outcomes = model.give(ask.ElectLeaders()).partitions
    assert [outcome.error for outcome in outcomes] == [ErrorCode.none]
    assert sorted(leaders(model)) == [1, 2, 3]


def test_a_preferred_election_answers_for_each_partition(model: SiteModel) -> None:
    asked = (led_by(model, 1), led_by(model, 2), TopicPartition("none", 0))
    model.give(ask.BrokersListed(brokers=model.alive(2, 3)))
    found = [outcome.error for outcome in model.give(ask.ElectLeaders(partitions=asked)).partitions]
    assert found == [
        ErrorCode.preferred_leader_not_available,
        ErrorCode.election_not_needed,
        ErrorCode.unknown_topic_or_partition,
    ]


def test_an_unclean_election_takes_place_only_without_a_leader(model: SiteModel) -> None:
    partition = led_by(model, 1)
    model.propose(partition, (1,))
    asked = ask.ElectLeaders(partitions=(partition,), is_unclean=True)
    assert model.give(asked).partitions[0].error is ErrorCode.election_not_needed
    model.give(ask.BrokersListed(brokers=model.alive(2, 3)))
    assert model.cluster.leaderships[partition].leader == -1
    assert model.give(asked).partitions[0].error is ErrorCode.none
    known = model.cluster.leaderships[partition]
    assert known.leader in (2, 3)
    assert known.isr == (known.leader,)


def test_leaders_go_back_when_too_many_are_elsewhere(model: SiteModel) -> None:
    before = leaders(model)
    model.give(ask.BrokersListed(brokers=model.alive(2, 3)))
    model.give(ask.BrokersListed(brokers=model.alive(1, 2, 3)))
    model.give(ask.BalanceLeaders(imbalance_percentage=10))
    assert leaders(model) != before, "a preferred replica out of sync may not lead"
    model.catch_up()
    model.give(ask.BalanceLeaders(imbalance_percentage=100))
    assert leaders(model) != before
    model.give(ask.BalanceLeaders(imbalance_percentage=10))
    assert leaders(model) == before


def test_a_broker_held_for_dead_is_replaced_and_taken_back_when_it_answers(model: SiteModel) -> None:
    broker = model.brokers[1]
    model.give(ask.BrokerUnreachable(node_id=1, broker_epoch=broker.epoch))
    assert 1 not in leaders(model)
    assert 1 not in model.cluster.brokers
    model.give(ask.BrokersListed(brokers=dict(model.brokers)))
    assert 1 not in model.cluster.brokers, "its registration stands, which proves nothing"
    model.give(ask.BrokerAnswered(node_id=1, broker_epoch=broker.epoch))
    assert model.cluster.brokers[1] == broker
    model.catch_up()
    assert all(1 in model.cluster.leaderships[partition].isr for partition in PARTITIONS)


def test_a_broker_held_for_dead_that_registers_again_is_a_new_one(model: SiteModel) -> None:
    model.give(ask.BrokerUnreachable(node_id=1, broker_epoch=model.brokers[1].epoch))
    former = model.brokers[1].epoch
    model.alive(2, 3)
    model.give(ask.BrokersListed(brokers=model.alive(1, 2, 3)))
    assert model.cluster.brokers[1].epoch > former
    assert not model.cluster.presumed_dead
    model.give(ask.BrokerAnswered(node_id=1, broker_epoch=former))
    assert model.cluster.brokers[1].epoch > former


def test_news_of_an_older_registration_count_for_nothing(model: SiteModel) -> None:
    before = leaders(model)
    decision = model.give(ask.BrokerUnreachable(node_id=1, broker_epoch=model.brokers[1].epoch - 1))
    assert decision.facts == ()
    assert leaders(model) == before


def test_a_partition_whose_last_in_sync_replica_is_held_for_dead_waits_for_it(model: SiteModel) -> None:
    partition = led_by(model, 1)
    model.propose(partition, (1,))
    epoch = model.brokers[1].epoch
    model.give(ask.BrokerUnreachable(node_id=1, broker_epoch=epoch))
    assert model.cluster.leaderships[partition].leader == -1
    assert model.cluster.leaderships[partition].isr == (1,)
    model.give(ask.BrokerAnswered(node_id=1, broker_epoch=epoch))
    assert model.cluster.leaderships[partition].leader == 1


def test_an_unclean_election_waits_until_a_death_is_certain(model: SiteModel) -> None:
    partition = led_by(model, 1)
    change = ask.ConfigChange(name="t", set_configs={"unclean.leader.election.enable": "true"})
    model.give(ask.AlterTopicConfigs(changes=(change,)))
    model.propose(partition, (1,))
    model.give(ask.BrokerUnreachable(node_id=1, broker_epoch=model.brokers[1].epoch))
    assert model.cluster.leaderships[partition].leader == -1
    model.give(ask.BrokersListed(brokers=model.alive(2, 3)))
    known = model.cluster.leaderships[partition]
    assert known.leader in (2, 3)
    assert known.isr == (known.leader,)


def test_no_leader_goes_back_while_any_partition_is_reassigned(model: SiteModel) -> None:
    before = leaders(model)
    model.give(ask.BrokersListed(brokers=model.alive(2, 3)))
    model.give(ask.BrokersListed(brokers=model.alive(1, 2, 3, 4)))
    model.catch_up()
    elsewhere = leaders(model)
    partition = max(model.cluster.partition_phases)
    model.give(ask.AlterReassignments(targets=((partition, (*model.cluster.replicas_of(partition), 4)),)))
    decision = model.give(ask.BalanceLeaders(imbalance_percentage=10))
    assert leaders(model) == elsewhere
    assert not decision.facts
    model.give(ask.AlterReassignments(targets=((partition, None),)))
    model.give(ask.BalanceLeaders(imbalance_percentage=10))
    assert leaders(model) == before


def test_three_brokers_that_fail_one_after_the_other_leave_all_leaders_with_the_last_until_the_balance() -> None:
    """The published story: leaders 1, 2, 3; broker 1 dies, then broker 2; both return."""
    model = SiteModel()
    model.alive(1, 2, 3)
    model.take_over()
    assignments = tuple((index, (*range(index + 1, 4), *range(1, index + 1))) for index in range(3))
    model.give(ask.CreateTopics(topics=(topic_request("t", -1, -1, assignments=assignments),)))
    assert leaders(model) == [1, 2, 3]
    model.give(ask.BrokersListed(brokers=model.alive(2, 3)))
    assert leaders(model) == [2, 2, 3]
    model.give(ask.BrokersListed(brokers=model.alive(3)))
    assert leaders(model) == [3, 3, 3]
    model.give(ask.BrokersListed(brokers=model.alive(1, 2, 3)))
    model.catch_up()
    assert leaders(model) == [3, 3, 3]
    model.give(ask.BalanceLeaders(imbalance_percentage=10))
    assert leaders(model) == [1, 2, 3]
