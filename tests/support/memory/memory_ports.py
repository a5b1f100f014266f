"""The mirror's connections to sites in memory: fetches, appends, offsets, progress."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from mirror.link.core.committed_offsets import GroupOffset
from mirror.link.core.partitions import survey
from mirror.link.ports import (
    AppendAnswer,
    AppendPart,
    FetchAnswer,
    FetchPart,
    FetchParts,
    Unreachable,
)
from runtime.clock import SystemClock
from tests.support.memory.memory_sites import MemorySite
from wire.batches.group_records import OffsetKey, OffsetValue, encode_offset_key, encode_offset_value
from wire.batches.record_batch import iterate_headers
from wire.batches.records import Record, encode_batch
from wire.protocol.ids import TopicPartition


class MemoryFetch:
    """FetchPort over a site; `before` runs in front of each fetch and may raise. Only records of
    the fetched partitions end the wait of a fetch. Like a session, it knows the parts by the
    changes.
    """

    wait_max_s = 0.02
    brief_wait_s = 0.002

    def __init__(self, site: MemorySite, before: Callable[[], None]) -> None:
        self._site = site
        self._before = before
        self._known: dict[TopicPartition, FetchPart] = {}

    async def fetch(
        self,
        node_id: int,
        parts: FetchParts,
        *,
        changed: Collection[TopicPartition] | None = None,
        is_brief: bool = False,
    ) -> Sequence[FetchAnswer]:
        self._note(parts, changed)
        self._before()
        if not self._site.is_up:
            await asyncio.sleep(0)
            raise Unreachable(f"site {self._site.name} is down")
        answers = self._answers(parts)
        try:
            async with asyncio.timeout(self.brief_wait_s if is_brief else self.wait_max_s):
                while not answers:
                    self._site.changed.clear()
                    await self._site.changed.wait()
                    answers = self._answers(parts)
        except TimeoutError:
            pass
        await asyncio.sleep(0)
        return answers

    def _note(self, parts: FetchParts, changed: Collection[TopicPartition] | None) -> None:
        if changed is None:
            self._known = dict(parts)
        for key in changed or ():
            self._known.pop(key, None)
            if key in parts:
                self._known[key] = parts[key]
        assert self._known == parts, "a changed part was not named"

    def _answers(self, parts: FetchParts) -> list[FetchAnswer]:
        return [answer for key, part in parts.items() if (answer := self._answer(key, part)) is not None]

    def _answer(self, key: TopicPartition, part: FetchPart) -> FetchAnswer | None:
        log = self._site.logs[key]
        error = ErrorCode.none if log.start <= part.offset <= log.end else ErrorCode.offset_out_of_range
        if part.leader_epoch != self._site.leader.epoch:
            error = ErrorCode.fenced_leader_epoch
        wanted = [one for one in log.batches if survey(one).next_offset > part.offset][:3]  # type: ignore[union-attr]
        if error is ErrorCode.none and not wanted:
            return None
        return FetchAnswer(
            key=key,
            error=error,
            high_watermark=log.end,
            log_start_offset=log.start,
            records=memoryview(b"".join(wanted)),
        )

    async def close(self) -> None:
        pass


class MemoryAppend:
    """AppendPort over a site; `before` runs in front of each append and may raise or name an error
    for all.
    """

    def __init__(self, site: MemorySite, before: Callable[[], ErrorCode | None]) -> None:
        self._site = site
        self._before = before

    async def append(
        self, node_id: int, *, link: str, link_epoch: int, parts: Sequence[AppendPart]
    ) -> Sequence[AppendAnswer]:
        error = self._before()
        await asyncio.sleep(0)
        if not self._site.is_up:
            raise Unreachable(f"site {self._site.name} is down")
        if node_id != self._site.leader.node_id:
            error = ErrorCode.not_leader_or_follower
        answers = [self._append(part) if error is None else self._answer(part, error) for part in parts]
        await asyncio.sleep(0)
        return answers

    def _append(self, part: AppendPart) -> AppendAnswer:
        log = self._site.logs[part.key]
        if log.end < part.source_log_start_offset == part.expected_log_end_offset:
            log.start, log.batches = part.source_log_start_offset, []
        if part.records and part.expected_log_end_offset > log.end:
            return self._answer(part, ErrorCode.offset_out_of_range)
        for position, header in iterate_headers(part.records):
            if header.base_offset < log.end:
                if part.records[position : position + header.size_bytes] not in log.batches:
                    return self._diverges(part, header.partition_leader_epoch)
            else:
                log.batches.append(bytes(part.records[position : position + header.size_bytes]))
        return self._answer(part, ErrorCode.none)

    def _diverges(self, part: AppendPart, epoch: int) -> AppendAnswer:
        end_offset = self._site.logs[part.key].end
        refused = self._answer(part, ErrorCode.offset_out_of_range)
        return replace(refused, divergence_epoch=epoch, divergence_end_offset=end_offset)

    def _answer(self, part: AppendPart, error: ErrorCode) -> AppendAnswer:
        return AppendAnswer(
            key=part.key,
            error=error,
            message="",
            log_end_offset=self._site.logs[part.key].end,
            link_epoch=1,
            divergence_epoch=-1,
            divergence_end_offset=-1,
        )

    async def close(self) -> None:
        pass


class MemoryOffsetsTail:
    """OffsetsTail over a site: changes of its group offsets, as records of `__consumer_offsets`."""

    def __init__(self, site: MemorySite) -> None:
        self._site = site
        self._seen: dict[OffsetKey, GroupOffset] = {}
        self._next_offset = 0
        # Why it can be neither begun nor read.
        self.problem = ""
        self.reads = 0

    def _now(self) -> dict[OffsetKey, GroupOffset]:
        return {
            OffsetKey(group, *key): at for group, kept in self._site.group_offsets.items() for key, at in kept.items()
        }

    async def begin(self) -> None:
        if self.problem or not self._site.is_up:
            raise Unreachable(self.problem or f"site {self._site.name} is down")
        self._seen = self._now()

    async def read(self, *, max_wait_ms: float) -> Sequence[tuple[int, bytes]]:
        found = await self.read_to_end()
        if not found:
            await asyncio.sleep(min(max_wait_ms, 5) / 1000)
        return found

    async def read_to_end(self) -> Sequence[tuple[int, bytes]]:
        if self.problem or not self._site.is_up:
            raise Unreachable(self.problem or f"site {self._site.name} is down")
        self.reads += 1
        now, seen = self._now(), self._seen
        records = [
            Record(encode_offset_key(key), encode_offset_value(OffsetValue(at.offset, at.leader_epoch, at.metadata, 0)))
            for key, at in now.items()
            if seen.get(key) != at
        ]
        records += [Record(encode_offset_key(key), None) for key in seen.keys() - now.keys()]
        self._seen = now
        if not records:
            return []
        raw = encode_batch(records, base_offset=self._next_offset)
        self._next_offset += len(records)
        return [(0, raw)]

    @property
    def complete_at_ms(self) -> float:
        return SystemClock().monotonic_ms()

    def stop(self) -> None:
        pass

    async def close(self) -> None:
        pass


class MemoryProgress:
    """ProgressPort: keeps the reports, and answers as the source does."""

    def __init__(self, reported: list[dict[TopicPartition, int]], *, answer: Callable[[], str] = lambda: "") -> None:
        self._reported = reported
        self._answer = answer

    async def report(
        self, node_id: int, *, link: str, link_epoch: int, acknowledged: Mapping[TopicPartition, int]
    ) -> str:
        self._reported.append(dict(acknowledged))
        return self._answer()

    async def close(self) -> None:
        pass
