"""A transactional producer that a test drives request by request, of the older flow (partitions are
added first) or of KIP-890's.

Each transaction writes its own number into partitions and commits it as a group's offset.
`committed` and `aborted` have the numbers of the acknowledged transactions. The producer retries
requests as clients do when their coordinator or a leader goes.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually_sync
from tests.support.histories.coordinator_calls import GROUP, TRANSACTION, TRY_AGAIN, WITHIN_MS, CoordinatorCalls, Sent
from tests.support.sites.replicated_site import ReplicatedSite
from wire.batches.record_batch import TRANSACTIONAL_BIT
from wire.batches.records import Record, encode_batch

INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 22, 24, 25, 26, 28
DESCRIBE_TRANSACTIONS = 65
TIMEOUT = dt.timedelta(seconds=120)
ANSWER_S = 15.0

TopicPartition = tuple[str, int]


class ScriptedProducer:
    """One producer of a transactional id."""

    def __init__(
        self, site: ReplicatedSite, struck: set[int], *, transactional_id: str, group: str, is_newer_flow: bool = False
    ) -> None:
        self._site, self._struck = site, struck
        self._id, self._group, self._is_newer_flow = transactional_id, group, is_newer_flow
        self.calls = CoordinatorCalls(site, struck, key=transactional_id, key_type=TRANSACTION)
        self._group_calls = CoordinatorCalls(site, struck, key=group, key_type=GROUP)
        self.producer_id, self.epoch = -1, -1
        self._sequences: dict[TopicPartition, int] = {}
        self.committed: list[int] = []
        self.aborted: list[int] = []

    # --- requests to the coordinator: how to send each, and how to read its response

    def send_init(self) -> Sent:
        """InitProducerId on its way."""
        return self.calls.send(INIT_PRODUCER_ID, 4, self._init())

    def init(self) -> None:
        """Get an id, or the next epoch of the one that is there: the previous user of the id is
        fenced.
        """
        answer = self.calls.ask(INIT_PRODUCER_ID, 4, self._init(), _error_code)
        assert not answer.error_code, answer
        self._take(answer.producer_id, answer.producer_epoch)

    def _init(self) -> dict[str, Any]:
        return {"transactional_id": self._id, "transaction_timeout": TIMEOUT}

    def _take(self, producer_id: int, epoch: int) -> None:
        assert (producer_id, epoch) > (self.producer_id, self.epoch)
        self.producer_id, self.epoch = producer_id, epoch
        self._sequences.clear()

    def send_add(self, partitions: Sequence[TopicPartition]) -> Sent:
        """AddPartitionsToTxn on its way."""
        return self.calls.send(ADD_PARTITIONS, 3, self._added(partitions))

    def add(self, partitions: Sequence[TopicPartition]) -> None:
        """These take part; in the newer flow their leaders see to that."""
        if self._is_newer_flow:
            return
        answer = self.calls.ask(ADD_PARTITIONS, 3, self._added(partitions), _first_error_of_partitions)
        assert not _first_error_of_partitions(answer), answer

    def _added(self, partitions: Sequence[TopicPartition]) -> dict[str, Any]:
        indexes: dict[str, list[int]] = {}
        for topic, partition in partitions:
            indexes.setdefault(topic, []).append(partition)
        return {
            "v3_and_below_transactional_id": self._id,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": topic, "partitions": found} for topic, found in indexes.items()],
        }

    def send_end(self, *, is_commit: bool) -> Sent:
        """EndTxn on its way."""
        return self.calls.send(END_TXN, self._end_version, self._end(is_commit=is_commit))

    def send_end_to(self, node_id: int, *, is_commit: bool) -> Sent:
        """Send EndTxn to a broker that may be paused or may not be the coordinator."""
        client = RawClient(self._site.nodes[node_id].port, timeout_s=ANSWER_S)
        return Sent(client, END_TXN, self._end_version, self._end(is_commit=is_commit))

    def end(self, number: int, *, is_commit: bool) -> None:
        """Commit or abort, and remember that it was acknowledged."""
        answer = self.calls.ask(END_TXN, self._end_version, self._end(is_commit=is_commit), _error_code)
        assert not answer.error_code, answer
        if self._is_newer_flow:
            self._take(answer.producer_id, answer.producer_epoch)
        (self.committed if is_commit else self.aborted).append(number)

    def refused_end(self) -> ErrorCode:
        """Why the coordinator does not let it commit any more."""
        answer = self.calls.ask(END_TXN, self._end_version, self._end(is_commit=True), _error_code)
        return ErrorCode(answer.error_code)

    def wait_over(self) -> None:
        """Wait until every marker of the last transaction is written, and its coordinator has noted
        that.
        """

        def is_over() -> bool:
            answer = self.calls.ask(DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [self._id]}, _no_error)
            return str(answer.transaction_states[0].transaction_state).startswith("Complete")

        eventually_sync(is_over, WITHIN_MS)

    @property
    def _end_version(self) -> int:
        return 5 if self._is_newer_flow else 3

    def _end(self, *, is_commit: bool) -> dict[str, Any]:
        return {**self._identity(), "committed": is_commit}

    # --- what a transaction does

    def write(self, number: int, partitions: Sequence[TopicPartition]) -> None:
        """The number into each partition, once: a leader that is asked again knows the sequence."""
        for topic, partition in partitions:
            sequence = self._sequences.get((topic, partition), 0)
            batch = encode_batch(
                [Record(key=None, value=b"%d" % number, timestamp_ms=time.time_ns() // 1_000_000)],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=sequence,
                attributes=TRANSACTIONAL_BIT,
            )
            eventually_sync(lambda t=topic, p=partition, b=batch: self._is_written(t, p, b), WITHIN_MS)  # type: ignore[misc]
            self._sequences[topic, partition] = sequence + 1

    def _is_written(self, topic: str, partition: int, batch: bytes) -> bool:
        leader = self._site.leaders(topic)[partition]
        if leader in self._struck | {-1}:
            return False
        try:
            with RawClient(self._site.nodes[leader].port, timeout_s=ANSWER_S) as client:
                version = 12 if self._is_newer_flow else 9
                produced = client.produce(topic, batch, partition=partition, transactional_id=self._id, version=version)
        except (OSError, IndexError):
            return False
        error = ErrorCode(produced.error_code)
        assert not error or error in TRY_AGAIN, error
        return not error

    def add_group(self) -> None:
        """Add the group's offsets to the transaction."""
        if self._is_newer_flow:
            return
        values = {**self._identity(), "group_id": self._group}
        answer = self.calls.ask(ADD_OFFSETS, 3, values, _error_code)
        assert not answer.error_code, answer

    def send_offsets(self, topic: str, number: int) -> Sent:
        """TxnOffsetCommit on its way to the group's coordinator."""
        return self._group_calls.send(TXN_OFFSET_COMMIT, self._offsets_version, self._offsets(topic, number))

    def commit_offsets(self, topic: str, number: int) -> None:
        """The number as the group's offset, once the transaction is committed."""
        answer = self._group_calls.ask(
            TXN_OFFSET_COMMIT, self._offsets_version, self._offsets(topic, number), _first_error_of_offsets
        )
        assert not _first_error_of_offsets(answer), answer

    @property
    def _offsets_version(self) -> int:
        return 5 if self._is_newer_flow else 3

    def _offsets(self, topic: str, number: int) -> dict[str, Any]:
        partition = {"partition_index": 0, "committed_offset": number, "committed_metadata": ""}
        return {**self._identity(), "group_id": self._group, "topics": [{"name": topic, "partitions": [partition]}]}

    def _identity(self) -> dict[str, Any]:
        return {"transactional_id": self._id, "producer_id": self.producer_id, "producer_epoch": self.epoch}


def _no_error(_: Any) -> ErrorCode:
    return ErrorCode.none


def _error_code(answer: Any) -> ErrorCode:
    return ErrorCode(answer.error_code)


def _first_error_of_partitions(answer: Any) -> ErrorCode:
    codes = (
        at.partition_error_code for topic in answer.results_by_topic_v3_and_below for at in topic.results_by_partition
    )
    return next((ErrorCode(code) for code in codes if code), ErrorCode.none)


def _first_error_of_offsets(answer: Any) -> ErrorCode:
    codes = (at.error_code for topic in answer.topics for at in topic.partitions)
    return next((ErrorCode(code) for code in codes if code), ErrorCode.none)
