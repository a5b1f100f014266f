"""The batches of one lane between the queue and the target's acknowledgement: a window for each
partition, and the partitions that have something to send.

One producer owns a lane.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_events import Settled, Start
from mirror.flow.core.window import ChainBroken, QueuedBatches, SendWindow
from mirror.flow.queue import ByteQueue
from wire.protocol.ids import TopicPartition


class Lane:
    """The windows of one lane, and the partitions that have batches to send."""

    def __init__(self, number: int, *, board: FlowBoard, queue: ByteQueue) -> None:
        self._number = number
        self._board = board
        self._queue = queue
        self._windows: dict[TopicPartition, SendWindow] = {}
        # A dict keeps the order, so that partitions are served in turn.
        self._ready: dict[TopicPartition, None] = {}

    @property
    def has_ready(self) -> bool:
        """True if a partition has something to send."""
        return bool(self._ready)

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

    def is_idle(self, key: TopicPartition) -> bool:
        """True if nothing of the partition is kept or in flight."""
        window = self._windows.get(key)
        return window is None or window.is_idle

    def forget(self, key: TopicPartition) -> bool:
        """Drop the window of a deleted partition; False while something of it is kept or in
        flight.
        """
        if not self.is_idle(key):
            return False
        self._windows.pop(key, None)
        self._ready.pop(key, None)
        return True

    def window(self, key: TopicPartition) -> SendWindow:
        """The partition's window."""
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = SendWindow()
            # An entry may arrive before the flow has reported its new generation.
            window.generation = self._board.row(key).facts.generation
        return window

    def pull(self) -> None:
        """Take all entries that the queue has for the lane."""
        while (entry := self._queue.take(self._number)) is not None:
            # Its topic was deleted while the queue was not read.
            if entry.key not in self._board:
                self._queue.release(entry.size_bytes)
                continue
            window = self.window(entry.key)
            try:
                is_taken = window.push(entry)
            except ChainBroken as error:
                # Their bytes are released at once; the flow restarts and fetches the batches again.
                self._queue.release(entry.size_bytes)
                self._board.submit(entry.key, Start(str(error)))
                continue
            if is_taken:
                self._ready[entry.key] = None
            else:
                self._queue.release(entry.size_bytes)

    def next_requests(self, may_send: Callable[[int], bool], *, bytes_max: int) -> Mapping[int, list[QueuedBatches]]:
        """The next entries for each broker that accepts more now, one of each partition.
        `may_send`: the broker has room for a request.
        """
        entries: dict[int, list[QueuedBatches]] = {}
        sizes: dict[int, int] = {}
        for key in list(self._ready):
            entry = self._windows[key].next_to_send()
            if entry is None:
                del self._ready[key]
                continue
            node_id = self._board.row(key).target.node_id
            size = sizes.get(node_id, 0)
            # The first entry always fits: otherwise an entry above the limit could never be sent.
            if not may_send(node_id) or (size and size + entry.size_bytes > bytes_max):
                continue
            entries.setdefault(node_id, []).append(entry)
            sizes[node_id] = size + entry.size_bytes
        return entries

    def mark_sent(self, entry: QueuedBatches) -> None:
        """The entry of `next_requests` is in flight."""
        window = self._windows[entry.key]
        window.mark_sent()
        # The partition that was just served goes to the end of the order.
        del self._ready[entry.key]
        if window.next_to_send() is not None:
            self._ready[entry.key] = None

    def answered(self, key: TopicPartition) -> None:
        """The window has taken in an answer."""
        window = self._windows[key]
        self._settle(key, window)
        if window.next_to_send() is not None:
            self._ready[key] = None

    def discard(self, key: TopicPartition, generation: int) -> None:
        """Drop what is older than `generation`; `Settled` is submitted when nothing of it is in
        flight.
        """
        window = self.window(key)
        self._queue.release(window.discard(generation))
        self._ready.pop(key, None)
        # Deferred, because the caller is still inside a decision of the same flow.
        asyncio.get_running_loop().call_soon(self._settle, key, window)

    def abandon(self) -> None:
        """Free the bytes of everything that is queued or kept."""
        while (entry := self._queue.take(self._number)) is not None:
            self._queue.release(entry.size_bytes)
        for window in self._windows.values():
            self._queue.release(window.kept_bytes)
        # A flow that starts again before the lane has another producer must not free them twice.
        self._windows.clear()
        self._ready.clear()

    def _settle(self, key: TopicPartition, window: SendWindow) -> None:
        if self._windows.get(key) is not window:
            return
        freed = window.settle()
        if freed is None:
            return
        self._queue.release(freed)
        self._board.submit(key, Settled(generation=window.generation))
