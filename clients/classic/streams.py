"""Streams of the high-level consumer: one for each thread, with a bounded queue of chunks that
several partitions share.

A stream is one object for its whole life; a rebalance only drops its queued records. The consumed
offset moves when a record is returned, before the application has processed it: a crash loses a
record that was committed but not processed (the mirror does not work in this way).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from clients.reader.core.opening import records_in
from clients.reader.core.positions import Position
from clients.reader.core.readings import Start
from clients.reader.reader import Reader
from clients.reader.reader_options import Chunk
from wire.batches.record_batch import InvalidBatch
from wire.batches.records import Record
from wire.protocol.ids import PartitionKey


class ConsumerTimeout(Exception):
    """No record arrived within `consumer.timeout.ms`; the application may continue to read."""


class _End:
    """The end of a stream."""


END: Final = _End()


class Stream:
    """The records of one thread, for one reader at a time."""

    def __init__(self, *, chunks_max: int, timeout_ms: int, reader: Callable[[], Reader | None]) -> None:
        self._queue: asyncio.Queue[Chunk | _End] = asyncio.Queue(chunks_max)
        self._timeout_ms = timeout_ms
        self._reader = reader
        self._failure: Exception | None = None
        self._returned: tuple[Chunk, Position] | None = None
        """The chunk and position of the record that was returned last."""

    @property
    def queued_chunks(self) -> int:
        """The number of waiting chunks."""
        return self._queue.qsize()

    async def put(self, chunk: Chunk) -> None:
        """Queue a chunk, waiting for room."""
        await self._queue.put(chunk)

    def clear(self) -> None:
        """Drop what is queued."""
        while not self._queue.empty():
            self._queue.get_nowait()

    def end(self, failure: Exception | None = None) -> None:
        """End the stream: a waiting reader returns, or gets the failure."""
        self._failure = failure
        self.clear()
        self._queue.put_nowait(END)

    async def chunk(self) -> Chunk | None:
        """The next chunk unchanged, counted as consumed; None at the end. Raises ConsumerTimeout,
        and the partition's problem each time that it is found.
        """
        while True:
            found = await self._next()
            if isinstance(found, _End):
                return None
            reader = self._reader()
            if reader is None or reader.readings.current(found.place, found.generation) is None:
                continue
            if found.problem is not None:
                reader.retry(found.place)
                raise found.problem
            return found

    async def chunks(self) -> AsyncIterator[Chunk]:
        """Raw batches; the consumed offset moves with each chunk."""
        while (chunk := await self.chunk()) is not None:
            self._consume(chunk, chunk.next)
            yield chunk

    async def records(self) -> AsyncIterator[tuple[PartitionKey, Record]]:
        """Single records; the consumed offset moves with each.

        Raises InvalidBatch for a damaged batch, again at each call: nothing after it is skipped,
        and the partition stays where the damage begins.
        """
        while (chunk := await self.chunk()) is not None:
            at = chunk.position
            try:
                for record in records_in(chunk.records, first_offset=chunk.position.offset):
                    at = Position(record.offset + 1)
                    if not self._consume(chunk, at):
                        break
                    self._returned = chunk, Position(record.offset)
                    yield chunk.place, record
            except InvalidBatch:
                self._stay_at(chunk, at)
                raise
            self._consume(chunk, chunk.next)

    def put_back(self) -> None:
        """The record that `records` returned last counts as not consumed: for an application that
        failed to process it, and ends.
        """
        if self._returned is not None:
            self._consume(*self._returned)

    def _stay_at(self, chunk: Chunk, position: Position) -> None:
        """Drop the queued chunks after the position, and fetch them again."""
        reader = self._reader()
        if reader is not None and reader.readings.current(chunk.place, chunk.generation) is not None:
            reader.begin({chunk.place: Start(position)})

    def _consume(self, chunk: Chunk, position: Position) -> bool:
        """Move the consumed offset; False if the partition no longer belongs to this stream."""
        reader = self._reader()
        reading = None if reader is None else reader.readings.current(chunk.place, chunk.generation)
        if reading is None:
            return False
        reading.consumed = position
        return True

    async def _next(self) -> Chunk | _End:
        try:
            async with asyncio.timeout(None if self._timeout_ms < 0 else self._timeout_ms / 1000):
                found = await self._queue.get()
        except TimeoutError as error:
            raise ConsumerTimeout(f"no record arrived within {self._timeout_ms} ms") from error
        if isinstance(found, _End):
            self._queue.put_nowait(END)
            if self._failure is not None:
                raise self._failure
        return found


class ThreadStreams:
    """The sink of a reader that puts each chunk into the stream of its partition's thread."""

    def __init__(self) -> None:
        self.by_partition: dict[PartitionKey, Stream] = {}

    async def put(self, chunk: Chunk) -> None:
        """Put the chunk into its stream; waits for room there."""
        stream = self.by_partition.get(chunk.place)
        if stream is not None:
            await stream.put(chunk)
