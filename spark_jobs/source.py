"""The Spark data source "antipode": batch headers, or whole records, of many partitions side by
side, as Arrow.

spark.dataSource.register(AntipodeSource) spark.read.format("antipode").option("bootstrap.servers",
"host:port").option("topics", "orders|payments.*").load()

Options: `bootstrap.servers`; `topics`, a regular expression on whole names (default: all that are
not internal); `content`, `batches` (default: BATCH_SCHEMA, nothing is decompressed) or `records`
(RECORD_SCHEMA); `site`, what the `site` column says. A job that has decided itself what to read
gives `splits` and `bootstraps`, JSON as `encode_splits` makes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_jobs.core.extents import Split, extents, splits
from spark_jobs.core.schemas import BATCH_SCHEMA, RECORD_SCHEMA
from spark_jobs.log_reader import StoredBatch, read_split
from spark_jobs.survey import log_ends, topic_filter
from wire.batches.record_batch import InvalidBatch
from wire.batches.records import decode_batch, printable_name

NAME = "antipode"
BATCHES, RECORDS = "batches", "records"
ROWS_PER_ARROW_BATCH = 65_536
RECORD_BYTES_PER_ARROW_BATCH = 8 * 1024 * 1024
CORES_ASSUMED = 8

_TYPES = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "boolean": pa.bool_(), "binary": pa.binary()}
_HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


def arrow_schema(ddl: str) -> pa.Schema:
    """The Arrow schema of one of the package's DDL strings."""
    fields = []
    for column in ddl.replace("array<struct<name: string, value: binary>>", "headers").split(", "):
        name, kind = column.split(" ")
        fields.append(pa.field(name, _HEADERS if kind == "headers" else _TYPES[kind]))
    return pa.schema(fields)


class SplitPartition(InputPartition):
    """A split and where its site is."""

    def __init__(self, split: Split, bootstrap: str) -> None:
        super().__init__(asdict(split))
        self.split = split
        self.bootstrap = bootstrap


class AntipodeSource(DataSource):
    """Registered by jobs; see the module."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return NAME

    def schema(self) -> str:
        """By `content`."""
        return RECORD_SCHEMA if _content(self.options) == RECORDS else BATCH_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  Spark's signature
        """For batch reads."""
        return LogReader(dict(self.options))


class LogReader(DataSourceReader):
    """Plans splits on the driver, reads them in workers."""

    def __init__(self, options: Mapping[str, str]) -> None:
        # Spark hands over a dictionary that ignores case, with keys in lower case.
        self._options = {key.lower(): value for key, value in options.items()}
        self._content = _content(self._options)

    def partitions(self) -> Sequence[SplitPartition]:
        """One for each split."""
        if "splits" in self._options:
            bootstraps = json.loads(self._options["bootstraps"])
            return [
                SplitPartition(Split(**fields), bootstraps[fields["site"]])
                for fields in json.loads(self._options["splits"])
            ]
        bootstrap = self._options.get("bootstrap.servers")
        if not bootstrap:
            raise ValueError("option bootstrap.servers is not set; accepted: host:port[,host:port...]")
        site = self._options.get("site", "")
        found = log_ends(bootstrap, topic_filter([self._options.get("topics", ".*")], []))
        everything = extents(found, found, found)
        pieces = splits(everything, source_site=site, target_site=f"{site} again", cores=CORES_ASSUMED)
        return [SplitPartition(split, bootstrap) for split in pieces if split.site == site]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one split."""
        if partition.value is None:  # what Spark makes of a plan without splits
            return iter(())
        assert isinstance(partition, SplitPartition)
        stored = read_split(partition.bootstrap, partition.split)
        if self._content == RECORDS:
            return record_rows(partition.split, stored)
        return batch_rows(partition.split, stored)


def encode_splits(pieces: Sequence[Split], bootstraps: Mapping[str, str]) -> dict[str, str]:
    """The options that make the source read exactly these splits."""
    return {"splits": json.dumps([asdict(split) for split in pieces]), "bootstraps": json.dumps(dict(bootstraps))}


def _content(options: Mapping[str, str]) -> str:
    content = options.get("content", BATCHES)
    if content not in (BATCHES, RECORDS):
        raise ValueError(f"option content is {content!r}; accepted: {BATCHES}, {RECORDS}")
    return content


def batch_rows(split: Split, stored: Iterator[StoredBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of BATCH_SCHEMA. Bytes that are no batch become a row that is not valid and holds no
    record.
    """
    schema = arrow_schema(BATCH_SCHEMA)
    rows: list[tuple[Any, ...]] = []
    for batch in stored:
        rows.append(_damaged_row(split, batch) if batch.header is None else _batch_row(split, batch))
        if len(rows) >= ROWS_PER_ARROW_BATCH:
            yield _arrow(rows, schema)
            rows = []
    if rows:
        yield _arrow(rows, schema)


def _batch_row(split: Split, batch: StoredBatch) -> tuple[Any, ...]:
    header = batch.header
    assert header is not None
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


def record_rows(split: Split, stored: Iterator[StoredBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of RECORD_SCHEMA. A batch that cannot be opened gives none: the checks of checksum and
    header report it.
    """
    schema = arrow_schema(RECORD_SCHEMA)
    rows: list[tuple[Any, ...]] = []
    size_bytes = 0
    for batch in stored:
        opened = _records(split, batch)
        rows += opened
        size_bytes += sum(len(row[7] or b"") + len(row[8] or b"") for row in opened)
        if size_bytes >= RECORD_BYTES_PER_ARROW_BATCH or len(rows) >= ROWS_PER_ARROW_BATCH:
            yield _arrow(rows, schema)
            rows, size_bytes = [], 0
    if rows:
        yield _arrow(rows, schema)


def _records(split: Split, batch: StoredBatch) -> list[tuple[Any, ...]]:
    header = batch.header
    if header is None:
        return []
    place = (split.site, split.topic, split.partition)
    try:
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
            )
            for record in decode_batch(batch.records, 0, header)
        ]
    except InvalidBatch:
        return []


def _arrow(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )
