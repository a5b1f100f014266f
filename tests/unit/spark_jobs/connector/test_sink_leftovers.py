"""Rows of a batch that the site which was active before has written: found by producer and epoch,
and written no second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from kio.schema.errors import ErrorCode

from spark_jobs.connector import sink, sink_leftovers, sink_producer
from spark_jobs.connector.core.options import WriteOptions
from spark_jobs.connector.core.sink_decisions import BatchNotWhole, Decision, TaskTransaction
from spark_jobs.connector.core.sink_leftovers import (
    CLOCKS_DIFFER_MS,
    TRANSACTION_MS_MAX,
    Epochs,
    Leftovers,
    PartitionLeftovers,
    Producer,
    Sought,
    StoredRow,
    is_moved,
    sought_of,
)
from spark_jobs.connector.core.sink_rows import Rows
from spark_jobs.connector.sink_producer import SinkProducer
from spark_jobs.connector.transaction_coordinator import TransactionCoordinator
from spark_jobs.logs.core.cluster_options import ClusterOptions
from wire.batches.record_batch import TRANSACTIONAL_BIT, iterate_headers
from wire.batches.records import Record, decode_batch, encode_batch
from wire.batches.transaction_members import TransactionMembers, encode_members
from wire.batches.transaction_records import encode_marker
from wire.client.client_errors import Unreachable, broker_error
from wire.client.requests.transaction_requests import ProducerIdentity
from wire.protocol.ids import LATEST_TIMESTAMP

AT_A, AT_B = 7, 2**40 + 3
"""Producer ids of the two sites."""
DECIDED_MS = 10_000_000
FORMER = Sought(listed={AT_A: Epochs(5)})
TASK_0 = "antipode-spark.q.0"
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


def ended(producer_id: int, epoch: int, *, is_commit: bool, transactional_id: str = "") -> bytes:
    members = TransactionMembers(transactional_id, 0, frozenset({("t", 1)}))
    return encode_marker(
        producer_id=producer_id,
        producer_epoch=epoch,
        is_commit=is_commit,
        coordinator_epoch=0,
        now_ms=0,
        members=encode_members(members),
    )


def found_in(log: Iterable[bytes], sought: Sought = FORMER) -> PartitionLeftovers:
    found = PartitionLeftovers(sought.listed)
    for content in log:
        ((_, header),) = iterate_headers(content)
        if found.is_wanted(header):
            found.take(header, decode_batch(content, 0, header))
    return found


def leftovers_of(*values: bytes, sought: Sought = FORMER) -> Leftovers:
    found = Leftovers(sought, query="q", batch=4, task=0)
    log = [rows_at(AT_A, 5, *values), ended(AT_A, 5, is_commit=True)] if values else []
    found.add(("t", 1), found_in(log))
    return found


def test_a_decision_of_another_site_is_known_by_the_producer_id() -> None:
    assert is_moved(EARLIER, AT_B)
    assert not is_moved(EARLIER, EARLIER.producer_id)
    assert not is_moved(None, AT_B)
    assert not is_moved(Decision(batch=3), AT_B)  # of an earlier release


def sought(earlier: Decision | None, batch: int, task: int) -> Sought | None:
    return sought_of(earlier, query="q", batch=batch, task=task, producer_id=AT_B)


def test_transactions_that_may_have_rows_of_a_batch_follow_from_the_last_decision() -> None:
    since_ms = DECIDED_MS - CLOCKS_DIFFER_MS
    later = Sought(
        listed={AT_A: Epochs(5)},
        transactional_id=TASK_0,
        site_number=1,
        settled=frozenset({AT_A, 8}),
        since_ms=since_ms,
        is_known_elsewhere=True,
    )
    assert sought(EARLIER, 4, 0) == later
    assert sought(EARLIER, 4, 1) == replace(later, listed={8: Epochs(3)}, transactional_id="antipode-spark.q.1")
    assert sought(EARLIER, 6, 0) == replace(later, is_certain=False)
    # The task has no rows in any listed batch, so a producer that no list names may be its own.
    assert sought(EARLIER, 4, 2) == replace(later, listed={}, transactional_id="antipode-spark.q.2")
    # The list crossed and the note that it is carried out did not.
    since_ms -= TRANSACTION_MS_MAX
    assert sought(EARLIER, 3, 0) == Sought(listed={AT_A: Epochs(4, 4)}, since_ms=since_ms, is_known_elsewhere=True)
    assert sought(EARLIER, 3, 1) is None
    # Of a list in several groups, only a part crossed: the others are those of earlier batches.
    torn = replace(EARLIER, batch=4, decided_ms=DECIDED_MS + 1, strays=(replace(EARLIER, others=()),))
    torn = replace(torn, transactions=(TaskTransaction(2, 9, 6),))
    assert sought(torn, 4, 0) == replace(later, settled=frozenset({AT_A, 8, 9}))
    assert sought(torn, 5, 0) == replace(later, settled=frozenset({AT_A, 8, 9}), is_certain=False)
    exact = Sought(listed={9: Epochs(6, 6)}, since_ms=since_ms + 1, is_known_elsewhere=True)
    assert sought(torn, 4, 2) == exact
    # No list has crossed.
    assert sought(None, 0, 0) == Sought(transactional_id=TASK_0, site_number=1)
    assert sought(None, 3, 0) == Sought(transactional_id=TASK_0, site_number=1, is_certain=False)


def test_markers_are_read_of_producers_of_other_sites_that_no_decision_names() -> None:
    wanted = sought(EARLIER, 4, 2)
    assert wanted is not None
    other = Producer(producer_id=9, producer_epoch=0, last_timestamp_ms=DECIDED_MS, coordinator_epoch=0)
    assert wanted.is_candidate(other)
    assert not wanted.is_candidate(other._replace(producer_id=8)), "of another task"
    assert not wanted.is_candidate(other._replace(producer_id=AT_B + 9)), "of this site"
    assert not wanted.is_candidate(other._replace(coordinator_epoch=-1)), "without transactions"
    assert not wanted.is_candidate(other._replace(last_timestamp_ms=DECIDED_MS - CLOCKS_DIFFER_MS - 1)), "too old"
    assert not FORMER.is_candidate(other), "the decision names all"


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
    assert found.last == (AT_A, 6)


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
        leftovers_of(b"1", sought=replace(FORMER, is_certain=False))
    assert leftovers_of(sought=replace(FORMER, is_certain=False)).transaction is None


class Log:
    """The client of a broker whose topic has one partition with these batches."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, batches: Sequence[bytes], producers: list[Producer]) -> None:
        self.since: list[int] = []
        self.contents = b"".join(with_offset(content, number) for number, content in enumerate(batches))

        async def described(*_: Any) -> list[Producer]:
            return producers

        async def fetch(*_: Any, **__: Any) -> Any:
            return self.contents

        monkeypatch.setattr(sink_leftovers, "_producers", described)
        monkeypatch.setattr(sink_leftovers, "fetch_at_leader", fetch)
        monkeypatch.setattr(sink_leftovers, "records_of", lambda contents: contents)
        self.end = len(batches)

    async def offsets_at(self, places: list[Any], timestamp: int) -> dict[Any, int]:
        self.since.append(timestamp)
        return dict.fromkeys(places, self.end if timestamp == LATEST_TIMESTAMP else 0)


def with_offset(content: bytes, offset: int) -> bytes:
    return offset.to_bytes(8, "big") + content[8:]


async def test_a_log_that_cannot_be_read_to_its_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(monkeypatch, [], [Producer(AT_A, 5, 0, 0)])
    log.end = 5
    client: Any = log
    with pytest.raises(Unreachable, match="t-0 has nothing at offset 0, below its end 5"):
        await sink_leftovers.read_leftovers(client, "t", 1, leftovers_of())


@pytest.mark.parametrize(("batch", "earlier"), [(0, None), (4, EARLIER)])
async def test_a_producer_that_no_decision_names_is_recognised_by_its_marker(
    monkeypatch: pytest.MonkeyPatch, batch: int, earlier: Decision | None
) -> None:
    """Of the first batch of a task, and of one in which the task got another producer id."""
    own, other = 21, 22
    content = [
        rows_at(other, 0, b"of another program"),
        ended(other, 0, is_commit=True, transactional_id="antipode-spark.q.01"),
        rows_at(own, 0, b"1", b"2"),
        ended(own, 0, is_commit=True, transactional_id=TASK_0),
    ]
    known = [Producer(one, 0, DECIDED_MS, 0) for one in (other, own)]
    client: Any = Log(monkeypatch, content, known)
    wanted = sought(earlier, batch, 0)
    assert wanted is not None
    leftovers = Leftovers(wanted, query="q", batch=batch, task=0)
    await sink_leftovers.read_leftovers(client, "t", 1, leftovers)
    leftovers.use(("t", 0), [StoredRow(None, b"1"), StoredRow(None, b"2")])
    leftovers.check_used()
    assert leftovers.transaction == TaskTransaction(0, own, 0)


async def test_rows_without_any_list_stop_a_later_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    content = [rows_at(21, 0, b"1"), ended(21, 0, is_commit=True, transactional_id=TASK_0)]
    client: Any = Log(monkeypatch, content, [Producer(21, 0, DECIDED_MS, 0)])
    wanted = sought(None, 3, 0)
    assert wanted is not None
    with pytest.raises(BatchNotWhole, match=r"the link leaves groups antipode-spark\.\* out"):
        await sink_leftovers.read_leftovers(client, "t", 1, Leftovers(wanted, query="q", batch=3, task=0))


@pytest.mark.parametrize("is_known_elsewhere", [False, True])
async def test_a_topic_that_may_not_be_read_stops_a_query_that_wrote_elsewhere(
    monkeypatch: pytest.MonkeyPatch, is_known_elsewhere: bool
) -> None:
    async def described(*_: Any) -> list[Producer]:
        raise broker_error(ErrorCode.topic_authorization_failed, message="t-0", api_key=61)

    monkeypatch.setattr(sink_leftovers, "_producers", described)
    client: Any = None
    found = Leftovers(replace(FORMER, is_known_elsewhere=is_known_elsewhere), query="q", batch=4, task=0)
    reading = sink_leftovers.read_leftovers(client, "t", 1, found)
    if not is_known_elsewhere:
        await reading
        return
    with pytest.raises(BatchNotWhole, match=r"may not read topic t .* antipode.after.failover=write"):
        await reading


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
