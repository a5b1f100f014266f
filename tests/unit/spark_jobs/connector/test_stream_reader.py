"""Where a stream begins and how far it reads, with a log whose end is in an open transaction, and a
topic that is deleted between two runs of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_jobs.connector import cluster
from spark_jobs.connector.core.options import Use, parse_read
from spark_jobs.connector.core.planning import DataLost
from spark_jobs.connector.stream_reader import StreamReader
from wire.protocol.ids import LATEST_TIMESTAMP, NO_OFFSET, PartitionKey

STABLE, END = 100, 120
"""The last stable offset, and the end. The record at offset 110 is the first one of the time."""
FOUND = 110


class OpenTransaction:
    """The client of a broker whose only log ends in an open transaction."""

    async def metadata(self, topics: Sequence[str] | None) -> Any:
        topic = SimpleNamespace(error_code=0, partitions={0: None})
        return SimpleNamespace(topics={"t": topic})

    async def leader(self, topic: str, partition: int) -> int:
        assert topic == "t", "a topic that is not there has no leader"
        return 1

    async def offsets_at(
        self, places: Sequence[PartitionKey], time: int, *, replica_id: int, isolation_level: int = 0
    ) -> dict[PartitionKey, int]:
        assert all(topic == "t" for topic, _ in places)
        end = STABLE if isolation_level else END
        return dict.fromkeys(places, end if time == LATEST_TIMESTAMP else 0)

    async def list_offsets(
        self, node: int, queries: Mapping[PartitionKey, Any], *, replica_id: int, isolation_level: int = 0
    ) -> dict[PartitionKey, Any]:
        found = NO_OFFSET if isolation_level and FOUND >= STABLE else FOUND
        return {key: SimpleNamespace(error_code=ErrorCode.none, offset=found) for key in queries}

    async def close(self) -> None:
        pass


@contextmanager
def closing_reader(monkeypatch: pytest.MonkeyPatch, options: Mapping[str, str]) -> Iterator[StreamReader]:
    """The reader of a stream, which is stopped at the end."""

    async def opened(_: object) -> OpenTransaction:
        return OpenTransaction()

    monkeypatch.setattr(cluster, "open_client", opened)
    given = {"kafka.bootstrap.servers": "none:1", "subscribe": "t", "antipode.leader.epochs": "false"}
    reader = StreamReader(parse_read(given | dict(options), Use.READ_STREAM, ()))
    try:
        yield reader
    finally:
        reader.stop()


@pytest.mark.parametrize(
    ("isolation", "start", "end"), [("read_committed", STABLE, STABLE), ("read_uncommitted", FOUND, END)]
)
def test_a_start_by_time_is_within_the_part_that_may_be_read(
    monkeypatch: pytest.MonkeyPatch, isolation: str, start: int, end: int
) -> None:
    given = {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "latest"}
    with closing_reader(monkeypatch, given | {"kafka.isolation.level": isolation}) as reader:
        begin = reader.initialOffset()
        assert begin == {"t": {"0": start}}
        assert reader.latestOffset(begin, ReadAllAvailable()) == {"t": {"0": end}}


def test_a_batch_is_run_again_without_a_topic_that_was_deleted_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, end = {"t": {"0": 3}, "u": {"0": 0}}, {"t": {"0": 7}, "u": {"0": 9}}
    with closing_reader(monkeypatch, {}) as reader, pytest.raises(DataLost, match="u-0 was read before and does not"):
        reader.partitions(begin, end)
    with closing_reader(monkeypatch, {"failOnDataLoss": "false"}) as reader:
        (part,) = reader.partitions(begin, end)
    (wanted,) = part.wanted
    assert (wanted.place, wanted.first_offset, wanted.until_offset) == (("t", 0), 3, 7)
