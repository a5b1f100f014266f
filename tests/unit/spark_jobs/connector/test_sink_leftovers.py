"""Rows of a batch that the site which was active before has written: found by producer and epoch,
and written no second time.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.connector import sink, sink_leftovers, sink_producer
from spark_jobs.connector.core.options import WriteOptions
from spark_jobs.connector.core.sink_decisions import BatchNotWhole, Decision, TaskTransaction
from spark_jobs.connector.core.sink_leftovers import (
    CLOCKS_DIFFER_MS,
    EPOCH_MAX,
    TRANSACTION_MS_MAX,
    Former,
    Leftovers,
    PartitionLeftovers,
    StoredRow,
    former_of,
    is_moved,
)
from spark_jobs.connector.core.sink_rows import Rows
from spark_jobs.connector.sink_producer import SinkProducer
from spark_jobs.connector.transaction_coordinator import TransactionCoordinator
from spark_jobs.logs.core.cluster_options import ClusterOptions
from wire.batches.record_batch import TRANSACTIONAL_BIT, iterate_headers
from wire.batches.records import Record, decode_batch, encode_batch
from wire.batches.transaction_records import encode_marker
from wire.client.client_errors import Unreachable
from wire.client.requests.transaction_requests import ProducerIdentity
from wire.protocol.ids import LATEST_TIMESTAMP

AT_A, AT_B = 7, 2**40 + 3
"""Producer ids of the two sites."""
DECIDED_MS = 10_000_000
FORMER = Former(AT_A, 5, EPOCH_MAX, 0, is_certain=True)
EARLIER = Decision(
    batch=3,
    transactions=(TaskTransaction(0, AT_A, 4),),
    others=(TaskTransaction(1, 8, 2),),
    producer_id=AT_A - 1,
    decided_ms=DECIDED_MS,
)
OPTIONS = WriteOptions(cluster=ClusterOptions(bootstrap="none:1"), topic="t")


def rows_at(producer_id: int, epoch: int, *values: bytes) -> bytes:
    records = [Record(None, value) for value in values]
    return encode_batch(records, producer_id=producer_id, producer_epoch=epoch, attributes=TRANSACTIONAL_BIT)


def ended(producer_id: int, epoch: int, *, is_commit: bool) -> bytes:
    return encode_marker(
        producer_id=producer_id, producer_epoch=epoch, is_commit=is_commit, coordinator_epoch=0, now_ms=0
    )


def found_in(log: Iterable[bytes], former: Former = FORMER) -> PartitionLeftovers:
    found = PartitionLeftovers(former)
    for content in log:
        ((_, header),) = iterate_headers(content)
        if found.is_wanted(header):
            found.take(header, decode_batch(content, 0, header))
    return found


def leftovers_of(*values: bytes, former: Former = FORMER) -> Leftovers:
    found = Leftovers(former, query="q", batch=4, task=0)
    log = [rows_at(AT_A, 5, *values), ended(AT_A, 5, is_commit=True)] if values else []
    found.add(("t", 1), found_in(log))
    return found


def test_a_decision_of_another_site_is_known_by_the_producer_id() -> None:
    assert is_moved(EARLIER, AT_B)
    assert not is_moved(EARLIER, EARLIER.producer_id)
    assert not is_moved(None, AT_B)
    assert not is_moved(Decision(batch=3), AT_B)  # of an earlier release


def test_transactions_that_may_have_rows_of_a_batch_follow_from_the_last_decision() -> None:
    since_ms = DECIDED_MS - CLOCKS_DIFFER_MS
    assert former_of(EARLIER, batch=4, task=0) == Former(AT_A, 5, EPOCH_MAX, since_ms, is_certain=True)
    assert former_of(EARLIER, batch=4, task=1) == Former(8, 3, EPOCH_MAX, since_ms, is_certain=True)
    assert former_of(EARLIER, batch=6, task=0) == Former(AT_A, 5, EPOCH_MAX, since_ms, is_certain=False)
    assert former_of(EARLIER, batch=4, task=2) is None
    # The list crossed and the note that it is carried out did not.
    assert former_of(EARLIER, batch=3, task=0) == Former(AT_A, 4, 4, since_ms - TRANSACTION_MS_MAX, is_certain=True)
    assert former_of(EARLIER, batch=3, task=1) is None


def test_committed_rows_of_later_transactions_of_the_task_are_found() -> None:
    log = [
        rows_at(AT_A, 4, b"of batch 3"),
        ended(AT_A, 4, is_commit=True),
        rows_at(AT_A, 5, b"aborted"),
        ended(AT_A, 5, is_commit=False),
        rows_at(8, 6, b"of another task"),
        rows_at(AT_A, 6, b"1", b"2"),
        encode_batch([Record(None, b"without a transaction")]),
        rows_at(AT_A, 6, b"3"),
        ended(8, 6, is_commit=True),
        ended(AT_A, 6, is_commit=True),
        rows_at(AT_A, 7, b"open"),
    ]
    found = found_in(log)
    assert [row.value for row in found.rows] == [b"1", b"2", b"3"]
    assert found.epoch == 6


def test_other_rows_than_those_that_are_there_are_an_error() -> None:
    leftovers = leftovers_of(b"1", b"2")
    assert leftovers.transaction == TaskTransaction(0, AT_A, 5)
    assert leftovers.has(("t", 1))
    assert not leftovers.has(("t", 0))
    leftovers.use(("t", 1), [StoredRow(None, b"1")])
    with pytest.raises(BatchNotWhole, match=r"batch 4 of query q, task 0: .* t-1, and the task has other rows"):
        leftovers.check_used()
    with pytest.raises(BatchNotWhole, match="other rows"):
        leftovers.use(("t", 1), [StoredRow(None, b"3")])
    with pytest.raises(BatchNotWhole, match="other rows"):
        leftovers_of(b"1").use(("t", 1), [StoredRow(None, b"1"), StoredRow(None, b"2")])
    assert leftovers_of().transaction is None


def test_rows_that_may_be_of_an_earlier_batch_stop_the_query() -> None:
    with pytest.raises(BatchNotWhole, match="1 committed rows of this or an earlier batch"):
        leftovers_of(b"1", former=FORMER._replace(is_certain=False))
    assert leftovers_of(former=FORMER._replace(is_certain=False)).transaction is None


async def test_a_log_that_cannot_be_read_to_its_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def offsets_at(places: list[Any], timestamp: int) -> dict[Any, int]:
        return dict.fromkeys(places, 5 if timestamp == LATEST_TIMESTAMP else 0)

    async def has_written(*_: Any) -> bool:
        return True

    async def nothing(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(records=b"", error_code=0)

    monkeypatch.setattr(sink_leftovers, "_has_written", has_written)
    monkeypatch.setattr(sink_leftovers, "fetch_at_leader", nothing)
    monkeypatch.setattr(sink_leftovers, "records_of", lambda fetched: fetched.records)
    client: Any = SimpleNamespace(offsets_at=offsets_at)
    with pytest.raises(Unreachable, match="t-0 has nothing at offset 0, below its end 5"):
        await sink_leftovers.read_leftovers(client, "t", 1, leftovers_of())


class TwoPartitions:
    """The client of a broker with topic t."""

    def __init__(self) -> None:
        self.produced: list[tuple[int, list[bytes | None]]] = []

    async def metadata(self, topics: list[str]) -> Any:
        topic = SimpleNamespace(error_code=0, partitions={0: None, 1: None})
        return SimpleNamespace(topics=dict.fromkeys(topics, topic))

    async def produce(self, _topic: str, partition: int, batch: bytes, *, transactional_id: str | None) -> Any:
        assert transactional_id == "id"
        ((_, header),) = iterate_headers(batch)
        self.produced.append((partition, [record.value for record in decode_batch(batch, 0, header)]))
        return SimpleNamespace(base_offset=100)


@pytest.mark.parametrize("partitions", [(0, 1), (1,)])
async def test_a_task_writes_the_rows_that_are_not_there(
    monkeypatch: pytest.MonkeyPatch, partitions: tuple[int, ...]
) -> None:
    async def identity(*_: object) -> ProducerIdentity:
        return ProducerIdentity(AT_B, 0)

    async def nothing(*_: object) -> None:
        pass

    async def read(_client: object, topic: str, count: int, leftovers: Leftovers) -> None:
        assert (topic, count) == ("t", 2)
        log = [rows_at(AT_A, 5, b"1", b"3"), ended(AT_A, 5, is_commit=True)]
        leftovers.add(("t", 1), found_in(log))

    monkeypatch.setattr(TransactionCoordinator, "identity", identity)
    monkeypatch.setattr(TransactionCoordinator, "at", nothing)
    monkeypatch.setattr(sink_producer, "read_leftovers", read)
    numbers = [number for number in range(4) if number % 2 in partitions]
    rows = Rows(
        keys=pa.nulls(len(numbers), pa.binary()),
        values=pa.array([b"%d" % number for number in numbers], pa.binary()),
        partitions=pa.array([number % 2 for number in numbers], pa.int32()),
    )
    client, leftovers = TwoPartitions(), Leftovers(FORMER, query="q", batch=4, task=0)
    producer = SinkProducer(client, OPTIONS, task=0)  # type: ignore[arg-type]
    written = await producer.prepare([rows], "id", leftovers)
    if 0 in partitions:
        assert (written, client.produced) == (ProducerIdentity(AT_B, 0), [(0, [b"0", b"2"])])
        assert producer.ends == {("t", 0): 102, ("t", 1): 2}
    else:
        assert (written, client.produced) == (None, [])
        assert producer.ends == {("t", 1): 2}


def test_a_decision_keeps_the_last_transactions_of_all_tasks() -> None:
    """Also of one whose rows were all there, which has written nothing itself."""
    written, there = (sink.Prepared("q", ProducerIdentity(AT_B, 9), EARLIER, is_decided=False) for _ in range(2))
    written.transaction = TaskTransaction(2, AT_B + 1, 0)
    there.former = TaskTransaction(0, AT_A, 6)
    found = sink._decision([written, there], 4, producer_id=AT_B, now_ms=DECIDED_MS)
    assert found.transactions == (TaskTransaction(2, AT_B + 1, 0),)
    assert found.others == (TaskTransaction(0, AT_A, 6), TaskTransaction(1, 8, 2))
    assert (found.batch, found.producer_id, found.decided_ms) == (4, AT_B, DECIDED_MS)
