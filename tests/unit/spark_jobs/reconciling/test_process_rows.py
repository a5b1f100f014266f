"""The rows of one wave in this process, of batches that two sites store: what counts as the same
record in other batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from spark_jobs.logs.core.splits import LogEnds, Split
from spark_jobs.logs.log_reader import StoredBatch
from spark_jobs.reconciling import process_rows
from spark_jobs.reconciling.core.extents import Extent
from spark_jobs.reconciling.core.judging import Run
from spark_jobs.reconciling.process_rows import ProcessRows
from spark_jobs.reconciling.request import Request
from tests.support.disks.log_batches import batch
from wire.batches.record_batch import LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, read_header

ENDS = LogEnds(start_offset=0, end_offset=2)
LOG = Extent(topic="t", partition=0, first_offset=0, source=ENDS, target=ENDS, source_until=2, target_until=2)
REQUEST = Request(source_site="a", target_site="b", source_bootstrap="a:1", target_bootstrap="b:1")
SENT = batch((b"1", b"2"), producer_id=4, producer_epoch=0, sequence=0, attributes=TRANSACTIONAL_BIT)
DIFFERS = [Run("t", 0, kind, 0, 1) for kind in ("only_source", "only_target")]


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        (
            [
                batch((b"1",), producer_id=4, producer_epoch=0, sequence=0, attributes=TRANSACTIONAL_BIT),
                batch((b"2",), base_offset=1, producer_id=4, producer_epoch=0, attributes=TRANSACTIONAL_BIT),
            ],
            [],
        ),
        ([batch((b"1", b"2"), producer_id=4, producer_epoch=0, sequence=0)], DIFFERS),
        ([batch((b"1", b"2"), producer_id=5, producer_epoch=0, attributes=TRANSACTIONAL_BIT)], DIFFERS),
        (
            [batch((b"1", b"2"), producer_id=4, attributes=TRANSACTIONAL_BIT | LOG_APPEND_TIME_BIT)],
            DIFFERS,
        ),
    ],
    ids=["other batches", "no transaction", "another producer", "another kind of time"],
)
def test_records_in_other_batches_are_the_same_only_with_their_producer_transaction_and_kind_of_time(
    monkeypatch: pytest.MonkeyPatch, stored: Sequence[bytes], found: list[Run]
) -> None:
    logs = {"a:1": [SENT], "b:1": stored}

    def read_splits(
        bootstrap: str, splits: Sequence[Split], *, answer_bytes: int
    ) -> Iterator[tuple[Split, StoredBatch]]:
        (split,) = splits
        for data in logs[bootstrap]:
            header = read_header(data)
            yield split, StoredBatch(header, True, header.base_offset, memoryview(data))

    monkeypatch.setattr(process_rows, "read_splits", read_splits)
    assert ProcessRows(REQUEST, [LOG]).differing_records([LOG], 10) == found
