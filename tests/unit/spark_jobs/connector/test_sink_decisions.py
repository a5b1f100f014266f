"""Decisions of the sink: kept in bounded metadata, carried out whole, or given up before."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from spark_jobs.connector.core.options import WriteOptions
from spark_jobs.connector.core.sink_decisions import (
    BatchNotWhole,
    Decision,
    Ended,
    LaterBatchDecided,
    Outcome,
    TaskTransaction,
    check_time,
    encoded,
    group_name,
    is_decided,
    is_void,
    joined,
    newest,
)
from spark_jobs.connector.sink_decider import SinkDecider
from spark_jobs.logs.core.cluster_options import ClusterOptions
from wire.client.requests.group_requests import CommittedOffset
from wire.protocol.ids import PartitionKey

METADATA_BYTES_MAX = 4096
"""Kafka's offset.metadata.max.bytes by default."""


def test_a_decision_about_many_tasks_fits_into_metadata_and_comes_back() -> None:
    rows = [TaskTransaction(task, 2**41 + task, 32_000) for task in range(345)]
    decision = Decision(
        batch=10**9,
        transactions=tuple(rows[:150]),
        others=tuple(rows[150:]),
        producer_id=2**41,
        decided_ms=2**41,
        is_carried_out=True,
    )
    texts = encoded(decision)
    assert max(map(len, texts)) <= METADATA_BYTES_MAX
    parts = [newest([text]) for text in texts]
    assert [part[1] for part in parts if part is not None] == [4] * 4
    first, *others = (part[0] for part in parts if part is not None)
    assert joined(first, others) == decision


def test_parts_of_other_batches_stay_apart() -> None:
    """Groups cross a link one by one, and a failover may come in between."""
    first = Decision(batch=4, transactions=(TaskTransaction(0, 7, 4),), producer_id=7, decided_ms=40)
    older = Decision(batch=3, transactions=(TaskTransaction(1, 8, 3),), producer_id=7, decided_ms=30)
    found = joined(first, [older, replace(first, transactions=(TaskTransaction(2, 9, 4),)), None])
    assert found.transactions == (TaskTransaction(0, 7, 4), TaskTransaction(2, 9, 4))
    assert found.strays == (older, Decision(batch=-1))
    assert [found.part_about(task).batch for task in (0, 1, 2, 3)] == [4, 3, 4, -1]
    assert found.others_than([TaskTransaction(0, 7, 5)]) == (TaskTransaction(1, 8, 3), TaskTransaction(2, 9, 4))
    assert joined(older, [first]).part_about(0) == first


def test_a_group_that_holds_no_part_of_the_decision_is_no_error() -> None:
    """As for a query with more than a hundred tasks after a failover."""
    decision = Decision(batch=4, transactions=tuple(TaskTransaction(task, task, 0) for task in range(150)))
    texts = {group_name("q", number): text for number, text in enumerate(encoded(decision))}
    del texts[group_name("q", 1)]

    class Client:
        async def committed(self, group: str) -> dict[PartitionKey, CommittedOffset]:
            return {("t", 0): CommittedOffset(0, metadata=texts[group])} if group in texts else {}

    options = WriteOptions(cluster=ClusterOptions(bootstrap="none:1"))
    client: Any = Client()
    found = asyncio.run(SinkDecider(client, options, "q").decided())
    assert found is not None
    assert len(found.transactions) == 100
    assert found.strays == (Decision(batch=-1),)


def test_a_decision_of_an_earlier_release_is_read() -> None:
    text = '{"batch":3,"groups":1,"transactions":[[0,7,4]]}'
    assert newest([text]) == (Decision(batch=3, transactions=(TaskTransaction(0, 7, 4),)), 1)


def test_the_newest_decision_counts_and_other_metadata_does_not() -> None:
    texts = [None, "", "x", "{}", *encoded(Decision(batch=3)), *encoded(Decision(batch=7)), *encoded(Decision(batch=5))]
    assert newest(texts) == (Decision(batch=7), 1)
    assert newest([None, "5"]) is None


def test_of_two_decisions_about_a_batch_the_later_one_counts() -> None:
    """Each site has noted it with the offset of another partition."""
    at_a, at_b = (Decision(batch=3, producer_id=site, decided_ms=site) for site in (1, 2))
    done = replace(at_b, is_carried_out=True)
    for texts in ([at_a, at_b], [at_b, at_a]):
        assert newest([text for one in texts for text in encoded(one)]) == (at_b, 1)
    assert newest([*encoded(done), *encoded(at_b)]) == (done, 1)


def test_a_batch_is_decided_once_and_one_that_comes_after_a_later_one_is_refused() -> None:
    """A new checkpoint under the name of an earlier query begins with batch 0 again."""
    assert not is_decided(None, query="q", batch=0)
    assert not is_decided(Decision(batch=4), query="q", batch=5)
    assert is_decided(Decision(batch=5), query="q", batch=5)
    with pytest.raises(LaterBatchDecided, match=r"batch 0 of query q comes after batch 5, .*group antipode-spark\.q$"):
        is_decided(Decision(batch=5), query="q", batch=0)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([Outcome.COMMITTED, Outcome.COMMITTED], False),
        ([Outcome.ABORTED, Outcome.ABORTED], True),
        ([], False),
        ([Outcome.COMMITTED, Outcome.ABORTED], None),
        ([Outcome.UNKNOWN, Outcome.UNKNOWN], None),
        ([Outcome.ABORTED, Outcome.UNKNOWN], None),
    ],
)
def test_a_batch_is_written_anew_only_when_all_of_it_was_aborted(
    outcomes: list[Outcome], expected: bool | None
) -> None:
    ends = [Ended(TaskTransaction(task, 1, 1), outcome) for task, outcome in enumerate(outcomes)]
    if expected is not None:
        assert is_void(ends, query="q", batch=1) is expected
        return
    with pytest.raises(BatchNotWhole, match=r"batch 1 of query q was decided.*delete the offsets of group"):
        is_void(ends, query="q", batch=1)


def test_transactions_that_are_nearly_timed_out_are_not_decided() -> None:
    check_time({0: 1_000, 1: 5_000}, now_ms=9_000, timeout_ms=10_000)
    with pytest.raises(BatchNotWhole, match="took 9100 ms"):
        check_time({0: 1_000, 1: 5_000}, now_ms=10_100, timeout_ms=10_000)
