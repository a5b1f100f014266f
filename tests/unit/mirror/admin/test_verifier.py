"""The output of `antipode links verify` for a partition: by batch, and by record if an end
compacts.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mirror.admin import verifier
from mirror.admin.verifier import Comparison, ExactVerifier, TranslateVerifier
from mirror.link.core.topic_naming import Naming, NamingPolicy
from mirror.translate.core.translation import Translation
from wire.batches.record_batch import iterate_headers
from wire.batches.records import Record, decode_records, encode_batch
from wire.protocol.ids import TopicPartition

KEY = TopicPartition("prices", 0)
END = 4


OURS = 7


def batch(base_offset: int, *values: bytes, producer_id: int = -1) -> bytes:
    return encode_batch(
        [Record(b"k%d" % index, value, 1) for index, value in enumerate(values)],
        base_offset=base_offset,
        producer_id=producer_id,
    )


class Log:
    """The part of a site's only log that the verifier uses."""

    def __init__(self, *batches: bytes, policy: str = "delete", start: int = 0) -> None:
        self.data = b"".join(batches)
        self.policy = policy
        self.start = start

    async def offsets_at(self, places: Any, timestamp: int, *, replica_id: int) -> dict[Any, int]:
        return dict.fromkeys(places, self.start)

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


class RecordFilter:
    """A filter that leaves no record out."""

    async def read(self, client: Log, key: TopicPartition, offset: int, *, max_bytes: int) -> Any:
        return memoryview(client.from_offset(offset)), frozenset()


async def translated(source: Log, target: Log, *runs: tuple[int, int, int], last_offsets: int = 0) -> Comparison:
    """Compares the logs over a translate link whose map has these runs."""
    link = Translation()
    for run in runs:
        link.map.append(*run)
    link.position.source_next, link.position.target_next = runs[-1][0] + runs[-1][2], runs[-1][1] + runs[-1][2]
    links: Any = SimpleNamespace(of=lambda _: link, producers={"a": OURS}, writers=set())
    naming = Naming(policy=NamingPolicy.IDENTITY, source_alias="a", target_alias="b")
    verifies: Any = TranslateVerifier
    verifying = verifies(source, target, naming=naming, translations=links, record_filter=RecordFilter())
    found: Comparison = await verifying.compare(KEY, mirrored_end=link.position.source_next, last_offsets=last_offsets)
    return found


async def compared(source: Log, target: Log) -> Comparison:
    exact = ExactVerifier(source, target)  # type: ignore[arg-type]
    return await exact.compare(KEY, mirrored_end=END, last_offsets=0)


async def test_records_that_only_the_standby_has_differ_unless_the_source_compacts() -> None:
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
    assert (found.verdict, found.finding) == ("differs", "the record at offset 1 differs from the source's")


async def test_a_record_that_a_compacted_standby_lacks_is_for_reconcile_to_judge() -> None:
    last = batch(3, b"4")
    found = await compared(Log(batch(0, b"1"), batch(1, b"2"), last, policy="compact"), Log(batch(1, b"2"), last))
    assert (found.verdict, found.records) == ("unknown", 2)
    assert "lacks 1 records, the first one at offset 0" in found.finding
    assert "antipode reconcile" in found.finding


async def test_a_translate_link_s_compacted_topic_is_compared_by_record_at_the_places_of_its_map() -> None:
    """The source has been cleaned since: batches are gone, or have fewer records."""
    target = Log(batch(5, b"1", b"2", producer_id=OURS), batch(9, b"3", b"4", producer_id=OURS), policy="compact")
    runs = ((0, 5, 2), (2, 9, 2))
    whole = Log(batch(0, b"1", b"2"), batch(2, b"3", b"4"), policy="compact")
    assert (await translated(whole, target, *runs)).records == 4
    second_of_two = encode_batch([Record(b"k1", b"2", 1)], base_offset=1)
    cleaned = Log(second_of_two, batch(2, b"3", b"4"), policy="compact")
    found = await translated(cleaned, target, *runs)
    assert (found.verdict, found.records) == ("equal", 3)
    other = Log(second_of_two, batch(2, b"3", b"other"), policy="compact")
    assert (await translated(other, target, *runs)).finding == "the record at offset 10 differs from the source's"


async def test_records_that_a_translate_links_target_may_have_compacted_away_are_counted() -> None:
    source = Log(batch(0, b"1", b"2"), batch(2, b"3"), policy="compact")
    target = Log(batch(7, b"3", producer_id=OURS), policy="compact")
    found = await translated(source, target, (0, 5, 2), (2, 7, 1))
    assert (found.verdict, found.records) == ("unknown", 1)
    assert found.finding == "the target lacks 2 records, the first one at offset 5; it may have compacted them away"


@pytest.mark.parametrize("last_offsets", [1, 2, 3])
async def test_the_batch_in_which_the_last_offsets_begin_is_compared_whole(last_offsets: int) -> None:
    source, runs = Log(batch(0, b"1"), batch(1, b"2", b"3", b"4")), ((0, 5, 1), (1, 6, 3))
    same = Log(batch(5, b"1", producer_id=OURS), batch(6, b"2", b"3", b"4", producer_id=OURS))
    found = await translated(source, same, *runs, last_offsets=last_offsets)
    assert (found.verdict, found.from_offset, found.records) == ("equal", 1, 3)
    other = Log(batch(5, b"1", producer_id=OURS), batch(6, b"2", b"3", b"5", producer_id=OURS))
    assert (await translated(source, other, *runs, last_offsets=last_offsets)).verdict == "differs"


def merged(base_offset: int, *batches: bytes) -> bytes:
    """One batch of ours with the records of several."""
    records = [record for one in batches for record in decode_records(one)]
    return encode_batch(records, base_offset=base_offset, producer_id=OURS)


async def test_a_merged_batch_is_compared_with_the_batches_that_it_was_made_of() -> None:
    source = batch(0, b"1"), batch(1, b"2", b"3"), batch(3, b"4"), batch(4, b"5")
    target = Log(batch(7, b"1", producer_id=OURS), merged(8, *source[1:3]), batch(11, b"5", producer_id=OURS))
    found = await translated(Log(*source), target, (0, 7, 5))
    assert (found.verdict, found.batches, found.records) == ("equal", 4, 5)
    other = Log(batch(0, b"1"), batch(1, b"2", b"other"), *source[2:])
    found = await translated(other, target, (0, 7, 5))
    assert (found.verdict, found.finding) == ("differs", "the batch at offset 8 differs in bytes from the source's")
    longer = Log(*source[:2], batch(3, b"4", b"5"))
    found = await translated(longer, target, (0, 7, 5))
    assert found.finding == "the target has 3 records at offset 8 where 4 at offset 8 belong"


@pytest.mark.parametrize(("last_offsets", "from_offset"), [(1, 3), (2, 1), (3, 1), (4, 0)])
async def test_the_merged_batch_in_which_the_last_offsets_begin_is_compared_whole(
    last_offsets: int, from_offset: int
) -> None:
    source = batch(0, b"1"), batch(1, b"2"), batch(2, b"3"), batch(3, b"4")
    target = Log(batch(7, b"1", producer_id=OURS), merged(8, *source[1:3]), batch(10, b"4", producer_id=OURS))
    found = await translated(Log(*source), target, (0, 7, 4), last_offsets=last_offsets)
    assert (found.verdict, found.from_offset) == ("equal", from_offset)


async def test_a_merged_batch_of_which_the_source_lacks_records_is_not_compared() -> None:
    source = batch(2, b"3"), batch(3, b"4")
    target = Log(merged(7, batch(0, b"1"), batch(1, b"2"), source[0]), batch(10, b"4", producer_id=OURS))
    found = await translated(Log(*source, start=2), target, (0, 7, 4))
    assert (found.verdict, found.from_offset, found.records) == ("equal", 3, 1)
