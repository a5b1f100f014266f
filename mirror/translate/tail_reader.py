"""Finds the position at which each partition of a translate link continues, from the stored
position and the batches of the target's log beyond it.

Three cases: the target ends at the noted position (nothing to do), it ends later (the tail is read
and compared with the source, `core/resume.py`, or record by record where the source was compacted
meanwhile, `core/thinned_source.py`), or earlier (it lost acknowledged records, which are mirrored
again). A target with records but without any note of ours is compared with the source from its
beginning (`core/likeness.py`), since the notes may have been wiped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

from msgspec.structs import replace

from mirror.link.core.topic_naming import Naming
from mirror.link.ports import Differs, LogAnswer, LogEnds, SourceUnreachable, Unreachable
from mirror.sites.kafka_site import reached
from mirror.translate.core.likeness import Likeness, fingerprint
from mirror.translate.core.resume import HistoryMismatch, SourceIsThinned, TailMatch, end_of_copy, is_before
from mirror.translate.core.thinned_source import ThinnedMatch
from mirror.translate.core.translation import Position, Translation
from mirror.translate.notes.offset_store import fetch_records, fetch_with_skipped
from mirror.translate.provenance import Provenance
from mirror.translate.record_filter import SourceFilter
from mirror.translate.transaction import TakenOver
from mirror.translate.translations import Translations
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.batches.record_batch import BatchHeader, Buffer, InvalidBatch, iterate_headers
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import LATEST_TIMESTAMP, READ_COMMITTED, TopicPartition

READS_AT_ONCE = 8
READ_BYTES = 1024 * 1024
ANSWERED_WITHIN_S = 1.0
"""How long (s) an answer waits for the partitions of which much has to be read. The partitions of
the same question are not kept waiting longer than this; the reading goes on until the next one.
"""
LOOKING_BACK_GROWS = 64
"""The factor by which each look covers more of the target's log, while the target does not report
how much of it is kept.
"""

_log = get_logger("mirror.translate")


class TailReader:
    """Reads the tails of one link. A partition whose target log has not grown is answered from
    memory.
    """

    def __init__(
        self,
        *,
        source: KafkaClient,
        target: KafkaClient,
        naming: Naming,
        translations: Translations,
        provenance: Provenance,
        record_filter: SourceFilter,
        may_append_to_others: bool,
        clock: Clock,
        late_within_ms: float,
    ) -> None:
        self._clock = clock
        self._late_within_ms = late_within_ms
        self._source = source
        self._target = target
        self._naming = naming
        self._translations = translations
        self._provenance = provenance
        self._record_filter = record_filter
        self._may_append_to_others = may_append_to_others
        self._turns = asyncio.Semaphore(READS_AT_ONCE)
        # Comparisons of whole logs have turns of their own.
        self._long_turns = asyncio.Semaphore(READS_AT_ONCE)
        # The partitions whose position is being found, or was found since the last question.
        self._finding: dict[TopicPartition, asyncio.Task[LogAnswer]] = {}
        # Partitions whose first batch was refused since the last look.
        self.doubted: set[TopicPartition] = set()
        # When the target's log was last looked at, monotonic ms.
        self.looked_at_ms: dict[TopicPartition, float] = {}
        # Partitions of which a request had no answer whose repetition the target may not recognise,
        # and since when (monotonic ms).
        self.unanswered_at_ms: dict[TopicPartition, float] = {}

    async def positions(
        self,
        keys: Collection[TopicPartition],
        log_ends: Callable[[], Awaitable[Mapping[TopicPartition, LogAnswer]]],
    ) -> dict[TopicPartition, LogAnswer]:
        """The target's log ends (by the source's names) as positions in the source's log.

        They are requested when no earlier daemon can write to these logs any longer, where
        transactions ensure that.
        """
        try:
            era = await self._translations.be_ready()
            ends = await log_ends()
            fresh = {key for key, end in ends.items() if self._find(key, end, era)}
            finding = {key: self._finding[key] for key in ends}
            if finding:
                await asyncio.wait(finding.values(), timeout=ANSWERED_WITHIN_S)
            found = {key: self._found(key, task, is_fresh=key in fresh) for key, task in finding.items()}
            # Noted before the first write: records beyond the note are then known to be the link's
            # own.
            await self._translations.save()
        except TakenOver as error:
            return dict.fromkeys(keys, Differs(str(error)))
        except Unreachable as error:
            return dict.fromkeys(keys, error)
        return found

    async def close(self) -> None:
        """End the reading."""
        finding = list(self._finding.values())
        for task in finding:
            task.cancel()
        await asyncio.gather(*finding, return_exceptions=True)

    def _find(self, key: TopicPartition, end: LogAnswer, era: int) -> bool:
        """Find the position of a partition; False if that is under way for an earlier question, or
        has ended since with a reason why there is none.
        """
        task = self._finding.get(key)
        if task is not None and not _is_outdated(task):
            return False
        # Also after it was found for an earlier question: it may be outdated, and what was read for
        # it is known now.
        self._finding[key] = asyncio.get_running_loop().create_task(self._position(key, end, era))
        return True

    def _found(self, key: TopicPartition, task: asyncio.Task[LogAnswer], *, is_fresh: bool) -> LogAnswer:
        if not task.done() or (not is_fresh and _is_outdated(task)):
            return Unreachable(f"its log is compared with the source's: {key}")
        if self._finding.get(key) is task:
            del self._finding[key]
        return task.result()

    async def _position(self, key: TopicPartition, end: LogAnswer, era: int) -> LogAnswer:
        if not isinstance(end, LogEnds):
            return end
        try:
            return await self._resume(key, end, era)
        except Unreachable as error:
            return error
        except (HistoryMismatch, InvalidBatch) as error:
            return Differs(f"{key}: {error}")

    async def _resume(self, key: TopicPartition, end: LogEnds, era: int) -> LogEnds:
        # The wait comes before the read: a request that arrived later would be appended unnoticed.
        self._await_the_late(key)
        await self._translations.have_producer(self._naming.source_alias)
        self._translations.demand(key, era)
        if self._translations.is_new(key):
            translation = self._translations.begun(key)
            if end.end_offset > end.log_start_offset:
                async with self._long_turns:
                    end = await self._compare(key, translation, end)
                self._translations.demand(key, era)
            self._translations.put(key, translation)
        translation = self._translations.of(key)
        translation.target_start = end.log_start_offset
        before = translation.position.source_next
        async with self._turns:
            if end.end_offset < translation.position.target_next or translation.has_target_gone_back:
                await self._go_back(key, translation, end)
            if end.end_offset > translation.position.target_next:
                await self._match_tail(key, translation, end)
        # The log is known up to its end, so batches without an answer are either found in it or
        # must be written again.
        translation.rest()
        self.unanswered_at_ms.pop(key, None)
        self.looked_at_ms[key] = self._clock.monotonic_ms()
        self._settle_doubt(key, translation, has_moved=translation.position.source_next != before)
        return LogEnds(
            log_start_offset=translation.upstream(end.log_start_offset),
            end_offset=translation.position.source_next,
            last_epoch=translation.position.source_epoch,
        )

    async def _go_back(self, key: TopicPartition, translation: Translation, end: LogEnds) -> None:
        """Return to the end of the part of the target's log that is still the noted one. Records
        that the target took since then are in the log twice in the end, and are counted.
        """
        kept = await self._end_of_copy(key, translation.position, end)
        lost = translation.lose_target(kept)
        _log.warning("the target lost records; they are mirrored again", partition=str(key), lost_offsets=lost)

    async def _end_of_copy(self, key: TopicPartition, position: Position, end: LogEnds) -> int:
        """Search backwards from the log end for a batch of ours from before the loss, regardless of
        the records of other clients.
        """
        noted_end, size = min(end.end_offset, position.target_next), 1
        looked_from, ours = noted_end, list[BatchHeader]()
        # The steps grow, because usually a batch of ours is close to the end.
        while True:
            first = max(end.log_start_offset, noted_end - size)
            found = await self._sequenced(key, position, first, looked_from)
            ours += found
            if first == end.log_start_offset or any(is_before(position, header) for header in found):
                kept = end_of_copy(position, ours)
                return noted_end if kept is None else kept
            looked_from = first
            size *= LOOKING_BACK_GROWS

    def _ours(self) -> frozenset[int]:
        return frozenset({*self._translations.producers.values(), *self._translations.writers})

    async def _sequenced(self, key: TopicPartition, position: Position, offset: int, end: int) -> list[BatchHeader]:
        """The target's batches, from the one that contains `offset` on, under producers that the
        position knows.
        """
        target, found = self._naming.target_name(key.topic), list[BatchHeader]()
        while offset < end:
            records = await fetch_records(self._target, target, key.partition, offset, max_bytes=READ_BYTES)
            headers = [header for _, header in iterate_headers(records, may_end_in_partial=True)]
            if not headers:
                raise Unreachable(f"{target}-{key.partition} has nothing at offset {offset}")
            found += [
                header
                for header in headers
                if header.producer_id in position.sequences and header.base_sequence >= 0 and not header.is_control
            ]
            offset = headers[-1].next_offset
        return found

    def _await_the_late(self, key: TopicPartition) -> None:
        """Raises Unreachable while a request that had no answer may still arrive: an earlier read
        would not find its batches.
        """
        waited_ms = self._clock.monotonic_ms() - self.unanswered_at_ms.get(key, -self._late_within_ms)
        if waited_ms < self._late_within_ms:
            raise Unreachable(
                f"requests for {key} without an answer may still arrive; the target's log is read in "
                f"{self._late_within_ms - waited_ms:.0f} ms"
            )

    def _settle_doubt(self, key: TopicPartition, translation: Translation, *, has_moved: bool) -> None:
        """The target refused our sequence and its log does not show the reason: it has forgotten
        our producer, or knows a later epoch of it.
        """
        if key in self.doubted and not has_moved:
            translation.renew_epochs()
            _log.warning("sequences restart under the next producer epoch", partition=str(key))
        self.doubted.discard(key)

    async def _match_tail(self, key: TopicPartition, translation: Translation, end: LogEnds) -> None:
        producer_ids = frozenset(self._translations.producers.values())
        try:
            # Counting batches needs only headers. Comparing records is slower, and needed only if
            # the source has lost some.
            by_batch = TailMatch(translation, producer_ids=producer_ids)
            try:
                await self._lay_beside(key, by_batch, translation.position, end)
                by_batch.finish()
                matched = by_batch.matched_batches
                is_gap = by_batch.never_written is not None
            except SourceIsThinned as thinned:
                by_record = ThinnedMatch(translation, producer_ids=producer_ids)
                await self._lay_beside(key, by_record, translation.position, end)
                by_record.finish(source_end=await self._source_end(key))
                matched, is_gap = by_record.matched_batches, by_record.has_never_written
                _log.info("the source has fewer records than were mirrored", partition=str(key), offsets=str(thinned))
        except HistoryMismatch as error:
            target = self._naming.target_name(key.topic)
            raise HistoryMismatch(f"{error}; delete topic {target} at the target, and it is mirrored anew") from error
        if is_gap:
            _log.warning(
                "the target lacks a batch that later batches of this link follow; all are mirrored again",
                partition=str(key),
                source_offset=translation.position.source_next,
            )
        if matched:
            _log.info("found in the target's log", partition=str(key), batches=matched)

    async def _lay_beside(
        self, key: TopicPartition, match: TailMatch | ThinnedMatch, position: Position, end: LogEnds
    ) -> None:
        """Pass both logs from the position on to the match."""
        offset = max(position.target_next, end.log_start_offset)
        target = self._naming.target_name(key.topic)
        while offset < end.end_offset:
            records = await fetch_records(self._target, target, key.partition, offset, max_bytes=READ_BYTES)
            headers = [header for _, header in iterate_headers(records, may_end_in_partial=True)]
            if not headers:
                # Another producer's transaction is open, so the records after it cannot be read
                # yet.
                raise Unreachable(f"{target}-{key.partition} ends at {end.end_offset}, but only {offset} is committed")
            match.see_target(records)
            offset = headers[-1].next_offset
        offset = position.source_next
        while not match.is_complete:
            records, skipped = await self._read_source(key, offset)
            headers = [header for _, header in iterate_headers(records, may_end_in_partial=True)]
            if not headers:
                break
            match.see_source(records, skipped=skipped, producer_of=self.producer_of)
            offset = headers[-1].next_offset

    async def _read_source(self, key: TopicPartition, offset: int) -> tuple[Buffer, frozenset[int]]:
        """Batches of the source, and which of them are not carried."""
        try:
            return await self._record_filter.read(self._source, key, offset, max_bytes=READ_BYTES)
        except Unreachable as error:
            # The flow then reports the source as the cause, although it had asked the target.
            raise SourceUnreachable(f"the source's log must be read first: {error}") from error

    async def _source_end(self, key: TopicPartition) -> int:
        place = (key.topic, key.partition)
        isolation_level = self._record_filter.isolation_level
        ends = await reached(self._source.offsets_at([place], LATEST_TIMESTAMP, isolation_level=isolation_level))
        return ends[place]

    async def _compare(self, key: TopicPartition, translation: Translation, end: LogEnds) -> LogEnds:
        """Examine records without a note: they are ours if they equal the source's, and another
        client's if not.

        If the source has records from the target, this link is the way back, and its records belong
        beside them. Returns the end, and the records that arrived since the request for it: these
        were compared as well, and must not be found a second time.
        """
        likeness = Likeness()
        has_others = False
        ours = self._ours() if self._translations.is_rebound(key) else frozenset()
        target, offset = self._naming.target_name(key.topic), end.log_start_offset
        while offset < end.end_offset:
            records, no_copies = await self._read_target(target, key.partition, offset)
            places = list(iterate_headers(records, may_end_in_partial=True))
            if not places:
                raise Unreachable(f"{target}-{key.partition} ends at {end.end_offset}, but only {offset} is committed")
            for place, header in places:
                if header.producer_id in ours:
                    translation.surplus.between += header.last_offset_delta + 1
                elif header.base_offset not in no_copies:
                    has_others = True
                    likeness.see_target(fingerprint(records, place, header), header)
            offset = places[-1][1].next_offset
        # Records that arrived meanwhile were compared as well.
        end = replace(end, end_offset=offset)
        offset, is_the_way_back = 0, False
        while not likeness.is_complete:
            records, skipped = await self._read_source(key, offset)
            places = list(iterate_headers(records, may_end_in_partial=True))
            if not places:
                break
            for place, header in places:
                if header.next_offset > offset:
                    is_skipped = header.base_offset in skipped
                    is_the_way_back |= self._record_filter.came_from_target(header)
                    likeness.see_source(None if is_skipped else fingerprint(records, place, header), header)
            offset = places[-1][1].next_offset
        is_known = likeness.matched_batches or is_the_way_back or not has_others
        if not is_known and not self._may_append_to_others:
            raise HistoryMismatch(
                f"{target} has records up to offset {end.end_offset} that this link did not store and that the source "
                "does not have; delete the topic, name it otherwise, or set antipode.target.existing=append"
            )
        likeness.finish(translation, target_end=end.end_offset)
        _log.info("target's log compared with the source", partition=str(key), batches=likeness.matched_batches)
        return end

    async def _read_target(self, topic: str, partition: int, offset: int) -> tuple[Buffer, frozenset[int]]:
        """Batches of the target, with those that no reader sees: some of our own transactions may
        have been aborted.
        """
        if self._translations.is_transactional:
            return await fetch_with_skipped(
                self._target, topic, partition, offset, max_bytes=READ_BYTES, isolation_level=READ_COMMITTED
            )
        return await fetch_records(self._target, topic, partition, offset, max_bytes=READ_BYTES), frozenset()

    def producer_of(self, header: BatchHeader) -> int:
        """The producer id under which a batch of the source is written."""
        return self._translations.producers[self._provenance.origin_of(header.producer_id)]


def _is_outdated(task: asyncio.Task[LogAnswer]) -> bool:
    """True if a position was found for an earlier question, or an error ended the search for it."""
    return task.done() and (task.exception() is not None or isinstance(task.result(), LogEnds))
