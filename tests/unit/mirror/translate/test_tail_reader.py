"""The part of a target's log, after a loss, that still agrees with the notes, and batches that
arrive during the comparison.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast
from unittest.mock import AsyncMock, MagicMock

import pytest

from mirror.link.core.topic_naming import Naming, NamingPolicy
from mirror.link.ports import LogEnds
from mirror.translate import tail_reader
from mirror.translate.core.offset_map import Run
from mirror.translate.core.translation import Position, Translation
from mirror.translate.tail_reader import TailReader
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from wire.batches.records import Record, encode_batch
from wire.protocol.ids import TopicPartition

OURS, STRANGER = 7, 99
KEY = TopicPartition("orders", 0)
BATCH = 100


def batch(base_offset: int, producer_id: int, base_sequence: int, timestamp_ms: int = 1) -> bytes:
    records = [Record(b"k", b"v", timestamp_ms)] * BATCH
    return encode_batch(
        records, base_offset=base_offset, producer_id=producer_id, producer_epoch=0, base_sequence=base_sequence
    )


def reader_of(*, translations: Any, record_filter: Any) -> TailReader:
    unused = cast("Any", None)
    return TailReader(
        source=unused,
        target=unused,
        naming=Naming(policy=NamingPolicy.IDENTITY, source_alias="a", target_alias="b"),
        translations=translations,
        provenance=MagicMock(origin_of=lambda _: "a"),
        record_filter=record_filter,
        may_append_to_others=False,
        clock=ManualClock(),
        late_within_ms=0,
    )


@pytest.mark.parametrize("strangers", [0, 10, 100])
@pytest.mark.parametrize("kept", [0, 2])
async def test_a_log_is_kept_up_to_what_it_took_from_the_middle_however_much_others_wrote_since(
    monkeypatch: pytest.MonkeyPatch, kept: int, strangers: int
) -> None:
    producers = [*((OURS, number * BATCH) for number in range(kept)), (OURS, 50 * BATCH)]
    producers += [(STRANGER, number * BATCH) for number in range(strangers)]
    log = [batch(index * BATCH, *producer) for index, producer in enumerate(producers)]

    async def fetch(_client: Any, _topic: str, _partition: int, offset: int, **_: Any) -> bytes:
        return b"".join(log[offset // BATCH :][:30])

    monkeypatch.setattr(tail_reader, "fetch_records", fetch)
    reader = reader_of(translations=None, record_filter=None)
    position = Position(target_next=1_000_000, sequences={OURS: (0, 50 * BATCH)})
    end = LogEnds(log_start_offset=0, end_offset=len(log) * BATCH, last_epoch=0)
    assert await reader._end_of_copy(KEY, position, end) == kept * BATCH


async def test_batches_that_the_target_took_after_the_question_for_its_end_are_compared_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another mirror of the link still writes, or a request of one that died arrives late: a fetch
    brings more than was asked about.
    """
    numbers = range(5)
    source = [batch(number * BATCH, -1, -1, timestamp_ms=number) for number in numbers]
    copies = [batch(number * BATCH, OURS, number * BATCH, timestamp_ms=number) for number in numbers]
    log = copies[:1]

    async def fetch(_client: Any, _topic: str, _partition: int, offset: int, **_: Any) -> bytes:
        log[:] = copies[:2]
        return b"".join(log[offset // BATCH :])

    async def read(_client: Any, _key: TopicPartition, offset: int, **_: Any) -> tuple[bytes, frozenset[int]]:
        return b"".join(source[offset // BATCH :]), frozenset()

    async def log_ends() -> dict[TopicPartition, LogEnds]:
        return {KEY: LogEnds(log_start_offset=0, end_offset=len(log) * BATCH, last_epoch=0)}

    monkeypatch.setattr(tail_reader, "fetch_records", fetch)
    translation = Translation()
    translations = MagicMock(
        be_ready=AsyncMock(), have_producer=AsyncMock(), save=AsyncMock(), producers={"a": OURS}, is_transactional=False
    )
    translations.begun.return_value = translations.of.return_value = translation
    translations.is_rebound.return_value = False
    record_filter = MagicMock(read=read)
    record_filter.came_from_target.return_value = False
    reader = reader_of(translations=translations, record_filter=record_filter)
    for is_new in (True, False):
        translations.is_new.return_value = is_new
        answer = (await reader.positions([KEY], log_ends))[KEY]
        assert answer == LogEnds(log_start_offset=0, end_offset=2 * BATCH, last_epoch=-1)
        assert list(translation.map) == [Run(0, 0, 2 * BATCH)]
        assert translation.position.target_next == 2 * BATCH


async def test_a_long_comparison_of_one_partition_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    other, may_read, reads = TopicPartition("orders", 1), asyncio.Event(), list[int]()
    log = batch(0, OURS, 0)

    async def fetch(_client: Any, _topic: str, partition: int, _offset: int, **_: Any) -> bytes:
        assert partition == KEY.partition
        reads.append(partition)
        await may_read.wait()
        return log

    async def read(_client: Any, _key: TopicPartition, offset: int, **_: Any) -> tuple[bytes, frozenset[int]]:
        return log[:0] if offset else log, frozenset()

    async def log_ends() -> dict[TopicPartition, LogEnds]:
        ends = {KEY: BATCH, other: 0}
        return {key: LogEnds(log_start_offset=0, end_offset=end, last_epoch=0) for key, end in ends.items()}

    monkeypatch.setattr(tail_reader, "fetch_records", fetch)
    monkeypatch.setattr(tail_reader, "ANSWERED_WITHIN_S", 0.01)
    made = {KEY: Translation(), other: Translation()}
    translations = MagicMock(
        be_ready=AsyncMock(), have_producer=AsyncMock(), save=AsyncMock(), producers={"a": OURS}, is_transactional=False
    )
    translations.begun, translations.of = made.__getitem__, made.__getitem__
    translations.is_rebound.return_value = False
    translations.is_new = lambda key: not made[key].is_dirty
    reader = reader_of(translations=translations, record_filter=MagicMock(read=read))
    async with asyncio.timeout(10):
        for _ in range(2):
            answers = await reader.positions([KEY, other], log_ends)
            assert answers[other] == LogEnds(log_start_offset=0, end_offset=0, last_epoch=-1)
            assert "compared" in str(answers[KEY])
        may_read.set()
        await eventually(lambda: made[KEY].is_dirty)
        answers = await reader.positions([KEY, other], log_ends)
    assert answers[KEY] == LogEnds(log_start_offset=0, end_offset=BATCH, last_epoch=-1)
    assert len(reads) == 1, "each question begins another comparison"
    await reader.close()
