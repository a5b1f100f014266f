"""The data source's reader of a batch query: plans ranges on the driver, reads them in workers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from spark_jobs.connector.cluster import ClusterReader, Logs
from spark_jobs.connector.core.filters import EVERYTHING, Condition, Narrowing, narrowing
from spark_jobs.connector.core.offsets import PartitionOffsets, resolve_end, resolve_start
from spark_jobs.connector.core.options import Mode, ReadOptions
from spark_jobs.connector.core.planning import OffsetRange, largest_first, packed, ranges, sized, splits
from spark_jobs.connector.digest_rows import digest_rows
from spark_jobs.connector.fetching import RangeReader
from spark_jobs.connector.header_rows import header_rows, split_of
from spark_jobs.connector.record_rows import record_rows
from spark_jobs.connector.tally import Tally
from spark_jobs.logs.log_reader import read_split
from spark_jobs.logs.stored_rows import batch_rows, stored_record_rows
from wire.protocol.ids import NO_OFFSET

PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
UNREAD_BYTES: Final = 1024 * 1024 * 1024
"""Bytes of logs of which one task reads the headers alone."""
_OPERATORS: Final[dict[type[Any], str]] = {
    EqualTo: "=",
    In: "in",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    StringStartsWith: "prefix",
}


class RangePartition(InputPartition):
    """The ranges that one task reads, one after another."""

    def __init__(self, *wanted: OffsetRange) -> None:
        super().__init__(", ".join(map(str, wanted)))
        self.wanted = wanted


def new_reader(options: ReadOptions) -> DataSourceReader:
    """The reader. Spark refuses a reader with filters unless the session allows it
    (`spark.sql.python.filterPushdown.enabled`), and then creates it in a separate worker.
    """
    return FilteringBatchReader(options) if PUSHDOWN_WORKER in sys.modules else BatchReader(options)


class BatchReader(DataSourceReader):
    """One batch query."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._narrowing = EVERYTHING

    def partitions(self) -> Sequence[RangePartition]:
        """One for each task."""
        options = self._options
        with ClusterReader(options.cluster, isolation_level=options.isolation_level) as cluster:
            everything = cluster.logs(cluster.partitions(options.subscription))
            logs = everything.only(self._narrowing.has)
            found = ranges(
                self._starts(cluster, everything),
                self._ends(cluster, everything),
                logs.ranges,
                is_failing_on_loss=options.is_failing_on_loss,
            )
            found = [one for one in found if self._narrowing.has(*one.place)]
            wanted = sized(found, logs.ranges, cluster.log_bytes(one.place for one in found))
        if options.mode is Mode.DIGESTS:  # The brokers align the ranges of digests, so these reads are not split.
            return [RangePartition(one) for one in wanted]
        parts = splits(
            wanted,
            split_bytes=options.split_bytes,
            partitions_min=options.partitions_min,
            offsets_max=options.records_per_partition,
        )
        if options.verifies_checksums or options.partitions_min:
            return [RangePartition(part) for part in largest_first(parts)]
        return [RangePartition(*group) for group in packed(parts, bytes_max=UNREAD_BYTES)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one range."""
        if not isinstance(partition, RangePartition):  # Spark passes this partition for a plan without ranges.
            return iter(())
        if not self._options.verifies_checksums:
            return header_rows(self._options, partition.wanted)
        (wanted,) = partition.wanted
        return read_range(self._options, wanted, self._narrowing)

    def _starts(self, cluster: ClusterReader, logs: Logs) -> PartitionOffsets:
        options = self._options
        found = cluster.at_times(options.starting.times(logs.ranges))
        starts = resolve_start(
            options.starting, logs.ranges, found, is_latest_without_match=options.is_latest_without_match
        )
        narrowing, since = self._narrowing, {}
        # brokers take times below 0 for the ends of the log
        if narrowing.since_ms > 0:
            since = cluster.at_times(dict.fromkeys(logs.ranges, narrowing.since_ms))
        for key, offset in since.items():
            starts[key] = max(starts[key], logs.ranges[key].end_offset if offset == NO_OFFSET else offset)
        return {key: max(offset, narrowing.first_offset) for key, offset in starts.items()}

    def _ends(self, cluster: ClusterReader, logs: Logs) -> PartitionOffsets:
        found = cluster.at_times(self._options.ending.times(logs.ranges))
        ends = resolve_end(self._options.ending, logs.ranges, found)
        return {key: min(offset, self._narrowing.until_offset) for key, offset in ends.items()}


class FilteringBatchReader(BatchReader):
    """A batch query whose filters narrow what is read."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """Narrow the read by the filters that are understood; Spark evaluates all filters again on
        the rows.
        """
        conditions = [
            Condition(one.attribute[0], operator, one.value)
            for one in filters
            for kind, operator in _OPERATORS.items()
            if isinstance(one, kind)
        ]
        # In the other modes the columns with these names have another meaning.
        if self._options.mode is Mode.RECORDS:
            self._narrowing = narrowing(conditions)
        return filters


def read_range(options: ReadOptions, wanted: OffsetRange, narrowing: Narrowing) -> Iterator[pa.RecordBatch]:
    """The rows of one range, by the mode."""
    if options.mode is Mode.DIGESTS:
        yield from digest_rows(options.cluster, wanted)
        return
    tally = Tally()
    if options.mode is Mode.RECORDS:
        reader = RangeReader(
            options.cluster,
            wanted,
            fetch_bytes=options.fetch_bytes,
            isolation_level=options.isolation_level,
            is_failing_on_loss=options.is_failing_on_loss,
        )
        yield from record_rows(wanted, reader.chunks(), options, narrowing, tally)
        tally.read_bytes, tally.node_ids = reader.read_bytes, reader.node_ids
    else:
        split = split_of(options.cluster.site, wanted)
        stored = ((split, batch) for batch in tally.counted(read_split(options.cluster, split)))
        yield from (batch_rows if options.mode is Mode.HEADERS else stored_record_rows)(stored)
    if options.tally_directory:
        tally.write(wanted, options.tally_directory)
