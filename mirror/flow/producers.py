"""Producers: each takes the batches of its lane and sends them to the target's leaders, several
requests under way at once.

One request has batches of many partitions of one leader, in the order of the lane; a partition's
batches leave in order and each names the log end that it continues, so a reordering could only be
refused, never stored. Unacknowledged batches stay in the partition's window and are sent again; a
final refusal of the target goes back to the flow. Idle partitions send an empty append now and
then: it carries the source's ends and finds out that a link's direction has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mirror.flow.board import FlowBoard, Row
from mirror.flow.core.answers import Appended, Refusal, SendAgain, judge_append
from mirror.flow.core.flow_events import Acknowledged, AppendRefused, Settled, Start, TargetRefusal, TargetWaiting
from mirror.flow.core.flow_state import Step
from mirror.flow.core.window import ChainBroken, QueuedBatches, SendWindow
from mirror.flow.queue import ByteQueue
from mirror.link.link_watch import LinkView
from mirror.link.ports import AppendAnswer, AppendPart, AppendPort, Unreachable
from runtime.clock import Clock
from runtime.supervision import BrokenOff
from wire.batches.record_batch import iterate_headers, verify_crc
from wire.protocol.ids import TopicPartition

RETRY_MS = 100
"""Rest of a partition or broker that could not take batches before they are sent again."""

REPORT_INTERVAL_MS = 1000
"""Interval (ms) at which an idle partition reports the source's offsets to the target."""

_NOTHING = memoryview(b"")


@dataclass(frozen=True, slots=True)
class _Sent:
    """One partition's part of a request: the queue entry, None for an empty append."""

    key: TopicPartition
    generation: int
    entry: QueuedBatches | None
    expected_log_end_offset: int


class Producer:
    """Serves one lane until cancelled."""

    def __init__(
        self,
        lane: int,
        *,
        board: FlowBoard,
        queue: ByteQueue,
        port: AppendPort,
        link: Callable[[], LinkView],
        suspect_link: Callable[[], None],
        clock: Clock,
        request_bytes_max: int,
        in_flight_max: int,
    ) -> None:
        self.lane = lane
        self._board = board
        self._queue = queue
        self._port = port
        self._link = link
        self._suspect_link = suspect_link
        self._clock = clock
        self._request_bytes_max = request_bytes_max
        self._in_flight_max = in_flight_max
        self._windows: dict[TopicPartition, SendWindow] = {}
        self._ready: dict[TopicPartition, None] = {}
        self._in_flight: dict[int, int] = {}
        # a broker that could not take batches has many partitions: one pause for all of them
        self._resting_until_ms: dict[int, float] = {}
        self._reported_at_ms: dict[TopicPartition, tuple[float, int]] = {}
        self._requests: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._wake = asyncio.Event()
        self.sent_bytes = 0
        self.on_appended: Callable[[TopicPartition, QueuedBatches], None] = lambda *_: None
        queue.wake_with(lane, self._wake.set)

    @property
    def unacknowledged(self) -> int:
        """Partitions that have something unsent or unanswered."""
        return sum(not window.is_idle for window in self._windows.values())

    @property
    def batches(self) -> list[QueuedBatches]:
        """The batches that were taken from the queue and are not acknowledged, each partition's
        oldest first.
        """
        return [entry for window in tuple(self._windows.values()) for entry in window.unacknowledged]

    async def run(self) -> None:
        """Send until cancelled; what is kept then is given back by `abandon`."""
        while True:
            self._wake.clear()
            # a request that failed leaves windows in doubt: the flows begin anew from the target's
            # end
            if self._failure is not None:
                raise self._failure
            self._pull()
            self._send_ready()
            if self._ready:
                await self._wake.wait()
            else:
                with self._queue.waiting(self.lane):
                    await self._wake.wait()

    def wake(self) -> None:
        """Leaders may have moved."""
        self._wake.set()

    def discard(self, key: TopicPartition, generation: int) -> None:
        """Drop what is older than `generation`; `Settled` is submitted when nothing of it is in
        flight.
        """
        window = self._window(key)
        self._queue.release(window.discard(generation))
        self._ready.pop(key, None)
        # not at once: the caller is in the middle of a decision of the same flow
        asyncio.get_running_loop().call_soon(self._settle, key, window)

    def report(self, keys: Sequence[TopicPartition]) -> None:
        """Report the source's ends to the target for those of `keys` that have nothing to send and
        no recent report.
        """
        now_ms = self._clock.monotonic_ms()
        by_leader: dict[int, list[tuple[AppendPart, _Sent]]] = {}
        for key in keys:
            row = self._board.row(key)
            if self._is_report_due(key, row, now_ms):
                # noted before it is sent: one report is enough while the answer is on its way
                self._reported_at_ms[key] = (now_ms, row.facts.source_log_start_offset)
                end_offset = max(row.facts.progress.target_log_end_offset, row.facts.restart_offset)
                sent = _Sent(key, row.facts.generation, None, end_offset)
                part = self._part(row, sent)
                by_leader.setdefault(row.target.node_id, []).append((part, sent))
        for node_id, pairs in by_leader.items():
            if self._in_flight.get(node_id, 0) < self._in_flight_max:
                self._start(node_id, [part for part, _ in pairs], [sent for _, sent in pairs])

    async def abandon(self) -> None:
        """After `run` ended, stop the requests, free the bytes, and make every flow start from the
        target's log end.
        """
        requests = list(self._requests)
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        while (entry := self._queue.take(self.lane)) is not None:
            self._queue.release(entry.size_bytes)
        for window in self._windows.values():
            self._queue.release(window.kept_bytes)

    async def close(self) -> None:
        """Drop the connections."""
        await self._port.close()

    def _window(self, key: TopicPartition) -> SendWindow:
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = SendWindow()
            # an entry of this generation may arrive before the flow has said anything else
            window.generation = self._board.row(key).facts.generation
        return window

    def _pull(self) -> None:
        while (entry := self._queue.take(self.lane)) is not None:
            window = self._window(entry.key)
            try:
                is_taken = window.push(entry)
            except ChainBroken as error:
                # given back at once: the flow begins anew and fetches them again
                self._queue.release(entry.size_bytes)
                self._board.submit(entry.key, Start(str(error)))
                continue
            if is_taken:
                self._ready[entry.key] = None
            else:
                self._queue.release(entry.size_bytes)

    def _send_ready(self) -> None:
        """Send while a leader has room for one more request; partitions that cannot go
        stay ready.
        """
        while self._ready:
            batches: dict[int, list[QueuedBatches]] = {}
            sizes: dict[int, int] = {}
            for key in list(self._ready):
                self._offer(key, batches, sizes)
            if not batches:
                return
            for node_id, entries in batches.items():
                self._send(node_id, entries)

    def _offer(self, key: TopicPartition, batches: dict[int, list[QueuedBatches]], sizes: dict[int, int]) -> None:
        window = self._windows[key]
        entry = window.next_to_send()
        if entry is None:
            del self._ready[key]
            return
        node_id = self._board.row(key).target.node_id
        if not self._may_send(node_id):
            return
        size = sizes.get(node_id, 0)
        # the first always goes: an entry larger than the bound would never leave otherwise
        if size and size + entry.size_bytes > self._request_bytes_max:
            return
        batches.setdefault(node_id, []).append(entry)
        sizes[node_id] = size + entry.size_bytes

    def _may_send(self, node_id: int) -> bool:
        # below 0: no leader is known; the board wakes this producer when there is one
        if node_id < 0 or self._resting_until_ms.get(node_id, 0) > self._clock.monotonic_ms():
            return False
        return self._in_flight.get(node_id, 0) < self._in_flight_max

    def _send(self, node_id: int, entries: Sequence[QueuedBatches]) -> None:
        parts: list[AppendPart] = []
        sent: list[_Sent] = []
        now_ms = self._clock.monotonic_ms()
        for entry in entries:
            window = self._windows[entry.key]
            window.mark_sent()
            row = self._board.row(entry.key)
            part_sent = _Sent(entry.key, entry.generation, entry, entry.expected_log_end_offset)
            parts.append(self._part(row, part_sent))
            sent.append(part_sent)
            self._reported_at_ms[entry.key] = (now_ms, row.facts.source_log_start_offset)
            # Round the partitions: the one just served goes to the end of the line.
            del self._ready[entry.key]
            if window.next_to_send() is not None:
                self._ready[entry.key] = None
        self._start(node_id, parts, sent)

    def _part(self, row: Row, sent: _Sent) -> AppendPart:
        """Build a partition's part of the request. The target must not drop its log before the next
        batches arrive, even if the source expires records faster than they are mirrored. So the
        reported log start passes the end of the continued log only where the copy begins anew.
        """
        progress, restart_offset = row.facts.progress, row.facts.restart_offset
        is_beginning = sent.entry is None or sent.expected_log_end_offset <= restart_offset
        # one less: a log start at the very end would have the target drop what it has
        bound = sent.expected_log_end_offset if is_beginning else sent.expected_log_end_offset - 1
        reported_start = min(row.facts.source_log_start_offset, max(bound, restart_offset))
        return AppendPart(
            key=sent.key,
            topic_id=row.topic_id,
            expected_log_end_offset=sent.expected_log_end_offset,
            source_high_watermark=progress.source_high_watermark,
            source_log_start_offset=reported_start,
            source_seen_at_ms=progress.source_answered_at_ms,
            records=sent.entry.records if sent.entry is not None else _NOTHING,
            skipped=sent.entry.skipped if sent.entry is not None else frozenset(),
        )

    def _start(self, node_id: int, parts: Sequence[AppendPart], sent: Sequence[_Sent]) -> None:
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        request = asyncio.get_running_loop().create_task(self._request(node_id, parts, sent))
        self._requests.add(request)
        request.add_done_callback(self._request_ended)

    def _request_ended(self, request: asyncio.Task[None]) -> None:
        """End the producer when a request ends with an error: its windows no longer know which
        batches are in flight.
        """
        self._requests.discard(request)
        failure = BrokenOff("a request was cancelled") if request.cancelled() else request.exception()
        if failure is not None:
            self._failure = failure
            self._wake.set()

    async def _request(self, node_id: int, parts: Sequence[AppendPart], sent: Sequence[_Sent]) -> None:
        link = self._link()
        try:
            answers = await self._port.append(node_id, link=link.name, link_epoch=link.epoch, parts=parts)
        except Unreachable as error:
            self._rest(node_id)
            for part in sent:
                self._again(part, SendAgain(str(error)))
        else:
            by_key = {answer.key: answer for answer in answers}
            for part in sent:
                self._answered(node_id, part, by_key.get(part.key))
        finally:
            self._in_flight[node_id] -= 1
            self._wake.set()

    def _answered(self, node_id: int, sent: _Sent, answer: AppendAnswer | None) -> None:
        if answer is None:
            self._again(sent, SendAgain(f"target broker {node_id} does not answer for {sent.key}"))
            return
        verdict = judge_append(
            answer.error,
            message=answer.message,
            expected_log_end_offset=sent.expected_log_end_offset,
            log_end_offset=answer.log_end_offset,
            link_epoch=answer.link_epoch,
            divergence_epoch=answer.divergence_epoch,
            divergence_end_offset=answer.divergence_end_offset,
        )
        match verdict:
            case Appended():
                self._appended(sent, answer.log_end_offset)
            case SendAgain():
                self._rest(node_id)
                self._again(sent, verdict)
            case Refusal(refusal=TargetRefusal.OFFSET_MISMATCH) if self._is_behind(sent):
                # They are sent again together: what the source has no more would be lost with a new
                # start.
                self._rest(node_id)
                self._again(sent, SendAgain(f"the target refused earlier batches: {verdict.reason}"))
            case Refusal():
                self._refused(sent, verdict)
                if sent.entry is None and verdict.refusal is TargetRefusal.OFFSET_MISMATCH:
                    self._check_kept(sent, answer.log_end_offset)

    def _is_behind(self, sent: _Sent) -> bool:
        return sent.entry is not None and self._windows[sent.key].follows_a_failure(sent.entry)

    def _appended(self, sent: _Sent, log_end_offset: int) -> None:
        entry = sent.entry
        if entry is None:
            self._board.submit(sent.key, Acknowledged(generation=sent.generation, log_end_offset=log_end_offset))
            self._check_kept(sent, log_end_offset)
            return
        window = self._windows[sent.key]
        for done in window.acknowledge(entry, log_end_offset):
            self._queue.release(done.size_bytes)
            self.sent_bytes += done.run.carried_bytes
            acknowledged = Acknowledged(
                generation=done.generation,
                log_end_offset=done.run.next_offset,
                size_bytes=done.run.carried_bytes,
                record_count=done.run.record_count,
                skipped_bytes=done.run.skipped_bytes,
                skipped_records=done.run.skipped_records,
                max_timestamp_ms=done.run.max_timestamp_ms,
            )
            self.on_appended(sent.key, done)
            self._board.submit(sent.key, acknowledged)
        self._after_answer(sent.key, window)

    def _check_kept(self, sent: _Sent, log_end_offset: int) -> None:
        """Check that the target still has all acknowledged records. While the source is quiet, only
        a report shows a loss there.
        """
        acknowledged = self._board.row(sent.key).facts.progress.target_log_end_offset
        if 0 <= log_end_offset < min(acknowledged, sent.expected_log_end_offset):
            reason = f"the target's log ends at {log_end_offset}, it had acknowledged {acknowledged}"
            refused = AppendRefused(generation=sent.generation, refusal=TargetRefusal.OFFSET_MISMATCH, reason=reason)
            self._board.submit(sent.key, refused)

    def _again(self, sent: _Sent, verdict: SendAgain) -> None:
        if verdict.is_link_suspected:
            self._suspect_link()
        waiting = TargetWaiting(generation=sent.generation, reason=verdict.reason)
        self._board.submit(sent.key, waiting)
        if sent.entry is not None:
            window = self._windows[sent.key]
            window.fail(sent.entry)
            self._after_answer(sent.key, window)

    def _refused(self, sent: _Sent, verdict: Refusal) -> None:
        reason = verdict.reason
        if sent.entry is None:
            if verdict.refusal is TargetRefusal.OFFSET_MISMATCH:
                return  # the log moved on meanwhile
        else:
            self._windows[sent.key].fail(sent.entry)
            if verdict.refusal is TargetRefusal.CORRUPT:
                reason = f"{reason}; {blame(sent.entry)}"
        self._board.submit(sent.key, AppendRefused(generation=sent.generation, refusal=verdict.refusal, reason=reason))
        if sent.entry is not None:
            self._after_answer(sent.key, self._windows[sent.key])

    def _after_answer(self, key: TopicPartition, window: SendWindow) -> None:
        self._settle(key, window)
        if window.next_to_send() is not None:
            self._ready[key] = None

    def _settle(self, key: TopicPartition, window: SendWindow) -> None:
        if self._windows.get(key) is not window:
            return
        freed = window.settle()
        if freed is None:
            return
        self._queue.release(freed)
        self._board.submit(key, Settled(generation=window.generation))

    def _rest(self, node_id: int) -> None:
        self._resting_until_ms[node_id] = self._clock.monotonic_ms() + RETRY_MS
        asyncio.get_running_loop().call_later((RETRY_MS + 1) / 1000, self._wake.set)

    def _is_report_due(self, key: TopicPartition, row: Row, now_ms: float) -> bool:
        window = self._windows.get(key)
        facts = row.facts
        if row.target.node_id < 0 or facts.step is not Step.STREAMING or (window is not None and not window.is_idle):
            return False
        if facts.progress.target_log_end_offset < facts.restart_offset < facts.progress.source_high_watermark:
            return False  # the first batch, which may lie on both sides of the log's start, says where the copy begins
        reported_at_ms, reported_log_start = self._reported_at_ms.get(key, (0.0, -1))
        return now_ms - reported_at_ms >= REPORT_INTERVAL_MS or reported_log_start != facts.source_log_start_offset


def blame(entry: QueuedBatches) -> str:
    """The side whose copy of refused batches is broken, found by the checksums of our copy."""
    for position, header in iterate_headers(entry.records):
        if not verify_crc(entry.records, position, header):
            return f"the source's batch at offset {header.base_offset} fails its checksum here too"
    return "the batches are sound here, so they were damaged on the way to the target or there"
