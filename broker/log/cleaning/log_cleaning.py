"""Compaction of a broker's logs: chooses the logs, runs the cleaners, and records how far each log
is compacted.

A pass checks all compacted logs and cleans the dirty ones outside the event loop, `threads` at a
time. It records the cleaned offset of each log in `cleaner-offset-checkpoint`, so that a restart
continues there. A log with a batch that does not decode is reported once and left alone until
batches of it are truncated, expired or repaired.

Caller: broker/log/directories/log_store.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from msgspec import Struct

from broker.log.cleaning.cleaner import CleaningPlan, CleaningResult, clean
from broker.log.cleaning.log_compaction import discard, plan_compaction, swap_in
from broker.log.core.cleaning_choice import CleaningRules, Dirtiness, worth_cleaning
from broker.log.errors import StorageError
from broker.log.partition_log import PartitionLog
from broker.log.segments.descriptors import DescriptorCache
from broker.log.threads import in_thread
from runtime.disk import Disk
from runtime.supervision import note_death
from wire.batches.record_batch import InvalidBatch

Clean = Callable[[CleaningPlan], Awaitable[CleaningResult]]
"""Carries out a plan; raises StorageError or InvalidBatch."""
MayClean = Callable[[PartitionLog], bool]
"""Returns whether the log may be compacted, now."""


def in_a_thread(disk: Disk) -> Clean:
    """Cleaning in a thread of this process: for tests and tools. A broker has a process for it
    (`cleaner_process.py`).
    """

    async def cleaning(plan: CleaningPlan) -> CleaningResult:
        return await asyncio.to_thread(clean, plan, disk)

    return cleaning


class CleaningFigures(Struct):
    """Figures for the metrics: the findings of the last pass and the totals of all passes."""

    max_dirty_ratio: float = 0.0
    uncleanable_count: int = 0
    cleaned_count: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    ended_at_ms: int = 0


class LogCleaning:
    """Cleans logs, the dirtiest first."""

    def __init__(self, descriptors: DescriptorCache, clean: Clean, *, now_ms: Callable[[], int]) -> None:
        self.figures = CleaningFigures()
        self.clean = clean
        self.threads = 1
        """The number of logs that are cleaned at the same time (`log.cleaner.threads`); a running
        pass keeps the number with which it began.
        """
        self._descriptors = descriptors
        self._now_ms = now_ms

    async def run(self, logs: Iterable[PartitionLog], *, may_clean: MayClean) -> list[str]:
        """Run one pass over these logs; return one sentence for each log that was cleaned or cannot
        be cleaned.

        `may_clean` is asked again for each log, because a pass takes long: meanwhile a topic may
        get another policy or become a copy of another site's. A log whose cleaner always crashes
        stays the dirtiest: it must not keep the others from their turn.
        """
        # each log once in a pass: a log that fails or grows does not return before the others
        waiting, sentences = deque(self._choose(filter(may_clean, logs))), list[str]()

        async def clean_one_after_the_other() -> None:
            while waiting:
                turn = waiting.popleft()
                try:
                    sentence = await self._clean(turn, may_clean)
                except StorageError as failure:
                    note_death("compaction", log=f"{turn.topic}-{turn.partition}", reason=str(failure))
                    continue
                if sentence:
                    sentences.append(sentence)

        ended = await asyncio.gather(
            *(clean_one_after_the_other() for _ in range(self.threads)), return_exceptions=True
        )
        for outcome in ended:
            if outcome is not None:
                raise outcome
        self.figures.ended_at_ms = self._now_ms()
        return sentences

    def _choose(self, logs: Iterable[PartitionLog]) -> list[PartitionLog]:
        now_ms = self._now_ms()
        found, uncleanable_count = [], 0
        for log in logs:
            if log.failure is not None:
                continue
            if log.uncleanable_version == log.content_version:
                uncleanable_count += 1
                continue
            rules = CleaningRules(log.config.cleanable_dirty_ratio_min, log.config.compaction_lag_ms_max)
            try:
                plan = plan_compaction(log, now_ms)
            except StorageError as failure:
                # a damaged header, for instance: the others have their turn
                uncleanable_count += 1
                note_death("compaction", log=f"{log.topic}-{log.partition}", reason=str(failure))
                continue
            # a log without a plan still counts for the metric, with nothing dirty
            dirtiness = plan.dirtiness if plan is not None else Dirtiness(0, 0, -1)
            found.append((log, dirtiness, rules))
        self.figures.uncleanable_count = uncleanable_count
        self.figures.max_dirty_ratio = max((dirtiness.ratio for _, dirtiness, _ in found), default=0.0)
        return worth_cleaning(found, now_ms)

    async def _clean(self, log: PartitionLog, may_clean: MayClean) -> str:
        # the choice may be minutes old when this log's turn comes
        is_wanted = not log.is_abandoned and may_clean(log)
        plan = plan_compaction(log, self._now_ms()) if is_wanted else None
        if plan is None:
            return ""
        name = f"{log.topic}-{log.partition}"
        # of the files that are read: a repair while they are read makes the log worth another try
        content_version = log.content_version
        try:
            result = await self.clean(plan)
        except InvalidBatch as fault:
            log.uncleanable_version = content_version
            self.figures.uncleanable_count += 1
            return f"{name} cannot be compacted: {fault}"
        except StorageError:
            if log.is_abandoned:
                # deleted, or moved away, while its files were read
                return ""
            raise
        if not may_clean(log):
            await in_thread(partial(discard, plan, result.segments, self._descriptors.disk))
            return ""
        # the files are read without a lock: `swap_in` refuses if a truncation has changed the log
        # since
        is_replaced = await swap_in(log, plan, result, self._descriptors, self._now_ms())
        if not is_replaced:
            return ""
        self.figures.cleaned_count += 1
        self.figures.bytes_before += result.bytes_before
        self.figures.bytes_after += result.bytes_after
        return f"{name} is compacted up to {result.cleaned_to}: {result.bytes_before} bytes became {result.bytes_after}"
