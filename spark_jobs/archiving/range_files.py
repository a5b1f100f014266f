"""The work of Spark's workers for an archive: they write one range of a log into files, and read
files back into batches.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.archiving.core.archive_plan import Piece, Stored
from spark_jobs.archiving.core.manifest import BATCHES, RECORDS, ArchivedFile
from spark_jobs.archiving.store import ArchiveStore, HashedFile
from spark_jobs.logs.log_reader import StoredBatch, read_split
from wire.batches.record_batch import BatchHeader, InvalidBatch, iterate_headers
from wire.batches.records import decode_batch, printable_name

ROWS_BUFFERED: Final = 50_000
BYTES_BUFFERED: Final = 16 * 1024 * 1024
DAYS_OPEN_MAX: Final = 16
"""Files of days that a range writes at a time: each holds a part of its upload in memory."""
NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
"""The partition value that Spark reads as null, for records whose timestamp is outside the
calendar.
"""
_DAY_MS: Final = 86_400_000
_DAYS_MAX: Final = 2_932_897  # the end of year 9999

RECORD_COLUMNS = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("timestamp_type", pa.string()),
        ("leader_epoch", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""Columns of the Parquet files; `topic` and `day` are in the names of the directories."""


class RangeWriter(Protocol):
    """Takes the batches of a range in order."""

    def add(self, header: BatchHeader, data: memoryview) -> None:
        """One batch. Raises InvalidBatch when its records cannot be decoded."""
        ...

    def finish(self, span: str) -> tuple[ArchivedFile, ...]:
        """The files under their names; `span` is PARTITION-FIRST-END."""
        ...

    def discard(self) -> None:
        """Remove what was written."""
        ...


class BatchWriter:
    """All batches into one file, byte for byte."""

    def __init__(self, store: ArchiveStore, piece: Piece) -> None:
        self._piece = piece
        self._file = store.new_file()

    def add(self, header: BatchHeader, data: memoryview) -> None:  # noqa: ARG002  the protocol's signature
        """Append the bytes."""
        self._file.write(data)

    def finish(self, span: str) -> tuple[ArchivedFile, ...]:
        """One file."""
        return (self._file.finish(f"{BATCHES}/{self._piece.topic_id}/{span}.batches"),)

    def discard(self) -> None:
        """Remove the file."""
        self._file.discard()


class RecordWriter:
    """The records of a range as Parquet, one file a day; more of them for a day that comes again
    after many others. Control batches contain no records of applications and are skipped.
    """

    def __init__(self, store: ArchiveStore, piece: Piece) -> None:
        self._store = store
        self._piece = piece
        self._open: dict[str, tuple[HashedFile, pq.ParquetWriter]] = {}
        """By day, the one that was written last at the end."""
        self._ended: list[tuple[str, HashedFile]] = []
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        self._row_count = 0
        self._buffered_bytes = 0

    def add(self, header: BatchHeader, data: memoryview) -> None:
        """Buffer the records by day."""
        if header.is_control:
            return
        kind = "LogAppendTime" if header.is_log_append_time else "CreateTime"
        for record in list(decode_batch(data, 0, header)):
            headers = [{"key": printable_name(name), "value": value} for name, value in record.headers]
            row = (
                self._piece.split.partition,
                record.offset,
                record.timestamp_ms,
                kind,
                header.partition_leader_epoch,
                record.key,
                record.value,
                headers,
            )
            self._rows.setdefault(day_of(record.timestamp_ms), []).append(row)
            self._row_count += 1
            self._buffered_bytes += len(record.key or b"") + len(record.value or b"")
            self._buffered_bytes += sum(len(name) + len(value or b"") for name, value in record.headers)
        if self._row_count >= ROWS_BUFFERED or self._buffered_bytes >= BYTES_BUFFERED:
            self._flush()

    def finish(self, span: str) -> tuple[ArchivedFile, ...]:
        """The files of each day, in the order of the log."""
        self._flush()
        for day in list(self._open):
            self._end(day)
        numbers: Counter[str] = Counter()
        finished = []
        for day, file in sorted(self._ended, key=itemgetter(0)):
            number = f"-{numbers[day]}" if numbers[day] else ""
            numbers[day] += 1
            folder = f"{RECORDS}/topic={self._piece.split.topic}/day={day}"
            finished.append(file.finish(f"{folder}/{self._piece.topic_id}-{span}{number}.parquet"))
        return tuple(finished)

    def discard(self) -> None:
        """Remove all files."""
        for day in list(self._open):
            self._end(day)
        for _, file in self._ended:
            file.discard()

    def _flush(self) -> None:
        for day, rows in self._rows.items():
            columns = zip(*rows, strict=True)
            arrays = [pa.array(column, type=field.type) for column, field in zip(columns, RECORD_COLUMNS, strict=True)]
            self._writer(day).write_table(pa.Table.from_arrays(arrays, schema=RECORD_COLUMNS))
        self._rows, self._row_count, self._buffered_bytes = {}, 0, 0

    def _writer(self, day: str) -> pq.ParquetWriter:
        if day in self._open:
            self._open[day] = self._open.pop(day)
        else:
            if len(self._open) >= DAYS_OPEN_MAX:
                self._end(next(iter(self._open)))
            file = self._store.new_file()
            self._open[day] = file, pq.ParquetWriter(pa.PythonFile(file, mode="w"), RECORD_COLUMNS)
        return self._open[day][1]

    def _end(self, day: str) -> None:
        file, writer = self._open.pop(day)
        # before the writer closes: a failed upload is discarded too
        self._ended.append((day, file))
        writer.close()
        file.end()


def day_of(timestamp_ms: int) -> str:
    """The UTC day of a timestamp as YYYY-MM-DD."""
    days = timestamp_ms // _DAY_MS
    if not 0 <= days < _DAYS_MAX:
        return NO_DAY
    return (dt.date(1970, 1, 1) + dt.timedelta(days=days)).isoformat()


def store_piece(address: str, format_name: str, bootstrap: str, piece: Piece) -> Stored:
    """Read one range and store it. KafkaClientError, OSError."""
    store = ArchiveStore.at(address)
    writer: RangeWriter = BatchWriter(store, piece) if format_name == BATCHES else RecordWriter(store, piece)
    try:
        found = _written(writer, read_split(bootstrap, piece.split))
    except BaseException:
        writer.discard()
        raise
    if not found.batches:
        writer.discard()
        return found
    files = writer.finish(f"{piece.split.partition}-{found.first_offset:020d}-{found.end_offset:020d}")
    return found._replace(files=files)


def _written(writer: RangeWriter, batches: Iterator[StoredBatch]) -> Stored:
    first, end, count, records = -1, -1, 0, 0
    epochs: list[tuple[int, int]] = []
    gaps: list[tuple[int, int]] = []
    for batch in batches:
        header = batch.header
        if header is None or not batch.is_crc_valid:
            return Stored(first, end, count, records, tuple(epochs), gaps=tuple(gaps), damaged_at=_place(batch))
        try:
            writer.add(header, batch.records)
        except InvalidBatch:
            return Stored(first, end, count, records, tuple(epochs), gaps=tuple(gaps), damaged_at=_place(batch))
        if first < 0:
            first = header.base_offset
        elif header.base_offset > end:
            gaps.append((end, header.base_offset))
        if not epochs or epochs[-1][0] != header.partition_leader_epoch:
            epochs.append((header.partition_leader_epoch, header.base_offset))
        end = header.next_offset
        count += 1
        records += 0 if header.is_control else header.record_count
    return Stored(first, end, count, records, tuple(epochs), gaps=tuple(gaps))


def _place(batch: StoredBatch) -> int:
    return batch.expected_offset if batch.header is None else batch.header.base_offset


def stored_batches(chunks: Iterator[bytes]) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of a file from its bytes, in order. Raises InvalidBatch if the bytes are not
    batches or end within one.
    """
    kept = b""
    for chunk in chunks:
        data = memoryview(kept + chunk)
        end = 0
        for position, header in iterate_headers(data, may_end_in_partial=True):
            end = position + header.size_bytes
            yield header, data[position:end]
        kept = bytes(data[end:])
    if kept:
        raise InvalidBatch(f"{len(kept)} bytes are left after the last whole batch", 0)


def joined(batches: Iterator[tuple[BatchHeader, memoryview]], size_bytes: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """Batches joined to at most `size_bytes` (or one batch), each with the header of its first."""
    first: BatchHeader | None = None
    held: list[bytes] = []
    held_bytes = 0
    for header, data in batches:
        if first is not None and held_bytes + len(data) > size_bytes:
            yield first, b"".join(held)
            first, held, held_bytes = None, [], 0
        first = first or header
        held.append(bytes(data))
        held_bytes += len(data)
    if first is not None:
        yield first, b"".join(held)


def rows_in(store: ArchiveStore, paths: Sequence[str]) -> int:
    """Records in Parquet files. Raises OSError, or ValueError if a file is not a Parquet file."""
    count = 0
    for path in paths:
        with store.opened(path) as file:
            count += pq.ParquetFile(file).metadata.num_rows
    return count
