"""Partitions on the way to other brokers."""

from __future__ import annotations

import contextlib

import pytest
from kio.schema.errors import ErrorCode

from controller.brokers.images import PendingChanges, TopicMessages
from controller.core import commands as ask
from controller.core.state.site_values import Replica, Topic
from tests.support.memory.site_model import Crashed, SiteModel, topic_request
from wire.control.broker_pb2 import RemovedReplicas
from wire.protocol.ids import TopicPartition

T0 = TopicPartition("t", 0)


@pytest.fixture
def model() -> SiteModel:
    site = SiteModel()
    site.alive(1, 2, 3, 4)
    site.take_over()
    site.give(ask.CreateTopics(topics=(topic_request("t", assignments=((0, (1, 2)),), partitions=-1, factor=-1),)))
    return site


def reassign(model: SiteModel, target: tuple[int, ...] | None, *, must_keep: bool = False) -> ErrorCode:
    command = ask.AlterReassignments(targets=((T0, target),), must_keep_replication_factor=must_keep)
    return model.give(command).partitions[0].error


def assignment(model: SiteModel) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    topic = model.cluster.topics["t"]
    return topic.assignment[0], topic.adding.get(0, ()), topic.removing.get(0, ())


def test_new_replicas_copy_before_old_ones_go(model: SiteModel) -> None:
    assert reassign(model, (3, 4)) is ErrorCode.none
    assert assignment(model) == ((3, 4, 1, 2), (3, 4), (1, 2))
    model.propose(T0, (1, 2, 3))
    assert assignment(model) == ((3, 4, 1, 2), (3, 4), (1, 2))
    model.propose(T0, (1, 2, 3, 4))
    assert assignment(model) == ((3, 4), (), ())
    known = model.cluster.leaderships[T0]
    assert (known.leader, known.isr) == (3, (3, 4))
    assert {replica.node for replica in model.cluster.replica_phases} == {3, 4}


def test_moves_that_fit_into_no_znode_are_refused_and_may_be_cancelled(
    model: SiteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = TopicPartition("u", 0)
    model.give(ask.CreateTopics(topics=(topic_request("u", assignments=((0, (1, 2)),), partitions=-1, factor=-1),)))
    assert reassign(model, (3, 4)) is ErrorCode.none
    monkeypatch.setattr("controller.core.topics.topic_checks.NODE_BYTES_MAX", 1)
    outcomes = model.give(ask.AlterReassignments(targets=((first, (3, 4)), (T0, None)))).partitions
    assert [(outcome.partition, outcome.error) for outcome in outcomes] == [
        (first, ErrorCode.invalid_replica_assignment),
        (T0, ErrorCode.none),
    ]
    assert "ZooKeeper keeps at most 1." in outcomes[0].message
    assert (assignment(model), model.cluster.topics["u"].assignment[0]) == (((1, 2), (), ()), (1, 2))


def test_a_leader_that_stays_leads_under_its_epoch_until_a_replica_goes(model: SiteModel) -> None:
    epoch = model.cluster.leaderships[T0].leader_epoch
    reassign(model, (3, 1))
    assert model.cluster.leaderships[T0].leader_epoch == epoch
    model.propose(T0, (1, 2, 3))
    known = model.cluster.leaderships[T0]
    assert (known.leader, known.leader_epoch, set(known.isr)) == (1, epoch + 1, {1, 3})


def test_nothing_said_under_the_epoch_of_a_former_replica_counts_when_the_broker_gets_it_back(model: SiteModel) -> None:
    reassign(model, (1, 3))
    for away in (
        None,
        (1, 4),
        (1, 2),
    ):  # cancelled, replaced by another move, and a move of its own that needs no copying
        former = model.cluster.leaderships[T0].leader_epoch
        reassign(model, away)
        assert 3 not in assignment(model)[0]
        reassign(model, (1, 3))
        assert 3 in assignment(model)[0]
        assert (model.cluster.leaderships[T0].leader, model.cluster.leaderships[T0].leader_epoch > former) == (1, True)


@pytest.mark.parametrize("steps", range(5))
@pytest.mark.parametrize("away", [None, (1, 4), (1, 2)])
def test_no_crash_leaves_a_replica_gone_and_the_leader_epoch_as_it_was(
    model: SiteModel, steps: int, away: tuple[int, ...] | None
) -> None:
    reassign(model, (1, 3))
    former = model.cluster.leaderships[T0].leader_epoch
    model.crash_after = model.commits + steps
    with contextlib.suppress(Crashed):
        reassign(model, away)
    model.crash_after = None
    model.take_over()
    assert 3 in assignment(model)[0] or model.cluster.leaderships[T0].leader_epoch > former


def test_another_order_or_fewer_replicas_need_no_copying(model: SiteModel) -> None:
    assert reassign(model, (2, 1)) is ErrorCode.none
    assert assignment(model) == ((2, 1), (), ())
    assert reassign(model, (2,)) is ErrorCode.none
    assert assignment(model) == ((2,), (), ())
    assert model.cluster.leaderships[T0].leader == 2


def test_a_cancelled_reassignment_goes_back(model: SiteModel) -> None:
    reassign(model, (3, 4))
    model.propose(T0, (1, 2, 3))
    assert reassign(model, None) is ErrorCode.none
    assert assignment(model) == ((1, 2), (), ())
    assert model.cluster.leaderships[T0].isr == (1, 2)
    assert Replica("t", 0, 3) not in model.cluster.replica_phases


def test_a_reassignment_may_be_replaced_by_another(model: SiteModel) -> None:
    reassign(model, (3, 2))
    reassign(model, (4, 2))
    assert assignment(model) == ((4, 2, 1), (4,), (1,))
    model.propose(T0, (1, 2, 4))
    assert assignment(model) == ((4, 2), (), ())


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ((), ErrorCode.invalid_replica_assignment),
        ((3, 3), ErrorCode.invalid_replica_assignment),
        ((3, 9), ErrorCode.invalid_replica_assignment),
        (None, ErrorCode.no_reassignment_in_progress),
    ],
)
def test_an_impossible_reassignment_is_refused(
    model: SiteModel, target: tuple[int, ...] | None, error: ErrorCode
) -> None:
    before = assignment(model)
    assert reassign(model, target) is error
    assert assignment(model) == before


def test_another_replication_factor_may_be_ruled_out(model: SiteModel) -> None:
    assert reassign(model, (2, 3, 4), must_keep=True) is ErrorCode.invalid_replication_factor
    assert reassign(model, (3, 4), must_keep=True) is ErrorCode.none


def test_unknown_partitions_and_topics_to_be_deleted_are_refused(model: SiteModel) -> None:
    command = ask.AlterReassignments(targets=((TopicPartition("t", 5), (1,)), (TopicPartition("u", 0), None)))
    errors = {outcome.error for outcome in model.give(command).partitions}
    assert errors == {ErrorCode.unknown_topic_or_partition}
    model.give(ask.DeleteTopics(names=("t",)))
    assert reassign(model, (3, 4)) is ErrorCode.unknown_topic_or_partition


def test_going_back_is_refused_when_only_new_replicas_are_in_sync(model: SiteModel) -> None:
    reassign(model, (3, 4))
    model.propose(T0, (1, 2, 3))
    model.give(ask.BrokersListed(brokers=model.alive(3, 4)))
    assert model.cluster.leaderships[T0].leader == 3
    assert reassign(model, None) is ErrorCode.invalid_replica_assignment


def test_another_target_is_refused_when_only_replicas_that_it_leaves_out_are_in_sync(model: SiteModel) -> None:
    reassign(model, (3, 4))
    model.propose(T0, (1, 2, 3))
    model.give(ask.BrokersListed(brokers=model.alive(3, 4)))
    model.give(ask.BrokersListed(brokers=model.alive(1, 3, 4)))
    assert model.cluster.leaderships[T0].isr == (3,)
    for target in ((1, 4), (4,)):
        assert reassign(model, target) is not ErrorCode.none
        assert (model.cluster.leaderships[T0].leader, model.cluster.leaderships[T0].isr) == (3, (3,))
        assert Replica("t", 0, 3) in model.cluster.replica_phases
    assert reassign(model, (1, 3)) is ErrorCode.none


def test_a_leader_that_dies_on_the_way_is_replaced_and_the_move_goes_on(model: SiteModel) -> None:
    reassign(model, (3, 4))
    model.give(ask.BrokersListed(brokers=model.alive(2, 3, 4)))
    assert model.cluster.leaderships[T0].leader == 2
    model.propose(T0, (2, 3, 4))
    assert assignment(model) == ((3, 4), (), ())


def test_a_controller_that_takes_over_completes_what_is_in_sync(model: SiteModel) -> None:
    reassign(model, (3, 4))
    model.crash_after = model.commits + 2
    with pytest.raises(Crashed):
        model.propose(T0, (1, 2, 3, 4))
    model.take_over()
    assert assignment(model) == ((3, 4), (), ())
    assert model.cluster.leaderships[T0].leader == 3


def test_a_move_is_complete_when_only_the_wanted_replica_is_left_and_may_lead(model: SiteModel) -> None:
    change = ask.ConfigChange(name="t", set_configs={"unclean.leader.election.enable": "true"})
    model.give(ask.AlterTopicConfigs(changes=(change,)))
    reassign(model, (3,))
    model.give(ask.BrokersListed(brokers=model.alive(3, 4)))
    assert model.cluster.leaderships[T0].isr == (3,)
    assert assignment(model) == ((3,), (), ())


def test_a_partition_without_a_leader_is_led_where_it_is_moved_to(model: SiteModel) -> None:
    topic = Topic(name="u", topic_id=bytes(16), assignment={0: (9,)})
    model.topics["u"] = topic
    model.give(ask.TopicsDiscovered(topics=(topic,)))
    partition = TopicPartition("u", 0)
    assert partition not in model.cluster.leaderships
    model.give(ask.AlterReassignments(targets=((partition, (3,)),), must_keep_replication_factor=True))
    assert (model.cluster.leaderships[partition].leader, model.cluster.leaderships[partition].isr) == (3, (3,))
    assert model.cluster.topics["u"].assignment[0] == (3,)


def test_a_topic_on_the_way_has_the_replication_factor_that_it_had(model: SiteModel) -> None:
    reassign(model, (3, 4))
    assert model.cluster.topics["t"].replication_factor == 2


def named(model: SiteModel, node_id: int, *, is_full: bool = True) -> list[RemovedReplicas]:
    """What the next batch names to the broker as removed."""
    pending = PendingChanges(is_full=is_full, partitions=set() if is_full else {T0})
    batch = pending.batch(model.cluster, node_id=node_id, broker_epoch=1, topics=TopicMessages())
    return list(batch.removed_replicas)


def removed(model: SiteModel, node_id: int, *, is_full: bool) -> list[tuple[bytes, list[int]]]:
    """The partitions of it."""
    return [(found.topic_id, list(found.partitions)) for found in named(model, node_id, is_full=is_full)]


@pytest.mark.parametrize("is_full", [True, False])
def test_a_removed_replica_is_named_to_its_broker_until_it_gets_the_partition_again(
    model: SiteModel, is_full: bool
) -> None:
    topic_id = model.topics["t"].topic_id
    (former,) = set(assignment(model)[0]) - {1}
    assert removed(model, former, is_full=is_full) == []
    reassign(model, (1,))
    assert removed(model, former, is_full=is_full) == [(topic_id, [0])]
    assert removed(model, 1, is_full=is_full) == []
    reassign(model, (1, former))
    assert removed(model, former, is_full=is_full) == []


def test_a_controller_that_loads_the_assignment_names_no_removal(model: SiteModel) -> None:
    """The data may come from a backup from before a later reassignment."""
    (former,) = set(assignment(model)[0]) - {1}
    reassign(model, (1,))
    model.take_over()
    assert removed(model, former, is_full=True) == []


def removed_while_away(model: SiteModel) -> int:
    """Move the partition away from its second broker, which is not registered; its node id."""
    (away,) = set(assignment(model)[0]) - {1}
    model.give(ask.BrokersListed(brokers=model.alive(*{1, 2, 3, 4} - {away})))
    reassign(model, (1,))
    return away


def test_a_removal_from_a_broker_that_is_away_is_named_by_each_later_controller(model: SiteModel) -> None:
    registered = max(broker.epoch for broker in model.brokers.values())
    away = removed_while_away(model)
    assert named(model, away)[0].registrations_zxid == 0
    for _ in range(2):
        model.take_over()
        (found,) = named(model, away)
        assert (found.topic_id, list(found.partitions)) == (model.topics["t"].topic_id, [0])
        # not older than the registration under which the broker had the replica, and older than the
        # next one
        model.give(ask.BrokersListed(brokers=model.alive(1, 2, 3, 4)))
        assert registered <= found.registrations_zxid < model.brokers[away].epoch


def test_a_stored_removal_ends_when_the_broker_gets_the_partition_again(model: SiteModel) -> None:
    away = removed_while_away(model)
    model.give(ask.BrokersListed(brokers=model.alive(1, 2, 3, 4)))
    reassign(model, (1, away))
    assert not model.topics["t"].removed_while_away
    model.propose(T0, (1, away))
    reassign(model, (1,))
    model.take_over()
    assert named(model, away) == []


def test_a_stored_removal_ends_with_a_later_reassignment_when_its_broker_is_back_or_unregistered(
    model: SiteModel,
) -> None:
    away = removed_while_away(model)
    reassign(model, (4,))
    assert list(model.topics["t"].removed_while_away[0]) == [away]
    model.propose(T0, (1, 4))
    model.give(ask.BrokersListed(brokers=model.alive(1, 2, 3, 4)))
    reassign(model, (1,))
    assert not model.topics["t"].removed_while_away


def test_a_removal_from_a_broker_that_is_only_presumed_dead_is_not_stored(model: SiteModel) -> None:
    """It may go on under its registration and get the partition again."""
    (away,) = set(assignment(model)[0]) - {1}
    model.give(ask.BrokerUnreachable(node_id=away, broker_epoch=model.brokers[away].epoch))
    reassign(model, (1,))
    assert not model.topics["t"].removed_while_away
    assert named(model, away)[0].registrations_zxid == 0


@pytest.mark.parametrize("stored", range(4))
def test_a_removal_is_stored_with_the_assignment_wherever_the_controller_dies(model: SiteModel, stored: int) -> None:
    (away,) = set(assignment(model)[0]) - {1}
    model.give(ask.BrokersListed(brokers=model.alive(*{1, 2, 3, 4} - {away})))
    model.crash_after = model.commits + stored
    with contextlib.suppress(Crashed):
        reassign(model, (1,))
    model.crash_after = None
    model.take_over()
    topic = model.topics["t"]
    is_removed = away not in topic.assignment[0]
    assert list(topic.removed_while_away.get(0, {})) == [away] * is_removed
    assert [list(found.partitions) for found in named(model, away)] == [[0]] * is_removed
