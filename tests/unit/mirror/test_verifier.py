"""What `antipode links verify` says of an exact link's partition: by batch, and by record where the source compacts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mirror import verifier
from mirror.core.partitions import PartitionKey
from mirror.verifier import Comparison, ExactVerifier
from wire.record_batch import iterate_headers
from wire.records import Record, encode_batch

KEY = PartitionKey("prices", 0)
END = 4


def batch(base_offset: int, *values: bytes) -> bytes:
    return encode_batch(
        [Record(b"k%d" % index, value, 1) for index, value in enumerate(values)], base_offset=base_offset
    )


class Log:
    """A site's only log, as far as the verifier asks."""

    def __init__(self, *batches: bytes, policy: str = "delete") -> None:
        self.data = b"".join(batches)
        self.policy = policy

    async def offsets_at(self, places: Any, timestamp: int, *, replica_id: int) -> dict[Any, int]:
        return dict.fromkeys(places, 0)

    async def topic_configs(self, names: list[str], *, is_set_only: bool) -> dict[str, dict[str, str]]:
        return {name: {"cleanup.policy": self.policy} for name in names}

    def from_offset(self, offset: int) -> bytes:
        return b"".join(
            self.data[position : position + header.size_bytes]
            for position, header in iterate_headers(self.data)
            if header.next_offset > offset
        )


@pytest.fixture(autouse=True)
def _logs_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fetch(client: Log, place: Any, offset: int, **_: Any) -> Any:
        return SimpleNamespace(records=memoryview(client.from_offset(offset)))

    monkeypatch.setattr(verifier, "fetch_at_leader", fetch)


async def compared(source: Log, target: Log) -> Comparison:
    exact = ExactVerifier(source, target)  # type: ignore[arg-type]
    return await exact.compare(KEY, mirrored_end=END, last_offsets=0)


async def test_what_only_the_standby_has_differs_unless_the_source_compacts() -> None:
    whole = (batch(0, b"1"), batch(1, b"2"), batch(2, b"3", b"4"))
    for policy, verdict in (("delete", "differs"), ("compact,delete", "equal"), ("compact", "equal")):
        assert (await compared(Log(*whole[1:], policy=policy), Log(*whole))).verdict == verdict


async def test_a_batch_that_compaction_made_smaller_is_compared_by_record() -> None:
    source = Log(batch(1, b"2"), batch(3, b"4"), policy="compact")
    target = Log(encode_batch([Record(b"k0", value, 1) for value in (b"1", b"2", b"3", b"4")], base_offset=0))
    found = await compared(source, target)
    assert (found.verdict, found.records) == ("equal", 2)


async def test_another_record_where_the_source_compacts_differs() -> None:
    found = await compared(Log(batch(1, b"2"), policy="compact"), Log(batch(0, b"1"), batch(1, b"other")))
    assert (found.verdict, found.finding) == ("differs", "the record at offset 1 is another one than the source's")


async def test_a_record_that_a_compacted_standby_lacks_is_for_reconcile_to_judge() -> None:
    found = await compared(Log(batch(0, b"1"), batch(1, b"2"), policy="compact"), Log(batch(1, b"2")))
    assert found.verdict == "unknown"
    assert "antipode reconcile" in found.finding
