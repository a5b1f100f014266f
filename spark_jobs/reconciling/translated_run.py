"""A reconciliation of the two ends of a translate link, in this process: surveys both ends, waits
until the link has noted the source's ends, reads every record, and judges each partition.

Offsets differ between the ends, so `core/translated_logs.py` compares by the link's offset map, and
by content where the link has noted nothing.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from runtime.process import OperationalFailure
from spark_jobs.logs.core.splits import LogEnds, Split
from spark_jobs.logs.log_reader import read_splits
from spark_jobs.logs.stored_rows import opened_records
from spark_jobs.logs.survey import compacted_topics, first_since, log_ends
from spark_jobs.reconciling.core.extents import bounded
from spark_jobs.reconciling.core.findings import Explanation, Finding, FindingKind
from spark_jobs.reconciling.core.small_comparison import content_of
from spark_jobs.reconciling.core.translated_logs import (
    SOURCE,
    TARGET,
    MirroredRun,
    PlacedRecord,
    TranslatedLog,
    judged,
)
from spark_jobs.reconciling.core.verdict import PartitionReport, ReconciliationReport, Side
from spark_jobs.reconciling.request import NO_BOUND, Request
from spark_jobs.session import Progress
from wire.batches.transaction_records import decode_marker
from wire.client.client_errors import KafkaClientError
from wire.protocol.ids import PartitionKey

POLL_S: Final = 0.5
STANDSTILL_S: Final = 3.0
"""A link that has noted nothing more for this long is not waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkNotes:
    """The notes of a translate link at its target: target topics by source topic, the runs of each
    source partition, its mirrored offset, and the producer ids of the link. Without notes (`topics`
    only) everything is compared by content.
    """

    topics: Mapping[str, str]
    runs: Mapping[PartitionKey, Sequence[MirroredRun]] = field(default_factory=dict)
    source_next: Mapping[PartitionKey, int] = field(default_factory=dict)
    own_producers: frozenset[int] = frozenset()


@dataclass(slots=True)
class _End:
    """The records of one partition at one end; `corrupt` are the offset ranges of damaged batches,
    both ends included.
    """

    records: list[PlacedRecord] = field(default_factory=list)
    corrupt: list[tuple[int, int]] = field(default_factory=list)
    sizes: Counter[str] = field(default_factory=Counter)


def reconcile_translated(
    request: Request, read_notes: Callable[[], LinkNotes], progress: Progress = lambda _: None
) -> ReconciliationReport:
    """Compare. `read_notes` asks the target for the link's present notes. A site that cannot be
    asked, or logs that are too long for this process, are a problem of the report.
    """
    started_at_ms, started = round(time.time() * 1000), time.monotonic()
    partitions: list[PartitionReport] = []
    findings: list[Finding] = []
    explanations: list[Explanation] = []
    problems: list[str] = []
    try:
        for one, faults, reasons in _compared(request, read_notes, progress):
            partitions.append(one)
            findings += faults
            explanations += reasons
    except OperationalFailure as failure:
        problems.append(str(failure))
    return ReconciliationReport(
        source_site=request.source_site,
        target_site=request.target_site,
        started_at_ms=started_at_ms,
        elapsed_ms=round((time.monotonic() - started) * 1000),
        range_offsets=request.range_offsets,
        is_deep=True,
        partitions=tuple(partitions),
        findings=tuple(findings),
        explanations=tuple(explanations),
        problems=tuple(problems),
        run_id=os.urandom(6).hex(),
    )


def _compared(
    request: Request, read_notes: Callable[[], LinkNotes], progress: Progress
) -> Iterable[tuple[PartitionReport, list[Finding], list[Explanation]]]:
    progress(f"asking {request.source_site} and {request.target_site} for their logs")
    wanted = {name: target for name, target in read_notes().topics.items() if request.is_wanted(name)}
    source = log_ends(request.source_bootstrap, lambda name: name in wanted)
    if not source:
        raise OperationalFailure("no topic of the link matches, so that nothing was compared")
    is_copy = frozenset(wanted[topic] for topic, _ in source).__contains__
    source_until: Mapping[PartitionKey, int] = {}
    if request.until_ms != NO_BOUND:
        source_until = first_since(request.source_bootstrap, wanted.__contains__, request.until_ms)
    notes = _settled(read_notes, bounded(source, source_until), request.settle_timeout_ms)
    target = log_ends(request.target_bootstrap, is_copy)
    target_until: Mapping[PartitionKey, int] = {}
    if request.until_ms != NO_BOUND:
        target_until = first_since(request.target_bootstrap, is_copy, request.until_ms)
    _check_size(request, source, target)
    compacted = compacted_topics(request.source_bootstrap, sorted({topic for topic, _ in source}))
    compacted |= compacted_topics(request.target_bootstrap, sorted({topic for topic, _ in target}))
    for key, ends in sorted(source.items()):
        copy_key = (wanted[key[0]], key[1])
        copy_ends = target.get(copy_key, LogEnds())
        progress(f"comparing {key[0]}-{key[1]} with {copy_key[0]}-{copy_key[1]}")
        started = time.monotonic()
        here, there = _read_both(request, (key, ends), (copy_key, copy_ends))
        log = TranslatedLog(
            topic=key[0],
            partition=key[1],
            source=here.records,
            target=there.records,
            runs=notes.runs.get(key, ()),
            source_start=ends.start_offset,
            target_start=copy_ends.start_offset,
            own_producers=notes.own_producers,
            is_compacted=key[0] in compacted or copy_key[0] in compacted,
            source_until=source_until.get(key, ends.end_offset),
            target_until=target_until.get(copy_key, copy_ends.end_offset),
        )
        found = judged(log)
        faults = [*_damage(request, key, here, there), *found.findings(*key)]
        report = PartitionReport(
            topic=key[0],
            partition=key[1],
            source=_side(ends, here),
            target=_side(copy_ends, there),
            is_equal=not faults,
            elapsed_ms=round((time.monotonic() - started) * 1000),
        )
        sites = {SOURCE: request.source_site, TARGET: request.target_site}
        yield report, faults, found.explanations(*key, sites)


def _settled(read_notes: Callable[[], LinkNotes], source: Mapping[PartitionKey, LogEnds], timeout_ms: int) -> LinkNotes:
    """The notes, after they cover the source's ends, stop growing, or time is up."""
    deadline = time.monotonic() + timeout_ms / 1000
    notes, moved_at = read_notes(), time.monotonic()
    while any(notes.source_next.get(key, ends.end_offset) < ends.end_offset for key, ends in source.items()):
        if time.monotonic() >= min(deadline, moved_at + STANDSTILL_S):
            break
        time.sleep(POLL_S)
        newer = read_notes()
        if newer.source_next != notes.source_next:
            moved_at = time.monotonic()
        notes = newer
    return notes


def _check_size(
    request: Request, source: Mapping[PartitionKey, LogEnds], target: Mapping[PartitionKey, LogEnds]
) -> None:
    offsets = sum(ends.end_offset - ends.start_offset for ends in (*source.values(), *target.values()))
    if offsets > 2 * request.process_offsets_max:
        raise OperationalFailure(
            f"the logs have {offsets:,} offsets, and this comparison takes up to {2 * request.process_offsets_max:,} "
            "(twice --process-offsets): raise it, if the memory holds all records of a partition, or name fewer topics"
        )


def _read_both(
    request: Request, source: tuple[PartitionKey, LogEnds], target: tuple[PartitionKey, LogEnds]
) -> tuple[_End, _End]:
    asked = ((request.source_bootstrap, *source), (request.target_bootstrap, *target))
    with ThreadPoolExecutor(len(asked)) as threads:
        try:
            here, there = threads.map(lambda one: _read(*one), asked)
        except (KafkaClientError, OSError) as error:
            raise OperationalFailure(f"the logs cannot be read: {error}") from error
    return here, there


def _read(bootstrap: str, key: PartitionKey, ends: LogEnds) -> _End:
    found = _End()
    if ends.end_offset <= ends.start_offset:
        return found
    split = Split(
        site=bootstrap,
        topic=key[0],
        partition=key[1],
        first_offset=ends.start_offset,
        until_offset=ends.end_offset,
        is_first=True,
    )
    for _, batch in read_splits(bootstrap, [split]):
        header = batch.header
        if header is None or not batch.is_crc_valid:
            last = ends.end_offset - 1 if header is None else header.last_offset
            found.corrupt.append((batch.expected_offset if header is None else header.base_offset, last))
            continue
        found.sizes.update(batches=1, bytes=header.size_bytes)
        for _, record in opened_records(batch):
            if record.offset < ends.start_offset:
                continue
            headers = (part for name_and_value in record.headers for part in name_and_value)
            found.records.append(
                PlacedRecord(
                    offset=record.offset,
                    key=record.key,
                    content=content_of(record.key, record.value, *headers),
                    timestamp_ms=None if header.is_log_append_time else record.timestamp_ms,
                    producer_id=header.producer_id,
                    is_transactional=header.is_transactional,
                    is_marker=header.is_control,
                    is_commit=header.is_control and decode_marker(record)[0],
                )
            )
    return found


def _damage(request: Request, key: PartitionKey, here: _End, there: _End) -> list[Finding]:
    return [
        Finding(
            topic=key[0],
            partition=key[1],
            kind=FindingKind.CORRUPT,
            first_offset=first,
            last_offset=last,
            site=site,
            detail="the checksum does not match the bytes",
        )
        for site, end in ((request.source_site, here), (request.target_site, there))
        for first, last in end.corrupt
    ]


def _side(ends: LogEnds, end: _End) -> Side:
    return Side(
        start_offset=ends.start_offset,
        end_offset=ends.end_offset,
        records=len(end.records),
        bytes=end.sizes["bytes"],
        batches=end.sizes["batches"],
    )
