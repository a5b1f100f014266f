"""A reconciliation of the two ends of a translate link, in this process: surveys both ends, waits
until the link has noted the source's ends, reads every record, and judges each partition.

Offsets differ between the ends, so `core/translated_merge.py` compares by the link's offset map,
and by content where the link has noted nothing. Both ends are read twice side by side: the headers
for what is committed, then the records. Memory holds neither log.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from operator import methodcaller
from typing import Final

from runtime.process import OperationalFailure
from spark_jobs.logs.core.splits import LogEnds
from spark_jobs.logs.survey import compacted_topics, first_since, log_ends
from spark_jobs.reconciling.core.extents import bounded
from spark_jobs.reconciling.core.findings import Explanation, Finding, FindingKind
from spark_jobs.reconciling.core.translated_logs import (
    RANGES_MAX,
    SOURCE,
    TARGET,
    MirroredRun,
    TranslatedJudgement,
    TranslatedLog,
)
from spark_jobs.reconciling.core.translated_merge import judged
from spark_jobs.reconciling.core.verdict import PartitionReport, ReconciliationReport, Side
from spark_jobs.reconciling.request import NO_BOUND, Request
from spark_jobs.reconciling.spilled_records import SpilledRecords
from spark_jobs.reconciling.translated_end import TranslatedEnd
from spark_jobs.session import Progress
from wire.protocol.ids import PartitionKey

POLL_S: Final = 0.5
ATTEMPTS_MAX: Final = 3
"""Comparisons of a partition from which retention deletes records meanwhile."""


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


def reconcile_translated(
    request: Request, read_notes: Callable[[], LinkNotes], progress: Progress = lambda _: None
) -> ReconciliationReport:
    """Compare. `read_notes` asks the target for the link's present notes. A site that cannot be
    asked is a problem of the report.
    """
    started_at_ms, started = round(time.time() * 1000), time.monotonic()
    partitions: list[PartitionReport] = []
    findings: list[Finding] = []
    explanations: list[Explanation] = []
    problems: list[str] = []
    try:
        for one, faults, reasons in _compared(request, read_notes, progress, problems):
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
    request: Request, read_notes: Callable[[], LinkNotes], progress: Progress, problems: list[str]
) -> Iterator[tuple[PartitionReport, list[Finding], list[Explanation]]]:
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
    # the origins of all records below the target's ends: those that arrived meanwhile, too
    origins = log_ends(request.source_bootstrap, lambda name: name in wanted)
    compacted = compacted_topics(request.source_bootstrap, sorted({topic for topic, _ in source}))
    compacted |= compacted_topics(request.target_bootstrap, sorted({topic for topic, _ in target}))
    for key, ends in sorted(source.items()):
        copy_key = (wanted[key[0]], key[1])
        copy_ends = target.get(copy_key, LogEnds())
        progress(f"comparing {key[0]}-{key[1]} with {copy_key[0]}-{copy_key[1]}")
        started = time.monotonic()
        log = TranslatedLog(
            topic=key[0],
            partition=key[1],
            runs=notes.runs.get(key, ()),
            own_producers=notes.own_producers,
            is_compacted=key[0] in compacted or copy_key[0] in compacted,
            source_until=source_until.get(key, ends.end_offset),
            target_until=target_until.get(copy_key, copy_ends.end_offset),
        )
        read = replace(ends, end_offset=max(ends.end_offset, origins.get(key, ends).end_offset))
        here = TranslatedEnd(request.source_bootstrap, key, read, surveyed_until=ends.end_offset)
        there = TranslatedEnd(request.target_bootstrap, copy_key, copy_ends)
        found, has_expired = _judged(here, there, log)
        if has_expired:
            problems.append(
                f"{key[0]}-{key[1]}: retention deleted records during each of {ATTEMPTS_MAX} comparisons, so differences "
                f"at the start of a log may be expired records: compare again, or make retention.ms longer meanwhile"
            )
        if found.has_more:
            problems.append(
                f"{key[0]}-{key[1]} has more than {RANGES_MAX:,} differences of a kind: the others are not listed"
            )
        faults = [*_damage(request, key, here, there), *found.findings(*key)]
        report = PartitionReport(
            topic=key[0],
            partition=key[1],
            source=_side(here),
            target=_side(there),
            is_equal=not faults,
            elapsed_ms=round((time.monotonic() - started) * 1000),
        )
        sites = {SOURCE: request.source_site, TARGET: request.target_site}
        yield report, faults, found.explanations(*key, sites)


def _judged(here: TranslatedEnd, there: TranslatedEnd, log: TranslatedLog) -> tuple[TranslatedJudgement, bool]:
    """Read and judge both ends; again from their new starts where retention has deleted records
    meanwhile. Also returns True if it did so during the last attempt too: then some differences may
    be expired records.
    """
    for attempt in range(1, ATTEMPTS_MAX + 1):
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(methodcaller("read_outline"), (here, there)))
        outlined = replace(
            log,
            source_start=here.ends.start_offset,
            target_start=there.ends.start_offset,
            source_uncommitted=here.transactions.uncommitted,
            source_open_at_survey=here.transactions.open_at_survey,
            target_uncommitted=there.transactions.uncommitted,
            has_times=here.has_times and there.has_times,
        )
        found = judged(outlined, here.records, there.records, SpilledRecords)
        # both are asked: each question also moves the start of its end
        has_expired = bool(found.faults) and any([here.has_expired(), there.has_expired()])
        if not has_expired or attempt == ATTEMPTS_MAX:
            break
    return found, has_expired


def _settled(read_notes: Callable[[], LinkNotes], source: Mapping[PartitionKey, LogEnds], timeout_ms: int) -> LinkNotes:
    """The notes, when they cover the source's ends, or when time is up."""
    deadline = time.monotonic() + timeout_ms / 1000
    notes = read_notes()
    while any(notes.source_next.get(key, ends.end_offset) < ends.end_offset for key, ends in source.items()):
        if time.monotonic() >= deadline:
            break
        time.sleep(POLL_S)
        notes = read_notes()
    return notes


def _damage(request: Request, key: PartitionKey, here: TranslatedEnd, there: TranslatedEnd) -> list[Finding]:
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


def _side(end: TranslatedEnd) -> Side:
    return Side(
        start_offset=end.ends.start_offset,
        end_offset=end.ends.end_offset,
        records=end.record_count,
        bytes=end.size_bytes,
        batches=end.batches,
    )
