"""`antipode consume`: a record whose print failed is not committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from cli.clients.consume import _run
from cli.clients.consumed_records import Found, Wanted, _records_of_consumer
from cli.shared.record_output import Printed
from clients.reader.core.positions import Position
from clients.reader.reader_options import Chunk
from wire.batches.records import Record, decode_records, encode_batch
from wire.protocol.ids import PartitionKey

PLACE = ("t", 0)


class HandConsumer:
    """A member of a group that reads four records, and keeps what is committed."""

    def __init__(self) -> None:
        self.committed: dict[PartitionKey, Position] = {}

    @property
    def is_assigned(self) -> bool:
        return True

    async def poll(self, _: float) -> Sequence[Chunk]:
        batch = encode_batch([Record(None, b"%d" % offset, 1) for offset in range(4)])
        return [
            Chunk(
                place=PLACE,
                generation=1,
                position=Position(0),
                next=Position(4),
                records=memoryview(batch),
                record_count=4,
            )
        ]

    def opened(self, chunk: Chunk) -> Iterator[Record]:
        return iter(decode_records(chunk.records))

    async def commit(self, offsets: Mapping[PartitionKey, Position]) -> None:
        self.committed = dict(offsets)


def wanted(count_max: int | None) -> Wanted:
    return Wanted(
        topics=["t"],
        group="g",
        partition=None,
        offset=None,
        at="earliest",
        reset=None,
        whitelist=None,
        blacklist=None,
        count_max=count_max,
        timeout_ms=None,
        isolation="read_uncommitted",
        session_timeout_ms=10_000,
        is_committing=True,
        fetchers=1,
    )


async def committed_after(refused_offset: int, failure: type[OSError], count_max: int | None = None) -> Position:
    """What the group has committed when the record at the offset could not be printed."""
    consumer = HandConsumer()
    printed = Printed(consumer)  # type: ignore[arg-type]
    asked = wanted(count_max)

    async def begin(stack: AsyncExitStack) -> Found:
        stack.push_async_callback(printed.commit)
        records = _records_of_consumer(consumer, printed, asked)  # type: ignore[arg-type]
        return Found(records=records, put_back=printed.put_back)

    def show(_: PartitionKey, record: Record) -> None:
        if record.offset == refused_offset:
            raise failure

    await _run(asked, show, begin)
    return consumer.committed[PLACE]


async def test_a_record_that_a_closed_pipe_refused_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)  # restores what the command replaces
    assert await committed_after(2, BrokenPipeError) == Position(2)


async def test_the_last_of_the_wanted_records_is_committed() -> None:
    assert await committed_after(4, OSError, count_max=3) == Position(3)


class JoiningConsumer(HandConsumer):
    """A member of a group whose first rebalance takes three polls; then one poll has records."""

    def __init__(self) -> None:
        super().__init__()
        self.polls = 0

    @property
    def is_assigned(self) -> bool:
        return self.polls >= 3

    async def poll(self, timeout_ms: float) -> Sequence[Chunk]:
        self.polls += 1
        return await super().poll(timeout_ms) if self.polls == 4 else []


@pytest.mark.parametrize(("session_timeout_ms", "count"), [(10_000, 4), (0, 0)])
async def test_the_timeout_begins_when_the_group_is_joined_or_the_session_is_over(
    session_timeout_ms: int, count: int
) -> None:
    consumer = JoiningConsumer()
    asked = replace(wanted(None), timeout_ms=0, session_timeout_ms=session_timeout_ms, is_committing=False)
    records = _records_of_consumer(consumer, Printed(consumer), asked)  # type: ignore[arg-type]
    assert len([record async for record in records]) == count
