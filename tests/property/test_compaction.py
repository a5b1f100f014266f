"""After any writes, compaction leaves the records of a plain model, pass after pass, and a log that
recovers.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.log.cleaning.cleaner import clean
from broker.log.cleaning.log_compaction import plan_compaction, swap_in
from broker.log.partition_log import PartitionLog
from runtime.disk import RealDisk
from tests.support.disks.log_batches import TRANSACTIONAL, batch, marker
from tests.support.disks.logs_on_disk import NOW_MS, config, data_records, open_log, read_all
from tests.support.examples import examples

RETENTION_MS = 100
COMPACT = config(is_compacted=True, is_deleted=False, segment_bytes=1500, delete_retention_ms=RETENTION_MS)
NO_PRODUCER, IDEMPOTENT, TRANSACTIONAL_PRODUCERS = -1, 1, (2, 3)

Records = list[tuple[bytes | None, bytes | None]]
Found = tuple[int, bytes | None, bytes | None, int]
"""Offset, key, value, time of a record."""


@dataclass(frozen=True)
class Append:
    producer_id: int
    records: Records
    codec: int


@dataclass(frozen=True)
class End:
    producer_id: int
    is_commit: bool


@dataclass(frozen=True)
class Pass:
    after_ms: int


KEYS = st.sampled_from([b"a", b"b", b"c", b"long" * 20, b"rare", None])
VALUES = st.none() | st.sampled_from([b"", b"v", b"value" * 15])
APPENDS = st.builds(
    Append,
    producer_id=st.sampled_from([NO_PRODUCER, IDEMPOTENT, *TRANSACTIONAL_PRODUCERS]),
    records=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5),
    codec=st.sampled_from([0, 0, 0, 3, 4]),
)
ENDS = st.builds(End, producer_id=st.sampled_from(TRANSACTIONAL_PRODUCERS), is_commit=st.booleans())
PASSES = st.builds(Pass, after_ms=st.sampled_from([1, RETENTION_MS - 1, RETENTION_MS, 3 * RETENTION_MS]))
STEPS = st.lists(st.one_of(APPENDS, APPENDS, APPENDS, ENDS, PASSES), max_size=40)


@dataclass
class Model:
    """The log as a list of records."""

    records: list[Found] = field(default_factory=list)
    open: dict[int, list[Found]] = field(default_factory=dict)
    marker_of: dict[int, int] = field(default_factory=dict)
    horizons_ms: dict[int, int] = field(default_factory=dict)

    def append(self, producer_id: int, records: list[Found]) -> None:
        if producer_id in TRANSACTIONAL_PRODUCERS:
            self.open.setdefault(producer_id, []).extend(records)
        else:
            self.records += records

    def end(self, producer_id: int, marker_offset: int, *, is_commit: bool) -> None:
        ended = self.open.pop(producer_id)
        if is_commit:
            self.records += ended
            self.marker_of.update(dict.fromkeys((record[0] for record in ended), marker_offset))

    def compact(self, now_ms: int) -> None:
        self.records.sort(key=lambda record: record[0])
        newest = {record[1]: record for record in self.records}
        newest.pop(None, None)
        kept = []
        for record in newest.values():
            offset, _, value, _ = record
            if value is None and now_ms >= self.horizons_ms.setdefault(offset, now_ms + RETENTION_MS):
                continue
            kept.append(record)
        self.records = sorted(kept)


class Run:
    """A log and its model, side by side."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log: PartitionLog = open_log(folder, config=COMPACT)
        self.model = Model()
        self.now_ms = NOW_MS
        self.sequences: dict[int, int] = {}

    def append(self, step: Append) -> None:
        fields = {}
        if step.producer_id != NO_PRODUCER:
            sequence = self.sequences.get(step.producer_id, 0)
            self.sequences[step.producer_id] = sequence + len(step.records)
            attributes = TRANSACTIONAL if step.producer_id in TRANSACTIONAL_PRODUCERS else 0
            fields = {"producer_id": step.producer_id, "sequence": sequence, "attributes": attributes}
        times_ms = [self.now_ms + number for number in range(len(step.records))]
        content = batch(step.records, timestamps_ms=times_ms, codec=step.codec, **fields)
        first = self.log.log_end_offset
        self.log.append_as_leader(content, leader_epoch=0, now_ms=self.now_ms, is_from_client=False)
        offsets = itertools.count(first)
        found = [(next(offsets), *record, time_ms) for record, time_ms in zip(step.records, times_ms, strict=True)]
        self.model.append(step.producer_id, found)

    def end(self, step: End) -> None:
        if step.producer_id not in self.model.open:
            return
        self.model.end(step.producer_id, self.log.log_end_offset, is_commit=step.is_commit)
        content = marker(producer_id=step.producer_id, is_commit=step.is_commit)
        self.log.append_as_leader(content, leader_epoch=0, now_ms=self.now_ms, is_from_client=False)

    def compact(self, step: Pass) -> None:
        """A pass over everything: transactions end before it, as nothing above the last stable
        offset is cleaned.
        """
        for producer_id in list(self.model.open):
            self.end(End(producer_id, is_commit=True))
        self.now_ms += step.after_ms
        log = self.log
        log.roll_if_due(self.now_ms + 10**13)
        log.advance_high_watermark(log.log_end_offset)
        log.flush_now()
        plan = plan_compaction(log, self.now_ms)
        if plan is None:
            return
        end, last_offsets = log.log_end_offset, plan.producer_last_offsets
        result = clean(plan, RealDisk())
        assert asyncio.run(swap_in(log, plan, result, log._descriptors, self.now_ms))
        self.model.compact(self.now_ms)
        self.check(log)
        assert log.log_end_offset == end
        assert set(last_offsets.values()) <= {header.last_offset for header in read_all(log)}

    def check(self, log: PartitionLog) -> None:
        assert [(r.offset, r.key, r.value, r.timestamp_ms) for r in data_records(log)] == self.model.records
        markers = {header.base_offset for header in read_all(log) if header.is_control}
        needed = {self.model.marker_of.get(record[0]) for record in self.model.records} - {None}
        assert needed <= markers


@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(steps=STEPS)
def test_a_compacted_log_has_the_records_of_the_model(steps: list[Append | End | Pass]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        for step in [*steps, Pass(after_ms=1)]:
            match step:
                case Append():
                    run.append(step)
                case End():
                    run.end(step)
                case Pass():
                    run.compact(step)
        run.log.abandon()
        again = open_log(folder, config=COMPACT)
        assert again.recovery.dropped == ()
        run.check(again)
        again.abandon()
