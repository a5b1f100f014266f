"""Producers: each sends the batches of its lane to the target's leaders, with several requests in
flight at once.

One request has batches of many partitions of one leader, in the order of the lane; a partition's
batches leave in order and each names the log end that it continues, so a reordering could only be
refused, never stored. Unacknowledged batches stay in the partition's window and are sent again; a
final refusal of the target goes back to the flow. Idle partitions send an empty append now and
then: it carries the source's ends, and detects a change of the link's direction. At an exact target
`reporting/idle_reports.py` takes over when that has no news.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from mirror.flow.append_answers import AppendAnswers, OnAppended, OnIdle, SentPart
from mirror.flow.board import FlowBoard
from mirror.flow.core.answers import SendAgain
from mirror.flow.core.reports import REPORT_INTERVAL_MS, may_report, reported_log_start
from mirror.flow.core.window import QueuedBatches
from mirror.flow.lane import Lane
from mirror.flow.queue import ByteQueue
from mirror.flow.rows import Row
from mirror.link.link_watch import LinkView
from mirror.link.ports import AppendPart, AppendPort, Unreachable
from runtime.clock import Clock
from runtime.supervision import BrokenOff
from wire.protocol.ids import TopicPartition

RETRY_MS = 100
"""Pause (ms) of a broker that could not take batches before they are sent again."""

_NEVER_REPORTED: Final = (0.0, -1)
_NOTHING = memoryview(b"")


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
        on_appended: OnAppended,
        on_idle: OnIdle = lambda _: None,
    ) -> None:
        """`on_appended` gets each entry that the target has acknowledged, and `on_idle` each
        partition about which a report alone was acknowledged without news.
        """
        self.lane = lane
        self._board = board
        self._queue = queue
        self._port = port
        self._link = link
        self._clock = clock
        self._request_bytes_max = request_bytes_max
        self._in_flight_max = in_flight_max
        self._batches = Lane(lane, board=board, queue=queue)
        self._answers = AppendAnswers(
            self._batches,
            board=board,
            queue=queue,
            suspect_link=suspect_link,
            pause=self._pause,
            on_appended=on_appended,
            on_idle=on_idle,
        )
        self._in_flight: dict[int, int] = {}
        # A broker that could not accept batches is paused as a whole, with all its partitions.
        self._paused_until_ms: dict[int, float] = {}
        self._reported_at_ms: dict[TopicPartition, tuple[float, int]] = {}
        # Before this time no partition is due for a report.
        self._reports_due_at_ms = 0.0
        self._requests: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._wake = asyncio.Event()
        queue.wake_with(lane, self._wake.set)

    @property
    def unacknowledged(self) -> int:
        """Partitions that have something unsent or unanswered."""
        return self._batches.unacknowledged

    @property
    def batches(self) -> list[QueuedBatches]:
        """The batches that were taken from the queue and are not acknowledged, each partition's
        oldest first.
        """
        return self._batches.batches

    async def run(self) -> None:
        """Send until cancelled; `abandon` then releases the batches that are kept."""
        while True:
            self._wake.clear()
            # After a failed request the windows are unreliable, so the flows restart at the
            # target's log end.
            if self._failure is not None:
                raise self._failure
            self._batches.pull()
            self._send_ready()
            if self._batches.has_ready:
                await self._wake.wait()
            else:
                with self._queue.waiting(self.lane):
                    await self._wake.wait()

    def wake(self) -> None:
        """Look for leaders again, because they may have moved."""
        self._wake.set()

    def discard(self, key: TopicPartition, generation: int) -> None:
        """Drop what is older than `generation`; `Settled` is submitted when nothing of it is in
        flight.
        """
        self._batches.discard(key, generation)

    def forget(self, key: TopicPartition) -> bool:
        """Forget a deleted partition; False while something of it is kept or in flight."""
        if not self._batches.forget(key):
            return False
        self._reported_at_ms.pop(key, None)
        return True

    @property
    def has_reports(self) -> bool:
        """True if a partition may be due for a report: thousands of idle ones need no check
        until then.
        """
        return self._clock.monotonic_ms() >= self._reports_due_at_ms

    def report(self, keys: Sequence[TopicPartition]) -> None:
        """Report the source's ends to the target for those of `keys` that have nothing to send and
        no recent report.
        """
        now_ms = self._clock.monotonic_ms()
        next_due_ms = now_ms + REPORT_INTERVAL_MS
        by_leader: dict[int, list[tuple[AppendPart, SentPart]]] = {}
        for key in keys:
            row = self._board.row(key)
            if self._is_report_due(key, row, now_ms):
                # Recorded before the request, so that no second report is sent while the answer is
                # awaited.
                self._reported_at_ms[key] = (now_ms, row.facts.source_log_start_offset)
                end_offset = max(row.facts.progress.target_log_end_offset, row.facts.restart_offset)
                sent = SentPart(key, row.facts.generation, None, end_offset)
                by_leader.setdefault(row.target.node_id, []).append((self._part(row, sent), sent))
            else:
                reported_at_ms, _ = self._reported_at_ms.get(key, _NEVER_REPORTED)
                next_due_ms = min(next_due_ms, reported_at_ms + REPORT_INTERVAL_MS)
        self._reports_due_at_ms = next_due_ms
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
        self._batches.abandon()

    async def close(self) -> None:
        """Drop the connections."""
        await self._port.close()

    def _send_ready(self) -> None:
        """Send while a leader has room for another request; partitions that must wait stay
        ready.
        """
        while requests := self._batches.next_requests(self._may_send, bytes_max=self._request_bytes_max):
            for node_id, entries in requests.items():
                self._send(node_id, entries)

    def _may_send(self, node_id: int) -> bool:
        # Below 0: the leader is unknown; the board wakes this producer when there is one.
        if node_id < 0 or self._paused_until_ms.get(node_id, 0) > self._clock.monotonic_ms():
            return False
        return self._in_flight.get(node_id, 0) < self._in_flight_max

    def _send(self, node_id: int, entries: Sequence[QueuedBatches]) -> None:
        parts: list[AppendPart] = []
        sent: list[SentPart] = []
        now_ms = self._clock.monotonic_ms()
        for entry in entries:
            row = self._board.row(entry.key)
            part_sent = SentPart(entry.key, entry.generation, entry, entry.expected_log_end_offset)
            parts.append(self._part(row, part_sent))
            sent.append(part_sent)
            # Batches include the source's ends, so they count as a report.
            self._reported_at_ms[entry.key] = (now_ms, row.facts.source_log_start_offset)
            self._batches.mark_sent(entry)
        self._start(node_id, parts, sent)

    def _start(self, node_id: int, parts: Sequence[AppendPart], sent: Sequence[SentPart]) -> None:
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        request = asyncio.get_running_loop().create_task(self._request(node_id, parts, sent))
        self._requests.add(request)
        request.add_done_callback(self._request_ended)

    def _request_ended(self, request: asyncio.Task[None]) -> None:
        """End the producer when a request ends with an error: its windows have lost track of the
        batches in flight.
        """
        self._requests.discard(request)
        failure = BrokenOff("a request was cancelled") if request.cancelled() else request.exception()
        if failure is not None:
            self._failure = failure
            self._wake.set()

    async def _request(self, node_id: int, parts: Sequence[AppendPart], sent: Sequence[SentPart]) -> None:
        link = self._link()
        try:
            answers = await self._port.append(node_id, link=link.name, link_epoch=link.epoch, parts=parts)
        except Unreachable as error:
            self._pause(node_id)
            with self._board.lines_together():
                for part in self._on_board(sent):
                    self._answers.send_again(part, SendAgain(str(error)))
        else:
            by_key = {answer.key: answer for answer in answers}
            with self._board.lines_together():
                for part in self._on_board(sent):
                    self._answers.take(node_id, part, by_key.get(part.key))
        finally:
            self._in_flight[node_id] -= 1
            self._wake.set()

    def _on_board(self, sent: Sequence[SentPart]) -> list[SentPart]:
        """Without deleted partitions that were forgotten during the request."""
        return [part for part in sent if part.key in self._board]

    def _pause(self, node_id: int) -> None:
        self._paused_until_ms[node_id] = self._clock.monotonic_ms() + RETRY_MS
        asyncio.get_running_loop().call_later((RETRY_MS + 1) / 1000, self._wake.set)

    def _is_report_due(self, key: TopicPartition, row: Row, now_ms: float) -> bool:
        # The cheapest condition that most partitions fail comes first.
        reported_at_ms, reported_log_start = self._reported_at_ms.get(key, _NEVER_REPORTED)
        is_old = now_ms - reported_at_ms >= REPORT_INTERVAL_MS
        if not is_old and reported_log_start == row.facts.source_log_start_offset:
            return False
        return row.target.node_id >= 0 and self._batches.is_idle(key) and may_report(row.facts)

    def _part(self, row: Row, sent: SentPart) -> AppendPart:
        """Build a partition's part of the request."""
        facts, entry = row.facts, sent.entry
        return AppendPart(
            key=sent.key,
            topic_id=row.topic_id,
            expected_log_end_offset=sent.expected_log_end_offset,
            source_high_watermark=facts.progress.source_high_watermark,
            source_log_start_offset=reported_log_start(
                facts, expected_log_end_offset=sent.expected_log_end_offset, has_batches=entry is not None
            ),
            source_seen_at_ms=self._board.source_answered_at_ms(sent.key),
            records=entry.records if entry is not None else _NOTHING,
            skipped=entry.skipped if entry is not None else frozenset(),
        )
