"""Arrow rows of what a log stores: batch headers, or records with all that a log knows of them.

Damage becomes a row with a mark and never an exception, because a reconciliation looks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from spark_jobs.logs.core.schemas import BATCH_SCHEMA, RECORD_SCHEMA
from spark_jobs.logs.core.splits import Split
from spark_jobs.logs.log_reader import StoredBatch
from wire.batches.record_batch import BatchHeader, InvalidBatch
from wire.batches.records import Record, decode_batch, printable_name

ROWS_PER_ARROW_BATCH = 65_536
RECORD_BYTES_PER_ARROW_BATCH = 8 * 1024 * 1024

_TYPES = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "boolean": pa.bool_(), "binary": pa.binary()}
_HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


def arrow_schema(ddl: str) -> pa.Schema:
    """The Arrow schema of one of the package's DDL strings."""
    fields = []
    for column in ddl.replace("array<struct<name: string, value: binary>>", "headers").split(", "):
        name, kind = column.split(" ")
        fields.append(pa.field(name, _HEADERS if kind == "headers" else _TYPES[kind]))
    return pa.schema(fields)


def batch_rows(stored: Iterable[tuple[Split, StoredBatch]]) -> Iterator[pa.RecordBatch]:
    """Rows of BATCH_SCHEMA, of the batches of any splits. Bytes that are not a batch become an
    invalid row without records.
    """
    schema = arrow_schema(BATCH_SCHEMA)
    rows: list[tuple[Any, ...]] = []
    for split, batch in stored:
        rows.append(batch_row(split, batch))
        if len(rows) >= ROWS_PER_ARROW_BATCH:
            yield _arrow(rows, schema)
            rows = []
    if rows:
        yield _arrow(rows, schema)


def batch_row(split: Split, batch: StoredBatch) -> tuple[Any, ...]:
    """The batch as a row of BATCH_SCHEMA."""
    header = batch.header
    if header is None:
        return _damaged_row(split, batch)
    return (
        split.site,
        split.topic,
        split.partition,
        header.base_offset,
        header.last_offset,
        header.record_count,
        header.size_bytes,
        header.crc,
        batch.is_crc_valid,
        header.partition_leader_epoch,
        header.attributes,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.base_timestamp,
        header.max_timestamp,
    )


def _damaged_row(split: Split, batch: StoredBatch) -> tuple[Any, ...]:
    last = max(batch.expected_offset, split.until_offset - 1)
    place = (split.site, split.topic, split.partition, batch.expected_offset, last)
    return (*place, 0, 0, 0, False, -1, 0, -1, -1, -1, -1, -1)


def stored_record_rows(stored: Iterable[tuple[Split, StoredBatch]]) -> Iterator[pa.RecordBatch]:
    """Rows of RECORD_SCHEMA, of the batches of any splits. A batch that cannot be opened gives
    none: the checks of checksum and header report it.
    """
    schema = arrow_schema(RECORD_SCHEMA)
    rows: list[tuple[Any, ...]] = []
    size_bytes = 0
    for split, batch in stored:
        opened = _records(split, batch)
        rows += opened
        size_bytes += sum(len(row[7] or b"") + len(row[8] or b"") for row in opened)
        if size_bytes >= RECORD_BYTES_PER_ARROW_BATCH or len(rows) >= ROWS_PER_ARROW_BATCH:
            yield _arrow(rows, schema)
            rows, size_bytes = [], 0
    if rows:
        yield _arrow(rows, schema)


def _records(split: Split, batch: StoredBatch) -> list[tuple[Any, ...]]:
    place = (split.site, split.topic, split.partition)
    return [
        (
            *place,
            record.offset,
            record.timestamp_ms,
            header.partition_leader_epoch,
            header.is_control,
            record.key,
            record.value,
            [{"name": printable_name(name), "value": value} for name, value in record.headers],
            header.is_log_append_time,
            header.is_transactional,
            header.producer_id,
        )
        for header, record in opened_records(batch)
    ]


def opened_records(batch: StoredBatch) -> list[tuple[BatchHeader, Record]]:
    """The batch's records, each with the batch's header; none where the batch does not open."""
    header = batch.header
    if header is None:
        return []
    try:
        return [(header, record) for record in decode_batch(batch.records, 0, header)]
    except InvalidBatch:
        return []


def _arrow(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )
