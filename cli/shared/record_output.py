"""Records on standard output, as lines of text or of JSON."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cli.shared.output import OutputFormat, print_json

if TYPE_CHECKING:
    from clients.consumer.consumer import Consumer
    from clients.reader.core.positions import Position
    from wire.batches.records import Record
    from wire.protocol.ids import PartitionKey

COMMIT_INTERVAL_S = 5


class Printed:
    """The printed positions of a group's partitions: the command commits exactly these."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._due_s = 0.0
        self.next_positions: dict[PartitionKey, Position] = {}

    def put_back(self, place: PartitionKey, record: Record) -> None:
        """The record could not be printed: the group continues at it."""
        from clients.reader.core.positions import Position

        self.next_positions[place] = Position(record.offset)

    def commit_if_due(self) -> None:
        """Commit in the background when the interval has passed."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._due_s and self.next_positions:
            self._due_s = now_s + COMMIT_INTERVAL_S
            self._consumer.commit_soon(dict(self.next_positions))

    async def commit(self) -> None:
        """Commit all positions. If the generation has ended, nothing is committed, and its records
        are delivered again.
        """
        from clients.consumer.consumer_options import CommitRefused

        with suppress(CommitRefused):
            await self._consumer.commit(dict(self.next_positions))
        self.next_positions.clear()

    async def revoked(self, _: frozenset[PartitionKey]) -> None:
        """Commit before another member continues."""
        await self.commit()

    async def assigned(self, _: frozenset[PartitionKey]) -> None:
        """Begin."""

    async def lost(self, _: frozenset[PartitionKey]) -> None:
        """Forget the positions: nothing can be committed."""
        self.next_positions.clear()


def shown_as(output: OutputFormat, *, has_keys: bool, shows_offsets: bool) -> Callable[[PartitionKey, Record], None]:
    """The function that prints one record."""
    if output is OutputFormat.JSON:
        return lambda place, record: print_json(record_document(place, record))

    def show(place: PartitionKey, record: Record) -> None:
        parts = [f"{place[0]}-{place[1]}@{record.offset}".encode()] if shows_offsets else []
        if has_keys:
            parts.append(record.key or b"")
        parts.append(record.value or b"")
        sys.stdout.buffer.write(b"\t".join(parts) + b"\n")
        sys.stdout.buffer.flush()

    return show


def record_document(place: PartitionKey, record: Record) -> dict[str, Any]:
    """The JSON form of a record."""
    from wire.batches.records import printable_name

    return {
        "topic": place[0],
        "partition": place[1],
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_text("key", record.key),
        **_text("value", record.value),
        "headers": [{"name": printable_name(name), **_text("value", value)} for name, value in record.headers],
    }


def _text(name: str, data: bytes | None) -> dict[str, str | None]:
    """Bytes as text, or in base64 under another name when they are none."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data or b"").decode()}
