"""A producer's next transaction may be asked about while the marker of its last one is still on its
way to the partition.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.groups.core.group_messages import PartitionsReply
from broker.handlers.records.transactional_produce import TransactionalProduce
from broker.handlers.transactions import txn_offset_commit
from broker.log.core.producer_values import PrecedingBatchPending
from broker.replication.core.verification_guards import VerificationGuards
from broker.replication.hosted_partition import PartitionFailure
from broker.transactions.transaction_admission import QUESTIONS_MAX
from tests.support.disks.logs_on_disk import NOW_MS, append, open_log, read_all
from wire.batches.records import Record, encode_batch
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity
from wire.protocol.ids import TopicPartition
from wire.protocol.messages.produce_codec import PartitionRecords, ProduceRequest, TopicRecords

PRODUCER_ID = 7
TRANSACTIONAL = 0x10
ADDING_PRODUCE_VERSION = 12
ADDING_COMMIT_VERSION = 5


class OvertakenAdmission:
    """Admits everything; markers of the producer pass during the first questions."""

    def __init__(self, guards: VerificationGuards, overtaken: int) -> None:
        self._guards = guards
        self._overtaken = overtaken
        self.questions = 0

    async def admit(self, writer: Any, partitions: Any, *, is_added: bool) -> dict[TopicPartition, ErrorCode]:
        assert is_added
        self.questions += 1
        if self.questions <= self._overtaken:
            self._guards.withdraw(writer.producer_id)
        return dict.fromkeys(partitions, ErrorCode.none)


@pytest.mark.parametrize("overtaken", [0, 1, QUESTIONS_MAX])
async def test_a_write_whose_question_a_marker_overtook_is_asked_about_again(overtaken: int) -> None:
    guards = VerificationGuards()
    producers = SimpleNamespace(is_in_transaction=lambda producer_id, epoch: False, note_refused=lambda header: None)
    hosted: Any = _Hosted(guards=guards, log=SimpleNamespace(producers=producers), key=("t", 0))
    admission = OvertakenAdmission(guards, overtaken)
    doors: Any = SimpleNamespace(
        cluster=SimpleNamespace(image=SimpleNamespace(topic_names={})),
        replicas=SimpleNamespace(find=lambda topic, partition: hosted),
        transaction_admission=admission,
    )
    batch = _batch(0)
    produce = TransactionalProduce(doors, _request(batch), ADDING_PRODUCE_VERSION)
    assert produce.is_needed
    await produce.ask()
    if overtaken < QUESTIONS_MAX:
        assert produce.may_begin(hosted, batch)
    else:
        with pytest.raises(PartitionFailure, match="concurrent_transactions"):
            produce.may_begin(hosted, batch)
    assert admission.questions == min(overtaken + 1, QUESTIONS_MAX)
    produce.end()
    assert not len(guards)


async def test_a_batch_is_not_appended_before_one_that_was_sent_earlier_and_not_admitted(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    hosted: Any = _Hosted(guards=VerificationGuards(), log=log, key=("t", 0))
    outcomes = iter([ErrorCode.concurrent_transactions, ErrorCode.none, ErrorCode.none])

    async def admit(writer: Any, partitions: Any, *, is_added: bool) -> dict[TopicPartition, ErrorCode]:
        return dict.fromkeys(partitions, next(outcomes))

    doors: Any = SimpleNamespace(
        cluster=SimpleNamespace(image=SimpleNamespace(topic_names={})),
        replicas=SimpleNamespace(find=lambda topic, partition: hosted),
        transaction_admission=SimpleNamespace(admit=admit),
    )

    async def produce(sequence: int) -> None:
        batch = _batch(sequence)
        produce = TransactionalProduce(doors, _request(batch), ADDING_PRODUCE_VERSION)
        await produce.ask()
        append(log, batch, may_begin_transaction=produce.may_begin(hosted, batch))

    with pytest.raises(PartitionFailure, match="concurrent_transactions"):
        await produce(0)
    with pytest.raises(PrecedingBatchPending):
        await produce(1)
    await produce(0)
    await produce(1)
    assert [header.base_sequence for header in read_all(log)] == [0, 1]


@pytest.mark.parametrize("overtaken", [0, 1, QUESTIONS_MAX])
async def test_offsets_whose_question_a_marker_overtook_are_asked_about_again(overtaken: int) -> None:
    guards = VerificationGuards()
    shard = SimpleNamespace(guards=guards, has_transaction=lambda producer_id, epoch: False)
    admission = OvertakenAdmission(guards, overtaken)
    committed: list[int] = []

    async def commit(shard: Any, command: Any) -> PartitionsReply:
        assert guards.is_valid(PRODUCER_ID, command.guard)
        committed.append(command.guard)
        return PartitionsReply()

    doors: Any = SimpleNamespace(
        cluster=SimpleNamespace(image=SimpleNamespace(routed_topic=lambda name: None)),
        groups=SimpleNamespace(
            admission=lambda group: shard, partition_of=lambda group: 3, commit_in_transaction=commit
        ),
        transaction_admission=admission,
    )
    request = build_entity(
        schemas.request_type(txn_offset_commit.API_KEY, ADDING_COMMIT_VERSION),
        {
            "transactional_id": "id",
            "group_id": "g",
            "producer_id": PRODUCER_ID,
            "producer_epoch": 1,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": (),
        },
    )
    context: Any = SimpleNamespace(api_version=ADDING_COMMIT_VERSION)
    await txn_offset_commit.handle(request, context, doors)
    assert len(committed) == (overtaken < QUESTIONS_MAX)
    assert not len(guards)


def _batch(sequence: int) -> bytes:
    records = [Record(None, b"v", timestamp_ms=NOW_MS)]
    return encode_batch(
        records, producer_id=PRODUCER_ID, producer_epoch=1, base_sequence=sequence, attributes=TRANSACTIONAL
    )


def _request(batch: bytes) -> ProduceRequest:
    partitions = [PartitionRecords(0, memoryview(batch))]
    return ProduceRequest(transactional_id="id", acks=-1, timeout_ms=1000, topics=[TopicRecords("t", None, partitions)])


class _Hosted(SimpleNamespace):
    """A partition that can be a key of a dictionary."""

    def __hash__(self) -> int:
        return id(self)
