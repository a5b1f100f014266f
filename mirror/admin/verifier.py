"""Compares the copies with the source, batch by batch, while mirroring continues; no batch is
decompressed.

An exact link must have the same bytes at the same offsets. A translate link must have, at the
offsets of its offset map, batches with the same records part (or as many records, where a batch had
to be rewritten), each once and with nothing of the link's own between. Only records that both logs
still have are compared, up to the end that was mirrored when the comparison began.

For a compacted topic the two ends keep different records: a standby never compacts, and the target
of a translate link compacts by itself. Its batches are opened: every record that the source still
has must be at the target, or may have been compacted away there, which is unknown.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from crc32c import crc32c

from clients.reader.single_fetches import fetch_at_leader, records_of
from mirror.admin.samples import Sample, Samples, difference, side_by_side
from mirror.link.core.topic_naming import Naming
from mirror.link.ports import Unreachable
from mirror.sites.kafka_site import reached
from mirror.translate.core.merging import DIGEST_MASK, may_be_merged, record_digests
from mirror.translate.core.translation import Translation
from mirror.translate.record_filter import SourceFilter
from mirror.translate.translations import Translations
from wire.batches.record_batch import HEADER_SIZE, BatchHeader, Buffer, InvalidBatch, iterate_headers
from wire.batches.records import Record, decode_batch
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import CONSUMER, DEBUGGING_CONSUMER, EARLIEST_TIMESTAMP, TopicPartition

READ_BYTES = 1024 * 1024


@dataclass(slots=True)
class Comparison:
    """The result of the comparison of one partition."""

    from_offset: int = 0
    to_offset: int = 0
    batches: int = 0
    records: int = 0
    finding: str = ""
    is_known: bool = True
    is_unread: bool = False
    """True if a log could not be read, which another attempt may change."""

    @property
    def verdict(self) -> str:
        """The verdict's name."""
        if not self.is_known:
            return "unknown"
        return "differs" if self.finding else "equal"


@dataclass(slots=True)
class _Reader:
    """Reads the batches of one log."""

    client: KafkaClient
    topic: str
    partition: int
    replica_id: int
    start: int = field(default=0)

    async def find_start(self) -> int:
        place = (self.topic, self.partition)
        found = await reached(self.client.offsets_at([place], EARLIEST_TIMESTAMP, replica_id=self.replica_id))
        self.start = found[place]
        return self.start

    async def batches(self, offset: int, end: int) -> AsyncIterator[tuple[Buffer, int, BatchHeader]]:
        while offset < end:
            records = await self._fetch(offset)
            before = offset
            for position, header in iterate_headers(records, may_end_in_partial=True):
                if header.base_offset >= end:
                    return
                if header.next_offset > offset:
                    yield records, position, header
                    offset = header.next_offset
            if offset == before:
                raise Unreachable(f"{self.topic}-{self.partition} has nothing at offset {offset}")

    async def _fetch(self, offset: int) -> Buffer:
        place = (self.topic, self.partition)
        fetch = fetch_at_leader(
            self.client, place, offset, max_bytes=READ_BYTES, max_wait_ms=500, replica_id=self.replica_id
        )
        return records_of(await reached(fetch))


class Verifier(Protocol):
    """Compares partitions."""

    async def compare(self, key: TopicPartition, *, mirrored_end: int, last_offsets: int) -> Comparison:
        """Compare one partition, or only its last `last_offsets` source offsets (0: all). The
        result is unknown if a log cannot be read.
        """
        ...


class ExactVerifier:
    """Compares both ends of an exact link."""

    def __init__(self, source: KafkaClient, target: KafkaClient) -> None:
        self._source = source
        self._target = target

    async def compare(self, key: TopicPartition, *, mirrored_end: int, last_offsets: int) -> Comparison:
        """Compare one partition. The result is unknown if a log cannot be read."""
        source = _Reader(self._source, key.topic, key.partition, DEBUGGING_CONSUMER)
        target = _Reader(self._target, key.topic, key.partition, DEBUGGING_CONSUMER)
        first = _first(mirrored_end, last_offsets)
        result = Comparison(to_offset=mirrored_end)
        try:
            if await _is_compacted(self._source, key.topic):
                await _compare_compacted(source, target, first, result)
                return result
        except (Unreachable, InvalidBatch) as error:
            return _unknown(result, error)

        async def samples(reader: _Reader, start: int) -> Samples:
            async for buffer, position, header in reader.batches(start, mirrored_end):
                with memoryview(buffer) as view, view[position : position + header.size_bytes] as batch:
                    yield Sample(header.base_offset, header.record_count, crc32c(batch))

        async def both(found: Comparison) -> tuple[Samples, Samples]:
            start = max(await source.find_start(), await target.find_start(), first)
            found.from_offset = start
            return samples(source, start), samples(target, start)

        return await _compared(both, mirrored_end)


class TranslateVerifier:
    """Compares both ends of a translate link."""

    def __init__(
        self,
        source: KafkaClient,
        target: KafkaClient,
        *,
        naming: Naming,
        translations: Translations,
        record_filter: SourceFilter,
    ) -> None:
        self._source = source
        self._target = target
        self._naming = naming
        self._translations = translations
        self._record_filter = record_filter

    async def compare(self, key: TopicPartition, *, mirrored_end: int, last_offsets: int) -> Comparison:
        """Compare one partition. The result is unknown if a log cannot be read."""
        source = _Reader(self._source, key.topic, key.partition, CONSUMER)
        target = _Reader(self._target, self._naming.target_name(key.topic), key.partition, CONSUMER)
        translation = self._translations.of(key)

        async def both(found: Comparison, *, by_record: bool) -> tuple[Samples, Samples]:
            start = max(await source.find_start(), _first(mirrored_end, last_offsets))
            target_start = await target.find_start()
            start = max(start, translation.upstream(target_start))
            if not by_record:
                start = await self._beginning_of_batch(key, start, mirrored_end, target_start)
                start = await self._beginning_of_copy(source, target, translation, start, mirrored_end)
            found.from_offset = start
            end = translation.downstream(mirrored_end)
            return (
                self._expected(key, start, mirrored_end, target_start, by_record=by_record),
                self._found(key, target, max(target_start, translation.downstream(start)), end, by_record=by_record),
            )

        result = Comparison(to_offset=mirrored_end)
        try:
            if await _is_compacted(self._source, key.topic) or await _is_compacted(self._target, target.topic):
                kept, copies = await both(result, by_record=True)
                await _compare_records(kept, copies, result, "it may have compacted them away")
                return result
        except (Unreachable, InvalidBatch) as error:
            return _unknown(result, error)
        return await _compared(partial(both, by_record=False), mirrored_end)

    async def _beginning_of_batch(self, key: TopicPartition, start: int, end: int, target_start: int) -> int:
        """The start of the batch that contains `start`, if the whole batch was mirrored: a part of
        it cannot be compared by batch.
        """
        if start >= end:
            return start
        translation = self._translations.of(key)
        records, _ = await self._record_filter.read(self._source, key, start, max_bytes=READ_BYTES)
        first = next((header.base_offset for _, header in iterate_headers(records, may_end_in_partial=True)), start)
        at = translation.downstream(first)
        return first if first < start and at >= target_start and translation.upstream(at) == first else start

    async def _beginning_of_copy(
        self, source: _Reader, target: _Reader, translation: Translation, start: int, end: int
    ) -> int:
        """The start of the merged batch that contains the copy of `start`, or its end if the source
        or the target lacks records of it.
        """
        at = translation.downstream(start)
        async for _, _, header in target.batches(at, translation.downstream(end)):
            first = translation.upstream(header.base_offset)
            if header.base_offset == at:
                return start
            is_there = header.base_offset >= target.start and first >= source.start
            if is_there and translation.downstream(first) == header.base_offset:
                return first
            return translation.upstream(header.next_offset)
        return start

    async def _expected(
        self, key: TopicPartition, offset: int, end: int, target_start: int, *, by_record: bool
    ) -> Samples:
        translation = self._translations.of(key)
        while offset < end:
            records, skipped = await self._record_filter.read(self._source, key, offset, max_bytes=READ_BYTES)
            before = offset
            for position, header in iterate_headers(records, may_end_in_partial=True):
                if header.base_offset >= end:
                    return
                at = translation.downstream(header.base_offset)
                is_carried = header.base_offset not in skipped
                if by_record and is_carried:
                    for record in decode_batch(records, position, header):
                        place = translation.downstream(record.offset)
                        if offset <= record.offset < end and place >= target_start:
                            yield _content(record, place)
                elif header.base_offset >= offset and is_carried and at >= target_start:
                    yield _translated(records, position, header, at)
                offset = max(offset, header.next_offset)
            if offset == before:
                raise Unreachable(f"the source has nothing at offset {offset}")

    async def _found(self, key: TopicPartition, target: _Reader, start: int, end: int, *, by_record: bool) -> Samples:
        ours = set(self._translations.producers.values())
        translation = self._translations.of(key)

        def is_ours(header: BatchHeader) -> bool:
            if header.is_control or header.producer_id not in self._translations.writers:
                return header.producer_id in ours
            # The map has no entries for interrupted transactions.
            return translation.downstream(translation.upstream(header.base_offset)) == header.base_offset

        async for buffer, position, header in target.batches(start, end):
            if by_record and is_ours(header):
                for record in decode_batch(buffer, position, header):
                    yield _content(record, record.offset)
            elif header.base_offset >= start and is_ours(header):
                yield _translated(buffer, position, header, header.base_offset)


def _translated(buffer: Buffer, position: int, header: BatchHeader, offset: int) -> Sample:
    """The expected batch at the target; a rewritten batch is recognised only by its offset and
    record count.
    """
    if header.is_log_append_time or header.record_count != header.last_offset_delta + 1:
        return Sample(offset, header.record_count, None)
    digest = partial(_digest, buffer, position, header) if may_be_merged(header) else None
    with memoryview(buffer) as view, view[position + HEADER_SIZE : position + header.size_bytes] as records:
        return Sample(offset, header.record_count, crc32c(records), digest)


def _digest(buffer: Buffer, position: int, header: BatchHeader) -> int:
    return sum(record_digests(buffer, position, header)) & DIGEST_MASK


async def _is_compacted(client: KafkaClient, topic: str) -> bool:
    configs = await reached(client.topic_configs([topic], is_set_only=False))
    return "compact" in (configs.get(topic, {}).get("cleanup.policy") or "")


async def _compare_compacted(source: _Reader, target: _Reader, first: int, result: Comparison) -> None:
    """Record by record: the target may have more than the source, never something else."""
    end = result.to_offset
    result.from_offset = start = max(await source.find_start(), await target.find_start(), first)
    hint = "antipode reconcile shows whether it compacted them away"
    await _compare_records(_records(source, start, end), _records(target, start, end), result, hint)


async def _compare_records(expected: Samples, copies: Samples, result: Comparison, hint: str) -> None:
    """Every record of the source, at its translated offset at the target."""
    missing: list[int] = []
    copy = await anext(copies, None)
    async for kept in expected:
        while copy is not None and copy.offset < kept.offset:
            copy = await anext(copies, None)
        if copy is None or copy.offset != kept.offset:
            missing.append(kept.offset)
            continue
        if copy != kept:
            result.finding = f"the record at offset {kept.offset} differs from the source's"
            return
        result.records += 1
        copy = await anext(copies, None)
    if missing:
        # The target may have compacted them away itself; a standby may have done so while it was
        # the active site.
        result.is_known = False
        result.finding = f"the target lacks {len(missing)} records, the first one at offset {missing[0]}; {hint}"


async def _records(reader: _Reader, start: int, end: int) -> Samples:
    """Each record as a separate sample, with a checksum of its content."""
    async for buffer, position, header in reader.batches(start, end):
        for record in decode_batch(buffer, position, header):
            if start <= record.offset < end:
                yield _content(record, record.offset)


def _content(record: Record, place: int) -> Sample:
    """The content of a record at an offset of the target, independent of its offset at the
    source.
    """
    return Sample(place, 1, crc32c(repr(record._replace(offset=place)).encode()))


def _first(mirrored_end: int, last_offsets: int) -> int:
    return max(0, mirrored_end - last_offsets) if last_offsets > 0 else 0


async def _compared(both: Callable[[Comparison], Awaitable[tuple[Samples, Samples]]], mirrored_end: int) -> Comparison:
    result = Comparison(to_offset=mirrored_end)
    try:
        expected, found = await both(result)
        async for one, other, batch_count in side_by_side(expected, found):
            result.finding = difference(one, other)
            if result.finding:
                return result
            result.batches += batch_count
            result.records += one.record_count if one is not None else 0
    except (Unreachable, InvalidBatch) as error:
        return _unknown(result, error)
    return result


def _unknown(result: Comparison, error: Unreachable | InvalidBatch) -> Comparison:
    result.is_known, result.finding = False, str(error)
    result.is_unread = isinstance(error, Unreachable)
    return result
