"""The records of an entry as a file for other programs: JSON lines, or Parquet.

Batch by batch, so that an entry larger than memory is written, too. Markers of transactions are
left out; an entry that is wanted with them is exported as a log.
"""

from __future__ import annotations

import enum
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from cli.shared.record_output import record_document
from runtime.process import OperationalFailure

if TYPE_CHECKING:
    import pyarrow as pa

    from wire.batches.record_batch import BatchHeader
    from wire.batches.records import Record

    Batches = AsyncIterator[tuple[int, BatchHeader, bytes]]

ROWS_MAX = 50_000
"""Records in memory before they become a row group."""


class ExportFormat(enum.Enum):
    """The forms of an exported entry."""

    LOG = "log"
    JSON_LINES = "json-lines"
    PARQUET = "parquet"


async def write_records(batches: Batches, entry: dict[str, Any], to: Path, form: ExportFormat) -> int:
    """Write the entry's records in a form other than `LOG`; their number. OSError, and
    OperationalFailure when a batch is damaged.
    """
    write = _write_parquet if form is ExportFormat.PARQUET else _write_json_lines
    with _new_file(to) as file:
        return await write(_records(batches, entry), entry, file)


def write_log(content: bytes, to: Path) -> None:
    """Write an entry's batches as they are. OSError."""
    with _new_file(to) as file:
        file.write(content)


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that must not exist, and is removed if the block fails: half a file looks like a whole
    one, and would be in the way of the next export.
    """
    file = path.open("xb")
    try:
        with file:
            yield file
    except BaseException:
        os.unlink(path)
        raise


async def _records(batches: Batches, entry: dict[str, Any]) -> AsyncIterator[tuple[int, Record]]:
    """Each record from the entry's first offset on, with the leader epoch of its batch."""
    from wire.batches.record_batch import InvalidBatch
    from wire.batches.records import decode_records

    async for position, header, content in batches:
        try:
            for record in decode_records(content):
                if record.offset >= entry["first_offset"]:
                    yield header.partition_leader_epoch, record
        except InvalidBatch as error:
            raise OperationalFailure(f"{entry['name']}, batch at byte {position}: {error}") from error


async def _write_json_lines(records: AsyncIterator[tuple[int, Record]], entry: dict[str, Any], file: Any) -> int:
    count = 0
    async for leader_epoch, record in records:
        document = {**record_document((entry["topic"], entry["partition"]), record), "leader_epoch": leader_epoch}
        file.write(json.dumps(document, separators=(",", ":")).encode() + b"\n")
        count += 1
    return count


async def _write_parquet(records: AsyncIterator[tuple[int, Record]], entry: dict[str, Any], file: Any) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, count, rows = _schema(), 0, list[dict[str, Any]]()
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        async for leader_epoch, record in records:
            rows.append(_row(entry, leader_epoch, record))
            count += 1
            if len(rows) == ROWS_MAX:
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                rows.clear()
        writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    return count


def _row(entry: dict[str, Any], leader_epoch: int, record: Record) -> dict[str, Any]:
    from wire.batches.records import printable_name

    return {
        "topic": entry["topic"],
        "partition": entry["partition"],
        "offset": record.offset,
        "leader_epoch": leader_epoch,
        "timestamp": record.timestamp_ms,
        "key": record.key,
        "value": record.value,
        "headers": [{"name": printable_name(name), "value": value} for name, value in record.headers],
    }


def _schema() -> pa.Schema:
    import pyarrow as pa

    header = pa.struct([("name", pa.string()), ("value", pa.binary())])
    return pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("leader_epoch", pa.int32()),
            ("timestamp", pa.timestamp("ms", tz="UTC")),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(header)),
        ]
    )
