"""Where a stream begins and how far it reads, with a log whose end is in an open transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_jobs.connector import cluster
from spark_jobs.connector.core.options import Use, parse_read
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
        return 1

    async def offsets_at(
        self, places: Sequence[PartitionKey], time: int, *, replica_id: int, isolation_level: int = 0
    ) -> dict[PartitionKey, int]:
        end = STABLE if isolation_level else END
        return dict.fromkeys(places, end if time == LATEST_TIMESTAMP else 0)

    async def list_offsets(
        self, node: int, queries: Mapping[PartitionKey, Any], *, replica_id: int, isolation_level: int = 0
    ) -> dict[PartitionKey, Any]:
        found = NO_OFFSET if isolation_level and FOUND >= STABLE else FOUND
        return {key: SimpleNamespace(error_code=ErrorCode.none, offset=found) for key in queries}

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("isolation", "start", "end"), [("read_committed", STABLE, STABLE), ("read_uncommitted", FOUND, END)]
)
def test_a_start_by_time_is_within_the_part_that_may_be_read(
    monkeypatch: pytest.MonkeyPatch, isolation: str, start: int, end: int
) -> None:
    async def opened(_: object) -> OpenTransaction:
        return OpenTransaction()

    monkeypatch.setattr(cluster, "open_client", opened)
    given = {
        "kafka.bootstrap.servers": "none:1",
        "subscribe": "t",
        "startingTimestamp": "5",
        "startingOffsetsByTimestampStrategy": "latest",
        "kafka.isolation.level": isolation,
        "antipode.leader.epochs": "false",
    }
    reader = StreamReader(parse_read(given, Use.READ_STREAM, ()))
    try:
        begin = reader.initialOffset()
        assert begin == {"t": {"0": start}}
        assert reader.latestOffset(begin, ReadAllAvailable()) == {"t": {"0": end}}
    finally:
        reader.stop()
