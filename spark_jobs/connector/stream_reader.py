"""The data source's reader of a streaming query. Spark keeps the position in the query's
checkpoint, so the source has no state of its own: any driver can continue it, at either site.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from spark_jobs.connector.batch_reader import RangePartition, read_range
from spark_jobs.connector.cluster import ClusterReader
from spark_jobs.connector.core.filters import EVERYTHING
from spark_jobs.connector.core.offsets import (
    OffsetsByTopic,
    PartitionOffsets,
    decode_position,
    encode_position,
    resolve_start,
)
from spark_jobs.connector.core.options import ReadOptions
from spark_jobs.connector.core.planning import NO_LIMIT, DataLost, limited, ranges, splits
from spark_jobs.connector.core.stream_positions import check_lost, known_epochs, lost_records
from spark_jobs.connector.core.trigger_delay import TriggerDelay
from wire.client.client_errors import KafkaClientError
from wire.protocol.ids import PartitionKey


class _Position(NamedTuple):
    """A position after the comparison with the current logs: the next offset of each partition, its
    leader epoch, and the end of that epoch.
    """

    offsets: PartitionOffsets
    epochs: PartitionOffsets
    epoch_ends: Mapping[PartitionKey, tuple[int, int]]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming query. The driver plans, workers read."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._cluster: ClusterReader | None = None
        self._target: PartitionOffsets | None = None
        self._reported = ""
        self._noted: PartitionOffsets = {}
        self._delay = TriggerDelay(
            offsets_min=options.offsets_per_trigger_min, delay_ms_max=options.trigger_delay_ms_max
        )

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """The position at which a query without a checkpoint begins."""
        options, cluster = self._options, self._asked()
        logs = cluster.logs(cluster.partitions(options.subscription)).ranges
        found = cluster.at_times(options.starting.times(logs))
        starts = resolve_start(options.starting, logs, found, is_latest_without_match=options.is_latest_without_match)
        return dict(encode_position(starts, {}))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """`maxOffsetsPerTrigger`."""
        limit = self._options.offsets_per_trigger
        return ReadAllAvailable() if limit == NO_LIMIT else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Note the current log ends: a query with trigger availableNow reads no further."""
        cluster = self._asked()
        logs = cluster.logs(cluster.partitions(self._options.subscription)).ranges
        self._target = {key: log.end_offset for key, log in logs.items()}

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  Spark's name
        """The position at which the next batch ends. Raises RecordsLost and DataLost."""
        cluster = self._asked()
        logs = cluster.logs(cluster.partitions(self._options.subscription)).ranges
        offsets, epochs = decode_position(start)
        self._note_progress(offsets, epochs)
        self._check_gone(offsets.keys() - logs.keys())
        position = self._compared(offsets, epochs, {key: log.end_offset for key, log in logs.items()})
        starts = {key: position.offsets.get(key, log.start_offset) for key, log in logs.items()}
        ends = {key: max(log.end_offset, starts[key]) for key, log in logs.items()}
        if self._target is not None:
            ends = {key: max(starts[key], min(end, self._target.get(key, starts[key]))) for key, end in ends.items()}
        elif self._delay.is_waiting(starts, ends, time.monotonic() * 1000):
            return dict(start)
        ends = limited(starts, ends, limit.max_rows if isinstance(limit, ReadMaxRows) else NO_LIMIT)
        return dict(self._encoded(ends, position))

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[RangePartition]:
        """The ranges of a batch. A batch that is run again at another site may end beyond that
        site's log end: the result is RecordsLost, or a read up to the site's end.
        """
        offsets, epochs = decode_position(start)
        ends, end_epochs = decode_position(end)
        cluster = self._asked()
        existing = cluster.existing(ends)
        self._check_gone(ends.keys() - existing)
        ends = {key: offset for key, offset in ends.items() if key in existing}
        new = ends.keys() - offsets.keys()
        logs = cluster.logs(ends).ranges
        there = {key: log.end_offset for key, log in logs.items()}
        starts = self._compared(offsets, epochs, there).offsets
        starts |= {key: logs[key].start_offset for key in new}
        ends = self._compared(ends, end_epochs, there).offsets
        found = ranges(starts, ends, logs, is_failing_on_loss=self._options.is_failing_on_loss)
        parts = splits(
            found,
            split_bytes=0,
            partitions_min=self._options.partitions_min,
            offsets_max=self._options.records_per_partition,
        )
        return [RangePartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one range."""
        assert isinstance(partition, RangePartition)
        (wanted,) = partition.wanted
        return read_range(self._options, wanted, EVERYTHING)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Do nothing: the checkpoint is the only position."""

    def stop(self) -> None:
        """Close the driver's connections."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _check_gone(self, gone: Iterable[PartitionKey]) -> None:
        """DataLost for partitions that were read, or were to be read, and do not exist."""
        names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(gone))
        if names and self._options.is_failing_on_loss:
            raise DataLost(f"{names} was read before and does not exist now. Accepted: failOnDataLoss=false")

    def _asked(self) -> ClusterReader:
        if self._cluster is None:
            self._cluster = ClusterReader(self._options.cluster, isolation_level=self._options.isolation_level)
        return self._cluster

    def _note_progress(self, offsets: PartitionOffsets, epochs: PartitionOffsets) -> None:
        """Write the position for the group of `antipode.progress.group`, by which tools see the
        lag. Every batch before it has ended. (Spark calls `commit` only when the next batch
        begins, so a query that waits for records would seem to lag.) The checkpoint alone is the
        position of the query: a group that cannot be written is reported and does not stop it.
        """
        group = self._options.progress_group
        if not group or offsets == self._noted:
            return
        try:
            self._asked().note_progress(group, offsets, epochs)
            self._noted = offsets
        except KafkaClientError as error:
            print(f"antipode: group {group} is not written: {error}", file=sys.stderr)

    def _compared(
        self, offsets: PartitionOffsets, epochs: PartitionOffsets, log_ends: Mapping[PartitionKey, int]
    ) -> _Position:
        """The position in today's logs. RecordsLost."""
        asked = {key: epoch for key, epoch in epochs.items() if key in log_ends and key in offsets}
        epoch_ends = {key: (end.leader_epoch, end.end_offset) for key, end in self._asked().epoch_ends(asked).items()}
        known = {key: offset for key, offset in offsets.items() if key in log_ends}
        lost = lost_records(known, epochs, epoch_ends, log_ends)
        moved = check_lost(lost, is_failing_on_loss=self._options.is_failing_on_loss)
        report = "; ".join(map(str, lost))
        if report and report != self._reported:
            print(f"antipode: {report}; the query reads on from there (failOnDataLoss=false)", file=sys.stderr)
            self._reported = report
        return _Position({**known, **moved}, epochs, epoch_ends)

    def _encoded(self, ends: PartitionOffsets, position: _Position) -> OffsetsByTopic:
        if not self._options.keeps_epochs:
            return encode_position(ends, {})
        known = known_epochs(ends, position.offsets, position.epochs, position.epoch_ends)
        unknown = {key: end for key, end in ends.items() if key not in known and end > 0}
        return encode_position(ends, known | self._asked().epochs_before(unknown))
