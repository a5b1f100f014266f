"""A newly elected controller finds brokers that have restarted without a controller."""

from __future__ import annotations

from contextlib import suppress

from controller.core import commands as ask
from controller.core.decisions import PublishImage
from tests.support.memory.site_model import Crashed, SiteModel, topic_request
from wire.protocol.ids import NO_NODE, TopicPartition

T0 = TopicPartition("t", 0)


def site(*, factor: int = 3) -> SiteModel:
    """A topic on the first `factor` of three brokers, led by broker 1; its controller has just
    died.
    """
    model = SiteModel()
    model.alive(1, 2, 3)
    model.take_over()
    model.give(ask.CreateTopics(topics=(topic_request("t", 1, factor),)))
    assert model.leaderships[T0].leader == 1
    model.machine = None
    return model


def restart(model: SiteModel, *nodes: int) -> None:
    model.alive(*({1, 2, 3} - set(nodes)))
    model.alive(1, 2, 3)


def test_a_leader_that_has_restarted_is_replaced_by_one_that_stayed() -> None:
    model = site()
    restart(model, 1)
    model.take_over()
    assert model.leaderships[T0].leader == 2
    assert model.leaderships[T0].isr == (2, 3)


def test_a_follower_that_has_restarted_leaves_the_in_sync_replicas() -> None:
    model = site()
    before = model.leaderships[T0]
    restart(model, 3)
    model.take_over()
    assert model.leaderships[T0].isr == (1, 2)
    assert model.leaderships[T0].leader_epoch == before.leader_epoch


def test_where_all_have_restarted_the_new_leader_alone_is_in_sync() -> None:
    model = site()
    before = model.leaderships[T0]
    restart(model, 1, 2, 3)
    model.take_over()
    assert model.leaderships[T0].leader == 1
    assert model.leaderships[T0].isr == (1,)
    assert model.leaderships[T0].leader_epoch == before.leader_epoch + 1


def test_where_all_have_restarted_the_leader_is_one_that_can_be_reached() -> None:
    model = site()
    restart(model, 1, 2, 3)
    model.take_over(unreachable=frozenset({1}))
    assert model.leaderships[T0].leader == 2
    assert model.leaderships[T0].isr == (2,)


def test_one_that_has_restarted_beside_the_leader_does_not_lead_before_it_has_caught_up() -> None:
    model = site()
    restart(model, 1, 2, 3)
    model.take_over()
    model.give(ask.BrokersListed(brokers=model.alive(2, 3)))
    assert model.leaderships[T0].leader == NO_NODE
    assert model.leaderships[T0].isr == (1,)
    model.give(ask.BrokersListed(brokers=model.alive(1, 2, 3)))
    assert model.leaderships[T0].leader == 1


def test_a_broker_that_died_does_not_replace_a_restarted_leader() -> None:
    model = site(factor=2)
    restart(model, 1)
    model.alive(1, 3)
    model.take_over()
    assert model.leaderships[T0].leader == 1


def test_a_take_over_that_is_interrupted_between_two_writes_does_not_leave_a_restarted_leader_in_office() -> None:
    for written in range(1, 3):
        model = site()
        restart(model, 1)
        model.crash_after = model.commits + written
        with suppress(Crashed):
            model.take_over()
        model.crash_after = None
        model.take_over()
        assert model.leaderships[T0].leader == 2
        assert model.leaderships[T0].isr == (2, 3)


def test_an_unreachable_broker_loses_its_leaderships_in_the_decision_that_takes_over() -> None:
    model = site()
    before = model.leaderships[T0]
    decision = model.take_over(unreachable=frozenset({1}))
    assert model.leaderships[T0].leader == 2
    assert model.leaderships[T0].isr == (2, 3)
    assert model.leaderships[T0].leader_epoch == before.leader_epoch + 1
    assert model.cluster.presumed_dead.keys() == {1}
    (image, *_) = decision.effects
    assert image == PublishImage(node_ids=(2, 3))


def test_a_broker_wrongly_presumed_dead_at_a_take_over_is_taken_back() -> None:
    model = site()
    model.take_over(unreachable=frozenset({1}))
    model.give(ask.BrokerAnswered(node_id=1, broker_epoch=model.brokers[1].epoch))
    assert model.cluster.brokers.keys() == {1, 2, 3}
    assert model.leaderships[T0].leader == 2


def test_a_restarted_and_unreachable_broker_does_not_lead() -> None:
    model = site()
    restart(model, 1)
    model.take_over(unreachable=frozenset({1}))
    assert model.leaderships[T0].leader == 2
    assert model.leaderships[T0].isr == (2, 3)


def test_for_one_that_stayed_and_is_only_held_for_dead_the_partition_waits() -> None:
    model = site(factor=2)
    restart(model, 1)
    model.take_over(unreachable=frozenset({2}))
    assert model.leaderships[T0].leader == NO_NODE
    assert model.leaderships[T0].isr == (2,)
    model.give(ask.BrokerAnswered(node_id=2, broker_epoch=model.brokers[2].epoch))
    assert model.leaderships[T0].leader == 2


def test_one_that_stayed_is_preferred_to_one_that_has_restarted_when_the_leader_is_unreachable() -> None:
    model = site()
    restart(model, 2)
    model.take_over(unreachable=frozenset({1}))
    assert model.leaderships[T0].leader == 3
    assert model.leaderships[T0].isr == (3,)
