"""A transaction's first batch in a partition, and markers that pass while its coordinator is asked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.core.group_messages import TopicPartition
from broker.core.verification_guards import VerificationGuards
from broker.hosted_partition import PartitionFailure
from broker.transaction_admission import QUESTIONS_MAX, Writer
from broker.transactional_produce import TransactionalProduce
from tests.support.log_batches import TRANSACTIONAL, batch
from wire.produce_codec import PartitionRecords, ProduceRequest, TopicRecords

ADDS_PARTITIONS = 12
PRODUCER_ID = 7
KEY = ("orders", 0)


class Hosted(SimpleNamespace):
    """A partition as the request sees it; equal to itself alone."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


class Coordinator:
    """Admits every partition; while it is asked, markers of the producer pass as often as it was told."""

    def __init__(self, guards: VerificationGuards, markers: int) -> None:
        self._guards = guards
        self.markers_left = markers
        self.questions = 0

    async def admit(
        self, _writer: Writer, partitions: Collection[TopicPartition], *, is_added: bool
    ) -> Mapping[TopicPartition, ErrorCode]:
        assert is_added
        self.questions += 1
        if self.markers_left:
            self.markers_left -= 1
            self._guards.withdraw(PRODUCER_ID)
        return dict.fromkeys(partitions, ErrorCode.none)


async def asked(markers: int) -> tuple[TransactionalProduce, Coordinator, Any]:
    producers = SimpleNamespace(is_in_transaction=lambda producer_id, epoch: False)
    hosted: Any = Hosted(key=KEY, guards=VerificationGuards(), log=SimpleNamespace(producers=producers))
    coordinator = Coordinator(hosted.guards, markers)
    services: Any = SimpleNamespace(
        image=SimpleNamespace(topic_names={}),
        replicas=SimpleNamespace(find=lambda topic, partition: hosted),
        transaction_admission=coordinator,
    )
    records = batch(producer_id=PRODUCER_ID, producer_epoch=1, sequence=0, attributes=TRANSACTIONAL)
    request = ProduceRequest("id", -1, 1000, [TopicRecords(KEY[0], None, [PartitionRecords(KEY[1], records)])])
    produce = TransactionalProduce(services, request, ADDS_PARTITIONS)
    assert produce.is_needed
    await produce.ask()
    return produce, coordinator, hosted


async def test_the_marker_of_the_transaction_before_does_not_refuse_the_next_one() -> None:
    produce, coordinator, hosted = await asked(markers=1)
    assert produce.may_begin(hosted)
    assert coordinator.questions == 2
    produce.end()
    assert not len(hosted.guards)


async def test_a_batch_that_no_marker_overtakes_is_asked_about_once() -> None:
    produce, coordinator, hosted = await asked(markers=0)
    assert produce.may_begin(hosted)
    assert coordinator.questions == 1


async def test_a_producer_whose_markers_never_end_is_told_to_retry() -> None:
    produce, coordinator, hosted = await asked(markers=QUESTIONS_MAX)
    with pytest.raises(PartitionFailure, match="concurrent_transactions") as failure:
        produce.may_begin(hosted)
    assert failure.value.code is ErrorCode.concurrent_transactions
    assert coordinator.questions == QUESTIONS_MAX
    produce.end()
    assert not len(hosted.guards)
