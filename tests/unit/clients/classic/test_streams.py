"""A stream of the classic consumer: reads after damage, and errors that are reported again."""

from __future__ import annotations

import asyncio

import pytest

from clients.classic.streams import ConsumerTimeout, Stream
from clients.reader.core.positions import Position
from clients.reader.core.readings import Readings, Start
from clients.reader.reader_options import Chunk, DamagedLog
from wire.batches.record_batch import InvalidBatch
from wire.batches.records import Record, encode_batch
from wire.protocol.ids import PartitionKey

PLACE, OTHER = ("t", 0), ("t", 1)


class HandReader:
    """A reader whose chunks the test puts by hand."""

    def __init__(self) -> None:
        self.readings = Readings()
        self.begin({PLACE: Start(Position(0)), OTHER: Start(Position(0))})

    def begin(self, starts: dict[PartitionKey, Start]) -> None:
        for place, start in starts.items():
            self.readings.begin(place, start)

    def retry(self, place: PartitionKey) -> None:
        self.readings.retry(place)

    def consumed(self, place: PartitionKey = PLACE) -> int:
        return self.readings.positions()[place].offset

    def chunk(self, first: int, end: int, *, damaged: int = -1, place: PartitionKey = PLACE) -> Chunk:
        reading = self.readings.get(place)
        assert reading is not None
        batches = [bytearray(encode_batch([Record(b"k", b"%d" % at, 1)], base_offset=at)) for at in range(first, end)]
        if damaged >= 0:
            batches[damaged - first][-1] ^= 1
        return Chunk(
            place=place,
            generation=reading.generation,
            position=Position(first),
            next=Position(end),
            records=memoryview(b"".join(batches)),
            record_count=end - first,
        )


def stream_of(reader: HandReader) -> Stream:
    return Stream(chunks_max=8, timeout_ms=0, reader=lambda: reader)  # type: ignore[arg-type,return-value]


async def read(stream: Stream) -> list[tuple[int, int]]:
    """Partition and offset of each record up to the stream's timeout; other errors are raised."""
    found: list[tuple[int, int]] = []
    try:
        async for place, record in stream.records():
            found.append((place[1], record.offset))
    except ConsumerTimeout:
        pass
    return found


async def test_nothing_behind_a_damaged_batch_is_passed_over() -> None:
    """HC-13, FT-15."""
    reader = HandReader()
    stream = stream_of(reader)
    await stream.put(reader.chunk(0, 4, damaged=1))
    await stream.put(reader.chunk(0, 2, place=OTHER))
    await stream.put(reader.chunk(4, 6))
    with pytest.raises(InvalidBatch, match="offset 1"):
        await read(stream)
    assert reader.consumed() == 1
    assert await read(stream) == [(1, 0), (1, 1)]  # other partitions continue, this one waits to be read again
    assert reader.consumed() == 1
    await stream.put(reader.chunk(1, 4, damaged=1))
    with pytest.raises(InvalidBatch, match="offset 1"):
        await read(stream)
    await stream.put(reader.chunk(1, 4))
    assert await read(stream) == [(0, 1), (0, 2), (0, 3)]
    assert reader.consumed() == 4


async def test_a_record_that_is_put_back_counts_as_not_consumed() -> None:
    reader = HandReader()
    stream = stream_of(reader)
    await stream.put(reader.chunk(0, 4))
    async for _, record in stream.records():
        if record.offset == 2:
            break
    assert reader.consumed() == 3
    stream.put_back()
    assert reader.consumed() == 2


async def test_a_halted_partition_is_checked_again_after_its_problem_was_reported() -> None:
    reader = HandReader()
    stream = stream_of(reader)
    reading = reader.readings.get(PLACE)
    assert reading is not None
    reader.readings.led_by(PLACE, 1, 0)
    reader.readings.halt(reading)
    problem = DamagedLog("t-0 at offset 0")
    await stream.put(
        Chunk(place=PLACE, generation=reading.generation, position=Position(0), next=Position(0), problem=problem)
    )
    with pytest.raises(DamagedLog):
        await read(stream)
    assert PLACE in reader.readings.fetchable(1)


async def test_everyone_who_waits_at_a_stream_returns_when_it_ends_and_nothing_is_waited_for_after_it() -> None:
    """FT-18: the readers have no timeout, so only the end of the stream lets them return."""
    reader = HandReader()
    stream = Stream(chunks_max=8, timeout_ms=-1, reader=lambda: reader)  # type: ignore[arg-type,return-value]
    async with asyncio.timeout(60):
        waiting = [asyncio.create_task(read(stream)) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        stream.end()
        assert await asyncio.gather(*waiting) == [[], [], []]
        assert await read(stream) == []


async def test_the_failure_that_ends_a_stream_reaches_everyone_who_waits() -> None:
    reader = HandReader()
    stream = Stream(chunks_max=8, timeout_ms=-1, reader=lambda: reader)  # type: ignore[arg-type,return-value]
    async with asyncio.timeout(60):
        waiting = [asyncio.create_task(read(stream)) for _ in range(2)]
        await asyncio.sleep(0)
        stream.end(DamagedLog("broken"))
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["broken", "broken"]
