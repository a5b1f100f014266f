"""Compacting a partition log: plan on the event loop, clean in a worker, swap the result in on the loop again.

    plan = plan_compaction(log, now_ms)            # None: nothing to do
    result = await clean(plan)                     # elsewhere: a thread or a process
    swap_in(log, plan, result, descriptors, now_ms)            # False: the log was cut meanwhile, the work is dropped

Only inactive segments below the last stable offset are cleaned. A crash at any point leaves the old segments or the new
ones (broker/log/swapping.py). Records in the uncleaned part never depend on what was removed.

Caller: broker/log/log_cleaning.py.
"""

from __future__ import annotations

import contextlib
from itertools import pairwise

from broker.core.cleaning_choice import Dirtiness
from broker.log.cleaner import CleanedSegment, CleaningPlan, CleaningResult, SourceSegment
from broker.log.descriptors import DescriptorCache
from broker.log.errors import storage_errors
from broker.log.partition_log import PartitionLog
from broker.log.segment import SEGMENT_SUFFIXES, Segment
from broker.log.swapping import CLEANED_SUFFIX, LOG_FILE_LAST, SWAP_SUFFIX
from runtime.disk import Disk


def plan_compaction(log: PartitionLog, now_ms: int) -> CleaningPlan | None:
    """What a pass over `log` would clean; None without new inactive segments since the last pass."""
    sources = _cleanable(log, now_ms)
    dirty_from = log.compacted_to if log.compacted_to >= log.segments.first.base_offset else log.log_start_offset
    if not sources or sources[-1].next_offset <= dirty_from:
        return None
    dirty = [source for source in sources if source.next_offset > dirty_from]
    config = log.config
    return CleaningPlan(
        directory=log.directory,
        segments=tuple(sources),
        dirty_from=dirty_from,
        dirtiness=Dirtiness(
            clean_bytes=sum(source.size_bytes for source in sources) - sum(source.size_bytes for source in dirty),
            dirty_bytes=sum(source.size_bytes for source in dirty),
            oldest_dirty_ms=dirty[0].first_timestamp_ms,
        ),
        aborted=tuple(log.aborted_transactions(sources[0].base_offset, log.last_stable_offset)),
        producer_last_offsets=log.producers.last_offsets(),
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        index_interval_bytes=config.index_interval_bytes,
    )


def _cleanable(log: PartitionLog, now_ms: int) -> list[SourceSegment]:
    """Inactive, flushed, below the last stable offset; of the uncompacted ones only those past min.compaction.lag.ms."""
    sources: list[SourceSegment] = []
    stable, lag_ms = log.last_stable_offset, log.config.compaction_lag_ms_min
    for segment, following in pairwise(log.segments.all):
        if following.base_offset > stable or segment.is_dirty:
            break
        is_dirty = following.base_offset > log.compacted_to
        if is_dirty and lag_ms and segment.facts().largest_timestamp_ms > now_ms - lag_ms:
            break
        sources.append(
            SourceSegment(
                base_offset=segment.base_offset,
                next_offset=following.base_offset,
                size_bytes=segment.size_bytes,
                first_timestamp_ms=segment.first_timestamp_ms() if is_dirty else -1,
            )
        )
    return sources


def swap_in(
    log: PartitionLog, plan: CleaningPlan, result: CleaningResult, descriptors: DescriptorCache, now_ms: int
) -> bool:
    """Put the cleaned segments in the place of the originals; False, and nothing changed, when those are gone or cut."""
    present = {segment.base_offset: segment for segment in log.segments.all[:-1]}
    for source in (source for cleaned in result.segments for source in cleaned.replaces):
        segment = present.get(source.base_offset)
        if segment is None or segment.size_bytes != source.size_bytes or log.is_abandoned:
            discard(plan, result, descriptors.disk)
            return False
    for cleaned in result.segments:
        replaced = [present[source.base_offset] for source in cleaned.replaces]
        _swap(log, cleaned, replaced, descriptors, now_ms)
    log.compacted_to = result.cleaned_to
    return True


def discard(plan: CleaningPlan, result: CleaningResult, disk: Disk) -> None:
    """Remove what a pass wrote."""
    for cleaned in result.segments:
        for suffix in SEGMENT_SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                disk.unlink(f"{plan.directory}/{cleaned.base_offset:020d}{suffix}{CLEANED_SUFFIX}")


def _swap(
    log: PartitionLog,
    cleaned: CleanedSegment,
    replaced: list[Segment],
    descriptors: DescriptorCache,
    now_ms: int,
) -> None:
    disk = descriptors.disk
    stem = f"{log.directory}/{cleaned.base_offset:020d}"
    with storage_errors("swapping in", stem):
        for suffix in LOG_FILE_LAST:
            with contextlib.suppress(FileNotFoundError):
                disk.rename(stem + suffix + CLEANED_SUFFIX, stem + suffix + SWAP_SUFFIX)
        disk.fsync_directory(log.directory)
    segment = Segment(
        log.directory,
        cleaned.base_offset,
        descriptors,
        size_bytes=cleaned.size_bytes,
        next_offset=cleaned.next_offset,
        created_ms=replaced[-1].created_ms,
        index_bytes=cleaned.index_bytes,
    )
    log.replace_segments(replaced, [segment], now_ms)
    with storage_errors("swapping in", stem):
        for suffix in LOG_FILE_LAST:
            with contextlib.suppress(FileNotFoundError):
                disk.rename(stem + suffix + SWAP_SUFFIX, stem + suffix)
        disk.fsync_directory(log.directory)
