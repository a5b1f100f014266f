"""Admits a Produce request of a transactional producer: find the partitions that its transaction
does not contain yet, and ask whether it may add them (KIP-890).

The coordinator is asked once for each transaction and partition; later batches find the transaction
open in the log. From Produce version 12 on this request also adds the partition to the transaction.
Older producers add it beforehand; with `transaction.partition.verification.enable=false` the broker
does not verify that. Called by the Produce handler only.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from kio.schema.errors import ErrorCode

from broker.metadata.cluster import Cluster
from broker.network.entities import topic_id_bytes
from broker.replication.hosted_partition import HostedPartition, PartitionFailure
from broker.replication.replicas import Replicas
from broker.settings.dynamic_configs import DynamicConfigs
from broker.transactions.transaction_admission import QUESTIONS_MAX, TransactionAdmission, Writer
from wire.batches.record_batch import Buffer, InvalidBatch, read_header
from wire.protocol.ids import TopicPartition
from wire.protocol.messages.produce_codec import PartitionRecords, ProduceRequest

_ADDS_PARTITIONS_FROM: Final = 12
_KNOWS_ABORTABLE_FROM: Final = 11

# older clients do not retry these after Produce; they do retry NOT_ENOUGH_REPLICAS
_RETRIED_AS_REPLICAS: Final = (
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.network_exception,
)


class AdmissionDoors(Protocol):
    """The parts of the broker that the admission of a Produce request uses."""

    @property
    def cluster(self) -> Cluster: ...
    @property
    def configs(self) -> DynamicConfigs: ...
    @property
    def replicas(self) -> Replicas: ...
    @property
    def transaction_admission(self) -> TransactionAdmission: ...


class TransactionalProduce:
    """The admission of one request. `end` must follow, also after an exception."""

    def __init__(self, doors: AdmissionDoors, request: ProduceRequest, version: int) -> None:
        self._doors = doors
        self._version = version
        self._unasked: dict[HostedPartition, tuple[Writer, int]] = {}
        self._errors: dict[HostedPartition, ErrorCode] = {}
        self._is_verified = version >= _ADDS_PARTITIONS_FROM or doors.configs.current.is_transaction_partition_verified
        if not self._is_verified:
            return
        image = doors.cluster.image
        for topic in request.topics:
            name = topic.name or image.topic_names.get(topic_id_bytes(topic.topic_id), "")
            for partition in topic.partitions:
                hosted = doors.replicas.find(name, partition.partition_index)
                writer = None if hosted is None else _new_writer(hosted, request.transactional_id or "", partition)
                if hosted is not None and writer is not None:
                    self._unasked[hosted] = writer, hosted.guards.begin(writer.producer_id)

    @property
    def is_needed(self) -> bool:
        """True when the coordinator must be asked."""
        return bool(self._unasked)

    def ask_now(self) -> bool:
        """Ask the coordinator as far as it answers at once; False when `ask` is needed."""
        # version 12 adds the partition: the coordinator must write that, which takes time
        if self._version >= _ADDS_PARTITIONS_FROM:
            return False
        for hosted, (writer, _) in self._unasked.items():
            partition = TopicPartition(*hosted.key)
            outcomes = self._doors.transaction_admission.admit_now(writer, [partition])
            if outcomes is None:
                return False
            self._errors[hosted] = outcomes.get(partition, ErrorCode.invalid_txn_state)
        return True

    async def ask(self) -> None:
        """Ask the coordinator about every partition that the transaction is new to.

        If a marker is written during the request, it may belong to the producer's previous
        transaction, which has just ended. These partitions are therefore verified again, under a
        guard that was taken after the marker.
        """
        asked = list(self._unasked)
        for _ in range(QUESTIONS_MAX):
            await self._ask_about(asked)
            asked = [hosted for hosted in asked if self._is_overtaken(hosted)]
            if not asked:
                return
            for hosted in asked:
                writer, overtaken = self._unasked[hosted]
                hosted.guards.end(writer.producer_id, overtaken)
                self._unasked[hosted] = writer, hosted.guards.begin(writer.producer_id)
        # the producer's transactions follow each other faster than responses: it retries after this
        # code
        self._errors.update(dict.fromkeys(asked, ErrorCode.concurrent_transactions))

    def _is_overtaken(self, hosted: HostedPartition) -> bool:
        writer, guard = self._unasked[hosted]
        return self._errors[hosted] is ErrorCode.none and not hosted.guards.is_valid(writer.producer_id, guard)

    async def _ask_about(self, asked: Sequence[HostedPartition]) -> None:
        by_writer: dict[Writer, list[HostedPartition]] = {}
        for hosted in asked:
            by_writer.setdefault(self._unasked[hosted][0], []).append(hosted)
        for writer, partitions in by_writer.items():
            outcomes = await self._doors.transaction_admission.admit(
                writer,
                [TopicPartition(*hosted.key) for hosted in partitions],
                is_added=self._version >= _ADDS_PARTITIONS_FROM,
            )
            for hosted in partitions:
                self._errors[hosted] = outcomes.get(TopicPartition(*hosted.key), ErrorCode.invalid_txn_state)

    def may_begin(self, hosted: HostedPartition, records: Buffer) -> bool:
        """True if a transaction may begin in the partition now with these records. Raises
        PartitionFailure with the reason; the log remembers the refused batch, so that batches sent
        after it are not appended before it.
        """
        # not verified: its transaction is open here, or verification is disabled
        asked = self._unasked.get(hosted)
        if asked is None:
            return not self._is_verified
        error = self._errors[hosted]
        if error is not ErrorCode.none:
            with suppress(InvalidBatch):
                hosted.log.producers.note_refused(read_header(records))
            # by the version: an older producer fails on a code that it does not know
            raise PartitionFailure(self._translated(error), f"the transaction coordinator answered {error.name}")
        writer, guard = asked
        # a marker was written after the request: the confirmed transaction has ended
        return hosted.guards.is_valid(writer.producer_id, guard)

    def end(self) -> None:
        """Give the guards back."""
        for hosted, (writer, guard) in self._unasked.items():
            hosted.guards.end(writer.producer_id, guard)

    def _translated(self, error: ErrorCode) -> ErrorCode:
        """The coordinator's error as producers know it."""
        if error is ErrorCode.producer_fenced:
            return ErrorCode.invalid_producer_epoch
        if error in _RETRIED_AS_REPLICAS:
            return ErrorCode.not_enough_replicas
        if error is ErrorCode.concurrent_transactions and self._version < _ADDS_PARTITIONS_FROM:
            return ErrorCode.not_enough_replicas
        if error is ErrorCode.transaction_abortable and self._version < _KNOWS_ABORTABLE_FROM:
            return ErrorCode.invalid_txn_state
        return error


def _new_writer(hosted: HostedPartition, transactional_id: str, partition: PartitionRecords) -> Writer | None:
    """The producer whose transactional records would begin a transaction in the partition; None
    without one.
    """
    if partition.records is None:
        return None
    try:
        header = read_header(partition.records)
    except InvalidBatch:
        # damaged records: the log refuses them with the right code
        return None
    if not header.is_transactional or hosted.log.producers.is_in_transaction(header.producer_id, header.producer_epoch):
        return None
    return Writer(transactional_id, header.producer_id, header.producer_epoch)
