"""Reads the commit markers at the ends of a site's logs, to find torn transactions
(`core/torn_transactions.py`).

Only transactions after the time until which every partition is known to be complete can be torn, so
the logs are read from that time on, minus a margin for clocks. A log is skipped if neither the log
nor a coordinator of the site knows a transaction. Both are checked, because each may lack some:
transactional ids cross the link separately from the records and may arrive later, and a log forgets
its producers after `producer.id.expiration.ms`, a day by default.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from clients.reader.single_fetches import fetch_at_leader, records_of
from dr.failover.core.torn_transactions import CommitMarker, TornSurvey, survey
from dr.sites.core.evidence import SiteEvidence
from dr.sites.core.log_columns import LogsInColumns
from dr.sites.core.positions import PartitionPosition
from runtime.process import OperationalFailure
from wire.batches.record_batch import BatchHeader, iterate_headers
from wire.batches.records import decode_batch
from wire.batches.transaction_members import members_of
from wire.batches.transaction_records import decode_marker
from wire.client.client_errors import KafkaClientError
from wire.client.raw_client import KafkaClient
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import DEBUGGING_CONSUMER, TopicPartition
from wire.rules.links import carries_topic

CLOCK_MARGIN_MS: Final = 5_000
"""Maximum difference between the clocks of two machines, or between the markers of one
transaction.
"""
FETCH_BYTES: Final = 8 << 20
BYTES_MAX: Final = 1 << 30
"""A site that would have to read more than this reports that instead of the torn transactions."""
PARTITIONS_AT_ONCE: Final = 8


def whole_until_ms(position: PartitionPosition) -> int:
    """The time (Unix ms) until which the copy is known to be complete; 0 if unknown."""
    if 0 <= position.source_high_watermark <= position.log_end_offset:
        return max(position.source_seen_at_ms, 0)
    return max(min(position.source_seen_at_ms, position.max_timestamp_ms), 0)


def logs_with_transactions(evidence: SiteEvidence) -> list[TopicPartition]:
    """The copies in which transactions may have ended, sorted: those with a marker, or all unless
    the coordinators of the site know no transaction.
    """
    copies, groups = evidence.copies, evidence.groups
    if groups is None or groups.producers is None or groups.producers:
        return sorted(copies)
    if isinstance(copies, LogsInColumns):
        return copies.with_markers()
    return sorted(key for key, position in copies.items() if position.has_markers)


async def survey_transactions(
    client: KafkaClient,
    record: LinkRecord,
    evidence: SiteEvidence,
    *,
    ends: Mapping[TopicPartition, int] | None = None,
    kept_before_ms: int = 0,
) -> TornSurvey:
    """The torn transactions of the link at a site whose mirrored logs are as in `evidence`. The
    logs are read up to `ends`, where a failover to a time truncates them first. Raises
    OperationalFailure when the logs cannot be read, or are too long.
    """
    keys = logs_with_transactions(evidence)
    if not keys:
        return TornSurvey()
    scan = _Scan(client, evidence, keys, ends or {}, kept_before_ms)
    markers = await scan.run()
    return survey(
        markers,
        is_carried=lambda topic: carries_topic(record, topic),
        since_ms=scan.from_ms + CLOCK_MARGIN_MS,
    )


class _Scan:
    """One reading of a site's logs."""

    def __init__(
        self,
        client: KafkaClient,
        evidence: SiteEvidence,
        keys: Sequence[TopicPartition],
        ends: Mapping[TopicPartition, int],
        kept_before_ms: int,
    ) -> None:
        self._client = client
        self._site = evidence.site
        self._copies = evidence.copies
        self._keys = keys
        self._bytes_left = BYTES_MAX
        self._slots = asyncio.Semaphore(PARTITIONS_AT_ONCE)
        self._ends = ends
        # The reading begins one margin before the first judged marker, because the markers of one
        # transaction may be that far apart.
        whole_ms = min(map(whole_until_ms, evidence.copies.values()))
        self.from_ms = (min(whole_ms, kept_before_ms) if kept_before_ms else whole_ms) - 2 * CLOCK_MARGIN_MS

    async def run(self) -> dict[TopicPartition, list[CommitMarker]]:
        """The markers by partition. OperationalFailure."""
        try:
            await self._client.metadata(sorted({key.topic for key in self._keys}))
            # With the id of a debugging consumer a broker answers up to the log end, on either side
            # of a link.
            first = await self._client.offsets_at(self._keys, max(self.from_ms, 0), replica_id=DEBUGGING_CONSUMER)
            begun = [(TopicPartition(*key), offset) for key, offset in first.items() if offset >= 0]
            found = await asyncio.gather(*(self._read(key, offset) for key, offset in begun))
        except KafkaClientError as error:
            raise OperationalFailure(f"site {self._site} does not report its transactions: {error}") from error
        return {key: markers for (key, _), markers in zip(begun, found, strict=True) if markers}

    async def _read(self, key: TopicPartition, offset: int) -> list[CommitMarker]:
        markers: list[CommitMarker] = []
        end = self._ends.get(key, self._copies[key].log_end_offset)
        async with self._slots:
            while offset < end:
                fetched = await fetch_at_leader(
                    self._client, key, offset, max_bytes=FETCH_BYTES, replica_id=DEBUGGING_CONSUMER
                )
                records = records_of(fetched)
                self._spend(len(records))
                next_offset = offset
                for position, header in iterate_headers(records, may_end_in_partial=True):
                    next_offset = header.last_offset + 1
                    if header.is_control and offset <= header.base_offset < end:
                        markers += _commit_markers(records, position, header)
                if next_offset == offset:
                    break  # the log has been truncated meanwhile
                offset = next_offset
        return markers

    def _spend(self, read_bytes: int) -> None:
        self._bytes_left -= read_bytes
        if self._bytes_left < 0:
            raise OperationalFailure(
                f"site {self._site} would read more than {BYTES_MAX >> 30} GiB to find torn transactions: some partition "
                "was not mirrored for a long time"
            )


def _commit_markers(records: memoryview, position: int, header: BatchHeader) -> Iterator[CommitMarker]:
    for record in decode_batch(records, position, header):
        members = members_of(record.headers)
        is_commit, coordinator_epoch = decode_marker(record)
        if members is not None and is_commit:
            yield CommitMarker(record.offset, header.producer_id, header.producer_epoch, coordinator_epoch, members)
