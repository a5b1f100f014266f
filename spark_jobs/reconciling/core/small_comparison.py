"""The comparisons of `comparison.py` for logs that fit into one process: the same questions and the
same results, without Spark. Pure.

Starting Spark takes longer than comparing some hundred thousand offsets. A batch is a row with the
columns of `BATCH_SCHEMA`. A record is a row with its key and a hash of its content, so that memory
does not grow with the size of values. One set of cases judges both ways
(`tests/support/memory/comparison_cases.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import blake2b, sha256
from itertools import pairwise
from typing import NamedTuple

from spark_jobs.reconciling.core.judging import ABORT_KEY, CORRUPT, ONLY_SOURCE, ONLY_TARGET, OVERLAPPING, REPEATED, Run
from spark_jobs.reconciling.core.ranges import RangeKey, RangeSum
from wire.protocol.ids import PartitionKey

CONTROL_BIT = 32
HASH_BYTES = 8
Identity = tuple[object, ...]
DIGEST_DIGITS = 16


class BatchRow(NamedTuple):
    """One batch; the columns of `BATCH_SCHEMA` in their order."""

    site: str
    topic: str
    partition: int
    base_offset: int
    last_offset: int
    record_count: int
    size_bytes: int
    crc: int
    is_crc_valid: bool
    leader_epoch: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    base_timestamp_ms: int
    max_timestamp_ms: int

    @property
    def identity(self) -> tuple[int, ...]:
        """The fields in which two batches at one base offset must agree to be the same one."""
        return self.last_offset, self.record_count, self.size_bytes, self.leader_epoch, self.crc


class RecordRow(NamedTuple):
    """One record; `content` is a hash of all that is not an offset or a leader epoch.
    `producer_id` is that of a transaction, -1 without one; the record of a control batch is its
    marker.
    """

    site: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    key: bytes | None
    is_tombstone: bool
    content: bytes
    producer_id: int = -1
    is_control: bool = False


def content_of(*parts: bytes | str | int | None) -> bytes:
    """A hash of the parts in order; two different lists of parts have different hashes."""
    hashed = blake2b(digest_size=HASH_BYTES)
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        hashed.update(b"%d%s:" % (len(data), b"b" if isinstance(part, bytes) else b"r"))
        hashed.update(data)
    return hashed.digest()


def range_digests(batches: Iterable[BatchRow], *, range_offsets: int) -> list[RangeSum]:
    """Records, bytes, batches and digest by site, topic, partition and range of `range_offsets`
    offsets. A digest is a sum of hashes, so that it does not depend on the order of the batches; it
    is not that of Spark.
    """
    by_range: dict[tuple[str, str, int, int], list[BatchRow]] = defaultdict(list)
    for one in batches:
        start = one.base_offset // range_offsets * range_offsets
        by_range[one.site, one.topic, one.partition, start].append(one)
    return [
        RangeSum(
            *place,
            records=sum(one.record_count for one in held),
            bytes=sum(one.size_bytes for one in held),
            batches=len(held),
            digest=_digest(held),
        )
        for place, held in by_range.items()
    ]


def _digest(held: Sequence[BatchRow]) -> str:
    total = sum(int.from_bytes(content_of(one.base_offset, *one.identity)) for one in held)
    return sha256(b"%d" % total).hexdigest()[:DIGEST_DIGITS]


def differing_batches(
    batches: Iterable[BatchRow], ranges: Collection[RangeKey], *, range_offsets: int, source: str
) -> list[Run]:
    """Runs of neighbouring batches of these ranges that one site alone has."""
    wanted = frozenset(ranges)
    rows = (
        (one.site, (one.topic, one.partition), one.base_offset, one.last_offset, one.identity)
        for one in batches
        if RangeKey(one.topic, one.partition, one.base_offset // range_offsets * range_offsets) in wanted
    )
    return _differing(rows, source=source)


def differing_records(records: Iterable[RecordRow], *, source: str) -> list[Run]:
    """The same from single records, so that the runs are exact for any batch boundaries."""
    rows = (
        (one.site, (one.topic, one.partition), one.offset, one.offset, (one.leader_epoch, one.key, one.content))
        for one in records
    )
    return _differing(rows, source=source)


def _differing(rows: Iterable[tuple[str, PartitionKey, int, int, Identity]], *, source: str) -> list[Run]:
    """Counts copies at each site, so that a row that one site has twice does not hide behind its
    twin.
    """
    surplus: Counter[tuple[PartitionKey, int, int, Identity]] = Counter()
    for site, log, first, last, identity in rows:
        surplus[log, first, last, identity] += 1 if site == source else -1
    return _joined(
        Run(*key, ONLY_SOURCE if copies > 0 else ONLY_TARGET, first, last)
        for (key, first, last, _), copies in surplus.items()
        if copies
    )


def _joined(runs: Iterable[Run]) -> list[Run]:
    """Runs of one kind that touch or overlap become one."""
    joined: list[Run] = []
    for run in sorted(runs):
        before = joined[-1] if joined else None
        if before is not None and before[:3] == run[:3] and run.first_offset <= before.last_offset + 1:
            joined[-1] = before._replace(last_offset=max(before.last_offset, run.last_offset))
        else:
            joined.append(run)
    return joined


def defects(batches: Collection[BatchRow]) -> list[Run]:
    """The defects within one log, independent of the other one: checksums that do not fit, offsets
    that an earlier batch has already, batches of an idempotent producer that the log has already.
    """
    return [*_corrupt(batches), *_overlapping(batches), *_repeated(batches)]


def _defect(batch: BatchRow, kind: str, last_offset: int) -> Run:
    return Run(batch.topic, batch.partition, kind, batch.base_offset, last_offset, site=batch.site)


def _corrupt(batches: Iterable[BatchRow]) -> Iterator[Run]:
    return (_defect(one, CORRUPT, one.last_offset) for one in batches if not one.is_crc_valid)


def _overlapping(batches: Iterable[BatchRow]) -> Iterator[Run]:
    ahead: tuple[tuple[str, str, int], int] | None = None
    for one in sorted(batches):
        log = one[:3]
        if ahead is None or ahead[0] != log:
            ahead = (log, one.last_offset)
            continue
        if ahead[1] >= one.base_offset:
            yield _defect(one, OVERLAPPING, min(ahead[1], one.last_offset))
        ahead = (log, max(ahead[1], one.last_offset))


def _repeated(batches: Iterable[BatchRow]) -> Iterator[Run]:
    by_content: dict[tuple[object, ...], list[BatchRow]] = defaultdict(list)
    for one in batches:
        if one.producer_id >= 0 and one.base_sequence >= 0 and not one.attributes & CONTROL_BIT:
            # A sequence comes back after 2^31 records legitimately; only with the same content is
            # it the same batch.
            producer = (one.producer_id, one.producer_epoch, one.base_sequence, one.record_count)
            content = (one.base_timestamp_ms, one.max_timestamp_ms, one.size_bytes, one.crc)
            by_content[*one[:3], *producer, *content].append(one)
    for held in by_content.values():
        for before, one in pairwise(sorted(held)):
            if one.base_offset > before.base_offset:
                yield _defect(one, REPEATED, one.last_offset)


def compacted_differences(records: Collection[RecordRow], *, source: str, target: str) -> tuple[list[Run], list[Run]]:
    """The differences of compacted topics: runs that differ without a reason, and the explained
    ones, a line for each partition and kind. All records of the partitions must be given.
    """
    transactions = _Transactions(records)
    newest: dict[tuple[object, ...], int] = {}
    tombstones: dict[tuple[object, ...], int] = {}
    copies: dict[RecordRow, int] = defaultdict(int)
    held = {one[:4] for one in records}
    for one in records:
        copies[one._replace(site="")] += 1 if one.site == source else -1
        if one.key is not None and not one.is_control and not transactions.is_aborted(one):
            place = (one.site, one.topic, one.partition, one.key)
            newest[place] = max(newest.get(place, -1), one.offset)
            if one.is_tombstone:
                tombstones[place] = max(tombstones.get(place, -1), one.offset)
    unexplained: list[Run] = []
    explained: dict[tuple[str, int, str], list[int]] = defaultdict(list)
    for one, surplus in copies.items():
        if not surplus:
            continue
        kind, holder, lacking = (ONLY_SOURCE, source, target) if surplus > 0 else (ONLY_TARGET, target, source)
        log = (one.topic, one.partition, one.key)
        newer = newest.get((lacking, *log))
        if one.is_control:
            is_explained = transactions.is_removable_at(lacking, one)
        elif newer is None:
            is_explained = tombstones.get((holder, *log), -1) >= one.offset
        else:
            is_explained = newer > one.offset
        # a record that differs at both sites is none that one of them has removed
        is_held_there = (lacking, *one[1:4]) in held
        if not is_held_there and (is_explained or transactions.is_aborted(one)):
            explained[one.topic, one.partition, kind].append(one.offset)
        else:
            unexplained.append(Run(one.topic, one.partition, kind, one.offset, one.offset))
    lines = [Run(*place, min(found), max(found), records=len(found)) for place, found in sorted(explained.items())]
    return _joined(unexplained), lines


class _Transactions:
    """The markers of each producer, of both sites together, and where each site has its records."""

    def __init__(self, records: Iterable[RecordRow]) -> None:
        markers: dict[tuple[object, ...], dict[int, bool]] = defaultdict(dict)
        self._records: dict[tuple[object, ...], list[int]] = defaultdict(list)
        self._last: dict[tuple[object, ...], int] = defaultdict(lambda: -1)
        for one in records:
            self._last[one[:3]] = max(self._last[one[:3]], one.offset)
            if one.is_control:
                markers[_producer(one)][one.offset] = one.key == ABORT_KEY
            elif one.producer_id >= 0:
                self._records[one.site, *_producer(one)].append(one.offset)
        self._markers = {producer: sorted(held.items()) for producer, held in markers.items()}
        for offsets in self._records.values():
            offsets.sort()

    def is_aborted(self, one: RecordRow) -> bool:
        """True for a record of a transaction that ended with an abort."""
        if one.producer_id < 0 or one.is_control:
            return False
        markers = self._markers.get(_producer(one), [])
        at = bisect_left(markers, (one.offset, False))
        return at < len(markers) and markers[at][1]

    def is_removable_at(self, site: str, marker: RecordRow) -> bool:
        """True if compaction at the site may have removed the marker: it has no record of the
        transaction, and its log goes on.
        """
        markers = self._markers[_producer(marker)]
        at = bisect_left(markers, (marker.offset, False))
        begin = markers[at - 1][0] if at else -1
        offsets = self._records.get((site, *_producer(marker)), [])
        is_held = bisect_left(offsets, begin) < bisect_left(offsets, marker.offset)
        return not is_held and self._last[site, marker.topic, marker.partition] > marker.offset


def _producer(one: RecordRow) -> tuple[str, int, int]:
    return one.topic, one.partition, one.producer_id
