"""One partition at one end of a translate link: its records in log order, and what the headers of
its batches say. Reads it piece by piece, as often as it is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from runtime.process import OperationalFailure
from spark_jobs.logs.core.splits import LogEnds, Split
from spark_jobs.logs.log_reader import StoredBatch, read_split
from spark_jobs.logs.stored_rows import opened_records
from spark_jobs.logs.survey import log_ends
from spark_jobs.reconciling.core.small_comparison import content_of
from spark_jobs.reconciling.core.translated_logs import (
    NO_BOUND,
    BatchSpan,
    OffsetSet,
    PlacedRecord,
    Transactions,
    transactions_of,
)
from wire.batches.transaction_records import decode_marker
from wire.client.client_errors import KafkaClientError
from wire.protocol.ids import PartitionKey


class TranslatedEnd:
    """One partition at one end, up to the end of `ends`; `surveyed_until` is the end that its log
    had when the comparison began, if that was before. `read_outline` comes first. Raises
    OperationalFailure when the site cannot be read.
    """

    def __init__(self, bootstrap: str, key: PartitionKey, ends: LogEnds, surveyed_until: int = NO_BOUND) -> None:
        self.ends = ends
        self._surveyed_until = surveyed_until
        self._bootstrap, self._key = bootstrap, key
        self._clear()

    def _clear(self) -> None:
        self.corrupt: list[tuple[int, int]] = []
        """Offset ranges of damaged batches, both ends included."""
        self.batches = self.size_bytes = self.record_count = 0
        self.has_times = True
        """False if the broker's clock has set a timestamp."""
        self.transactions = Transactions(OffsetSet(), OffsetSet())

    def read_outline(self) -> None:
        """Read which transactions are committed, and what else the headers of batches say."""
        self._clear()
        self.transactions = transactions_of(self._spans(), self._surveyed_until)

    def has_expired(self) -> bool:
        """Ask the site whether retention has meanwhile deleted records; if so, the log starts at
        its new start.
        """
        topic, _ = self._key
        now = log_ends(self._bootstrap, lambda name: name == topic).get(self._key, self.ends)
        start = min(now.start_offset, self.ends.end_offset)
        is_later = start > self.ends.start_offset
        if is_later:
            self.ends = replace(self.ends, start_offset=start)
        return is_later

    def _spans(self) -> Iterator[BatchSpan]:
        for batch in self._stored():
            header = batch.header
            if header is None or not batch.is_crc_valid:
                last = self.ends.end_offset - 1 if header is None else header.last_offset
                self.corrupt.append((batch.expected_offset if header is None else header.base_offset, last))
                continue
            self.batches += 1
            self.size_bytes += header.size_bytes
            self.record_count += header.record_count
            self.has_times = self.has_times and not header.is_log_append_time
            if not header.is_control and not header.is_transactional:
                continue
            is_commit = header.is_control and any(decode_marker(one)[0] for _, one in opened_records(batch))
            yield BatchSpan(
                first_offset=header.base_offset,
                last_offset=header.last_offset,
                producer_id=header.producer_id,
                is_transactional=header.is_transactional,
                is_marker=header.is_control,
                is_commit=is_commit,
            )

    def records(self) -> Iterator[PlacedRecord]:
        """The records in log order."""
        for batch in self._stored():
            header = batch.header
            if header is None or not batch.is_crc_valid:
                continue
            for _, record in opened_records(batch):
                if record.offset < self.ends.start_offset:
                    continue
                headers = (part for name_and_value in record.headers for part in name_and_value)
                yield PlacedRecord(
                    offset=record.offset,
                    key=record.key,
                    content=content_of(record.key, record.value, *headers),
                    timestamp_ms=None if header.is_log_append_time else record.timestamp_ms,
                    producer_id=header.producer_id,
                    is_marker=header.is_control,
                )

    def _stored(self) -> Iterator[StoredBatch]:
        if self.ends.end_offset <= self.ends.start_offset:
            return
        split = Split(
            site=self._bootstrap,
            topic=self._key[0],
            partition=self._key[1],
            first_offset=self.ends.start_offset,
            until_offset=self.ends.end_offset,
            is_first=True,
        )
        try:
            yield from read_split(self._bootstrap, split)
        except (KafkaClientError, OSError) as error:
            raise OperationalFailure(f"the logs cannot be read: {error}") from error
