"""The batches and records of a wave in this process: for logs so small that starting Spark would
take longer than the comparison. Both sites are read at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TypeVar

from runtime.process import OperationalFailure
from spark_jobs.logs.core.splits import Split
from spark_jobs.logs.log_reader import StoredBatch, read_splits
from spark_jobs.logs.stored_rows import batch_row, opened_records
from spark_jobs.reconciling.core import small_comparison
from spark_jobs.reconciling.core.extents import Extent, splits
from spark_jobs.reconciling.core.judging import Run
from spark_jobs.reconciling.core.ranges import RangeKey, RangeSum
from spark_jobs.reconciling.core.small_comparison import BatchRow, RecordRow, content_of
from spark_jobs.reconciling.request import Request
from wire.client.client_errors import KafkaClientError

Found = TypeVar("Found")


class ProcessRows:
    """One wave in memory: a row for each batch, and the identifying fields of records. An answer to
    a fetch has `answer_bytes`; 0 takes the default.
    """

    def __init__(self, request: Request, wave: Sequence[Extent], *, answer_bytes: int = 0) -> None:
        self._request, self._wave, self._answer_bytes = request, wave, answer_bytes

    @cached_property
    def _batches(self) -> list[BatchRow]:
        return self._read(self._wave, _batch_rows)

    def digests(self, range_offsets: int) -> list[RangeSum]:
        """The sums of all ranges of `range_offsets` offsets."""
        return small_comparison.range_digests(self._batches, range_offsets=range_offsets)

    def defects(self, limit: int) -> list[Run]:
        """The defects within one log."""
        return small_comparison.defects(self._batches)[:limit]

    def differing_batches(self, ranges: Sequence[RangeKey], range_offsets: int, limit: int) -> list[Run]:
        """The batches of these ranges that one site alone has."""
        return small_comparison.differing_batches(
            self._batches, ranges, range_offsets=range_offsets, source=self._request.source_site
        )[:limit]

    def differing_records(self, plan: Sequence[Extent], limit: int) -> list[Run]:
        """The records in these extents that one site alone has; opens their batches."""
        records = self._read(plan, _record_rows)
        return small_comparison.differing_records(records, source=self._request.source_site)[:limit]

    def compacted_differences(self, plan: Sequence[Extent], limit: int) -> tuple[list[Run], list[Run]]:
        """The records of these whole partitions that one site alone has."""
        runs, explained = small_comparison.compacted_differences(
            self._read(plan, _record_rows), source=self._request.source_site, target=self._request.target_site
        )
        return runs[:limit], explained

    def release(self) -> None:
        """Free the batches."""
        self.__dict__.pop("_batches", None)

    def _read(self, plan: Sequence[Extent], rows: Callable[[Split, StoredBatch], Iterator[Found]]) -> list[Found]:
        request = self._request
        pieces = splits(plan, source_site=request.source_site, target_site=request.target_site, cores=1)

        def of_site(site: str) -> list[Found]:
            mine = [one for one in pieces if one.site == site]
            stored = read_splits(request.bootstraps[site], mine, answer_bytes=self._answer_bytes)
            return [row for split, batch in stored for row in rows(split, batch)]

        with ThreadPoolExecutor(len(request.bootstraps)) as threads:
            try:
                return [row for found in threads.map(of_site, request.bootstraps) for row in found]
            except (KafkaClientError, OSError) as error:
                raise OperationalFailure(f"the logs cannot be read: {error}") from error


def _batch_rows(split: Split, batch: StoredBatch) -> Iterator[BatchRow]:
    yield BatchRow(*batch_row(split, batch))


def _record_rows(split: Split, batch: StoredBatch) -> Iterator[RecordRow]:
    for header, record in opened_records(batch):
        headers = (part for name_and_value in record.headers for part in name_and_value)
        yield RecordRow(
            site=split.site,
            topic=split.topic,
            partition=split.partition,
            offset=record.offset,
            leader_epoch=header.partition_leader_epoch,
            key=record.key,
            is_tombstone=record.value is None,
            content=content_of(
                record.timestamp_ms,
                header.is_control,
                header.is_log_append_time,
                header.is_transactional,
                header.producer_id,
                record.key,
                record.value,
                *headers,
            ),
            producer_id=header.producer_id if header.is_transactional else -1,
            is_control=header.is_control,
        )
