"""Rereads the logs on disk at a bounded rate and verifies their checksums: it finds a changed bit
before a consumer or a failover needs it.

A pass over a log goes from its start to the high watermark that it had when the pass began. The log
whose last pass ended longest ago is next. Findings are kept at the log until its next pass, and
named in responses to RangeDigests. Passes are counted from the start of the broker: those of an
earlier process are not remembered.

Caller: broker/replication/housekeeping.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from broker.log.errors import CorruptLog, OffsetOutOfRange, StorageError
from broker.log.log_state import CorruptBatch
from broker.log.partition_log import PartitionLog
from broker.log.segments.log_slice import LogSlice
from broker.log.threads import in_thread
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.batches.record_batch import InvalidBatch, iterate_headers, verify_crc

PIECE_BYTES: Final = 256 * 1024
CORRUPT_MAX: Final = 100
"""Maximum number of damaged batches that are named for one log."""

LOGS_A_TURN: Final = 100
"""Logs that are looked at before others have their turn on the event loop."""

log = get_logger(__name__)


class Scrubber:
    """The passes over a broker's logs."""

    def __init__(self, logs: Iterable[PartitionLog], clock: Clock) -> None:
        """`logs` is iterated again each time."""
        self._logs = logs
        self._clock = clock
        self._started_at_ms = clock.now_ms()
        self.read_bytes = 0

    def oldest_pass_ms(self) -> int:
        """The time (ms) since the last pass over the log that waits longest, or since the broker's
        start.
        """
        now_ms = self._clock.now_ms()
        return max((now_ms - self._ended(one) for one in tuple(self._logs)), default=0)

    def corrupt_count(self) -> int:
        """Batches that the last passes found damaged."""
        return sum(len(one.corrupt_batches) for one in tuple(self._logs))

    async def scrub_due(self, *, interval_ms: float, bytes_per_second: Callable[[], int]) -> None:
        """One pass over each log whose last pass ended `interval_ms` ago or earlier, the oldest
        first. Nothing is read while the rate is 0.
        """
        now_ms = self._clock.now_ms()
        due = []
        for number, one in enumerate(self._logs):
            if number % LOGS_A_TURN == 0:
                await asyncio.sleep(0)
            if now_ms - self._ended(one) >= interval_ms:
                due.append(one)
        for one in sorted(due, key=self._ended):
            # the rate is read each time: an operator may stop the scrubber at once
            if bytes_per_second() <= 0:
                return
            try:
                await self._pass(one, bytes_per_second)
            except (StorageError, OffsetOutOfRange) as error:
                if not one.is_abandoned:
                    log.warning("a log was not scrubbed", partition=_name(one), reason=str(error))
            # also after a failure: a log that cannot be read would otherwise be the first in every
            # round
            one.scrubbed_at_ms = self._clock.now_ms()

    def _ended(self, one: PartitionLog) -> int:
        return max(one.scrubbed_at_ms, self._started_at_ms)

    async def _pass(self, one: PartitionLog, bytes_per_second: Callable[[], int]) -> None:
        version, end_offset, offset = one.content_version, one.high_watermark, one.log_start_offset
        found: list[CorruptBatch] = []
        while offset < end_offset and not one.is_abandoned:
            # retention may have moved the start while the previous piece was read
            offset = max(offset, one.log_start_offset)
            try:
                with one.read(offset, max_bytes=PIECE_BYTES, end_offset=end_offset) as piece:
                    if not len(piece):
                        break
                    found += await in_thread(partial(_damage, piece, offset))
                    offset, size_bytes = piece.next_offset, len(piece)
            except CorruptLog as error:
                found.append(CorruptBatch(offset, end_offset - 1, error.reason))
                break  # where the next batch begins is not known
            self.read_bytes += size_bytes
            await asyncio.sleep(size_bytes / max(bytes_per_second(), 1))
        while version != one.content_version:
            # a repair may have replaced a batch after it was read: its finding would stay for a day
            version = one.content_version
            found = [batch for batch in found if await _is_damaged(one, batch)]
        # a finding is logged once, not with each pass
        known = {batch.base_offset for batch in one.corrupt_batches}
        one.corrupt_batches = tuple(found[:CORRUPT_MAX])
        for batch in one.corrupt_batches:
            if batch.base_offset not in known:
                log.error("a batch on the disk is damaged", partition=_name(one), **batch._asdict())


async def _is_damaged(one: PartitionLog, found: CorruptBatch) -> bool:
    """True if the batch is still damaged."""
    try:
        with one.read(found.base_offset, max_bytes=1) as piece:
            damage = await in_thread(partial(_damage, piece, found.base_offset))
    except CorruptLog:
        return True
    return any(batch.base_offset == found.base_offset for batch in damage)


def _damage(piece: LogSlice, offset: int) -> list[CorruptBatch]:
    """The damaged batches of a piece that begins at the offset. For threads."""
    return list(_damaged_batches(piece, piece.read_bytes(), offset))


def _damaged_batches(piece: LogSlice, content: bytes, offset: int) -> Iterator[CorruptBatch]:
    try:
        for position, header in iterate_headers(content):
            if not verify_crc(content, position, header):
                yield CorruptBatch(header.base_offset, header.next_offset - 1, "its checksum does not fit its bytes")
            offset = header.next_offset
    except InvalidBatch as error:
        yield CorruptBatch(offset, piece.next_offset - 1, error.reason)


def _name(one: PartitionLog) -> str:
    return f"{one.topic}-{one.partition}"
