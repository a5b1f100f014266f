"""The proposals of in-sync replicas that the controller takes."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from controller.core import commands as ask
from tests.support.memory.site_model import SiteModel, topic_request
from wire.protocol.ids import TopicPartition

T0 = TopicPartition("t", 0)


@pytest.fixture
def model() -> SiteModel:
    site = SiteModel()
    site.alive(1, 2, 3)
    site.take_over()
    site.give(ask.CreateTopics(topics=(topic_request("t", 1, 3),)))
    return site


def test_a_shrunk_isr_is_taken_without_a_new_leader_epoch(model: SiteModel) -> None:
    before = model.cluster.leaderships[T0]
    assert model.propose(T0, (1, 2)).error is ErrorCode.none
    after = model.cluster.leaderships[T0]
    assert (after.isr, after.leader, after.leader_epoch) == ((1, 2), 1, before.leader_epoch)
    assert after.partition_epoch == before.partition_epoch + 1


def test_an_expanded_isr_keeps_the_order_of_the_replicas(model: SiteModel) -> None:
    model.propose(T0, (1,))
    assert model.propose(T0, (3, 1)).error is ErrorCode.none
    assert model.cluster.leaderships[T0].isr == (1, 3)


@pytest.mark.parametrize(
    ("lie", "error"),
    [
        ({"node_id": 2}, ErrorCode.fenced_leader_epoch),
        ({"leader_epoch": -1}, ErrorCode.fenced_leader_epoch),
        ({"leader_epoch": 9}, ErrorCode.unknown_leader_epoch),
        ({"partition_epoch": 7}, ErrorCode.invalid_update_version),
        ({"broker_epoch": 99}, ErrorCode.stale_broker_epoch),
        ({"topic_id": b"another topic..."}, ErrorCode.unknown_topic_or_partition),
        ({"isr": ((2, -1), (3, -1))}, ErrorCode.invalid_request),
        ({"isr": ((1, -1), (9, -1))}, ErrorCode.invalid_request),
        ({"isr": ((1, -1), (1, -1))}, ErrorCode.invalid_request),
        ({"isr": ()}, ErrorCode.invalid_request),
        ({"isr": ((1, -1), (2, 99))}, ErrorCode.ineligible_replica),
    ],
)
def test_a_proposal_that_does_not_fit_the_state_is_refused(
    model: SiteModel, lie: dict[str, Any], error: ErrorCode
) -> None:
    before = model.cluster.leaderships[T0]
    assert model.propose(T0, (1, 2), **lie).error is error
    assert model.cluster.leaderships[T0] == before


def test_a_repeated_request_finds_that_the_state_has_moved_on(model: SiteModel) -> None:
    known = model.cluster.leaderships[T0]
    assert model.propose(T0, (1, 2)).error is ErrorCode.none
    assert model.propose(T0, (1, 2), partition_epoch=known.partition_epoch).error is ErrorCode.invalid_update_version


def test_a_dead_replica_is_not_taken_in(model: SiteModel) -> None:
    model.give(ask.BrokersListed(brokers=model.alive(1, 2)))
    assert model.propose(T0, (1, 2, 3)).error is ErrorCode.ineligible_replica


def test_a_replica_that_is_about_to_stop_is_not_taken_in(model: SiteModel) -> None:
    model.give(ask.ControlledShutdown(node_id=3, broker_epoch=model.brokers[3].epoch))
    assert model.propose(T0, (1, 2, 3)).error is ErrorCode.ineligible_replica


def test_a_batch_is_answered_partition_by_partition(model: SiteModel) -> None:
    model.give(ask.CreateTopics(topics=(topic_request("u", 3, 3),)))
    led = [partition for partition, known in model.cluster.leaderships.items() if known.leader == 1]
    proposals = tuple(
        ask.IsrProposal(
            partition=partition,
            topic_id=model.cluster.topics[partition.topic].topic_id,
            leader_epoch=0,
            partition_epoch=0 if number else 5,
            isr=((1, -1),),
        )
        for number, partition in enumerate(led)
    )
    command = ask.AlterPartitions(node_id=1, broker_epoch=model.brokers[1].epoch, proposals=proposals)
    errors = [outcome.error for outcome in model.give(command).partitions]
    assert errors == [ErrorCode.invalid_update_version, *[ErrorCode.none] * (len(led) - 1)]
