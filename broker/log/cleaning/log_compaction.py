"""Compacting a partition log: plan on the event loop, clean in a worker, swap the result in step by
step.

    plan = plan_compaction(log, now_ms)                     # None: nothing to do
    result = await clean(plan)                              # elsewhere: a thread or a process
    await swap_in(log, plan, result, descriptors, now_ms)   # False: the log was truncated

Only inactive segments below the last stable offset are cleaned. A crash at any point leaves the old
segments or the new ones (broker/log/cleaning/swapping.py). The records of the uncleaned part never
depend on removed ones.

Caller: broker/log/cleaning/log_cleaning.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterable
from functools import partial
from itertools import pairwise

from broker.log.cleaning.cleaner import CleanedSegment, CleaningPlan, CleaningResult, SourceSegment
from broker.log.cleaning.swapping import CLEANED_SUFFIX, LOG_FILE_LAST, SWAP_SUFFIX
from broker.log.core.cleaning_choice import Dirtiness
from broker.log.errors import StorageError, storage_errors
from broker.log.partition_log import PartitionLog
from broker.log.segments.descriptors import DescriptorCache
from broker.log.segments.segment import Segment
from broker.log.segments.segment_names import LOG_SUFFIX, SEGMENT_SUFFIXES
from broker.log.threads import in_thread
from runtime.disk import Disk


def plan_compaction(log: PartitionLog, now_ms: int) -> CleaningPlan | None:
    """The plan of a pass over `log`; None without new inactive segments since the last pass."""
    sources = _cleanable(log, now_ms)
    # a log whose start has passed its compacted part is compacted from its start
    dirty_from = log.compacted_to if log.compacted_to >= log.segments.first.base_offset else log.log_start_offset
    if not sources or sources[-1].next_offset <= dirty_from:
        return None
    dirty = [source for source in sources if source.next_offset > dirty_from]
    config = log.config
    return CleaningPlan(
        directory=log.directory,
        truncation_count=log.truncation_count,
        segments=tuple(sources),
        dirty_from=dirty_from,
        dirtiness=Dirtiness(
            clean_bytes=sum(source.size_bytes for source in sources) - sum(source.size_bytes for source in dirty),
            dirty_bytes=sum(source.size_bytes for source in dirty),
            oldest_dirty_ms=dirty[0].first_timestamp_ms,
        ),
        aborted=tuple(log.aborted_transactions(sources[0].base_offset, log.last_stable_offset)),
        producer_last_offsets=log.producers.last_offsets(),
        raised_epochs=log.producers.raised_epochs(),
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        index_interval_bytes=config.index_interval_bytes,
    )


def _cleanable(log: PartitionLog, now_ms: int) -> list[SourceSegment]:
    """Inactive, flushed segments below the last stable offset; uncompacted ones only if they are
    older than min.compaction.lag.ms.
    """
    sources: list[SourceSegment] = []
    stable, lag_ms = log.last_stable_offset, log.config.compaction_lag_ms_min
    for segment, following in pairwise(log.segments.all):
        # segments that a crash could lose are not cleaned: a cleaned segment is durable and would
        # outlive its successor
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


async def swap_in(
    log: PartitionLog,
    plan: CleaningPlan,
    result: CleaningResult,
    descriptors: DescriptorCache,
    now_ms: int,
) -> bool:
    """Replace the originals by the cleaned segments; False if the originals were removed, truncated
    or are about to be: then the cleaned files are dropped.
    """
    if log.truncation_count != plan.truncation_count:
        # `cleaned_to` is of the log before the truncation
        await in_thread(partial(discard, plan, result.segments, descriptors.disk))
        return False
    # first: after a crash, the segments do not show how far the keys of this pass reached
    former, log.thinned_to = log.thinned_to, max(log.thinned_to, result.cleaned_to)
    if log.is_thinning_unsaved:
        try:
            await in_thread(log.save_thinned)
        except StorageError:
            # the next pass tries again; the disk may be full, and has no room for files without use
            log.thinned_to = min(former, log.log_end_offset)
            await in_thread(partial(discard, plan, result.segments, descriptors.disk))
            raise
    for number, cleaned in enumerate(result.segments):
        # a truncation waits for the end of swaps: it has precedence. Where it removed the newest
        # record of a key, the older one is the only one.
        is_current = log.swaps.may_begin and log.truncation_count == plan.truncation_count
        replaced = _replaced(log, cleaned) if is_current else None
        if replaced is None:
            await in_thread(partial(discard, plan, result.segments[number:], descriptors.disk))
            return False
        await Swap(log, cleaned, replaced, descriptors, now_ms).run()
    # `cleaned_to` may lie above the truncation
    if log.truncation_count != plan.truncation_count:
        return False
    log.compacted_to = result.cleaned_to
    return True


def _replaced(log: PartitionLog, cleaned: CleanedSegment) -> list[Segment] | None:
    """The segments that it replaces; None if the log has replaced or removed one of them."""
    present = {segment.base_offset: segment for segment in log.segments.all[:-1]}
    found = [present.get(source.base_offset) for source in cleaned.replaces]
    segments = [segment for segment in found if segment is not None]
    # the same base offset and another size: it was truncated, or compacted by an earlier pass
    sizes = [source.size_bytes for source in cleaned.replaces]
    is_whole = [segment.size_bytes for segment in segments] == sizes and not log.is_abandoned
    return segments if is_whole else None


def discard(plan: CleaningPlan, cleaned: Iterable[CleanedSegment], disk: Disk) -> None:
    """Remove what a pass wrote."""
    for segment in cleaned:
        for suffix in SEGMENT_SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                disk.unlink(f"{plan.directory}/{segment.base_offset:020d}{suffix}{CLEANED_SUFFIX}")


class Swap:
    """One cleaned segment that is being swapped into the log. Threads run the steps that flush,
    rename or remove files.

    During the swap, readers use the new segment under its `.swap` names; the final names are second
    names of the same files until no reader has the old files open. A truncation of the log cannot
    wait for a thread, so it does the remaining steps itself (`finish`); a stop does the same.
    """

    def __init__(
        self,
        log: PartitionLog,
        cleaned: CleanedSegment,
        replaced: list[Segment],
        descriptors: DescriptorCache,
        now_ms: int,
    ) -> None:
        self._log = log
        self._cleaned = cleaned
        self._replaced = replaced
        self._descriptors = descriptors
        self._disk = descriptors.disk
        self._now_ms = now_ms
        self._stem = f"{log.directory}/{cleaned.base_offset:020d}"
        self._segment: Segment | None = None
        self._lock = threading.Lock()
        self._steps = (self._announce, self._take_over, self._give_names, self._use_names, self._drop_swap_names)
        self._done_count = 0

    async def run(self) -> None:
        """Do all steps, those with disk access in threads. StorageError when the disk fails."""
        with self._log.swaps.under_way(self.finish):
            try:
                while self._done_count < len(self._steps) and not self._log.is_abandoned:
                    number = self._done_count
                    # the readers' view changes only on the event loop; the steps in between touch
                    # files
                    if self._steps[number] in (self._take_over, self._use_names):
                        self._do(number)
                    else:
                        await in_thread(partial(self._do, number))
            except asyncio.CancelledError:
                self.finish()
                raise
            except StorageError:
                # a log that is deleted meanwhile has no files to rename
                if not self._log.is_abandoned:
                    raise

    def finish(self) -> None:
        """Do the remaining steps, blocking the caller."""
        for number in range(len(self._steps)):
            if not self._log.is_abandoned:
                self._do(number)

    def _do(self, number: int) -> None:
        # the loop may call `finish` while the thread is in a step: each step runs once
        with self._lock, self._log.folder.held() as is_here, storage_errors("swapping in", self._stem):
            if is_here and number == self._done_count:
                self._steps[number]()
                self._done_count += 1

    def _announce(self) -> None:
        """The new names show that the work is complete: from here on, a start uses the cleaned
        segment.
        """
        for suffix in LOG_FILE_LAST:
            with contextlib.suppress(FileNotFoundError):
                self._disk.rename(self._stem + suffix + CLEANED_SUFFIX, self._stem + suffix + SWAP_SUFFIX)
        self._disk.fsync_directory(self._log.directory)

    def _take_over(self) -> None:
        """Readers have the new segment."""
        segment = self._segment = Segment(
            self._log.directory,
            self._cleaned.base_offset,
            self._descriptors,
            size_bytes=self._cleaned.size_bytes,
            next_offset=self._cleaned.next_offset,
            created_ms=self._replaced[-1].created_ms,
            index_bytes=self._cleaned.index_bytes,
        )
        segment.use_names(SWAP_SUFFIX)
        self._log.replace_segments(self._replaced, [segment], self._now_ms)

    def _give_names(self) -> None:
        # the old names must be free first, durably: a hard link does not replace a file
        """The originals release their names to the new files, which then have two names."""
        self._log.removals.put_aside()
        for suffix in LOG_FILE_LAST:
            with contextlib.suppress(FileNotFoundError):
                self._disk.link(self._stem + suffix + SWAP_SUFFIX, self._stem + suffix)
        self._disk.fsync_directory(self._log.directory)

    def _use_names(self) -> None:
        if self._segment is not None:
            self._segment.use_names("")

    def _drop_swap_names(self) -> None:
        """The log's `.swap` name first, durably: while it exists, a start uses the others as its
        indexes.
        """
        self._disk.unlink(self._stem + LOG_SUFFIX + SWAP_SUFFIX)
        self._disk.fsync_directory(self._log.directory)
        for suffix in SEGMENT_SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(self._stem + suffix + SWAP_SUFFIX)
